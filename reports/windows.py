"""The windows of a run's faults: the processes that each one hit, and when it was in force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import Run
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

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
    #: The inject of the next fault.
    next_ns: int
    #: When it was seen to take effect; None when it was not.
    witness_ns: int | None = None


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
                )
            )
    return followed(sorted(found, key=lambda window: window.inject_ns))


def followed(found: Sequence[Window]) -> tuple[Window, ...]:
    """The windows, each with the inject of the following one as its `next_ns`."""
    return (*(replace(one, next_ns=later.inject_ns) for one, later in pairwise(found)), *found[-1:])


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
