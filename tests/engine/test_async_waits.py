"""What holds up the event loop of async handlers: a call that waits is refused there, and a loop that stands still is told."""

import asyncio
import threading
from typing import Any

import pytest

from engine import Handlers, Job, Malformed, Queue, Worker, WorkerGroup
from tests.engine.using import at_work, refused, seen, wait_until

WAITS: dict[str, Any] = {
    "call": lambda queue: queue.call("quick", 1, id="made"), "results.wait": lambda queue: queue.results.wait("a"),
    "events.read": lambda queue: next(iter(queue.events.read("0"))),
}  # fmt: skip


@pytest.mark.parametrize("call", WAITS)
def test_a_call_that_waits_is_refused_in_an_async_handler_at_once_and_sends_nothing(queue: Queue, call: str) -> None:
    handlers, ends = Handlers(), list[str]()

    async def child() -> None:
        WAITS[call](queue)

    @handlers("slow")
    async def slow(job: Job) -> None:
        said = str(refused(Malformed, "", WAITS[call], queue))
        # Also in a task that it has started; but not in a thread, and what does not wait may be called.
        assert isinstance((await asyncio.gather(child(), return_exceptions=True))[0], Malformed)
        queue.enqueue("later", 2, id="later", delay_ms=60_000)
        await asyncio.to_thread(queue.jobs.get, "a")
        ends.append(said)

    queue.enqueue("slow", 1, id="a", attempts=1)
    assert Worker(queue, handlers).run(burst=True, delayed=False) == "empty"
    assert len(ends) == 1 and f"await queue.aio.{call}(...)" in ends[0] and ends[0].startswith(f"{call}: ")
    assert queue.counts().dead == 0 and queue.jobs.get("made") is None


def test_the_wait_of_a_task_names_what_to_await_and_that_is_awaited(queue: Queue) -> None:
    found = list[Any]()

    @queue.job("quick")
    def quick(number: int) -> int:
        return number + 1

    @queue.job("slow", attempts=1)
    async def slow() -> None:
        refused(Malformed, r"call: 'quick' .*of a task acall\(\.\.\.\)", quick.call, 1)
        found.append(await quick.acall(1))
        found.append((await queue.aio.results.wait((await quick.aenqueue(2)).job)).get())

    slow.enqueue()
    assert Worker(queue).run(burst=True) == "empty" and found == [2, 3]


def test_other_loops_wait_on_purpose_and_so_do_threads(queue: Queue) -> None:
    @queue.job("quick")
    def quick(number: int) -> int:
        return number + 1

    async def notebook() -> int:
        return quick.call(1)

    with at_work(Worker(queue)):
        assert asyncio.run(notebook()) == 2


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("within", [False, True], ids=["in the handler", "in a task of it"])
def test_a_loop_that_stands_still_is_told_once(queue: Queue, caplog: pytest.LogCaptureFixture, group: bool, within: bool) -> None:
    handlers, told, there = Handlers(), threading.Event(), threading.Event()

    def still() -> list[Any]:
        return [one for one in caplog.records if "stood still" in one.getMessage()]

    async def block() -> None:
        wait_until(still, "the log tells it", 20)
        told.set()

    @handlers("work")
    async def work(job: Job) -> None:
        await seen(there.is_set)
        await (asyncio.create_task(block()) if within else block())

    @handlers("other")
    async def other(job: Job) -> None:
        there.set()
        await seen(told.is_set)

    queue.enqueue("other", 1, id="b")
    queue.enqueue("work", 1, id="a")
    (WorkerGroup([queue], handlers).run if group else Worker(queue, handlers).run)(burst=True)
    (one,) = still()
    who = "a task that a handler has started" if within else "job a (work)"
    assert one.levelname == "WARNING" and who in one.getMessage() and "all its jobs (2)" in one.getMessage()
    assert queue.counts().finished == 2
