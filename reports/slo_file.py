"""`slo.toml`: the service level objectives of a run, read and validated.

    [latency.all.end_to_end]    # a phase of the run, or `all`, and one of its latency series
    p99_ms = 1_000

    [recovery]
    slowest_ms = 11_000         # from a kill until the last job that the worker held ran elsewhere
    direct_slowest_ms = 5_000   # the same of workers that were connected to the server directly, not through a proxy

    [errors]                    # the error budget: the largest share of the jobs, from 0 to 1
    lost = 0
    unfinished = 0.01

    [rates]
    finished_per_s = 100        # at least

Every objective is optional, but a file must set one. `reports.slo` tells how each is measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from engine.errors import BEFORE, nearest
from reports.errors import JudgeError, content_of
from reports.facts import ALL, DIRECT, PROXIED, RANKS, SERIES

# The names that a phase of a run may have, for files that are read before there is a run.
#
# The harness, which the judge does not import, names its phases after its faults: `kill` while one is in
# force, `recover-kill` after it, and `kill-in-freeze` while two are. The second kill of a run that has two
# is `kill-2`; `kill` is also the name of all of its kills, as it was before they had names of their own. A
# test holds this list to the faults that the harness has.


#: Phases without a fault, and all phases together. Two are of `python -m chaos run scale`.
QUIET = (ALL, "lead-in", "doubled", "doubled-twice", "settle", "drain", "end")

#: Faults, as phases are named after them.
FAULTS = (
    *("kill", "freeze", "cut", "oom", "clock-jump", "lease-expired", "app-kill", "subscriber-kill", "foreign-freeze"),
    *("net-latency", "net-request-lost", "net-reply-lost", "net-down", "dns-change", "clients-killed"),
    *("server-kill", "server-restart", "server-pause", "server-clock-jump", "clock-wrap", "disk-slow", "memory-full"),
    *("script-busy", "scripts-flushed", "snapshot-restore", "slot-move"),
    *("primary-kill", "primary-cut", "replica-lag", "failover-clean", "failover-lossy"),
)

RECOVERY, WITHIN = "recover-", "-in-"


#: The number of a fault that is not the first of its kind.
_NUMBER = re.compile(r"(?<=[a-z])-[2-9]$")


def common(name: str) -> str:
    """The name that the phases of all faults of a kind have in common: `recover-kill` of `recover-kill-2`."""
    return _NUMBER.sub("", name)


def known(name: str) -> bool:
    """Whether a run may have a phase of this name."""
    if name != common(name) and common(name) in QUIET:
        return False
    name = common(name)
    fault, _, around = name.removeprefix(RECOVERY).partition(WITHIN)
    return name in QUIET or (fault in FAULTS and (around in FAULTS or name.endswith(fault)))


def bound(name: str) -> str:
    """What a phase must be in place of this name, with the nearest."""
    near = nearest(name, (*QUIET, *FAULTS, *(RECOVERY + fault for fault in FAULTS)), said=BEFORE)
    return f"{near}the phase must be {', '.join(QUIET)}, a fault ({', '.join(FAULTS)}), recover-FAULT or FAULT-in-FAULT"


#: The objectives of a run, in its folder.
FILE = "slo.toml"

#: Objective of recovery -> how the killed workers were connected that it is about; empty: all of them.
RECOVERIES = {"slowest_ms": "", "direct_slowest_ms": DIRECT, "proxied_slowest_ms": PROXIED}

#: Section -> names of its objectives.
NAMES: dict[str, tuple[str, ...]] = {
    "latency": tuple(RANKS),
    "recovery": tuple(RECOVERIES),
    "errors": ("lost", "doubled", "dead", "unfinished", "not_sent"),
    "rates": ("offered_per_s", "finished_per_s", "published_per_s", "delivered_per_s"),
}

#: Section -> the tables that lead to an objective, as messages write them.
PLACES = {name: "latency.PHASE.SERIES.PERCENTILE" if name == "latency" else f"{name}.NAME" for name in NAMES}

#: Section -> unit of its bounds.
UNITS = {"latency": "ms", "recovery": "ms", "errors": "share", "rates": "per_s"}

#: A wrong value is cut to this many characters in messages.
VALUE_MAX = 60


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective. `path`: its place in the file; `bound`: the largest value allowed, of rates the smallest."""

    path: tuple[str, ...]
    bound: float

    @property
    def name(self) -> str:
        """The place as TOML writes it, such as `latency.all.end_to_end.p99_ms`."""
        return dotted(self.path)

    @property
    def section(self) -> str:
        return self.path[0]

    @property
    def unit(self) -> str:
        """The unit of the bound: ms, share or per_s."""
        return UNITS[self.section]

    @property
    def at_least(self) -> bool:
        """True for a lower bound."""
        return self.section == "rates"


