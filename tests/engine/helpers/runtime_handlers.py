"""Handlers that take too long, in each way in which a handler can run. They tell what they do as `worker_handlers` does."""

import asyncio
import time

from engine import Handlers, Job
from tests.engine.helpers import worker_handlers
from tests.engine.helpers.worker_handlers import mark_in

handlers = Handlers()


handlers("hold")(worker_handlers.hold)
handlers("hold-inline", inline=True)(worker_handlers.hold)
handlers("note")(worker_handlers.mark)


@handlers("hold-async")
async def hold_async(job: Job) -> None:
    """Run until it is cancelled; then clean up."""
    mark_in(job, "start")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0.01)
        mark_in(job, "cleaned")
        raise


@handlers("deaf-async")
async def deaf_async(job: Job) -> None:
    """Return in spite of being cancelled: its work is done."""
    mark_in(job, "start")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        mark_in(job, "end")


@handlers("more-time")
def more_time(job: Job) -> None:
    """Ask for a minute, and take longer than at first allowed."""
    mark_in(job, "start")
    job.extend(60_000)
    time.sleep(job.timeout_ms / 1000 * 1.2)
    mark_in(job, "end")


@handlers("grow")
def grow(job: Job) -> None:
    """Take memory and keep it."""
    kept.append(bytearray(job.payload["bytes"]))
    mark_in(job, "ran")


kept: list[bytearray] = []


@handlers("raise")
def throw(job: Job) -> None:
    """Fail."""
    raise ValueError("no")
