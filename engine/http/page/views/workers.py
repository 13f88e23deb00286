"""Workers with what each has in hand."""

from __future__ import annotations

from dataclasses import dataclass

from engine.http.page.looks import SomeWorkers
from engine.ops.workers import WorkerInfo

#: Jobs in hand and names of handlers that a row shows.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker: whether it lives or why it claims nothing, some of its jobs, and how many more it has."""

    worker: WorkerInfo
    state: str
    jobs: tuple[str, ...]
    more_jobs: int
    handlers: tuple[str, ...]
    more_handlers: int


@dataclass(frozen=True, slots=True)
class WorkerList:
    """Workers from rank `offset` on, with the sums of those that live; `next` is where the following ones begin."""

    rows: tuple[WorkerRow, ...]
    alive: int
    in_hand: int
    places: int
    offset: int
    next: int | None
    now_ms: int


def worker_list(found: SomeWorkers, offset: int) -> WorkerList:
    """One page of workers: those that live first, by name."""
    rows = sorted(map(row, found.workers), key=lambda row: (not row.worker.alive, row.worker.name, row.worker.incarnation))
    alive = [info for info in found.workers if info.alive]
    sums = (len(alive), sum(info.in_hand for info in alive), sum(info.concurrency for info in alive))
    return WorkerList(tuple(rows), *sums, offset, offset + len(found.workers) if found.more else None, found.now_ms)


def row(info: WorkerInfo) -> WorkerRow:
    """A worker as its row."""
    handlers = info.handlers
    return WorkerRow(
        info,
        state_of(info),
        info.jobs[:_SHOWN],
        max(0, info.in_hand - min(_SHOWN, len(info.jobs))),
        handlers[:_SHOWN],
        max(0, len(handlers) - _SHOWN),
    )


def state_of(info: WorkerInfo) -> str:
    """Whether it works, in one word or two."""
    if not info.alive:
        return "lost"
    if info.unreadable:
        return "unreadable"
    if info.paused:
        return "paused"
    if info.gate_closed:
        return "gate closed"
    return "busy" if info.concurrency and info.in_hand >= info.concurrency else "alive"
