"""Jobs that many tasks enqueue one by one leave together, and each keeps its own identity, place and
outcome."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import pytest
from redis.asyncio import Connection

from engine import AsyncQueue, ConnectOptions, Queue, ServerUnavailable, WrongKeyType, models
from engine.redis import async_driver, gathering
from engine.redis.async_driver import CONNECTIONS_MAX, AsyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, Endpoint
from tests.engine.using import DEADLINE_S, Call, Count, Enqueue, Options, Relay, full, ids_of, seen

#: A batch without an answer stays under way until the test breaks its connection.
ENDLESS = ConnectOptions(timeout_ms=600_000, deadline_ms=DEADLINE_MS_MAX)


def writes_of(relay: Relay) -> list[int]:
    """The number of jobs in each write from now on."""
    jobs: list[int] = []
    relay.before_call = lambda data: jobs.append(data.count(b":job:"))
    return jobs


async def started(queue: AsyncQueue, *jobs: str, payload: object = None) -> list[asyncio.Task[Any]]:
    """Tasks that enqueue these jobs: the first call has left, the others wait for its reply."""
    await queue.enqueue("work", None, id="contact")
    tasks = [asyncio.create_task(queue.enqueue("work", payload, id=job)) for job in jobs]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.usefixtures("patient")
async def test_enqueues_that_come_while_one_is_under_way_leave_in_two_calls_in_their_order(relay: Relay, direct: Queue) -> None:
    jobs = [f"j{number}" for number in range(101)]
    async with AsyncQueue("q", url=relay.url) as queue:
        writes = writes_of(relay)
        assert {(await task).result for task in await started(queue, *jobs)} == {"created"}
        assert len(queue.driver._connections._idle[None]) == 1
        batches = queue.gathering._of_loops.here()._batches
        await asyncio.gather(*batches)
        await asyncio.sleep(0)
        assert not batches, "what has ended is kept by nobody"
        # The note of the era, the contact, the one that left alone, the others in two calls, whose pieces the
        # relay may read in any portions.
        note, contact, first, *others = writes
    assert (note, contact, first, sum(others)) == (0, 1, 1, 100) and ids_of(direct, "waiting") == ["contact", *jobs]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("jobs", "calls", "more_calls"), [(101, 3, 2), (9, 2, 2), (10, 3, 3), (8, 2, 1)])
async def test_a_batch_is_one_call_of_the_server(ironclaim_url: str, client: Any, jobs: int, calls: int, more_calls: int) -> None:
    """The first job leaves alone, unless many have come shortly before. Nine and more are divided in two batches."""
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        await queue.enqueue("work", None)
        for wanted in (calls, more_calls):
            client.config_resetstat()
            await asyncio.gather(*(queue.enqueue("work", number, priority=number % 10 + 1) for number in range(jobs)))
            assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == wanted


#: 2,500 bytes are reached with the third.
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("payload", "sizes"), [("", [10, 10]), ("x" * 1_000, [3, 2])], ids=["jobs", "bytes"])
async def test_a_batch_is_bounded_in_jobs_and_in_bytes(relay: Relay, monkeypatch: Any, payload: str, sizes: list[int]) -> None:
    monkeypatch.setattr(gathering, "BATCH_JOBS_MAX", 10)
    monkeypatch.setattr(gathering, "BATCH_BYTES_MAX", 2_500)
    # One batch at a time, so that each is a write of its own.
    monkeypatch.setattr(gathering, "BATCHES_MAX", 1)
    async with AsyncQueue("q", url=relay.url) as queue:
        tasks = await started(queue, *(f"j{number}" for number in range(21)), payload=payload)
        writes = writes_of(relay)
        await asyncio.gather(*tasks)
        more = [asyncio.create_task(queue.enqueue("work", payload)) for _ in range(21)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gathers = queue.gathering._of_loops.here()
        assert gathers._under_way == len(gathers._batches) == 1, "however many tasks have come"
        assert writes[-2:] == sizes
        await asyncio.gather(*more)


async def test_what_a_batch_refuses_it_refuses_one_by_one(ironclaim_url: str, direct: Queue) -> None:
    """Ids that are there, ids that come twice, keys of rule 23, jobs that need others: each task hears of its
    own job."""
    direct.enqueue("work", None, id="old")
    direct.enqueue("work", None, id="first", unique="u")
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        await queue.enqueue("work", None, id="contact")
        enqueue = queue.enqueue
        ends = await asyncio.gather(
            *(enqueue("work", None, id=job) for job in ("alone", "a", "old", "a")),
            enqueue("work", None, id="kept-out", unique="u"), enqueue("work", None, id="b", unique="v"),
            enqueue("other", None, id="c", unique="v"), enqueue("work", None, id="d", needs=["a"]),
            enqueue("work", None, id="e", delay_ms=60_000), enqueue("work", None, id="f", key="tenant", priority=9),
        )  # fmt: skip
    assert [(end.result, end.holder) for end in ends] == [
        *(("created", "alone"), ("created", "a"), ("duplicate", "old"), ("duplicate", "a"), ("duplicate", "first")),
        *(("created", "b"), ("duplicate", "b"), ("created", "d"), ("created", "e"), ("created", "f")),
    ]
    assert sorted(ids_of(direct, "waiting")) == ["a", "alone", "b", "contact", "f", "first", "old"]
    assert ids_of(direct, "delayed") == ["e"] and ids_of(direct, "blocked") == ["d"]


async def test_the_jobs_of_a_foreign_format_leave_together_in_calls_of_their_own(ironclaim_url: str, client: Any) -> None:
    async with AsyncQueue("q", models.Bull(), url=ironclaim_url) as queue:
        await queue.enqueue("work", None)
        client.config_resetstat()
        ends = await asyncio.gather(*(queue.enqueue("work", number) for number in range(20)))
        assert client.info("commandstats")["cmdstat_evalsha"]["calls"] == 20
        assert {end.result for end in ends} == {"created"} and len({end.job for end in ends}) == 20


async def test_a_task_that_is_cancelled_before_its_call_has_left_takes_it_back(ironclaim_url: str, direct: Queue) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        first, second, third = await started(queue, "a", "b", "c")
        second.cancel()
        assert [(await task).job for task in (first, third)] == ["a", "c"] and second.cancelled()
    assert ids_of(direct, "waiting") == ["contact", "a", "c"]


async def test_a_task_that_is_cancelled_later_leaves_its_neighbours_alone(relay: Relay, direct: Queue) -> None:
    has_left, cancelled = threading.Event(), threading.Event()

    def hold(data: bytes) -> None:
        if b":job:b" in data:
            has_left.set()
            cancelled.wait(DEADLINE_S)

    relay.before_call = hold
    async with AsyncQueue("q", url=relay.url) as queue:
        tasks = await started(queue, "a", "b", "c")
        await seen(has_left.is_set)
        tasks[1].cancel()
        cancelled.set()
        assert (await tasks[2]).result == "created" and not queue.driver.permits.locked()
    assert {"a", "c"} <= set(ids_of(direct, "waiting"))


async def test_a_batch_that_is_cut_off_leaves_no_task_waiting(ironclaim_url: str) -> None:
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        first, *others = await started(queue, *"abc")
        await first
        (batch,) = queue.gathering._of_loops.here()._batches
        await asyncio.sleep(0)
        batch.cancel()
        await asyncio.wait([batch])
        assert all(other.cancelled() for other in others)


class CannotLeave(Enqueue):
    def stamped(self, not_after_ms: int) -> Self:
        raise ValueError("no job")


async def test_the_error_of_one_call_is_the_error_of_its_task_alone(ironclaim_url: str, direct: Queue, client: Any) -> None:
    client.set(direct.model.keys.lane("bad"), "no zset")
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        await queue.enqueue("work", None, id="contact")
        bad, good = queue.enqueue("bad", None, id="b"), (queue.enqueue("work", None, id=job) for job in "ac")
        ends = await asyncio.gather(next(good), bad, next(good), return_exceptions=True)
        assert [getattr(end, "result", type(end)) for end in ends] == ["created", WrongKeyType, "created"]

        # The last one leaves alone, without a batch.
        for count, job in ((3, "e"), (1, "f")):
            calls = (queue.gathering.send(CannotLeave("d", "work", b"{}", b"", Options())) for _ in range(count))
            assert [type(end) for end in await asyncio.gather(*calls, return_exceptions=True)] == [ValueError] * count
            assert not queue.gathering._of_loops.here()._under_way
            assert (await queue.enqueue("work", None, id=job)).result == "created"
    assert ids_of(direct, "waiting") == ["contact", *"acef"]


BREAKS = [("lose_reply",), ("lose_request",), ("cut_request",), ("cut_reply",), ("one_reply",), ("lose_reply",) * 2]


@pytest.mark.parametrize("rules", BREAKS, ids=" ".join)
async def test_batches_on_a_broken_connection_are_sent_again_and_double_no_job(relay: Relay, direct: Queue, rules: Any) -> None:
    """The replies of a second one would come behind those of the first, which never come."""
    jobs = [f"j{number}" for number in range(51)]
    async with AsyncQueue("q", url=relay.url) as queue:
        tasks = await started(queue, *jobs)
        await tasks[0]
        relay.next(*rules)
        assert {(await task).result for task in tasks} <= {"created", "repeated"}
        assert (await queue.enqueue("work", None, id="after")).result == "created"
        assert not queue.driver._connections._shared and not queue.driver.permits.locked()
    assert sorted(ids_of(direct, "waiting")) == sorted(["contact", "after", *jobs])


async def test_a_batch_without_an_answer_holds_up_no_later_one(relay: Relay, direct: Queue) -> None:
    """The reply does not come; jobs that are enqueued meanwhile are there before."""
    async with AsyncQueue("q", url=relay.url, connect=ENDLESS) as queue:
        await queue.enqueue("work", None, id="contact")
        relay.next("hush_reply")
        calls, silent = relay.calls, asyncio.create_task(queue.enqueue("work", None, id="silent"))
        await seen(lambda: relay.calls != calls)
        assert not queue.driver._connections._shared, "what left alone has a connection of its own"
        # The first of these wait until the batch is overdue.
        others: list[asyncio.Task[Any]] = []

        def overtaken() -> bool:
            if not (done := any(other.done() for other in others)):
                others.append(asyncio.create_task(queue.enqueue("work", None, id=f"j{len(others)}")))
            return done

        await seen(overtaken)
        assert {(await other).result for other in others} == {"created"} and not silent.done()
        relay.break_all()
        assert (await silent).result == "repeated"
    assert "silent" in ids_of(direct, "waiting")


@pytest.mark.parametrize("rules", [("hush_reply",), ("lose_reply", "hush_reply")], ids=" ".join)
async def test_a_silent_connection_gets_no_further_batch(relay: Relay, direct: Queue, monkeypatch: Any, rules: Any) -> None:
    """Many jobs are without an answer, and the next ones go out on another connection. One that is sent again takes no place."""
    monkeypatch.setattr(async_driver, "SILENT_NS", 0)
    monkeypatch.setattr(gathering, "OVERDUE_S", 600.0)
    async with AsyncQueue("q", url=relay.url, connect=ENDLESS) as queue:
        tasks = await started(queue, *(f"a{number}" for number in range(9)))
        await tasks[0]
        relay.next(*rules)
        calls = relay.calls
        await seen(lambda: relay.calls >= calls + len(rules))
        assert queue.gathering._of_loops.here()._under_way == 2 - len(rules)
        later = [asyncio.create_task(queue.enqueue("work", None, id=f"b{number}")) for number in range(9)]
        assert {(await task).result for task in later} == {"created"} and not tasks[-1].done()
        relay.break_all()
        assert {(await task).result for task in tasks[1:]} == {"repeated"}
    assert direct.counts().waiting == 19


@pytest.mark.usefixtures("patient")
async def test_what_the_async_driver_sends_again_holds_up_no_other_exchange(relay: Relay, monkeypatch: Any) -> None:
    slept = list[float]()
    way = vars(asyncio) | {"sleep": lambda pause_s: slept.append(pause_s) or asyncio.sleep(0)}
    monkeypatch.setattr(async_driver, "asyncio", SimpleNamespace(**way))
    async with AsyncQueue("q", url=relay.url, connect=ENDLESS) as queue:
        await queue.counts()
        again, other = (queue.driver.start(queue.model.call(Count())) for _ in range(2))
        relay.next("lose_reply", "hush_reply")
        calls, silent = relay.calls, asyncio.create_task(queue.driver.carry([again], shared=True))
        await seen(lambda: relay.calls >= calls + 2)
        async with asyncio.timeout(DEADLINE_S):
            await queue.driver.carry([other], shared=True)
        assert other.sent().reply.waiting == 0 and not silent.done() and 0.005 <= slept[0] <= 0.01
        relay.break_all()
        await silent


@pytest.mark.usefixtures("patient")
async def test_an_exchange_of_the_async_driver_that_is_cancelled_closes_its_connection(ironclaim_url: str, client: Any) -> None:
    """The one behind it would read its late reply."""
    driver = AsyncDriver(Endpoint(ironclaim_url, asynchronous=True), (), block_ms_max=60_000)
    words = ("BLPOP", "list", 60), ("GET", "x")
    calls = [driver.start(Call(None, (word[1],), word, lambda raw: raw, Count())) for word in words]
    cancelled, other = (asyncio.create_task(driver.carry([call], shared=True)) for call in calls)
    async with asyncio.timeout(DEADLINE_S):
        shared = driver._connections._shared
        await seen(lambda: [one.exchanges for one in shared.values()] == [2] and client.info()["blocked_clients"])
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert not driver._connections._shared, "no later one begins on it"
        client.rpush("list", "late")
        await other
    assert calls[1].sent().reply is None and calls[1]._sends == 2
    shared_by_two = [await driver._connections.take_shared(0) for _ in range(2)]
    await driver._connections.retire(shared_by_two[0])
    assert not driver._connections._shared, "it lacks a script"
    await driver.close()


async def test_a_server_that_is_gone_for_a_while_delays_what_is_gathered_and_loses_nothing(relay: Relay, direct: Queue) -> None:
    async with AsyncQueue("q", url=relay.url, connect=ConnectOptions(deadline_ms=DEADLINE_MS_MAX)) as queue:
        tasks = await started(queue, *(f"a{number}" for number in range(300)))
        relay.down()
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(queue.enqueue("work", None, id=f"b{number}")) for number in range(300)]
        asyncio.get_running_loop().call_later(0.1, relay.up)
        assert {end.result for end in await asyncio.gather(*tasks)} <= {"created", "repeated"}
        assert len(queue.driver._connections._idle[None]) <= CONNECTIONS_MAX and not queue.driver.permits.locked()
    assert direct.counts().waiting == 601


def test_a_loop_that_is_closed_in_mid_batch_leaves_the_queue_usable(ironclaim_url: str) -> None:
    queue = AsyncQueue("q", url=ironclaim_url)

    async def after() -> None:
        ends = await asyncio.gather(*(queue.enqueue("work", os.urandom(4)) for _ in range(20)))
        assert {end.result for end in ends} == {"created"}
        await queue.close()

    # asyncio.run cancels what is still under way when its coroutine ends.
    asyncio.run(started(queue, *(f"j{number}" for number in range(20))))
    asyncio.run(after())


async def test_a_batch_that_waits_for_room_keeps_its_place(ironclaim_url: str, direct: Queue, monkeypatch: Any) -> None:
    """The second batch would read the replies of the first one."""
    send, slow = Connection.send_packed_command, iter([200])

    async def drained_late(connection: Connection, *given: Any, **named: Any) -> None:
        await send(connection, *given, **named)
        for _ in range(next(slow, 0)):
            await asyncio.sleep(0)

    async with AsyncQueue("q", url=ironclaim_url) as queue:
        await queue.enqueue("work", None, id="taken")
        await asyncio.gather(*(queue.enqueue("work", None) for _ in range(20)))
        monkeypatch.setattr(Connection, "send_packed_command", drained_late)
        jobs = ["taken", *(f"j{number}" for number in range(20))]
        ends = await asyncio.gather(*(queue.enqueue("work", None, id=job) for job in jobs))
        assert [end.result for end in ends] == ["duplicate"] + ["created"] * 20
    assert direct.counts().waiting == 41


@pytest.mark.parametrize("harm", ["scripts", "memory"])
async def test_a_server_that_refuses_a_batch_still_answers_the_one_behind_it(ironclaim_url: str, client: Any, harm: str) -> None:
    """Both are on one connection: the refusal of the first is no reason to lose the answer of the second."""
    async with AsyncQueue("q", url=ironclaim_url, connect=ConnectOptions(deadline_ms=DEADLINE_MS_MAX)) as queue:
        await asyncio.gather(*(queue.enqueue("work", None) for _ in range(20)))
        before = [connection for connection, _ in queue.driver._connections._idle[None]]
        with full(client) if harm == "memory" else nullcontext(client.script_flush()):
            calls = (queue.enqueue("work", None, id=f"j{number}") for number in range(40))
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {getattr(end, "result", type(end)) for end in ends} == {"created" if harm == "scripts" else ServerUnavailable}
        assert not queue.driver.permits.locked() and not queue.driver._connections._shared
        assert {connection.is_connected for connection in before} == {harm == "memory"}, "they lack the scripts"


async def test_a_second_loop_takes_nothing_from_the_first(relay: Relay, direct: Queue) -> None:
    """Two loops run at once: each hears of its own jobs."""
    queue = AsyncQueue("q", url=relay.url)

    async def second() -> None:
        came = await asyncio.gather(*(queue.enqueue("work", None, id=f"second-{number}") for number in range(20)))
        assert {enqueued.result for enqueued in came} == {"created"}
        await queue.close()

    tasks = await started(queue, *(f"j{number}" for number in range(40)))
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, second()).result()
    async with asyncio.timeout(DEADLINE_S):
        assert {(await task).result for task in tasks} == {"created"}
    await queue.close()
    assert direct.counts().waiting == 61


def test_tasks_of_a_loop_that_stood_still_while_another_one_ran_are_not_left_waiting(ironclaim_url: str, direct: Queue) -> None:
    queue = AsyncQueue("q", url=ironclaim_url)

    async def ended(tasks: list[asyncio.Task[Any]]) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner() as one, asyncio.Runner() as two:
        tasks = one.run(started(queue, *(f"j{number}" for number in range(20))))
        assert two.run(queue.enqueue("work", None, id="other")).result == "created"
        assert {getattr(end, "result", end) for end in one.run(ended(tasks))} == {"created"}
        assert one.run(queue.enqueue("work", None, id="after")).result == "created"
        one.run(queue.close())
    assert {"contact", "other", "after"} <= set(ids_of(direct, "waiting"))
