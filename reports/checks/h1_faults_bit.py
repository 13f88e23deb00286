"""H1: the drill was carried out. Every planned fault was injected, seen to take effect, healed, and seen to have healed, once
each and in this order. A frozen process wrote nothing meanwhile; a process that was cut off got no answers, and one that was
slowed down got late ones; the harness reports no error of its own (`harness_errors` of the spec). Else the run is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from reports.causes import Cause, Doubt
from reports.checks import h1_network
from reports.checks.base import Check
from reports.facts import MS, SLOT_NS, Run, Stage
from reports.windows import clock_jumps

STAGES = {
    "inject": "was not injected",
    "witness": "was not seen to bite",
    "heal": "was not healed",
    "healed": "was not seen to have healed",
}

#: The kernel may take this long to stop all threads of a process.
STOP_MS = 2_000


def doubts(run: Run) -> list[str]:
    """One line for each expected effect of a fault that was not seen."""
    found = undone(run)
    planned = {str(entry.get("fault")): entry for entry in run.plan}
    for fault in sorted({stage.fault for stage in run.stages} | set(planned)):
        rows = [stage for stage in run.stages if stage.fault == fault]
        found += missing(fault, rows) + disordered(fault, rows)
        if fault not in planned:
            found.append(f"fault {fault} was not planned")
        for what in ("name", "target"):
            wanted, seen = planned.get(fault, {}).get(what), {getattr(stage, what) for stage in rows}
            if fault in planned and seen - {wanted}:
                found.append(f"fault {fault} has {what} {', '.join(sorted(map(str, seen)))}, planned was {wanted}")
    return found + awake(run) + unmeasured(run) + h1_network.doubts(run)


def undone(run: Run) -> list[str]:
    """What the harness could not do, as it says; with the cause where it gave up because the machine was too slow."""
    found = [f"the harness could not carry out the drill: {error}" for error in run.spec.get("harness_errors", [])]
    return [Doubt(error, Cause.SLOW) for error in found] if run.spec.get("too_slow") else found


def missing(fault: str, rows: Sequence[Stage]) -> list[str]:
    """Stages that are absent, not ok, or recorded more than once."""
    found: list[str] = []
    for name, words in STAGES.items():
        these = [row for row in rows if row.stage == name]
        unseen = [row for row in these if not row.ok]
        if unseen or not these:
            detail = unseen[0].detail if unseen else ""
            found.append(f"fault {fault} {words}" + (f": {detail}" if detail else ""))
        if len(these) > 1:
            found.append(f"fault {fault} has {len(these)} rows of stage {name}")
    return found


def disordered(fault: str, rows: Sequence[Stage]) -> list[str]:
    """Stages that were recorded before the stage that they must follow."""
    at_ns = {row.stage: row.t_ns for row in rows}
    order = [name for name in STAGES if name in at_ns]
    return [
        f"stage {later} of fault {fault} came {(at_ns[earlier] - at_ns[later]) / MS:.1f} ms before its {earlier}"
        for earlier, later in pairwise(order)
        if at_ns[later] < at_ns[earlier]
    ]


def awake(run: Run) -> list[str]:
    """Frozen processes that wrote a row before the heal, though all their threads must have been stopped by then."""
    found: list[str] = []
    for fault in dict.fromkeys(stage.fault for stage in run.stages if stage.name == "worker-freeze"):
        stages = {stage.stage: stage for stage in run.stages if stage.fault == fault}
        if not ({"inject", "witness", "heal"} <= set(stages) and stages["witness"].ok):
            continue
        first = -(-(stages["inject"].t_ns + STOP_MS * MS) // SLOT_NS)
        silent = range(first, stages["heal"].t_ns // SLOT_NS)
        target = stages["inject"].target
        found += [
            f"{target} wrote to {file.name} while it was frozen at {fault}"
            for file in run.files_of(target)
            if any(slot in silent for slot in file.slots)
        ]
    return found


def unmeasured(run: Run) -> list[str]:
    """Jumps of the server's clock of an unknown size: what is excused by a jump is excused up to its size."""
    return [f"fault {jump.fault}: nobody saw how far the clock jumped" for jump in clock_jumps(run) if jump.forward_ms is None]


CHECK = Check("H1", "every fault took effect and healed", doubts)
