"""The windows of a run's faults: the processes that each one hit, and when it was in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS, Process, Run
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The target of a fault that hits no single process: whoever calls a server feels it.
SERVERS = "servers"

#: Roles of the processes that call a server.
CALLERS = ("worker", "producer", "publisher", "subscriber", "app")
#: The fault by which the server's clock jumps.
CLOCK_JUMP = "server-clock-jump"

#: A look at the server's clock is off by the time that it takes.
LOOK_MS = 100

#: Start and end in monotonic ns.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """One injected fault: in force from inject_ns to heal_ns, seen to have healed at healed_ns, in monotonic ns."""

    fault: str
    name: str
    targets: tuple[str, ...]
    inject_ns: int
    heal_ns: int
    healed_ns: int
    #: The inject of the first fault after its heal. Faults that came while it was in force are not meant.
    next_ns: int
    #: When it was seen to take effect; None when it was not.
    witness_ns: int | None = None
    #: The instant before which all that was answered stood in the file that it put back; None when it put none back, or nobody
    #: knows which.
    snapshot_ns: int | None = None


def windows(run: Run) -> tuple[Window, ...]:
    """The injected faults in order of inject; one that was never healed has no end."""
    found: list[Window] = []
    for fault in dict.fromkeys(stage.fault for stage in run.stages):
        rows = [stage for stage in run.stages if stage.fault == fault]
        at_ns = {stage.stage: stage.t_ns for stage in rows}
        if "inject" in at_ns:
            heal_ns = at_ns.get("heal", NEVER_NS)
            healed_ns = max(heal_ns, at_ns.get("healed", heal_ns))
            found.append(
                Window(
                    fault,
                    rows[0].name,
                    targets(rows[0].target),
                    at_ns["inject"],
                    heal_ns,
                    healed_ns,
                    next_ns=NEVER_NS,
                    witness_ns=at_ns.get("witness"),
                    snapshot_ns=at_ns.get("snapshot"),
                )
            )
    return followed(sorted(found, key=lambda window: window.inject_ns))


def followed(found: Sequence[Window]) -> tuple[Window, ...]:
    """The windows in order of inject, each with its `next_ns`."""
    return tuple(
        replace(one, next_ns=next((later.inject_ns for later in found[at + 1 :] if later.inject_ns >= one.heal_ns), NEVER_NS))
        for at, one in enumerate(found)
    )


def processes_hit(run: Run, window: Window) -> tuple[str, ...]:
    """The processes that a fault hit: its targets, or everybody who lived through it and calls a server."""
    if window.targets != (SERVERS,):
        # An app has no history: hit with it is who calls it.
        apps = set(run.spec.get("apps", ()))
        callers = [one.name for one in run.processes if one.role == "producer"] if apps.intersection(window.targets) else []
        return tuple(dict.fromkeys([*(name for name in window.targets if name not in apps), *callers]))
    dead = {kill.target for kill in run.kills if kill.inject_ns < window.heal_ns}
    return tuple(one.name for one in run.processes if one.role in CALLERS and one.name not in dead and lived(run, one, window))


def lived(run: Run, process: Process, window: Window) -> bool:
    """True when a process was there before a fault and after it."""
    file = run.files.get(process.file)
    if file is None or file.opened_ns is None or file.opened_ns > window.inject_ns:
        return False
    return file.closed_ns is None or file.closed_ns > window.healed_ns


def targets(names: str) -> tuple[str, ...]:
    """The processes that a stage names, separated by commas."""
    return tuple(name for name in names.split(",") if name)


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The server's wall clock jumped, and perhaps back again, between these instants. `forward_ms`: by how much it was ahead
    then, negative for a clock that went back; None when nobody saw it before and after."""

    fault: str
    begin_ns: int
    end_ns: int
    forward_ms: int | None

    @property
    def span(self) -> Span:
        return self.begin_ns, self.end_ns

    @property
    def size_ms(self) -> int:
        """How far it jumped; without an end where nobody saw it, which makes the run unknown (H1)."""
        return NEVER_NS // MS if self.forward_ms is None else abs(self.forward_ms) + LOOK_MS

    @property
    def back_ms(self) -> int:
        """How far it went back."""
        return 0 if self.forward_ms is not None and self.forward_ms >= 0 else self.size_ms

    @property
    def over_ms(self) -> int:
        """How much time it has jumped over. A clock that goes back is set right to what it would have been."""
        return 0 if self.forward_ms is not None and self.forward_ms <= 0 else self.size_ms


@dataclass(frozen=True, slots=True)
class Steady:
    """A stretch in which the server's clock did not jump, and by how many ns it was ahead of the monotonic one; None: unknown."""

    begin_ns: int
    end_ns: int
    ahead_ns: int | None


def steady_clocks(run: Run) -> list[Steady]:
    """The stretches between the jumps of the server's clock, in order; from the beginning of time to its end without any."""
    jumps = [window for window in windows(run) if window.name == CLOCK_JUMP]
    at_ns = sorted({0, NEVER_NS, *(at for window in jumps for at in (window.inject_ns, window.heal_ns))})
    return [Steady(begin_ns, end_ns, ahead_ns(run, begin_ns, end_ns)) for begin_ns, end_ns in pairwise(at_ns)]


def ahead_ns(run: Run, begin_ns: int, end_ns: int) -> int | None:
    """By how much the server's clock was ahead then. A look that lasted across a jump is one of several."""
    seen = [look.ahead_ns for look in run.clocks if look.ahead_ns is not None and begin_ns <= look.t_ns < end_ns]
    return round(median(seen)) if seen else None


def clock_jumps(run: Run) -> list[ClockJump]:
    """The jumps of the server's wall clock."""
    steady = steady_clocks(run)
    found: list[ClockJump] = []
    for window in windows(run):
        if window.name == CLOCK_JUMP:
            before = next((one.ahead_ns for one in steady if one.end_ns == window.inject_ns), None)
            after = next((one.ahead_ns for one in steady if one.begin_ns == window.inject_ns), None)
            jumped = None if before is None or after is None else round((after - before) / MS)
            found.append(ClockJump(window.fault, window.inject_ns, window.healed_ns, jumped))
    return found


def went_back_ms(run: Run, instant: Column) -> Column:
    """How far behind its time before the jump the server's clock may have been at an instant, in ms; 0 outside of jumps."""
    behind = F.lit(0)
    for jump in clock_jumps(run):
        behind = F.greatest(behind, F.when(within(instant, [jump.span]), F.lit(jump.back_ms)).otherwise(0))
    return behind


def reached_ns(run: Run, srv_ms: Column) -> Column:
    """When the server's clock first showed a time, on the monotonic clock; it may have jumped there. Null when nobody knows."""
    reached = F.lit(None).cast("bigint")
    for one in steady_clocks(run):
        if one.ahead_ns is not None:
            at_ns = F.greatest(F.lit(one.begin_ns), srv_ms * MS - F.lit(one.ahead_ns))
            reached = F.coalesce(reached, F.when(at_ns < F.lit(one.end_ns), at_ns))
    return reached


def within(instant: Column, spans: Sequence[Span]) -> Column:
    """True for an instant inside one of the spans."""
    condition = F.lit(False)
    for begin_ns, end_ns in spans:
        condition = condition | instant.between(F.lit(begin_ns), F.lit(end_ns))
    return F.coalesce(condition, F.lit(False))
