"""What `recording` is in a measurement: the times of jobs, and the loops that enqueue. Standard library alone.

The records are a file of int64: for each job, by its number, the monotonic nanoseconds at which it was enqueued, first started,
first ended, and started once more. Jobs below 0 only warm up.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from order import ORDER

JOBS: int = ORDER["jobs"]
ENQUEUED, STARTED, ENDED, STARTED_AGAIN = range(4)
#: Jobs of one bulk call.
BULK = 1000
_WARM_UP: int = ORDER["warm_up"]

with open(ORDER["records"], "r+b") as _file:
    _cells = memoryview(mmap.mmap(_file.fileno(), 0)).cast("q")


def record(which: int, number: int) -> None:
    """Write the time of what has happened to a job."""
    if number >= 0:
        _cells[which * JOBS + number] = time.monotonic_ns()


def _start(number: int) -> None:
    record(STARTED_AGAIN if number >= 0 and _cells[STARTED * JOBS + number] else STARTED, number)


def job(number: int, payload: dict[str, Any]) -> None:
    """The handler of all libraries that run functions."""
    _start(number)
    if ORDER["handler_s"] and number >= 0:
        time.sleep(ORDER["handler_s"])
    record(ENDED, number)


async def job_async(number: int, payload: dict[str, Any]) -> None:
    """The handler of all libraries that run coroutines."""
    _start(number)
    if ORDER["handler_s"] and number >= 0:
        await asyncio.sleep(ORDER["handler_s"])
    record(ENDED, number)


class _Stopwatch:
    """Prints the seconds and CPU seconds of what it surrounds."""

    def __enter__(self) -> None:
        self._cpu_s, self._from_ns = time.process_time(), time.monotonic_ns()

    def __exit__(self, *_: object) -> None:
        seconds, cpu_s = (time.monotonic_ns() - self._from_ns) / 1e9, time.process_time() - self._cpu_s
        print(json.dumps({"seconds": seconds, "cpu_s": cpu_s}), flush=True)


def _due_times() -> Iterable[float]:
    """The monotonic time at which each job of a paced run is to be enqueued."""
    start_s = time.monotonic() + 0.05
    return (start_s + number / ORDER["rate"] for number in range(JOBS))


def produce(enqueue: Callable[[int], Any], enqueue_bulk: Callable[[list[int]], Any] | None = None) -> None:
    """Enqueue all jobs of the order, one after the other, at a rate, or many by one call."""
    if ORDER["way"] == "bulk":
        assert enqueue_bulk is not None
        with _Stopwatch():
            for start in range(0, JOBS, BULK):
                enqueue_bulk(list(range(start, min(start + BULK, JOBS))))
        return
    for _ in range(_WARM_UP):
        enqueue(-1)
    if ORDER["way"] == "paced":
        with _Stopwatch():
            for number, due_s in enumerate(_due_times()):
                time.sleep(max(0.0, due_s - time.monotonic()))
                record(ENQUEUED, number)
                enqueue(number)
        return
    with _Stopwatch():
        for number in range(JOBS):
            record(ENQUEUED, number)
            enqueue(number)


async def produce_async(
    enqueue: Callable[[int], Awaitable[Any]], enqueue_bulk: Callable[[list[int]], Awaitable[Any]] | None = None
) -> None:
    """As `produce`, under asyncio; `in_flight` jobs at once are as many tasks that enqueue one after the other."""
    if ORDER["way"] == "bulk":
        assert enqueue_bulk is not None
        with _Stopwatch():
            for start in range(0, JOBS, BULK):
                await enqueue_bulk(list(range(start, min(start + BULK, JOBS))))
        return
    for _ in range(_WARM_UP):
        await enqueue(-1)
    if ORDER["way"] == "paced":
        with _Stopwatch():
            for number, due_s in enumerate(_due_times()):
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                record(ENQUEUED, number)
                await enqueue(number)
        return
    numbers = iter(range(JOBS))

    async def lane() -> None:
        for number in numbers:
            record(ENQUEUED, number)
            await enqueue(number)

    count = ORDER["in_flight"] if ORDER["way"] == "in_flight" else 1
    await asyncio.gather(*(enqueue(-1) for _ in range(count if _WARM_UP else 0)))
    with _Stopwatch():
        await asyncio.gather(*(lane() for _ in range(count)))
