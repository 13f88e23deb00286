"""What only the asyncio face can get wrong: cancelled tasks, closed loops, a thousand tasks at once. In
everything else it is the twin of the synchronous one: signatures, documentation, results, errors, raw
keys. What holds up the event loop of async handlers is refused or told."""

import asyncio
import contextlib
import inspect
import os
import socket
import threading
import time
from typing import Any

import hiredis
import pytest

from engine import AsyncQueue, ConnectOptions, Handlers, Job, Malformed, NewJob, Queue, Worker, WorkerGroup
from engine.redis.async_driver import CONNECTIONS_MAX, AsyncDriver, Patience
from engine.redis.driver import SyncDriver
from tests import golden
from tests.engine.using import DEADLINE_S, START_MS, Count, Desk, Relay, at_work, hurried, ids_of, refused, seen, wait_until


def idle_of(queue: AsyncQueue) -> list[Any]:
    return [connection for connection, _ in queue.driver._connections._idle[None]]


# -- cancellation


@pytest.mark.parametrize("moment", ["request", "reply", "many"])
async def test_a_task_cancelled_in_mid_call_leaves_no_unread_reply_in_the_pool(relay: Relay, direct: Queue, moment: str) -> None:
    """The request is on its way, or the server has it and is silent; what is asked next gets its own
    answer."""
    async with AsyncQueue("q", url=relay.url) as queue:
        await queue.counts()
        cancelled = 0
        for number in range(10):
            if moment == "reply":
                relay.next("hush_reply")
            relay.delay_s, before = 0.0 if moment == "reply" else 0.02, relay.calls
            jobs = [{"name": "work", "payload": 1, "id": f"m{number}-{at}"} for at in range(3)]
            call = queue.enqueue_many(jobs) if moment == "many" else queue.enqueue("work", {}, id=f"j{number}")
            task = asyncio.create_task(call)
            await seen(lambda before=before: relay.calls > before)
            task.cancel()
            # The reply may have been quicker.
            with contextlib.suppress(asyncio.CancelledError):
                await task
            cancelled += task.cancelled()
            relay.delay_s = 0.0
            # A reply of another kind than the one that was given up: mixed up, it would not even parse.
            assert (await queue.counts()).srv_us > 0 and (await queue.enqueue("work", {}, id=f"next{number}")).result == "created"
            assert len((await queue.snapshot()).states) == 6 and all(connection.is_connected for connection in idle_of(queue))
        assert len(idle_of(queue)) == 1 and cancelled > 0 and not queue.gathering._of_loops.here()._under_way
    assert {f"next{number}" for number in range(10)} <= set(ids_of(direct, "waiting"))


@pytest.mark.slow
async def test_a_task_cancelled_while_it_connects_or_waits_for_its_turn_leaves_nothing(relay: Relay, direct: Queue) -> None:
    async with AsyncQueue("q", url=relay.url) as queue:
        for _ in range(30):
            tasks = [asyncio.create_task(queue.counts()) for _ in range(CONNECTIONS_MAX + 5)]
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
        assert not queue.driver.permits.locked(), "every turn was given back"
        assert (await queue.enqueue("work", {}, id="j")).result == "created"
    assert ids_of(direct, "waiting") == ["j"]


# -- a loop that stands still


def arrived(connection: Any) -> int:
    """How many replies lie in the socket of a connection, unread."""
    with socket.socket(fileno=os.dup(connection._writer.get_extra_info("socket").fileno())) as beside:
        reader = hiredis.Reader()
        with contextlib.suppress(BlockingIOError):
            reader.feed(beside.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return len([*iter(reader.gets, False)])


@pytest.mark.parametrize(("exchanges", "calls"), [(1, 1), (1, 3), (3, 1)], ids=["a call", "a pipeline", "on one connection"])
async def test_replies_that_came_while_the_loop_stood_still_are_read(relay: Relay, exchanges: int, calls: int) -> None:
    """A handler blocks the loop for longer than a reply may take, as a debugger does, or SIGSTOP."""
    async with AsyncQueue("q", url=relay.url, connect=ConnectOptions(timeout_ms=200)) as queue:
        await queue.counts()
        (connection,), blocked = idle_of(queue), threading.Event()

        def hold(data: bytes) -> None:
            blocked.wait(DEADLINE_S)

        relay.before_call = hold
        sent = [[queue.driver.start(queue.model.call(Count())) for _ in range(calls)] for _ in range(exchanges)]
        tasks = [asyncio.create_task(queue.driver.carry(some, shared=exchanges > 1)) for some in sent]
        await asyncio.sleep(0)
        blocked.set()
        over_s = time.monotonic() + 0.4
        wait_until(lambda: time.monotonic() > over_s and arrived(connection) == exchanges * calls, "the replies have come")
        await asyncio.gather(*tasks)
        assert [call._sends for some in sent for call in some] == [1] * exchanges * calls
        assert all(call.sent().reply.waiting == 0 for some in sent for call in some) and idle_of(queue) == [connection]


async def test_the_patience_of_the_async_driver_ends_unless_it_is_renewed() -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with Patience(0.0) as patience:
        for _ in range(20):
            patience.renew()
            await asyncio.sleep(0)
        # Its time is over, and in the same turn of the loop an answer is read.
        patience._wait(-1)
        patience.renew()
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with Patience(0.0):
            await asyncio.Event().wait()
    assert not failures, "after its end nothing of it is left"


# -- loops, tasks, processes


async def test_a_thousand_tasks_share_a_few_connections(ironclaim_url: str, direct: Queue, client: Any) -> None:
    before = client.info("stats")["total_connections_received"]
    async with AsyncQueue("q", url=ironclaim_url) as queue:
        items = await asyncio.gather(*(queue.enqueue("work", number, id=f"j{number}") for number in range(1000)))
        assert [item.job for item in items] == [f"j{number}" for number in range(1000)]
        assert {item.result for item in items} == {"created"}
    assert direct.counts().waiting == 1000
    # One more for the other queue of this test.
    assert CONNECTIONS_MAX == 16 and client.info("stats")["total_connections_received"] - before <= 16 + 1


async def test_when_close_has_ended_connections_are_closed_and_the_next_call_makes_one(ironclaim_url: str, client: Any) -> None:
    async with AsyncQueue("q", url=f"{ironclaim_url}?client_name=ends") as queue:
        await queue.counts()
        (idle,) = idle_of(queue)
        sock = idle._writer.get_extra_info("socket")
        assert [event async for event in queue.events.read("0", wait_ms=0)] == []
        await queue.close()
        # The loop has not turned since.
        assert sock.fileno() == -1 and idle_of(queue) == [] and (await queue.driver.send(queue.model.call(Count()))).definite
        await seen(lambda: [one["name"] for one in client.client_list()].count("ends") == 1)


async def test_the_async_driver_waits_for_no_end_of_a_connection_given_up(relay: Relay, client: Any, monkeypatch: Any) -> None:
    async with AsyncQueue("q", url=relay.url, connect=ConnectOptions(idle_check_ms=0)) as queue, asyncio.timeout(DEADLINE_S):
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.StreamWriter, "wait_closed", lambda writer: asyncio.Event().wait())
            await asyncio.gather(queue.counts(), queue.counts())
            assert len(idle_of(queue)) == 2
            client.script_flush()
            call = queue.driver.start(queue.model.call(Count()))
            await queue.driver.carry([call])
            assert call._sends == 2, "it meets one alone that lacks the script"
            relay.next("lose_reply")
            await queue.counts()
            relay.break_all()
            await seen(lambda: all(connection._reader.at_eof() for connection in idle_of(queue)))
            assert (await queue.driver.send(queue.model.call(Count()))).definite, "nothing is sent on one that has ended"
            # A process may stand still for seconds, and the client's time passes before the loop sees the end.
            (idle,) = idle_of(queue)
            idle.socket_connect_timeout = 0.05
            await queue.close()
            assert not idle.is_connected


