"""Jobs that many tasks enqueue one by one leave together, and each call keeps its own identity, order and outcome."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest

from engine import AsyncQueue, Queue, WrongKeyType
from engine.testing import EmbeddedServer
from engine.wire.drivers import async_gathering
from engine.wire.drivers.async_connections import CONNECTIONS_MAX
from tests.engine.helpers.producing import ids_of, raw_client
from tests.engine.helpers.relay import Relay


@pytest.fixture
def relay(ironclaim_server: EmbeddedServer, ironclaim_url: str) -> Iterator[Relay]:
    with Relay(ironclaim_server.port) as made:
        yield made


@pytest.fixture
def direct(ironclaim_url: str) -> Iterator[Queue]:
    made = Queue("q", url=ironclaim_url)
    yield made
    made.close()


def writes_of(relay: Relay) -> list[int]:
    """The number of calls in each write from now on."""
    calls: list[int] = []
    relay.before_call = lambda data: calls.append(data.count(b"EVALSHA"))
    return calls


async def started(queue: AsyncQueue, *jobs: str, payload: object = None) -> list[asyncio.Task[Any]]:
    """Tasks that enqueue these jobs: the first call has left, the others wait for its reply."""
    await queue.enqueue("work", None, id="contact")
    tasks = [asyncio.create_task(queue.enqueue("work", payload, id=job)) for job in jobs]
    await asyncio.sleep(0)
    return tasks


def test_calls_that_come_while_one_is_under_way_leave_together_in_their_order(relay: Relay, direct: Queue) -> None:
    jobs = [f"j{number}" for number in range(100)]

    async def story() -> list[int]:
        async with AsyncQueue("q", url=relay.url) as queue:
            tasks = await started(queue, *jobs)
            calls = writes_of(relay)
            assert {(await task).result for task in tasks} == {"created"}
            assert len(queue.driver._connections._idle) <= 2
            return calls

    calls = asyncio.run(story())
    assert sum(calls) in (99, 100) and max(calls) == 99, "the first one may have passed the relay before it was asked"
    assert ids_of(direct, "waiting") == ["contact", *jobs]


def test_a_batch_is_bounded_in_calls_and_in_bytes(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_gathering, "BATCH_CALLS_MAX", 10)
    monkeypatch.setattr(async_gathering, "BATCH_BYTES_MAX", 2_500)
    # Overdue batches are of another test.
    monkeypatch.setattr(async_gathering, "OVERDUE_S", 60.0)

    async def story(payload: object) -> list[int]:
        async with AsyncQueue("q", url=relay.url) as queue:
            tasks = await started(queue, *(f"{len(str(payload))}-{number}" for number in range(21)), payload=payload)
            calls = writes_of(relay)
            await asyncio.gather(*tasks)
            return calls[-2:]

    assert asyncio.run(story("")) == [10, 10]
    assert asyncio.run(story("x" * 1_000)) == [3, 2], "2,500 bytes are reached with the third"


def test_a_task_that_is_cancelled_before_its_call_has_left_takes_it_back(ironclaim_url: str, direct: Queue) -> None:
    async def story() -> None:
        async with AsyncQueue("q", url=ironclaim_url) as queue:
            first, second, third = await started(queue, "a", "b", "c")
            second.cancel()
            assert [(await task).job for task in (first, third)] == ["a", "c"]
            assert second.cancelled()

    asyncio.run(story())
    assert ids_of(direct, "waiting") == ["contact", "a", "c"]


def test_a_task_that_is_cancelled_later_leaves_its_neighbours_alone(relay: Relay, direct: Queue) -> None:
    async def story() -> None:
        async with AsyncQueue("q", url=relay.url) as queue:
            tasks = await started(queue, "a", "b", "c")
            await tasks[0]
            calls, left = relay.calls, asyncio.get_running_loop().time() + 10
            while relay.calls == calls and not tasks[2].done() and asyncio.get_running_loop().time() < left:
                await asyncio.sleep(0)
            tasks[1].cancel()
            assert (await tasks[2]).result == "created"
            assert not queue.driver.turns.locked()

    asyncio.run(story())
    assert {"a", "c"} <= set(ids_of(direct, "waiting"))


def test_the_error_of_one_call_is_the_error_of_its_task_alone(ironclaim_url: str, direct: Queue) -> None:
    with raw_client(ironclaim_url) as client:
        client.set(direct.model.keys.lane("bad"), "no zset")

    async def story() -> None:
        async with AsyncQueue("q", url=ironclaim_url) as queue:
            await queue.enqueue("work", None, id="contact")
            bad = queue.enqueue("bad", None, id="b")
            ends = await asyncio.gather(
                queue.enqueue("work", None, id="a"), bad, queue.enqueue("work", None, id="c"), return_exceptions=True
            )
            assert [getattr(end, "result", type(end)) for end in ends] == ["created", WrongKeyType, "created"]

            def cannot_be_built() -> Any:
                raise ValueError("no call")

            calls = (queue.driver.send_gathered(cannot_be_built, 0) for _ in range(3))
            ends = await asyncio.gather(queue.enqueue("work", None, id="d"), *calls, return_exceptions=True)
            assert [type(end).__name__ for end in ends] == ["Enqueued", *["ValueError"] * 3]
            assert (await queue.enqueue("work", None, id="e")).result == "created"

    asyncio.run(story())
    assert ids_of(direct, "waiting") == ["contact", "a", "c", "d", "e"]


@pytest.mark.parametrize("rule", ["lose_reply", "lose_request", "cut_request", "cut_reply", "one_reply"])
def test_a_batch_that_meets_a_broken_connection_is_sent_again_and_each_job_is_there_once(
    relay: Relay, direct: Queue, rule: Any
) -> None:
    jobs = [f"j{number}" for number in range(50)]

    async def story() -> None:
        async with AsyncQueue("q", url=relay.url) as queue:
            tasks = await started(queue, *jobs)
            await tasks[0]
            relay.next(rule)
            results = [(await task).result for task in tasks]
            assert set(results) <= {"created", "repeated"}

    asyncio.run(story())
    assert sorted(ids_of(direct, "waiting")) == sorted(["contact", *jobs])


def test_a_batch_without_an_answer_holds_up_no_later_one(relay: Relay, direct: Queue) -> None:
    """The reply never comes, which the driver waits two seconds for; jobs that are enqueued meanwhile are there before."""

    async def story() -> None:
        async with AsyncQueue("q", url=relay.url) as queue:
            await queue.enqueue("work", None, id="contact")
            relay.next("hush_reply")
            calls = relay.calls
            silent = asyncio.create_task(queue.enqueue("work", None, id="silent"))
            while relay.calls == calls:
                await asyncio.sleep(0.001)
            ends: list[str] = []
            number = 0
            # The first of these wait until the batch is overdue.
            others: list[asyncio.Task[Any]] = []
            while not ends:
                others.append(asyncio.create_task(queue.enqueue("work", None, id=f"j{number}")))
                others[-1].add_done_callback(lambda task: ends.append(task.result().result))
                number += 1
                await asyncio.sleep(0.001)
            assert not silent.done()
            assert {(await other).result for other in others} == {"created"}
            assert (await silent).result == "repeated"

    asyncio.run(story())
    assert "silent" in ids_of(direct, "waiting")


def test_a_server_that_is_gone_for_a_while_delays_what_is_gathered_and_loses_nothing(relay: Relay, direct: Queue) -> None:
    async def story() -> None:
        async with AsyncQueue("q", url=relay.url) as queue:
            tasks = await started(queue, *(f"a{number}" for number in range(300)))
            relay.down()
            await asyncio.sleep(0)
            tasks += [asyncio.create_task(queue.enqueue("work", None, id=f"b{number}")) for number in range(300)]
            loop = asyncio.get_running_loop()
            loop.call_later(0.1, relay.up)
            ends = await asyncio.gather(*tasks)
            assert {end.result for end in ends} <= {"created", "repeated"}
            assert len(queue.driver._connections._idle) <= CONNECTIONS_MAX
            assert not queue.driver.turns.locked()

    asyncio.run(story())
    assert direct.counts().waiting == 601


def test_a_loop_that_is_closed_in_mid_batch_leaves_the_queue_usable(ironclaim_url: str) -> None:
    queue = AsyncQueue("q", url=ironclaim_url)

    async def story() -> None:
        await started(queue, *(f"j{number}" for number in range(20)))

    async def after() -> None:
        ends = await asyncio.gather(*(queue.enqueue("work", os.urandom(4)) for _ in range(20)))
        assert {end.result for end in ends} == {"created"}
        await queue.close()

    # asyncio.run cancels what is still under way when a story ends.
    asyncio.run(story())
    asyncio.run(after())
