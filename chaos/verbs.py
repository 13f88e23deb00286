"""The verbs of the command line: what each does, its options, and the function that does it, which is imported when it is run.

An option that is a field of the spec is declared there (chaos/spec.py); a verb only says where its default differs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.capacity import options as of_capacity
from chaos.catalogue import HTTP
from chaos.spec import RunSpec
from record.options import Option, day, names, options_of

KEEP_RUNS = 20
KEEP_DAYS = 14

#: What the simulator can be played with; `all`: in turns.
PLAYED = ("lanes", "bull", "bananas", "bridge", "mosquito", "dsps", "all")

#: What the exit codes of a drill mean.
EXITS = "Exits 0 when the run is valid, 1 when violated, 2 when unknown"
AND_MISSED = f"{EXITS}, 3 when it is valid and missed a service level objective."


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb. `does`: its line in the list; `about`: what its --help says first; `runs`: module and function; `fixed`: what the
    function finds among its arguments besides; `more`: adds options that are declared elsewhere; `asks`: module and function that
    refuse what single options cannot, by the standard library alone."""

    name: str
    group: str
    does: str
    about: str
    runs: str
    options: tuple[Option, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    more: Callable[[argparse.ArgumentParser], None] | None = None
    asks: str = ""


def flag(name: str, help: str) -> Option:
    """An option without a value."""
    return Option(name, help, bool, False)


OF_SPEC = options_of(RunSpec)
SEED, MUTANT, TOPOLOGY, DURABILITY = (OF_SPEC[name] for name in ("seed", "mutant", "topology", "durability"))
PRODUCERS, RATE, LEASE_MS, WORKERS = (OF_SPEC[name] for name in ("producers", "rate", "lease-ms", "workers"))
MODEL = OF_SPEC["model"]
OF_JOBS = MODEL.but(help="whose wire format the keys have; channels have a drill of their own, `run channels`")

#: The servers and the rate of a drill are chosen by what else is known of it.
CHOSEN_TOPOLOGY = TOPOLOGY.but(default=None, words="default embedded")
CHOSEN_RATE = RATE.but(
    help="offered jobs per second, whatever this machine carries",
    default=None,
    words="default what the calibration picks, 120 at most",
)
CHOSEN_LEASE = LEASE_MS.but(default=None, words=f"default {LEASE_MS.default}")
FAULT = Option(
    "fault",
    "only these kinds of fault, all of them; `faults` lists them",
    names,
    dest="faults",
    metavar="NAME[,NAME]",
    also=("faults",),
)
MINUTES = Option(
    "minutes",
    "so many minutes of faults, drawn by the seed: none at all for a quarter of the seeds, some at once for others",
    int,
    low=1,
    words="default each usual kind once, one after the other",
)
SLO = Option("slo", "file of service level objectives", Path, metavar="FILE")
ALL = flag("all", "list every check, not only those that are not clean")
KEPT = (
    Option("runs", "folder of all runs", Path, Path("runs"), metavar="FOLDER"),
    Option("keep", "keep at most this many runs", int, KEEP_RUNS, low=1),
    Option("keep-days", "prune runs that are older", int, KEEP_DAYS, low=1),
)
#: What means the same in all verbs that have it.
OF_MANY = (SEED, ALL, *KEPT)
RUN = Option("run", "folder of the run, such as runs/latest", Path, word=True, required=True)
FILE = Option("file", "the file", Path, Path("chaos.toml"), word=True)

DRILL = (SEED, MUTANT, FAULT)
ONE, MANY, MEASURE, PLAY, LOOK = ("run one scenario and judge it", "run many", "measure", "play in virtual time", "look")

VERBS = (
    Verb(
        "run",
        ONE,
        "the drill of a service of your own, which a chaos.toml describes",
        "Starts servers and the commands of a chaos.toml, puts its load on them, breaks, heals and judges. " + AND_MISSED,
        "chaos.scenarios.service:run",
        (FILE, SEED, ALL, *KEPT),
    ),
    Verb(
        "run bench",
        ONE,
        "steady load with faults of workers and of the network",
        "Steady load with two killed workers, a frozen worker and four faults of the network, then the Spark verdict. "
        + AND_MISSED,
        "chaos.scenarios.bench:bench",
        (
            *(SEED, OF_JOBS, MUTANT, FAULT, CHOSEN_TOPOLOGY, DURABILITY, MINUTES, CHOSEN_RATE, CHOSEN_LEASE, PRODUCERS),
            *(SLO.but(words="default that of the harness, with the default model and lease"), ALL, *KEPT),
        ),
        {"face": "direct"},
        asks="chaos.asked:of_jobs",
    ),
    Verb(
        "run http",
        ONE,
        "the same with a producer over HTTP to two apps, one of which is killed",
        "The drill of `run bench` with a producer that reaches no server but two apps, processes of `ironclaim serve`. "
        + AND_MISSED,
        "chaos.scenarios.bench:bench",
        (*DRILL, MINUTES, CHOSEN_RATE, CHOSEN_LEASE, PRODUCERS, SLO, ALL, *KEPT),
        {"face": HTTP, "model": "lanes", "topology": None, "durability": ""},
        asks="chaos.asked:of_jobs",
    ),
    Verb(
        "run channels",
        ONE,
        "load on channels, whose clocks wrap in mid-load",
        "Publishers and subscribers of 44 channels, with faults of the network, of subscribers and of the server. " + AND_MISSED,
        "chaos.scenarios.channels:channels",
        (*DRILL, TOPOLOGY.but(default=None, words="default aof"), DURABILITY, MINUTES, SLO, ALL, *KEPT),
        asks="chaos.asked:of_channels",
    ),
    Verb(
        "run interop",
        ONE,
        "the original Bull under Node beside the engine on one queue",
        "The original npm client bull and the engine send to one queue and work on it, while workers of both sides are killed. "
        "Exits 0 when every run is valid, 1 when one is violated, 2 when one is unknown.",
        "chaos.scenarios.interop:interop",
        (Option("scenario", "only this one", default="", words="default all", metavar="NAME"), SEED, *KEPT),
    ),
    Verb(
        "run mischief",
        ONE,
        "a foreign client that meddles with the queue of an old format",
        "Workers and producers of the engine on an old format, and a client of that format that takes, ends, deletes, moves, "
        "doubles and promotes jobs at random times. Exits 0 when every run is valid, 1 when one is violated, 2 when one is "
        "unknown.",
        "chaos.scenarios.mischief:mischief",
        (SEED, Option("model", "only this format", default="", words="default all", metavar="NAME"), MUTANT, *KEPT),
    ),
    Verb(
        "run upgrade",
        ONE,
        "the engine of another commit and that of HEAD on one queue",
        "Workers and producers of two engines, each from a wheel that is built of its commit, share a queue, while workers of "
        f"both are killed and frozen. {EXITS}.",
        "chaos.scenarios.upgrade:upgrade",
        (Option("from", "the commit of the other engine", dest="rev", metavar="REV", required=True), SEED, *KEPT),
    ),
    Verb(
        "run scale",
        ONE,
        "the load doubles twice and falls again: do workers follow?",
        "Load that doubles twice and falls again, a small autoscaler that reads the metrics once a second and starts and stops "
        f"workers. {EXITS}, 3 when it is valid and jobs waited for too long or the workers did not follow.",
        "chaos.scenarios.scale:scale",
        (SEED, *KEPT),
    ),
    Verb(
        "run soak",
        ONE,
        "minutes or hours with a fault every ten seconds: does memory grow, or latency?",
        "Load and a fault every ten seconds; a line is fitted to the memory of a worker that is never killed, to that of the "
        "server, and to the latency of jobs, and drawn as soak.html. Exits 0 when all are steady, 1 when memory grows by 1 MB a "
        "minute or more or the median latency surely by 1 ms, 2 when that could not be measured.",
        "chaos.scenarios.soak:soak",
        (
            # Two minutes hardly show a trend; a line of more than a day is too coarse.
            Option("minutes", "how long", int, 5, low=2, high=1_440),
            Option("hours", "how long, in hours, instead of minutes", float, low=0.05, high=24),
            SEED,
            *KEPT,
        ),
    ),
    Verb(
        "run target",
        ONE,
        "another job queue, judged by its own promise",
        "Kills, freezes and cuts off the workers of another job queue, with its defaults. "
        "Exits 0 when it kept its promise, 1 when it broke it, 2 when that is unknown.",
        "chaos.scenarios.target:target",
        (
            Option("target", "its name, such as rq; a wrong one is answered by all", word=True, required=True, metavar="NAME"),
            SEED,
            FAULT.but(help="only these kinds of fault; none: without faults"),
            Option("minutes", "wait so long for what is left", int, low=1, high=60, words="default by the promise"),
            ALL,
            *KEPT,
        ),
    ),
    Verb(
        "run attended",
        ONE,
        "a load whose producers and workers others start, here or on other hosts",
        "The harness without its processes: announces producers and workers, whose histories belong in the folder of the run, "
        "looks at server and clocks, and takes the snapshots when the load has ended. Exits 0 when the run is whole, 2 when not.",
        "chaos.scenarios.attended:attend",
        (
            Option("url", "the server, redis://...", required=True),
            Option("queue", "the queue", default="bench"),
            SEED.but(help="that of the load"),
            RATE,
            PRODUCERS.but(help="processes of the load"),
            WORKERS,
            LEASE_MS.but(help="lease of the workers in ms"),
            *KEPT,
        ),
    ),
    Verb(
        "replay",
        ONE,
        "the plan of a recorded run once more",
        "Repeats the plan, pace, load, servers and mutant of a run, which decide all the rest. " + AND_MISSED,
        "chaos.replay:replay",
        (RUN.but(dest="replay"), ALL, *KEPT),
        {"shrink": False},
    ),
    Verb(
        "shrink",
        ONE,
        "the least of a violated run's faults that is enough",
        "Repeats a violated run with fewer and fewer faults, until none can be left out. Exits 1 when the violation came again, "
        "2 when it did not.",
        "chaos.replay:replay",
        (RUN.but(dest="replay"), ALL, *KEPT),
        {"shrink": True},
    ),
    Verb(
        "campaign nightly",
        MANY,
        "a short drill of each model on each topology, with the faults of a date",
        "Short drills with seeds and faults that follow from a date, judged together. Exits 0 unless one is violated (1), or "
        "none is valid (2); of each that is not valid it prints the line that repeats it.",
        "chaos.campaigns.nightly:nightly",
        (
            Option("date", "the night, such as 2026-11-27", day, words="default today's, UTC"),
            Option("minutes", "begin no drill that would end later", int, 75, low=1),
            Option("only", "only this cell, such as bull-aof-everysec, as a run", default="", metavar="CELL"),
            *KEPT,
        ),
    ),
    Verb(
        "campaign mutants",
        MANY,
        "every planted defect in a short drill: is it caught by its check?",
        "A short drill of each planted defect, and twenty of the clean engine. Exits 0 when each defect is caught by the check "
        "that is named for it and each clean drill is valid, 1 otherwise, 2 when nothing but unknown drills is in the way.",
        "chaos.campaigns.mutants:catch_mutants",
        (
            SEED.but(help="draws load and faults; clean drills take those after it"),
            Option("only", "only the defect of this name, and one clean drill", default="", metavar="NAME"),
            *KEPT,
        ),
    ),
    Verb(
        "campaign models",
        MANY,
        "a short drill and the costs of every model, in one table",
        "For each model 45 seconds of load with all faults, judged, then what it costs on a server of its own; one table of all, "
        "in at most thirty minutes. Exits 0 when every drill is valid, 1 when one is violated, 2 when something is unknown.",
        "chaos.campaigns.models:models",
        (
            SEED,
            Option("models", "only these, with commas", names, (), words="default all", metavar="NAME[,NAME]"),
            flag("quick", "small numbers for the costs, for trying things out"),
            *KEPT,
        ),
    ),
    Verb(
        "campaign targets",
        MANY,
        "every other job queue that this machine can run",
        "The drill of `run target` for each library, one after the other. Exits 0 when all kept their promises, 1 when one broke "
        "it, 2 when one is unknown.",
        "chaos.scenarios.target:targets",
        (
            SEED,
            FAULT.but(help="only these kinds of fault; none: without faults"),
            Option("minutes", "wait so long for what is left", int, low=1, high=60, words="default by the promise"),
            ALL,
            *KEPT,
        ),
    ),
    Verb(
        "capacity",
        MEASURE,
        "which rate meets a target of latency here: searched, predicted, verified",
        "Open arrivals at a rate that doubles and is then bisected, until the last that meets the p99; a prediction from half of "
        "the steps, verified at 0.9 and 1.1 of it. With a chaos.toml these are the workers, handlers and load of a service of "
        "your own. Exits 0 when it holds, 1 when not, 2 when there is none.",
        "chaos.capacity.command:capacity",
        (FILE.but(help="a chaos.toml", default=None, words="default jobs and handlers of the harness"), *KEPT),
        more=of_capacity.add_arguments,
    ),
    Verb(
        "churn",
        MEASURE,
        "millions of jobs through one queue: what do they leave in memory?",
        "A queue fills and empties again and again, with payloads of all sizes; the memory of its server before, at the peak and "
        "after. Exits 0 when it is steady, 1 when it grows, 2 when that could not be measured.",
        "chaos.churn:churn",
        (
            Option("jobs", "how many jobs", int, 1_000_000, low=10_000, high=1_000_000_000),
            SEED.but(help="draws the payloads"),
            *KEPT,
        ),
    ),
    Verb(
        "simulate",
        PLAY,
        "the real scripts and decisions in virtual time, every mishap from one seed",
        "Plays episodes in virtual time; after every step all invariants are read from the raw keys. Exits 0 when nothing was "
        "found, 1 otherwise, 2 when the run proves too little.",
        "chaos.simulate.command:simulate",
        (
            MODEL.but(help="what it is played with; all: in turns", choices=PLAYED),
            SEED.but(help="draws the episodes"),
            Option("minutes", "how long, in all", float, 1.0, low=0, high=100_000),
            Option("profile", "only such episodes", default=(), many=True, metavar="NAME"),
            Option("episode", "only the one that this seed makes of the profile, as it was", int, low=0, metavar="SEED"),
        ),
    ),
    Verb(
        "simulate rules",
        PLAY,
        "takes each rule of the protocol away: the simulator must find it",
        "Takes one rule after the other away from the scripts and the decisions. Exits 0 when each was found, 1 otherwise.",
        "chaos.simulate.command:rules",
        (
            MODEL.but(help="whose rules; all: of each in turns", choices=PLAYED),
            SEED.but(help="draws the episodes"),
            Option("rule", "only this rule", int, (), low=1, many=True),
        ),
    ),
    Verb(
        "check",
        LOOK,
        "what `run` would do with a chaos.toml, what is missing, and one job of its load",
        "Validates a chaos.toml, imports what it names, says what would run and what is missing, and runs one job. Exits 0 when "
        "all is there, 2 when not.",
        "chaos.scenarios.service:check",
        (FILE, SEED),
    ),
    Verb(
        "runs",
        LOOK,
        "all runs with their verdicts, printed and as a page",
        "Lists every run of a folder with its verdict, and writes its index.html. Exits 0, 2 when it cannot.",
        "chaos.judge:list_runs",
        (Option("runs", "folder of all runs", Path, Path("runs"), word=True, metavar="FOLDER"),),
    ),
    Verb(
        "show",
        LOOK,
        "the verdict of a recorded run, judged again",
        "Judges a run again from its folder alone, without a server. " + AND_MISSED,
        "chaos.judge:show_run",
        (RUN, SLO.but(words="default slo.toml of the run, if any"), ALL),
    ),
    Verb(
        "faults",
        LOOK,
        "the table of all kinds of fault",
        "All kinds of fault: what happens, what shows it, what is attacked, what may be lost, and where they fit.",
        "chaos.fault_table:show",
        (flag("docs", "write docs/faults.md, too"),),
    ),
    Verb(
        "doctor",
        LOOK,
        "each tool, its version and path, or the line that installs it",
        "Looks for every tool and package that the harness uses. Exits 0 when all is there that something needs, 1 otherwise.",
        "chaos.doctor:look",
    ),
)

BY_NAME = {verb.name: verb for verb in VERBS}
