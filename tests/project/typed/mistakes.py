"""Mistakes with typed jobs and settings of workers, each on a line that says so: checkers must flag those and no other line."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

from engine import AsyncQueue, Job, NewJob, Queue, Worker, WorkerGroup

queue = Queue("bills")
async_queue = AsyncQueue("mails")
USER = UUID(int=7)


@queue.job("bill")
def bill(user: UUID, amount: Decimal, *, note: str | None = None) -> Decimal:
    return amount


@async_queue.job("mail")
async def mail(job: Job, user: UUID, text: str) -> int | None:
    return len(text) or None


@queue.job("index", batch=50)
def index(jobs: list[Job], texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def parameters() -> None:
    bill.enqueue("7", Decimal(1))  # mistake 1: a text for a UUID
    bill.enqueue(USER)  # mistake 2: an argument is missing
    bill.enqueue(USER, Decimal(1), remark="x")  # mistake 3: no such parameter
    bill.enqueue(USER, Decimal(1), "x")  # mistake 4: a parameter that is given by name only
    bill.call(USER, amount=1.5)  # mistake 5: a float for a Decimal
    bill.new(USER, "1")  # mistake 6: a text for a Decimal
    bill.with_options(priority="high")  # mistake 7: a text for a number
    bill.with_options(dealy_ms=5)  # mistake 8: no such option
    bill.with_options(attempts=2).enqueue(Decimal(1), USER)  # mistake 9: the wrong way round
    index.enqueue(["a", "b"])  # mistake 10: a job has one item of a batch
    mail.call(USER, None)  # mistake 11: None for a text


async def async_parameters() -> None:
    await mail.aenqueue(Job, USER, "x")  # mistake 12: the Job is no argument
    await mail.acall(USER, b"x")  # mistake 13: bytes for a text


def results() -> None:
    name: str = bill.call(USER, Decimal(1))  # mistake 14: a Decimal is no text
    bill.call(USER, Decimal(1)).quantise()  # mistake 15: a Decimal has no such method
    length: int = mail.call(USER, "x")  # mistake 16: it may be None
    found: UUID = queue.results.wait("id", bill).get()  # mistake 17: a Decimal is no UUID
    many: list[NewJob] = [bill.enqueue(USER, Decimal(1))]  # mistake 18: what came of an enqueue is no new job
    score: int = queue.results.wait(bill.new(USER, Decimal(1))).get()  # mistake 25: a Decimal is no whole number
    print(name, length, found, many, score)


async def async_results() -> None:
    text: str = (await async_queue.results.wait("id", mail)).get()  # mistake 19: a number or None is no text
    score: UUID = await index.acall("a")  # mistake 20: the result of one job of a batch is a float
    waited: str = (await queue.aio.results.wait(index.new("a"))).get()  # mistake 26: a float is no text
    print(text, score, waited)


def settings() -> None:
    Worker(queue, grace=3)  # mistake 21: no such setting
    Worker(queue, lease_ms="9s")  # mistake 22: a text for a length of time
    Worker(queue, strategy="strict")  # mistake 23: a setting of groups
    WorkerGroup([queue], strategy="lazy")  # mistake 24: no such strategy
