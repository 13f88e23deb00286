"""Why a verdict is unknown, as a value, what to do about each cause, and what the words of a verdict mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any


class Cause(StrEnum):
    """What keeps a check from saying valid or violated."""

    INPUT = "input"
    CRASHED = "crashed"
    HOLES = "holes"
    CLOCK = "clock"
    SLOW = "slow"
    FAULT = "fault"
    MISSED = "missed"
    RECORDER = "recorder"
    NOTHING = "nothing"
    FULL = "full"
    OPEN = "open"


class Doubt(str):
    """A reason why a check cannot be judged whose cause is not that of the check's other doubts."""

    __slots__ = ("cause",)
    cause: Cause

    def __new__(cls, words: str, cause: Cause) -> Doubt:
        """The reason in words, with its cause."""
        made = super().__new__(cls, words)
        made.cause = cause
        return made


#: What to do, in the order in which it is said: what comes first spoils most.
REMEDIES: Mapping[Cause, str] = {
    Cause.INPUT: "the run could not be read: put right what the reason names, then judge it again",
    Cause.CRASHED: "the judge itself failed: judge it again, and report the reason with the run's folder if it comes again",
    Cause.HOLES: "rows are missing: run again, let it end by itself, keep every file of history/, with room on the disk",
    Cause.CLOCK: "the clock of a host is not known: let the harness reach each host during the whole run, and run again",
    Cause.SLOW: "the machine was too slow: run again where it is calmer, or at a lower rate",
    Cause.FAULT: "a fault was not carried out or not seen: put right what the reason names, or run again where it is calmer",
    Cause.MISSED: "a fault met no work that it could disturb: run longer, at a higher rate, or with another seed",
    Cause.RECORDER: "the recording cannot be trusted: run again where it is calmer, with less load for each process",
    Cause.NOTHING: "there was nothing to judge: run longer, or with a load that uses what the check is about",
    Cause.FULL: "handlers had all places: give workers or limits more, handlers that hang a timeout_ms, or send fewer such jobs",
    Cause.OPEN: "the run ended before it could be told: run longer, or where it is calmer",
}

#: The cause of a check's doubts that have none of their own; of all other checks it is `NOTHING`.
OF_CHECKS: Mapping[str, Cause] = {"H0": Cause.HOLES, "H1": Cause.FAULT, "H2": Cause.MISSED, "H3": Cause.RECORDER}

#: The one kind of violation rows of the checks of the history that concerns the load, and not the history.
LATE_LOAD = ("H3", "late load")

#: The kinds that show that the machine was too slow for the load.
SLOW_LOAD = (LATE_LOAD, ("H3", "dropped load"))

#: The cause of a level of rows in doubt, whatever the check.
OF_LEVELS: Mapping[str, Cause] = {"full": Cause.FULL, "astray": Cause.CLOCK, "unproven": Cause.HOLES, "slow": Cause.SLOW}


def of_doubt(check: str, doubt: str) -> Cause:
    """The cause of a reason why a check cannot be judged."""
    return doubt.cause if isinstance(doubt, Doubt) else OF_CHECKS.get(check, Cause.NOTHING)


def of_row(check: str, level: str, kind: str) -> Cause:
    """The cause of violation rows that are in doubt."""
    if (check, kind) in SLOW_LOAD:
        return Cause.SLOW
    return OF_LEVELS.get(level) or OF_CHECKS.get(check, Cause.OPEN)


# What to do about a verdict that is not valid: the commands that repeat the run, and a remedy for each
# cause of an unknown.


#: Scenarios whose runs can be repeated by their plan, where they have a pace: those of jobs and of channels.
REPLAYED = ("bench", "channels")

#: Other scenarios that are a command of the harness themselves, with a seed.
BY_SEED = {
    **{name: f"run {name}" for name in ("interop", "mischief", "scale")},
    "compare": "campaign models",
    "mutants": "campaign mutants",
}

#: The drill of somebody's own service, whose file the user has.
SERVICE = "service"


def lines(decided: Mapping[str, Any], folder: Path) -> list[str]:
    """The section; empty for a valid run. `folder`: that of the run."""
    if decided["verdict"] == "valid":
        return []
    spec, causes = decided["spec"], decided.get("causes", {})
    found: list[str] = []
    if decided["verdict"] == "unknown":
        for cause, checks in causes.items():
            found.append(f"  {', '.join(checks)}: {REMEDIES[Cause(cause)]}" if checks else f"  {REMEDIES[Cause(cause)]}")
        if Cause.SLOW in causes and spec.get("rate_per_s"):
            found.append(f"  the rate of this run was {spec['rate_per_s']}/s")
    commands = (
        {"judge it again": f"{program('reports')} judge {shown(folder)}"} if {*causes} & {Cause.INPUT, Cause.CRASHED} else {}
    )
    commands |= repeated(spec, folder, violated=decided["verdict"] == "violated")
    if not (found or commands):
        found.append("  no command repeats this run: its folder does not say how it was made")
    width = max(map(len, commands), default=0)
    return ["what now", *found, *(f"  {name:{width}}  {command}" for name, command in commands.items())]