# -- parity


@pytest.mark.parametrize("name", ["run", "send", "send_many", "server_now_ms", "not_after_ms", "close"])
def test_both_drivers_have_the_same_calls(name: str) -> None:
    sync, twin = getattr(SyncDriver, name), getattr(AsyncDriver, name)
    assert inspect.signature(sync).parameters == inspect.signature(twin).parameters
    assert inspect.getdoc(sync) == inspect.getdoc(twin)


def a_day_of(queue: Any) -> list[Any]:
    """What a producer does in a day, and what it hears."""
    many = [NewJob("many", number, id=f"m{number}", delay_ms=number % 3) for number in range(1500)]
    calls: tuple[Any, ...] = (
        lambda: queue.enqueue("work", {"a": [1, "ü", None]}, id="a"),
        lambda: queue.enqueue("work", "text", id="b", delay_ms=5000, priority=9, headers={"x": "y"}),
        lambda: queue.enqueue("work", 1.5, id="c", lifo=True, attempts=9, backoff_ms=7, timeout_ms=8, backoff="exponential"),
        lambda: queue.enqueue("work", {}, id="a"), lambda: queue.enqueue("work", {}, id="a", crashes_max=300),
        lambda: queue.enqueue("two words", {}), lambda: queue.enqueue("work", {}, intended_ns="soon"),
        lambda: queue.enqueue_many(many),
        lambda: queue.enqueue_many([{"name": "many", "payload": 1, "id": "a"}, {"name": "many", "payload": 1, "id": "n"}]),
        lambda: queue.enqueue_many([{"name": "many", "payload": 1, "id": "x"}, {"name": "many"}]), lambda: queue.enqueue_many([]),
        queue.counts, queue.snapshot, lambda: queue.use_test_clock(5),
    )  # fmt: skip
    return [golden.outcome(call) for call in calls]


def test_both_faces_give_the_same_results_and_leave_the_same_raw_keys(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: b"\7" * count)
    heard, left = list[list[Any]](), list[dict[str, Any]]()
    for face in ("sync", "async"):
        desk.redis.flushall()
        with asyncio.Runner() as runner:
            queue: Any = hurried(face, runner, "desk", desk.queue.url)
            queue.use_test_clock(START_MS)
            heard.append(a_day_of(queue))
            queue.close()
        left.append({key: without_not_after(value) for key, value in desk.dump().items()})
    assert heard[0] == heard[1] and left[0] == left[1] and len(left[0]) > 1500
    assert [type(one) for one in heard[0]].count(str) == 5, "the errors of the day"


def without_not_after(value: Any) -> Any:
    """A raw key as if its envelope were not wide: whether it is depends on the client's own clock, as does
    the field that only a wide one has (see `engine/models/envelope.py`)."""
    kind, data, expiry = value
    if kind == "string" and data[0] in range(177, 187) and data[1] & 128:
        sequence, enqueued_ms = (int.from_bytes(data[at : at + 6], "big") for at in (2, 8))
        flags = data[1] & 127
        head = bytes([data[0], flags]) if flags else bytes([data[0] - 16])
        data = head + (sequence << 42 | enqueued_ms).to_bytes(9, "big") + data[20:]
    return kind, data, expiry


def test_a_process_lists_its_queue_once(face: Any, client: Any) -> None:
    face.enqueue("send", {})
    assert client.zrange("ic:queues", 0, -1) == ["q"] and client.delete("ic:queues")
    face.enqueue("send", {})
    face.enqueue_many([NewJob("send", {})])
    assert not client.exists("ic:queues")


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
