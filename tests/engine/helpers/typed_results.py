"""Typed functions with typed results, for workers and their child processes."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import NotRequired, TypedDict
from uuid import UUID

from pydantic import BaseModel, Field

from engine import BatchFailed, Job, Queue

queue = Queue("q", url="redis://127.0.0.1:1")


@dataclass
class Receipt:
    id: UUID
    total: Decimal
    at: datetime
    note: str | None = None


class Movie(TypedDict):
    title: str
    seen: NotRequired[datetime]


class Order(BaseModel):
    number: int = Field(alias="orderNumber", gt=0)
    due: datetime


@queue.job("pay", attempts=1)
def pay(user: UUID, amount: Decimal, at: datetime) -> Receipt:
    """A plain function."""
    return Receipt(user, amount, at)


@queue.job("move", attempts=1)
async def move(order: Order, movie: Movie, path: Path) -> tuple[Order, Movie, Path]:
    """A coroutine."""
    await asyncio.sleep(0)
    return order, movie, path / "moved"


@queue.job("halve", batch=10, attempts=1)
def halve(jobs: list[Job], amounts: list[Decimal]) -> list[Decimal]:
    """A batch, of which a zero ends with a result of another type, and a negative one fails."""
    halves = [amount / 2 if amount else None for amount in amounts]
    lost = {job.id: "negative" for job, amount in zip(jobs, amounts, strict=True) if amount < 0}
    if lost:
        raise BatchFailed(lost, {job.id: half for job, half in zip(jobs, halves, strict=True) if job.id not in lost})
    return halves  # type: ignore[return-value]
