"""A service whose jobs take effect once, however often they run: what is drilled to see a defect of `effects.once`."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine import Job, Queue, effects

#: Most handlers that run when a worker freezes are in this part, and not in the database.
WORK_S = 0.3

queue = Queue("effectful")


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """One transaction."""
    connection = sqlite3.connect(os.environ["EFFECTFUL_DB"], timeout=30)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS counted (job TEXT)")
        effects.create_table(connection)
        with connection:
            yield connection
    finally:
        connection.close()


@queue.job("count", attempts=5, backoff_ms=200)
def count(job: Job) -> None:
    """Work, and take effect."""
    time.sleep(WORK_S)
    with database() as connection:
        if effects.once(connection, job):
            connection.execute("INSERT INTO counted VALUES (?)", (job.id,))


def load(seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Jobs without end."""
    while True:
        yield count, {}


def counted() -> list[tuple[str, int]]:
    """How often each job took effect."""
    with database() as connection:
        return connection.execute("SELECT job, count(*) FROM counted GROUP BY job").fetchall()
