"""Command line of the drill. Standard library only until its arguments are right."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn

from chaos.capacity import options
from chaos.errors import HarnessError, TooSlow
from chaos.faces import DIRECT, FACES
from chaos.interrupts import Interrupts
from chaos.topologies import TOPOLOGIES
from engine.errors import redacted

UNKNOWN = 2

PACKAGE_MISSING = "the Python package {name!r} is missing; `make setup` installs what drills need"

KEEP_RUNS = 20
KEEP_DAYS = 14


class Parser(argparse.ArgumentParser):
    """Argument errors are one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNKNOWN, f"{self.prog}: {redacted(message)}\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; bounds are checked by RunSpec."""
    parser = Parser(prog="python -m chaos", description="Drills: real parts, planned faults, one verdict.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    bench = commands.add_parser(
        "bench",
        help="steady load with faults of workers and of the network, then the Spark verdict",
        description="Steady load with a killed worker, a frozen worker, and four faults of the network, then the Spark verdict. "
        "Exits 0 when it is valid, 1 when violated, 2 when unknown, 3 when it is valid and missed a service level objective.",
    )
    bench.add_argument("--seed", type=int, help="draws load and faults (default 1)")
    bench.add_argument("--model", help="put the load on this model (default lanes; dsps: on channels)")
    bench.add_argument("--face", choices=FACES, help="how the producer sends: to the server (default), or over HTTP to two apps")
    bench.add_argument("--producers", type=int, help="processes that share the load, led by a Locust master (default 1: without)")
    bench.add_argument("--mutant", help="plant this defect, to see the checks catch it")
    bench.add_argument(
        "--fault",
        "--faults",
        dest="faults",
        metavar="NAME[,NAME]",
        type=names,
        help="only these kinds of fault; `python -m chaos faults` lists them",
    )
    bench.add_argument("--target", default="", help="drill this other job queue instead of the engine, or all that can run here")
    bench.add_argument("--topology", choices=TOPOLOGIES, help="servers to run against (default embedded; of dsps: aof)")
    bench.add_argument("--durability", help="what an answer means: server or replica; of aof: always or everysec (the first)")
    bench.add_argument(
        "--minutes",
        type=int,
        help="so many minutes of faults, drawn by the seed: none at all for a quarter of the seeds, some at once for others "
        "(default: each usual kind once, one after the other)",
    )
    bench.add_argument(
        "--rate",
        type=int,
        help="offered jobs per second, whatever this machine carries (default: the calibration picks it, 120 at most)",
    )
    bench.add_argument("--lease-ms", type=int, help="lease of a claimed job in ms (default 9000)")
    bench.add_argument(
        "--slo", type=Path, help="file of service level objectives (default bench/slo.toml, with the default model and lease)"
    )
    bench.add_argument("--replay", type=Path, metavar="RUN", help="repeat the plan of this run, which decides all the rest")
    bench.add_argument("--shrink", action="store_true", help="with --replay: find the least of a violated run's faults")
    service = commands.add_parser(
        "run",
        help="the drill of a service of your own, which a chaos.toml describes",
        description="Starts servers and the commands of a chaos.toml, puts its load on them, breaks, heals and judges. Exits 0 "
        "when the run is valid, 1 when violated, 2 when unknown, 3 when it is valid and missed a service level objective.",
    )
    checked = commands.add_parser(
        "check",
        help="what `run` would do, what is missing, and one job of the load",
        description="Validates a chaos.toml, imports what it names, says what would run and what is missing, and runs one job. "
        "Exits 0 when all is there, 2 when not.",
    )
    for command in (bench, service):
        command.add_argument("--all", action="store_true", help="list every check, not only those that are not clean")
    for command in (service, checked):
        command.add_argument("file", type=Path, nargs="?", default=Path("chaos.toml"), help="the file (default chaos.toml)")
        command.add_argument("--seed", type=int, default=1, help="draws load and faults (default 1)")
    faults = commands.add_parser(
        "faults",
        help="the table of all kinds of fault",
        description="All kinds of fault: what happens, what shows it, what is attacked, what may be lost, and where they fit.",
    )
    faults.add_argument("--docs", action="store_true", help="write docs/faults.md, too")
    compare = commands.add_parser(
        "compare",
        help="a short drill and the costs of every model, and one table of them",
        description="For each model 45 seconds of load with all faults, judged, then what it costs on a server of its own; one "
        "table of all, in at most thirty minutes. Exits 0 when every drill is valid, 1 when one is violated, 2 when something is "
        "unknown.",
    )
    compare.add_argument("--seed", type=int, default=1, help="draws load and faults (default 1)")
    compare.add_argument("--models", type=names, default=(), help="only these, with commas (default all)")
    compare.add_argument("--quick", action="store_true", help="small numbers for the costs, for trying things out")
    soak = commands.add_parser(
        "soak",
        help="minutes or hours of load with a fault every ten seconds: does memory grow, or latency?",
        description="Load and a fault every ten seconds; a line is fitted to the memory of a worker that is never killed, to "
        "that of the server, and to the latency of jobs, and drawn as soak.html. Exits 0 when all are steady, 1 when memory "
        "grows by 1 MB a minute or more or the median latency surely by 1 ms, 2 when that could not be measured.",
    )
    soak.add_argument("--minutes", type=int, default=5, help="how long (default 5)")
    soak.add_argument("--hours", type=float, help="how long, in hours, instead of minutes")
    soak.add_argument("--seed", type=int, default=1, help="draws load and faults (default 1)")
    churned = commands.add_parser(
        "churn",
        help="millions of jobs through one queue: what do they leave in the server's memory, and how fragmented is it?",
        description="A queue fills and empties again and again, with payloads of all sizes; the memory of its server before, at "
        "the peak and after. Exits 0 when it is steady, 1 when it grows, 2 when that could not be measured.",
    )
    churned.add_argument("--jobs", type=int, default=1_000_000, help="how many jobs (default 1000000)")
    churned.add_argument("--seed", type=int, default=1, help="draws the payloads (default 1)")
    interop = commands.add_parser(
        "interop",
        help="the original Bull under Node beside the engine on one queue, then the Spark verdict",
        description="The original npm client bull and the engine send to one queue and work on it, while workers of both sides "
        "are killed. Exits 0 when every run is valid, 1 when one is violated, 2 when one is unknown.",
    )
    interop.add_argument("--scenario", default="", help="only this one (default: all)")
    interop.add_argument("--seed", type=int, default=1, help="draws the load (default 1)")
    mischief = commands.add_parser(
        "mischief",
        help="a foreign client that meddles with the queue of an old format, then the Spark verdict",
        description="Workers and producers of the engine on an old format, and a client of that format that takes, ends, "
        "deletes, moves, doubles and promotes jobs at random times. Exits 0 when every run is valid, 1 when one is violated, 2 "
        "when one is unknown.",
    )
    mischief.add_argument("--seed", type=int, default=1, help="draws the load and the mischief (default 1)")
    mischief.add_argument("--model", default="", help="only this format (default: all)")
    mischief.add_argument("--mutant", default="", help="plant this defect, to see the checks catch it")
    upgrade = commands.add_parser(
        "upgrade",
        help="the engine of another commit and that of HEAD on one queue, then the Spark verdict",
        description="Workers and producers of two engines, each from a wheel that is built of its commit, share a queue, while "
        "workers of both are killed and frozen. Exits 0 when the run is valid, 1 when violated, 2 when unknown.",
    )
    upgrade.add_argument("--from", dest="rev", required=True, metavar="REV", help="the commit of the other engine")
    upgrade.add_argument("--seed", type=int, default=1, help="draws load and faults (default 1)")
    scaled = commands.add_parser(
        "scale",
        help="the load doubles twice and falls again: do workers follow the metrics of the queue, and is no job lost?",
        description="Load that doubles twice and falls again, a small autoscaler that reads the metrics once a second and starts "
        "and stops workers, then the Spark verdict. Exits 0 when the run is valid, 1 when violated, 2 when unknown, 3 when it is "
        "valid and jobs waited for too long or the workers did not follow.",
    )
    scaled.add_argument("--seed", type=int, default=1, help="draws the load (default 1)")
    planted = commands.add_parser(
        "mutants",
        help="every planted defect in a short drill: is it caught by the check that is named for it?",
        description="A short drill of each planted defect, and twenty of the clean engine. Exits 0 when each defect is caught by "
        "the check that is named for it and each clean drill is valid, 1 otherwise, 2 when it could not be tried.",
    )
    planted.add_argument(
        "--seed", type=int, default=1, help="draws load and faults; clean drills take those after it (default 1)"
    )
    planted.add_argument("--only", default="", metavar="NAME", help="only the defect of this name, and one clean drill")
    nightly = commands.add_parser(
        "nightly",
        help="a short drill of each model on each topology that fits it, with the faults of a date",
        description="Short drills with seeds and faults that follow from a date, judged together. Exits 0 unless one is violated "
        "(1), or none is valid (2); of each that is not valid it prints the line that repeats it.",
    )
    nightly.add_argument("--date", type=day, default=today(), help="the night, such as 2026-11-27 (default: today's, UTC)")
    nightly.add_argument("--minutes", type=int, default=75, help="begin no drill that would end later (default 75)")
    nightly.add_argument("--only", default="", metavar="CELL", help="only this cell, such as bull-aof-everysec, as a run")
    measured = commands.add_parser(
        "capacity",
        help="which rate meets a target of latency here: searched, predicted, and the prediction verified",
        description="Open arrivals at a rate that doubles and is then bisected, until the last that meets the p99; a prediction "
        "from half of the steps, verified at 0.9 and 1.1 of it. With a chaos.toml these are the workers, handlers and load of a "
        "service of your own. Exits 0 when it holds, 1 when not, 2 when there is none.",
    )
    measured.add_argument("file", type=Path, nargs="?", help="a chaos.toml (default: jobs and handlers of the harness)")
    options.add_arguments(measured)
    attended = commands.add_parser(
        "attend",
        help="record a load whose producers and workers are started by others, here or on other hosts",
        description="The harness without its processes: announces producers and workers, whose histories belong in the folder of "
        "the run, looks at server and clocks, and takes the snapshots when the load has ended. Exits 0 when the run is whole, 2 "
        "when not.",
    )
    attended.add_argument("--url", required=True, help="the server, redis://...")
    attended.add_argument("--queue", default="bench", help="the queue (default bench)")
    attended.add_argument("--seed", type=int, default=1, help="that of the load (default 1)")
    attended.add_argument("--rate", type=int, default=120, help="jobs per second of the load (default 120)")
    attended.add_argument("--producers", type=int, default=1, help="processes of the load (default 1)")
    attended.add_argument("--workers", type=int, default=3, help="workers, called worker-1, worker-2 and so on (default 3)")
    attended.add_argument("--lease-ms", type=int, default=9_000, help="lease of the workers in ms (default 9000)")
    for command in (
        attended,
        bench,
        service,
        compare,
        soak,
        churned,
        interop,
        mischief,
        upgrade,
        scaled,
        planted,
        nightly,
        measured,
    ):
        command.add_argument("--runs", type=Path, default=Path("runs"), help="folder of all runs (default runs)")
        command.add_argument("--keep", type=int, default=KEEP_RUNS, help=f"keep at most this many runs (default {KEEP_RUNS})")
        command.add_argument("--keep-days", type=int, default=KEEP_DAYS, help=f"prune older runs (default {KEEP_DAYS} days)")
    parsed = parser.parse_args(arguments)
    for name, low in (("keep", 1), ("keep_days", 1), ("minutes", 1)):
        if (getattr(parsed, name, None) or low) < low or getattr(parsed, name, None) == 0:
            commands.choices[parsed.command].error(
                f"--{name.replace('_', '-')} is {getattr(parsed, name)}: it must be at least {low}"
            )
    if parsed.command == "bench":
        settle(parsed, bench)
    return parsed


