"""Invariants of what an enqueue is told, and of the windows of dedup keys (rules 3 and 23)."""

from __future__ import annotations

from chaos.simulate.book import Book
from chaos.simulate.children_invariants import fate
from chaos.simulate.server import Delivery
from chaos.simulate.state import State
from chaos.simulate.world import Found
from engine.ops.jobs import Enqueue, EnqueueMany

#: The outcome of what an enqueue has left that lacked a parent.
_ORPHANED = 4


def wanted_results(delivery: Delivery, book: Book) -> list[tuple[str, str]]:
    """What an enqueue must be told for each of its jobs, by the keys before it (rules 3 and 23)."""
    operation, state, now_ms = delivery.operation, delivery.before, delivery.now_ms
    jobs = operation.jobs if isinstance(operation, EnqueueMany) else (operation,) if isinstance(operation, Enqueue) else ()
    taken: set[str] = set()
    wanted: list[tuple[str, str]] = []
    for job in jobs:
        known = state.job(job.job)
        same = known is not None and known.nonce == job.nonce
        keys = [f"{kind}:{key}" for kind, key in (("unique", job.options.unique), ("dedup", job.options.dedup)) if key]
        if known is not None and known.kind == "?":
            wanted.append((job.job, ""))
        elif known is not None and (known.kind != "R" or same):
            turned_away = "orphan" if known.outcome == _ORPHANED else "duplicate"
            wanted.append((job.job, "repeated" if same and known.kind != "R" else turned_away))
        elif now_ms > job.not_after_ms:
            wanted.append((job.job, "refused"))
        elif not all(fate(state, parent) for parent in job.options.needs):
            wanted.append((job.job, "orphan"))
        elif any(key in taken or _keeps_out(state, key, job.job) for key in keys):
            wanted.append((job.job, "duplicate"))
        else:
            taken.update(keys)
            wanted.append((job.job, "created"))
    return wanted


def _keeps_out(state: State, key: str, job: str) -> bool:
    holder = state.views.get(key)
    if holder is None:
        return False
    if key.startswith("dedup:"):
        # Also a job's own window, once nothing else is left of it.
        return True
    if holder == job:
        return False
    envelope = state.job(holder)
    return envelope is not None and envelope.unique == key[7:] and envelope.kind == "J" and holder not in state.zset("dead")


def check_windows(delivery: Delivery, created: list[Enqueue], book: Book, *, clock_runs: bool) -> None:
    """Rule 23: while the window of a dedup key is open no other job with it is made."""
    for job in created:
        key = job.options.dedup
        if not key:
            continue
        until_ms, first = book.windows.get(key, (0, ""))
        if clock_runs and delivery.now_ms < until_ms:
            raise Found("dedup", f"{job.job} is made while the window that {first} opened is open", (first, job.job))
        book.windows[key] = (delivery.now_ms + job.options.dedup_ms, job.job)
