"""The samples of a run, taken once a second: queue counts, CPU per role, memory of the server. Small files, read without
Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.page.timeline import SECOND_NS, Axis
from reports.samples import samples as rows_of

if TYPE_CHECKING:
    from reports.facts import Run

STATES = ("waiting", "delayed", "active")

#: Roles of processes in stacking order from the bottom: a run has workers and producers, or subscribers and publishers.
ROLES = ("server", "worker", "producer", "subscriber", "publisher", "harness", "other")


@dataclass
class Samples:
    """Per bucket: the last count of each state, the cores used by each role, and the MiB of the server's data."""

    backlog: dict[str, dict[int, int]] = field(default_factory=lambda: {state: {} for state in STATES})
    cores: dict[str, dict[int, float]] = field(default_factory=lambda: {role: {} for role in ROLES})
    memory_mib: dict[int, float] = field(default_factory=dict)


def samples(run: Path, facts: Run, axis: Axis) -> Samples:
    """The samples of the harness. Unreadable lines are skipped, because no verdict rests on samples."""
    found = Samples()
    for at, row in lines(run / "samples" / "queue.jsonl", axis):
        for state in STATES:
            if is_number(row.get(state)):
                found.backlog[state][at] = int(row[state])
    for at, row in lines(run / "samples" / "server.jsonl", axis):
        if is_number(row.get("used_memory")):
            found.memory_mib[at] = row["used_memory"] / 2**20
    add_cores(found, facts, axis)
    return found


def add_cores(found: Samples, facts: Run, axis: Axis) -> None:
    """Add the cores used by each role, summed over its processes."""
    roles = {process.name: process.role for process in facts.processes if process.role != "sink"} | {"server": "server"}
    for name, usages in facts.cpu.items():
        role = roles.get(name, "other")
        of_role = found.cores[role if role in ROLES else "other"]
        shares: dict[int, list[float]] = defaultdict(list)
        for usage in usages:
            shares[bucket(usage.end_ns, axis)].append(max(0.0, usage.share))
        for at, values in shares.items():
            if 0 <= at < axis.buckets:
                of_role[at] = of_role.get(at, 0.0) + sum(values) / len(values)


def lines(path: Path, axis: Axis) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file of samples, each with its bucket."""
    for row in rows_of(path):
        if is_number(row.get("t_ns")) and 0 <= (at := bucket(row["t_ns"], axis)) < axis.buckets:
            yield at, row


def bucket(t_ns: int, axis: Axis) -> int:
    """The number of the bucket that an instant falls in."""
    return int((t_ns - axis.start_ns) // (axis.width_s * SECOND_NS))


def is_number(value: Any) -> bool:
    """True for a number that can be drawn, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18