#: Options of `bench` that decide what a replay takes from its run, and what they are by default.
DECIDED = {
    "seed": 1,
    "model": "lanes",
    "face": DIRECT,
    "producers": 1,
    "mutant": "",
    "faults": None,
    "topology": None,
    "durability": None,
    "minutes": None,
}
DECIDED.update(rate=None, lease_ms=None, slo=None)


def settle(parsed: argparse.Namespace, bench: argparse.ArgumentParser) -> None:
    """Fill in what was not named; beside a replay nothing may be."""
    if parsed.shrink and not parsed.replay:
        bench.error("--shrink needs --replay: the violated run to shrink")
    for name, default in DECIDED.items():
        if getattr(parsed, name) is None:
            setattr(parsed, name, default)
        elif parsed.replay:
            option = "fault" if name == "faults" else name.replace("_", "-")
            bench.error(f"--{option} cannot be given with --replay: the run that is repeated decides it")
    if parsed.face != DIRECT and (parsed.target or parsed.model == "dsps"):
        bench.error(f"--face {parsed.face} is of drills of jobs: it cannot be given with --target or --model dsps")
    if parsed.producers != 1 and (parsed.target or parsed.model == "dsps"):
        bench.error("--producers is of drills of jobs: it cannot be given with --target or --model dsps")


