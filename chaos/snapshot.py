"""Final snapshots: which job is in which state, as rows of the harness's history."""

from __future__ import annotations

import time

from chaos import rows
from engine import Queue
from engine.history import HistoryFile

STATES = ("waiting", "delayed", "active", "dead", "done")

#: States in which a job still has to run.
OPEN_STATES = ("waiting", "delayed", "active")


def take(queue: Queue, harness: HistoryFile, name: str) -> None:
    """Record every job of the queue under the snapshot's name (`deadline` or `end`). Raises EngineError."""
    t_ns = time.monotonic_ns()
    seen = queue.snapshot()
    for state in STATES:
        harness.append(rows.final(name, state=state, jobs=seen.states.get(state, []), srv_us=seen.srv_us), t_ns=t_ns)


def drained(queue: Queue) -> bool:
    """True when no job is left that still has to run. Raises EngineError."""
    counts = queue.counts()
    return not any(getattr(counts, state) for state in OPEN_STATES)
