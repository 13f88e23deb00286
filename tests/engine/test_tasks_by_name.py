"""A function that is a job, under its name: what is enqueued or scheduled is checked against its parameters, a task stands where
a name does, and is called like a function from far away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from engine import AsyncQueue, JobFailed, Malformed, NewJob, Queue, TimedOut, Worker
from tests.engine.using import at_work, ids_of, refused


class Sealed:
    """A serialiser whose producers cannot read what they write."""

    name = "sealed"

    def dumps(self, payload: Any) -> bytes:
        return b"\x00"

    def loads(self, data: bytes) -> Any:
        raise PermissionError("only workers")


def register(queue: Queue | AsyncQueue) -> Any:
    @queue.job("work", attempts=7, priority=9)
    def work(user: int, day: date | None = None) -> int:
        return user + 1

    return work


UNFIT: list[tuple[Any, str]] = [
    ({"user": "3"}, r"payload\.user: a str of length 1 is not allowed, it must be a value of type int"),
    ({"user": 3, "day": 5}, r"payload\.day: an int is not allowed, it must be a value of type date or None"),
    ({}, r"payload\.user: missing, it must be given, a value of type int"),
    ({"user": 3, "when": 1}, r"payload\.when: an int is not allowed, it must be left out: the parameters are \(user: "),
    ([3], r"payload: a list of length 1 is not allowed, it must be an object with the parameters of \(user: "),
    (b"3", r"payload: a bytes of length 1 is not allowed, it must be an object"),
]
WAYS: list[Callable[[Queue, Any, Any], Any]] = [
    lambda queue, job, payload: queue.enqueue(job, payload), lambda queue, job, payload: queue.call(job, payload),
    lambda queue, job, payload: queue.schedules.put("s", job, payload, every_ms=1000),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=["enqueue", "call", "schedules.put"])
@pytest.mark.parametrize(("payload", "message"), UNFIT, ids=range(len(UNFIT)))
def test_what_does_not_fit_the_function_of_a_name_is_refused_before_any_io(
    nowhere: Queue, way: Callable[..., Any], payload: Any, message: str
) -> None:
    work = register(nowhere)
    for job in ("work", work, work.with_options(attempts=1)):
        refused(Malformed, f"^{message}", way, nowhere, job, payload)


def test_one_of_many_that_does_not_fit_is_named_by_its_place(nowhere: Queue) -> None:
    register(nowhere)
    with pytest.raises(Malformed, match=r"^jobs\[1\]\.payload\.user: a str of length 1 "):
        nowhere.enqueue_many([NewJob("other", "x"), {"name": "work", "payload": {"user": "x"}}])


def test_what_hooks_make_of_a_job_is_what_is_checked(nowhere: Queue) -> None:
    work = register(nowhere)

    @nowhere.hooks.before
    def change(job: NewJob) -> None:
        job.payload = {"user": "changed"}

    for job in ("work", work):
        refused(Malformed, r"^payload\.user: a str of length 7 ", nowhere.enqueue, job, {"user": 3})


def test_what_arrives_is_checked_and_not_what_was_given(ironclaim_url: str) -> None:
    """JSON makes lists of tuples; and who only can write a payload is believed."""
    with Queue("q", url=ironclaim_url, serializers=[Sealed()]) as queue:

        @queue.job("sum")
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        queue.enqueue("sum", {"numbers": (1, 2)})
        queue.enqueue("sum", {"numbers": "no list"}, serializer="sealed")
        assert queue.counts().waiting == 2 and total([1]) == 1


@pytest.mark.feature("MQ01")
def test_a_task_stands_for_its_name_and_its_options(queue: Queue) -> None:
    work = register(Queue("elsewhere"))
    queue.enqueue(work, work.payload(3), id="t")
    queue.enqueue(work.with_options(id="own", priority=2), {"user": 3}, attempts=1)
    queue.enqueue_many([NewJob(work.with_options(id="many"), work.payload(3), priority=3)])
    told = [queue.jobs.get(job) for job in ("t", "own", "many")]
    found = [(job.name, job.options.attempts, job.options.priority) for job in told if job]
    assert found == [("work", 7, 9), ("work", 1, 2), ("work", 7, 3)]


def test_a_task_has_schedules(queue: Queue) -> None:
    work = register(queue)

    @queue.job("ping")
    def ping() -> None: ...

    assert queue.schedules.put("nightly", work, work.payload(3, date(2026, 2, 3)), cron="0 3 * * *", attempts=2) == "new"
    assert queue.schedules.put("pulse", ping, every_ms=1000) == "new"
    nightly, pulse = queue.schedules.get("nightly"), queue.schedules.get("pulse")
    assert nightly and pulse and (nightly.payload, pulse.payload) == ({"user": 3, "day": "2026-02-03"}, {})
    assert (nightly.job_name, nightly.options.attempts, nightly.options.priority) == ("work", 2, 9)
    with pytest.raises(Malformed, match="^arguments: .*missing a required argument: 'user'"):
        queue.schedules.put("nightly", work, cron="0 3 * * *")
    with pytest.raises(Malformed, match="^id: 'one' is not allowed, it must be left out"):
        queue.schedules.put("pulse", ping.with_options(id="one"), every_ms=1000)
    refused(Malformed, "^name: 5 ", queue.schedules.put, "pulse", 5, every_ms=1000)


def test_a_task_stands_for_its_name_in_pauses_and_limits(queue: Queue) -> None:
    work = register(queue)
    queue.pause(work)
    assert [pause.name for pause in queue.obstacles().pauses] == ["work"] and queue.resume(work) and not queue.resume("work")
    queue.set_limit(work, concurrency=1)
    assert len(queue.limits()) == 1
    queue.remove_limit(work)
    assert not queue.limits()


def test_a_word_that_put_does_not_know_is_named_with_the_right_one(nowhere: Queue) -> None:
    work = register(nowhere)
    for given, perhaps in (("every", "every_ms"), ("seconds", "every_ms"), ("timezone", "zone"), ("atempts", "attempts")):
        with pytest.raises(Malformed, match=f"^{given}: .* a parameter of put or an option of jobs, perhaps {perhaps}$"):
            nowhere.schedules.put("s", work, work.payload(3), **{given: 5})  # type: ignore[arg-type]


async def ask(url: str) -> list[Any]:
    async with AsyncQueue("q", url=url) as queue:
        task = register(queue)
        with pytest.raises(Malformed, match=r"^payload\.user: "):
            await queue.enqueue(task, {})
        with pytest.raises(Malformed, match=r"^payload\.user: "):
            await queue.schedules.put("s", "work", {}, every_ms=1000)
        with pytest.raises(Malformed, match="^user: a str of length 1 "):
            await task.acall("x")
        for blocking, instead in ((task.call, "acall"), (task.enqueue, "aenqueue")):
            refused(Malformed, rf"^event loop: .* it must be left free: await work\.{instead}", blocking, 5)
        return [await task.acall(5), await task.with_options(priority=1).acall(user=6)]


@pytest.mark.feature("MQ01")
def test_a_call_waits_for_what_the_function_returns(queue: Queue) -> None:
    work = register(queue)

    @queue.job("fail", attempts=1)
    def fail(why: str) -> None:
        raise ValueError(why)

    refused(Malformed, "^user: a str of length 1 ", work.call, "x")
    refused(TimedOut, "late has not ended within 10 ms", work.with_options(wait_ms=10, id="late").call, 1)
    for bad in (-1, True, "5"):
        refused(Malformed, "^wait_ms: ", work.with_options, wait_ms=bad)
    with at_work(Worker(queue, sweep_ms=50)):
        assert work.call(41) == 42 and work.with_options(id="named", wait_ms=20_000).call(user=1) == 2
        refused(JobFailed, "ValueError: no", fail.call, "no")
        assert asyncio.run(ask(queue.url)) == [6, 7]
    assert {"named", "late"} <= set(ids_of(queue, "done"))
