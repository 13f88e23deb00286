"""Typed functions that take batches, for workers and their child processes."""

import asyncio
import os
from typing import NamedTuple
from uuid import UUID

from engine import BatchFailed, Job, Queue

queue = Queue("q", url="redis://127.0.0.1:1")


class Kind(NamedTuple):
    """Of a handler, and the settings of a worker for it."""

    name: str
    processes: int = 0


KINDS = [Kind("plain"), Kind("inline"), Kind("async"), Kind("plain", processes=1)]


def _told(jobs: list[Job], users: list[UUID], counts: list[int]) -> list[list[object]]:
    each = zip(jobs, users, counts, strict=True)
    told = [[job.id, type(user).__name__, count, len(jobs), os.getpid()] for job, user, count in each]
    if 13 in counts:
        raise BatchFailed({jobs[counts.index(13)].id: "unlucky"}, {str(one[0]): one for one in told})
    return told


@queue.job("plain", batch=10, attempts=1)
def plain(jobs: list[Job], users: list[UUID], *, counts: list[int]) -> list[list[object]]:
    """In a thread, or a child process."""
    return _told(jobs, users, counts)


@queue.job("inline", batch=10, inline=True, attempts=1)
def inline(jobs: list[Job], users: list[UUID], *, counts: list[int]) -> list[list[object]]:
    """In the thread of the worker."""
    return _told(jobs, users, counts)


@queue.job("async", batch=10, attempts=1)
async def coroutine(jobs: list[Job], users: list[UUID], *, counts: list[int]) -> list[list[object]]:
    """On the loop of the worker."""
    await asyncio.sleep(0)
    return _told(jobs, users, counts)


@queue.job("count", batch=10)
def count(words: list[str]) -> list[int]:
    """Without the jobs."""
    return [len(word) for word in words]