def repeated(spec: Mapping[str, Any], folder: Path, *, violated: bool) -> dict[str, str]:
    """The commands that carry a run out again, and with fewer faults until none can be left out."""
    scenario, seed, chaos = str(spec.get("scenario", "")).partition(" ")[0], spec.get("seed"), program("chaos")
    if scenario in REPLAYED and spec.get("pace"):
        least = {"find the least faults": f"{chaos} shrink {shown(folder)}"} if violated and spec.get("plan") else {}
        return {"repeat": f"{chaos} replay {shown(folder)}", **least}
    if scenario == SERVICE and spec.get("mutant"):
        return {"repeat": f"{chaos} campaign mutants --only {SERVICE}-{spec['mutant']} --seed {seed}"}
    if scenario == SERVICE:
        return {"repeat": f"{chaos} run chaos.toml --seed {seed}  (the file of the run)"}
    if scenario in BY_SEED:
        return {"repeat": f"{chaos} {BY_SEED[scenario]} --seed {seed}"}
    return {"repeat": str(spec["again"])} if spec.get("again") else {}


def program(module: str) -> str:
    """A module as this interpreter runs it, to be copied into a shell."""
    return f"{shown(Path(sys.executable))} -m {module}"


def shown(path: Path) -> str:
    """A path as seen from here, where it lies below, else in full."""
    whole, here = path.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


# The words of a printed verdict that a newcomer does not know, each explained below the section that has it
# first.


#: Word, as it is printed -> what it means, in half a line.
WORDS: Mapping[str, str] = {
    "model": "whose format the keys on the server have; lanes is the engine's own",
    "topology": "the servers of the run",
    "lost": "acknowledged, and gone without an end",
    "doubled": "finished more than once",
    "refused stale": "ends of a lease that was over, refused as they must be",
    "dead": "given up after the last attempt, kept until a person decides",
    "not sent": "planned, and no connection could be had in time",
    "again": "delivered more than once to the same subscriber",
    "told as lost": "dropped as the channel's bounds allow, and the subscriber was told",
    "wraps crossed": "channels whose clock began again at its lowest value",
    "era changes": "a server lost writes, and its channels said so",
    "not answered": "sent, and no reply came",
    "stranded": "still in the server's keys, and no worker takes it",
    "late": "ran, and later than the promise or the bound",
    "worker exits": "workers that ended by themselves",
    "unfinished": "jobs of the phase that never finished",
    "p50": "half took at most this",
    "p99": "99 of 100 took at most this; inf: so many never finished",
    "lead-in": "load before the first fault",
    "settle": "load after the last fault",
    "drain": "no new load, what is left is worked off",
    "waitpid": "when the kernel says that the process is gone",
    "in hand": "claimed by the worker and not ended when it was killed",
    "bound": "the longest that it may take",
    "witnessed": "something was seen that only the fault can have caused",
    "healed": "the fault was taken away, and that was seen",
    "send lag": "how much later than planned the load was sent",
    "recorder": "what writes the history that is judged",
    "declared": "what the wire format or the servers are known not to protect; no violation",
    "possible": "neither proved nor excluded by the evidence; no violation",
    "unknown": "the evidence does not suffice for valid or violated",
    "no lane": "a lane has the waiting jobs of one name and key, in their order",
    "fence": "a number that is higher for each lease of a job",
    "lease": "the right of one worker to run a job until a time",
    "tick": "one time of a schedule, for which one job is made",
}

#: Words that mean the same in every sentence, also in the plural. The others are explained only as the whole of a cell.
ANYWHERE = (
    *("refused stale", "not sent", "told as lost", "wraps crossed", "era changes", "not answered", "worker exits", "in hand"),
    *("model", "topology", "p50", "p99", "waitpid", "send lag", "recorder", "no lane", "fence", "lease", "tick"),
)

PATTERNS = {
    word: re.compile(rf"(?<![\w-]){word}s?(?![\w-])" if word in ANYWHERE else rf"(?<=  ){word}(?=  |$)") for word in WORDS
}


def explained(sections: Iterable[Sequence[str]]) -> list[list[str]]:
    """The sections, each followed by lines on the words that it is the first to print."""
    told: set[str] = set()
    found: list[list[str]] = []
    for section in sections:
        fresh = [word for word in WORDS if word not in told and any(PATTERNS[word].search(line) for line in section)]
        told.update(fresh)
        found.append([*section, *(f"    {word}: {WORDS[word]}" for word in fresh)])
    return found
