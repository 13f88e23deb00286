"""What a typed function returns comes back with its type, from every kind of worker; one whose result cannot travel is no job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Never
from uuid import UUID

import pytest

from engine import AsyncQueue, JobFailed, Malformed, NoResult, Queue, Worker
from tests.engine.helpers import typed_results
from tests.engine.helpers.typed_results import Movie, Order, Receipt, halve, move, pay
from tests.engine.using import at_work, ids_of, refused

USER, AT = UUID(int=7), datetime(2026, 2, 3, tzinfo=UTC)
RECEIPT = Receipt(USER, Decimal("1.10"), AT)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_result_comes_back_with_its_type_from_every_kind_of_worker(queue: Queue, processes: int) -> None:
    order, movie = Order(orderNumber=3, due=AT), Movie(title="Metropolis", seen=AT)
    twin = AsyncQueue("q", url=queue.url)

    async def ask() -> list[Any]:
        async with twin:
            moved = await move.with_options(queue=twin).acall(order, movie, Path("a"))
            sent = await pay.with_options(queue=twin).aenqueue(USER, Decimal("1.10"), AT)
            waited = (await twin.results.wait(sent.job, pay)).get()
            return [moved, waited, await twin.call(pay, pay.payload(USER, Decimal(2), AT))]

    with at_work(Worker(queue, typed_results.queue.handlers, processes=processes, sweep_ms=50)):
        assert pay.with_options(queue=queue).call(USER, Decimal("1.10"), AT) == RECEIPT
        assert halve.with_options(queue=queue).call(Decimal(3)) == Decimal("1.5")
        payload = pay.payload(USER, Decimal("1.10"), AT)
        # By name it is JSON, as before.
        plain = {"id": str(USER), "total": "1.10", "at": AT.isoformat(), "note": None}
        assert queue.call("pay", payload, id="p") == plain and queue.call(pay, payload) == RECEIPT
        found = queue.results.get("p", pay)
        assert found and found.value == RECEIPT and found.ok and queue.results.wait("p", pay).get() == RECEIPT
        assert asyncio.run(ask()) == [(order, movie, Path("a/moved")), RECEIPT, Receipt(USER, Decimal(2), AT)]


def test_in_a_batch_each_job_has_its_own_result_and_one_of_another_type_fails_alone(queue: Queue) -> None:
    for job, amount in (("one", 1), ("zero", 0)):
        queue.enqueue(halve, halve.payload(Decimal(amount)), id=job)
    Worker(queue, typed_results.queue.handlers, concurrency=1, sweep_ms=50).run(burst=True)
    assert queue.results.wait("one", halve).get() == Decimal("0.5")
    assert "result: None is not allowed, it must be a value of type Decimal" in queue.results.wait("zero", halve).error
    for job, amount in (("two", 2), ("nil", 0), ("negative", -1)):
        queue.enqueue(halve, halve.payload(Decimal(amount)), id=job)
    Worker(queue, typed_results.queue.handlers, concurrency=1, sweep_ms=50).run(burst=True)
    assert queue.results.wait("two", halve).get() == 1 and queue.results.wait("negative").error == "negative"
    assert sorted(ids_of(queue, "dead")) == ["negative", "nil", "zero"]


def test_by_id_and_without_annotations(queue: Queue) -> None:
    @queue.job("by-id", batch=5)
    def by_id(jobs, numbers: list[int]) -> dict[str, Decimal]:
        return {job.id: Decimal(number) for job, number in zip(jobs, numbers, strict=True)}

    @queue.job("any")
    def anything(number: int):
        return [number, None, {"a": (1, 2)}]

    @queue.job("nothing", batch=5)
    def nothing(numbers: list[int]) -> None: ...

    with at_work(Worker(queue, sweep_ms=50)):
        assert by_id.call(3) == Decimal(3) and nothing.call(1) is None
        assert anything.call(1) == [1, None, {"a": [1, 2]}]


@pytest.mark.parametrize("returns", [Queue, Sequence[complex], UUID | str, "NotThere", Iterator[int], dict[int, str]])
def test_a_function_whose_result_cannot_travel_is_refused_when_it_is_decorated(nowhere: Queue, returns: Any) -> None:
    def work(number: int) -> Any: ...
    async def later(number: int) -> Any: ...
    def many(numbers: list[int]) -> Any: ...

    for function in (work, later):
        function.__annotations__["return"] = returns
        refused(Malformed, "^handler: .* it must be a function ", nowhere.job("work"), function)
    for each in (list[returns] if returns != "NotThere" else returns, UUID, tuple[int, ...]):
        many.__annotations__["return"] = each
        refused(Malformed, "^handler: .* it must be a function ", nowhere.job("work", batch=5), many)
    assert nowhere.handlers.by_name == {}


def test_one_that_never_returns_is_a_job(nowhere: Queue) -> None:
    @nowhere.job("never")
    def never() -> Never:
        raise ValueError

    assert never.parameters.result.name == "None"


def test_what_is_not_of_the_declared_type_is_a_failed_run(queue: Queue) -> None:
    @queue.job("wrong", attempts=1)
    def wrong(number: int) -> UUID:
        return number  # type: ignore[return-value]

    with at_work(Worker(queue, sweep_ms=50)):
        refused(JobFailed, "result: an int .* must be a value of type UUID", wrong.with_options(id="w").call, 5)
        found = queue.results.wait("w", wrong)
        assert (found.outcome, found.value, found.kept) == ("dead", None, True)


def test_a_result_that_is_not_kept_is_told_from_none(queue: Queue) -> None:
    @queue.job("add", result_ttl_ms=0)
    def add(number: int) -> int:
        return number + 1

    @queue.job("maybe", result_ttl_ms=0)
    def maybe(number: int) -> int | None:
        return None

    with at_work(Worker(queue, sweep_ms=50)):
        with pytest.raises(NoResult, match="^job lost has finished, and what it returned is not kept") as caught:
            add.with_options(id="lost").call(1)
        assert caught.value.job == "lost" and maybe.call(1) is None
        found = queue.results.get("lost", add)
        assert found and (found.kept, found.value, found.ok) == (False, None, True)
        assert queue.results.wait("lost").get() is None and queue.results.get("nobody", add) is None


def test_a_result_of_another_type_than_this_process_knows(queue: Queue) -> None:
    """As when a worker of another version has written it."""

    @queue.job("work")
    def work() -> str:
        return "text"

    def other() -> UUID: ...  # type: ignore[empty-body]

    reader = Queue("q", url=queue.url).job("work")(other)
    with at_work(Worker(queue, sweep_ms=50)):
        work.with_options(id="w").call()
        with pytest.raises(Malformed, match="^result: a str of length 4 is not allowed, it must be a value of type UUID"):
            queue.results.wait("w", reader)
    assert queue.results.wait("w").get() == "text"
