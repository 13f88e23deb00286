"""Typed jobs as a service writes them: no type checker has anything to say. Nothing here is run: see test_typed.py."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, TypedDict, Unpack, assert_type
from uuid import UUID

from pydantic import BaseModel

from engine import (
    AsyncQueue,
    Enqueued,
    GroupSettings,
    Handlers,
    Job,
    NewJob,
    Queue,
    Result,
    Task,
    TaskJob,
    Worker,
    WorkerGroup,
    WorkerSettings,
)

queue = Queue("bills")
async_queue = AsyncQueue("mails")


@dataclass
class Bill:
    id: UUID
    total: Decimal


class Address(TypedDict):
    street: str


class User(BaseModel):
    name: str


@queue.job("bill", attempts=5)
def bill(user: UUID, amount: Decimal, *, day: date | None = None) -> Bill:
    return Bill(user, amount)


@async_queue.job("mail", priority=9)
async def mail(job: Job, to: User, address: Address) -> int | None:
    return len(to.name) or None


@queue.job("index", batch=50)
def index(jobs: list[Job], texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


@async_queue.job("tag", batch=50)
async def tag(texts: list[str]) -> list[UUID]:
    return [UUID(int=len(text)) for text in texts]


@queue.job("sum")
def summed(job: Job) -> Decimal:
    assert_type(job.results.of(bill), dict[str, Bill])
    assert_type(list(job.results.of(mail).values()), list[int | None])
    return sum((one.total for one in job.results.of(bill).values()), Decimal())


twice = async_queue.job("bill-again")(bill)
USER = UUID(int=7)


def call() -> None:
    assert_type(bill(USER, Decimal(1)), Bill)
    assert_type(bill.call(USER, Decimal(1), day=date(2026, 2, 3)), Bill)
    assert_type(bill.enqueue(USER, Decimal(1)), Enqueued)
    assert_type(bill.with_options(delay_ms=5, wait_ms=10, queue=async_queue).call(USER, amount=Decimal(1)), Bill)
    assert_type(twice.call(USER, Decimal(1)), Bill)
    job = bill.new(USER, Decimal(1))
    assert_type(job, TaskJob[Bill])
    assert_type(job.id, str)
    as_any_job: NewJob = job
    queue.enqueue_many([job, as_any_job])
    assert_type(queue.results.wait(job, wait_ms=5), Result[Bill])
    assert_type(queue.results.get(job), Result[Bill] | None)
    assert_type(queue.results.wait(job.id, bill).get(), Bill)
    assert_type(queue.results.wait(index.new("a")).get(), float)
    made: Coroutine[Any, Any, int | None] = mail(User(name="a"), {"street": "b"})
    made.close()
    assert_type(mail.call(User(name="a"), {"street": "b"}), int | None)
    assert_type(index("a"), list[float])
    assert_type(index.call("a"), float)
    assert_type(tag.call("a"), UUID)
    assert_type(queue.call(bill, bill.payload(USER, Decimal(1))), Bill)
    assert_type(queue.call("bill", {}), Any)
    assert_type(queue.results.get("id", bill), Result[Bill] | None)
    assert_type(queue.results.wait("id", bill, wait_ms=5).get(), Bill)
    assert_type(queue.results.wait("id", mail).value, int | None)
    assert_type(queue.results.wait("id").get(), Any)
    queue.enqueue_many([bill.new(USER, Decimal(1)), index.new("a")])


async def acall() -> None:
    assert_type(await bill.acall(USER, Decimal(1)), Bill)
    assert_type(await mail.acall(User(name="a"), {"street": "b"}), int | None)
    assert_type(await mail(User(name="a"), address={"street": "b"}), int | None)
    assert_type(await tag.acall("a"), UUID)
    assert_type(await mail.with_options(attempts=2).aenqueue(User(name="a"), {"street": "b"}), Enqueued)
    assert_type(await async_queue.call(mail, {}), int | None)
    assert_type(await async_queue.results.get("id", mail), Result[int | None] | None)
    assert_type((await async_queue.results.wait("id", bill)).get(), Bill)
    assert_type(queue.aio, AsyncQueue)
    jobs = [bill.new(USER, Decimal(1)), bill.new(USER, amount=Decimal(2))]
    assert_type(await queue.aio.enqueue_many(jobs), list[Enqueued])
    assert_type([(await queue.aio.results.wait(job)).get() for job in jobs], list[Bill])
    assert_type(await async_queue.aio.results.get(mail.new(User(name="a"), {"street": "b"})), Result[int | None] | None)
    assert_type(await queue.aio.metrics(), str)
    await async_queue.schedules.put("daily", mail, mail.payload(User(name="a"), {"street": "b"}), cron="0 4 * * *")


def of_any_kind(task: Task[[UUID, Decimal], Bill]) -> Decimal:
    return task.call(USER, Decimal(1)).total


def with_short_leases(**settings: Unpack[WorkerSettings]) -> Worker:
    settings["lease_ms"] = timedelta(seconds=2)
    return Worker(queue, **settings)


def group(**settings: Unpack[GroupSettings]) -> WorkerGroup:
    assert WorkerGroup([queue, async_queue], strategy="shuffle", grace_ms=5)
    return WorkerGroup([queue], **settings)


def is_busy(error: OSError) -> bool:
    return error.errno == 11


@queue.job(aliases=["send"], retry_on=[ConnectionError, is_busy], bury_on=ValueError)
def send(user: str) -> int:
    return len(user)


@queue.job(batch=9, bury_on=lambda error: "never" in str(error))
def send_all(users: list[str]) -> None: ...


def ruled() -> Handlers:
    handlers = Handlers(retry_on=is_busy, bury_on=(LookupError, TypeError))

    @handlers("work", bury_on=[ValueError])
    def work(job: Job) -> None: ...

    assert_type(send("ada"), int)
    assert_type(send.call("ada"), int)
    assert_type(send_all.enqueue("ada"), Enqueued)
    return handlers