def day(text: str) -> date:
    """A date in ISO 8601."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date such as 2026-11-27") from None


def today() -> date:
    """The date in UTC."""
    return datetime.now(UTC).date()


def names(text: str) -> tuple[str, ...]:
    """The names of a list with commas."""
    return tuple(filter(None, (name.strip() for name in text.split(","))))


def main(arguments: Sequence[str], interrupts: Interrupts) -> int:
    """The exit code. Every failure is one line on stderr, and unknown."""
    parsed = parse(arguments)
    try:
        # Imported here, so that a package that is not installed is one clear line too.
        from chaos.attended import attend
        from chaos.capacity.command import capacity
        from chaos.channels.command import bench_channels
        from chaos.churn import churn
        from chaos.command import bench
        from chaos.compare import compare
        from chaos.fault_table import show
        from chaos.interop.command import interop
        from chaos.mischief.command import mischief
        from chaos.mutants.command import catch_mutants
        from chaos.nightly.command import nightly
        from chaos.replay import replay
        from chaos.scale.command import scale
        from chaos.service.command import check, run
        from chaos.soak import soak
        from chaos.targets.command import bench_targets
        from chaos.upgrade import upgrade
        from engine.testing import ServerMissing
    except ModuleNotFoundError as error:
        return fail(PACKAGE_MISSING.format(name=error.name))
    commands = {
        "attend": attend,
        "capacity": capacity,
        "run": run,
        "check": check,
        "bench": bench_channels if getattr(parsed, "model", "") == "dsps" else bench,
        "faults": show,
        "compare": compare,
        "soak": soak,
        "churn": churn,
        "interop": interop,
        "mischief": mischief,
        "upgrade": upgrade,
        "scale": scale,
        "mutants": catch_mutants,
        "nightly": nightly,
    }
    command = replay if getattr(parsed, "replay", None) else commands[parsed.command]
    command = bench_targets if getattr(parsed, "target", "") else command
    try:
        return command(parsed, interrupts)
    except TooSlow as error:
        print(f"{redacted(str(error))}\nverdict: unknown", flush=True)
        return UNKNOWN
    except (HarnessError, ServerMissing) as error:
        return fail(str(error))
    except Exception as error:
        return fail(f"the harness failed: {type(error).__name__}: {error}")


def fail(message: str) -> int:
    print(f"chaos: {redacted(message)}", file=sys.stderr)
    return UNKNOWN
