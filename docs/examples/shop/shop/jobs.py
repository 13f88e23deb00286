"""The jobs of the shop: each order is charged once, and its customer gets a mail."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine import Job, Queue, effects

queue = Queue("shop", url=os.environ.get("SHOP_REDIS", "redis://127.0.0.1:6379"))


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """One transaction."""
    connection = sqlite3.connect(os.environ.get("SHOP_DB", "shop.db"), timeout=30)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("CREATE TABLE IF NOT EXISTS charges (job TEXT, buyer TEXT, cents INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS mails (job TEXT, buyer TEXT)")
        effects.create_table(connection)
        with connection:
            yield connection
    finally:
        connection.close()


@queue.job("charge", attempts=5, backoff_ms=200)
def charge(job: Job, buyer: str, cents: int) -> None:
    """Ask the bank, and write the charge down once, however often this runs."""
    time.sleep(0.05)
    with database() as connection:
        if effects.once(connection, job):
            connection.execute("INSERT INTO charges VALUES (?, ?, ?)", (job.id, buyer, cents))


@queue.job("mail", attempts=5, backoff_ms=200)
def mail(job: Job, buyer: str) -> None:
    """Send a mail. A second one is better than none: this does not ask whether it was sent before."""
    time.sleep(0.02)
    with database() as connection:
        connection.execute("INSERT INTO mails VALUES (?, ?)", (job.id, buyer))