def objectives_of(run: Path, file: Path | None, *, channels: bool) -> list[Objective]:
    """The objectives in `file`, or else in the folder of the run; none when it has no such file. Raises as `read`."""
    own = run / FILE
    return read(file or own, channels=channels) if file or own.exists() else []


def read(file: Path, *, channels: bool) -> list[Objective]:
    """The objectives of a file. `channels`: for a channel run, whose latency series are the groups of its channels.

    Raises JudgeError when it cannot be read, is not TOML, or says what it must not: the message names every wrong value.
    """
    found, wrong = parsed(content_of(file, file.name, "TOML"), channels=channels)
    if wrong:
        raise JudgeError(f"{file.name}: {'; '.join(wrong)}")
    return found


def parsed(content: Mapping[str, Any], *, channels: bool) -> tuple[list[Objective], list[str]]:
    """The objectives of the content of a file, and what is wrong with it: each wrong field with its value and bound."""
    found: list[Objective] = []
    wrong: list[str] = []
    for path, value in leaves((), content):
        fault = misplaced(path, value, channels=channels) or out_of_bounds(path, value)
        if fault:
            wrong.append(fault)
        else:
            found.append(Objective(path, value))
    return found, wrong or ([] if found else [f"no objective is set, one must be, in {listed(NAMES)}"])


def leaves(path: tuple[str, ...], table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested tables, with its place. An empty table is a value, because it sets nothing."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from leaves((*path, name), value)
        else:
            yield (*path, name), value


def misplaced(path: tuple[str, ...], value: object, *, channels: bool) -> str:
    """Why there is no such objective; empty when there is."""
    section = path[0]
    if section not in NAMES:
        return f"{section} is not known, {nearest(section, NAMES, said=BEFORE)}it must be {listed(NAMES)}"
    depth = PLACES[section].count(".") + 1
    if len(path) >= 2 and section == "latency" and not known(path[1]):
        return f"{dotted(path[:2])} is not known, {bound(path[1])}"
    if len(path) >= 3 and section == "latency" and not channels and path[2] not in SERIES:
        return f"{dotted(path[:3])} is not known, {nearest(path[2], SERIES, said=BEFORE)}the series must be {listed(SERIES)}"
    if len(path) >= depth and path[depth - 1] not in NAMES[section]:
        near = nearest(path[depth - 1], NAMES[section], said=BEFORE)
        return f"{dotted(path[:depth])} is not known, {near}the last part must be {listed(NAMES[section])}"
    if len(path) != depth or isinstance(value, dict):
        return f"{dotted(path)} is {shown(value)}, an objective of this section must be at {PLACES[section]}"
    return ""


def out_of_bounds(path: tuple[str, ...], value: object) -> str:
    """What is wrong with the bound of an objective; empty when nothing is."""
    share = UNITS[path[0]] == "share"
    number = value if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else -1
    if 0 <= number <= 1 if share else number > 0:
        return ""
    return f"{dotted(path)} is {shown(value)}, it must be a {'share from 0 to 1' if share else 'number above 0'}"


def dotted(path: Sequence[str]) -> str:
    """A place as TOML writes it: names that are not bare keys are quoted."""
    return ".".join(part if part.replace("-", "_").isidentifier() or part.isdigit() else json.dumps(part) for part in path)


def listed(names: Iterator[str] | Sequence[str] | Mapping[str, Any]) -> str:
    """Names as an alternative: a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def shown(value: object) -> str:
    """A value of the file, cut to a readable length."""
    return json.dumps(value, default=str)[:VALUE_MAX]
