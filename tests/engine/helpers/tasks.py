"""Typed functions that are jobs of a queue, for worker processes: what they were called with stands in the folder of the test."""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from uuid import UUID

from engine import AsyncQueue, Job, Queue

queue = Queue("q", url="redis://127.0.0.1:1")
async_queue = AsyncQueue("q", url="redis://127.0.0.1:1")


class Colour(Enum):
    RED, BLUE = "red", "blue"


@dataclass
class Address:
    street: str
    number: int | None = None


def _tell(folder: str, name: str, *values: object) -> None:
    Path(folder, name).write_text(json.dumps([f"{type(value).__name__}:{value}" for value in values]))


@queue.job("typed", attempts=4)
def typed(folder: str, user: UUID, at: datetime, colour: Colour = Colour.RED, *, to: list[Address]) -> None:
    """A plain function with typed parameters."""
    _tell(folder, "typed", user, at, colour, to[0], to[0].number)


@queue.job("with-job")
def with_job(job: Job, folder: str, count: int) -> None:
    """One that wants to know its run."""
    _tell(folder, f"with-job-{job.attempt}", job.id, count)
    if job.attempt == 1:
        raise ValueError("once more")


@async_queue.job("typed-async")
async def typed_async(folder: str, data: bytes) -> None:
    """A coroutine."""
    await asyncio.sleep(0)
    _tell(folder, "typed-async", data)


renamed_queue = Queue("q", url="redis://127.0.0.1:1")


@renamed_queue.job(aliases=["send", "old.send"])
def welcome(user: int) -> str:
    """A job that had other names before."""
    return f"to {user}"


def plain_welcome(user: int) -> str:
    return f"to {user}"
