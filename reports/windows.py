"""The windows of a run's faults: the processes that each one hit, and when it was in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import Process, Run
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The target of a fault that hits no single process: whoever calls a server feels it.
SERVERS = "servers"

#: Roles of the processes that call a server.
CALLERS = ("worker", "producer", "publisher", "subscriber")
#: The fault by which the server's clock jumps.
CLOCK_JUMP = "server-clock-jump"

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
    #: When the snapshot was taken that it put back; None when it put none back, or nobody knows which.
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
        return window.targets
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


def clock_jumps(run: Run) -> list[Span]:
    """From when to when the server's wall clock has jumped, perhaps more than once."""
    return [(window.inject_ns, window.healed_ns) for window in windows(run) if window.name == CLOCK_JUMP]


def within(instant: Column, spans: Sequence[Span]) -> Column:
    """True for an instant inside one of the spans."""
    condition = F.lit(False)
    for begin_ns, end_ns in spans:
        condition = condition | instant.between(F.lit(begin_ns), F.lit(end_ns))
    return F.coalesce(condition, F.lit(False))
