"""Threads that workers of one process share: few for servers that answer, more while some do not."""

import errno
import selectors
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from engine import ConnectOptions, EngineError, Handlers, Malformed, OutcomeUnknown, Queue, Worker, WorkerGroup
from engine.redis.driver import Flight, SyncDriver
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import Sent
from engine.worker import process
from engine.worker.connections import SharedConnections, SharedWait, _Replies, _Waits
from engine.worker.executor import Events, Executor, Over
from engine.worker.process import Threads
from engine.worker.runs import LoopThread
from engine.worker.several import CALLERS, Loop
from engine.worker.worker import OpenRun
from tests.engine.helpers.at_work import Book, at_work, make_worker
from tests.engine.using import DEADLINE_S, Call, Relay, Wait, raises, refused, some_handlers, wait_until

#: So long that no block of these tests is over, however long the machine stands still.
LONG_MS = 600_000
NO_THREAD = RuntimeError("can't start new thread")


@pytest.fixture
def long_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such blocks are shared, too."""
    monkeypatch.setattr("engine.worker.connections.BLOCK_MS", LONG_MS)


def named(name: str) -> set[str]:
    """The threads of this name that are there."""
    return {thread.name for thread in threading.enumerate() if thread.name.rpartition("-")[0] == name}


@pytest.fixture
def gate() -> Any:
    """What tasks that are held up wait for."""
    made = threading.Event()
    yield made
    made.set()


def test_one_task_after_the_other_needs_one_thread() -> None:
    pool, ran = Threads("one", kept=4), list[str]()
    for number in range(20):
        pool.run(lambda: ran.append(threading.current_thread().name))
        wait_until(lambda most=number + 1: len(ran) == most and bool(pool._free), "it has run, and its thread waits")
    assert Counter(ran) == {"one-0": 20}
    pool.close()
    assert named("one") == set()


def test_tasks_that_are_held_up_hold_up_no_others(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LINGER_S", 0.01)
    pool, beside = Threads("held", kept=2), list[int]()
    for _ in range(10):
        pool.run(gate.wait)
    pool.run(lambda: beside.append(len(named("held"))))
    assert wait_until(lambda: beside, "the last one runs") >= [11]
    gate.set()
    wait_until(lambda: len(named("held")) == 2, "those that nobody needs have ended")
    again = threading.Event()
    pool.run(again.set)
    assert again.wait(DEADLINE_S)
    pool.close()
    wait_until(lambda: named("held") == set(), "all have ended")


def test_no_more_threads_than_it_may_have(gate: threading.Event) -> None:
    pool, ran = Threads("most", kept=3, most=3), list[int]()
    for _ in range(3):
        pool.run(gate.wait)
    for number in range(5):
        pool.run(lambda number=number: ran.append(number))
    wait_until(lambda: len(named("most")) == 3, "all threads are busy")
    assert not ran
    gate.set()
    wait_until(lambda: len(ran) == 5, "what has waited has run")
    assert ran == sorted(ran) or set(ran) == set(range(5))
    assert len(named("most")) == 3
    pool.close()


def test_a_task_that_raises_takes_no_thread_along(caplog: pytest.LogCaptureFixture) -> None:
    pool, ran = Threads("lost", kept=1, most=1), threading.Event()
    pool.run(raises(SystemExit("a defect")))
    pool.run(ran.set)
    assert ran.wait(DEADLINE_S) and "thread lost-0 goes on after" in caplog.text and "a defect" in caplog.text
    pool.close()


def test_a_system_without_more_threads_uses_those_there_are(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, ran = Threads("few", kept=4), threading.Event()
    pool.run(gate.wait)
    wait_until(lambda: named("few") == {"few-0"}, "it runs")
    monkeypatch.setattr(threading.Thread, "start", raises(NO_THREAD))
    pool.run(ran.set)
    pool.close()
    gate.set()
    assert ran.wait(DEADLINE_S)
    monkeypatch.undo()
    wait_until(lambda: named("few") == set(), "its thread ends with what has waited")


def test_a_task_is_offered_to_threads_that_are_kept_and_have_none(gate: threading.Event) -> None:
    pool, ran = Threads("offered", kept=1), threading.Event()
    assert pool.offer(gate.wait) and not pool.offer(ran.set)
    gate.set()
    wait_until(lambda: pool.offer(ran.set), "its thread waits")
    assert ran.wait(DEADLINE_S) and named("offered") == {"offered-0"}
    pool.close()
    assert Threads("none", kept=0).offer(ran.set) is False


# -- workers


@pytest.mark.parametrize(("inline", "handed_over"), [(True, set[str]()), (False, {"wake"})])
def test_a_job_that_comes_alone_passes_no_thread_but_that_of_its_handler(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, inline: bool, handed_over: set[str]
) -> None:
    """From the claim to its finish, beside what a worker does without jobs."""
    handed, hand_over = list[str](), Executor._hand_over
    names = dict[str, list[str]]()

    def noted(self: Executor, task: Any) -> None:
        handed.append(getattr(task, "kind", "") or getattr(getattr(task, "send", None), "kind", "run"))
        hand_over(self, task)

    arrive = SyncDriver.arrive

    def arrived(self: SyncDriver, flight: Flight) -> Sent:
        names.setdefault(type(flight.in_flight_call.call.operation).__name__, []).append(threading.current_thread().name)
        return arrive(self, flight)

    handlers = Handlers()
    handlers("work", inline=inline)(lambda job: names.setdefault("handler", []).append(threading.current_thread().name))
    with at_work(Worker(queue, handlers, concurrency=1)):
        for number in range(12):
            if number == 2:
                monkeypatch.setattr(Executor, "_hand_over", noted)
                monkeypatch.setattr(SyncDriver, "arrive", arrived)
            queue.enqueue("work", number)
            wait_until(lambda most=number + 1: (now := queue.counts()).finished == most and not now.active, "it has run")
        monkeypatch.undo()
    # A call that a slow machine sends again, or a wait that ends without a job, goes another way.
    rest = [kind for kind in handed if kind not in ("sweep", "renew", *handed_over)]
    (thread,) = set(names["handler"])
    assert len(rest) <= 3 and names["Claim"].count(thread) >= 8 and names["Finish"].count(thread) >= 8, (handed, names)


def test_a_worker_of_sixteen_shards_has_as_many_threads_as_any(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LINGER_S", 0.1)
    before, book = set(threading.enumerate()), Book()
    with Queue("mails", url=ironclaim_url, shards=16) as queue:
        queue.enqueue_many([{"name": "work", "payload": number, "key": f"k{number}"} for number in range(400)])
        with at_work(make_worker(queue, book, "w", concurrency=8)):
            wait_until(lambda: queue.counts().finished == 400, "all have run")
            # Callers, and one each for waits, control messages, machines and the record of the shards.
            most = CALLERS + 4 + 8
            # That of `at_work` is the last of these four.
            wait_until(lambda: len(set(threading.enumerate()) - before) <= most, "those that nobody needs have ended")
        wait_until(lambda: set(threading.enumerate()) <= before, "all have ended")


def blocking_wait(name: str, block_ms: int = LONG_MS) -> Call[object]:
    return Call(None, (name,), ("BLPOP", name, block_ms / 1000), lambda raw: raw, Wait(0, (), None), block_ms)


def test_a_wait_whose_reply_never_comes_is_broken_off_and_sent_again(relay: Relay) -> None:
    endpoint = Endpoint(relay.url, options=ConnectOptions(timeout_ms=200))
    alone, ended = SyncDriver(endpoint, (), block_ms_max=LONG_MS), list[Sent | EngineError | Flight]()
    replies = _Replies(endpoint)
    member = SharedWait(replies, alone)
    replies.join(member)

    short = blocking_wait("nothing", 10)
    # The first one connects, and is waited for here.
    assert member.begin(short, ended.append) is not None
    relay.next("pass")
    assert member.begin(short, ended.append) is None
    wait_until(lambda: len(ended) == 1, "the reply has come")
    flight = ended.pop()
    assert isinstance(flight, Flight) and member.arrive(flight).reply is None
    relay.hush()
    assert member.begin(short, ended.append) is None
    wait_until(lambda: len(ended) == 1, "it lasts too long")
    relay.break_all()
    flight = ended.pop()
    assert isinstance(flight, Flight) and member.arrive(flight).reply is None
    # Who is interrupted hears of it.
    assert member.begin(blocking_wait("nothing"), ended.append) is None
    member.interrupt()
    wait_until(lambda: len(ended) == 1, "it is interrupted")
    flight = ended.pop()
    assert isinstance(flight, Flight)
    refused(EngineError, "interrupted", member.arrive, flight)
    refused(EngineError, "interrupted", member.begin, short, ended.append)
    wait_until(lambda: not named("waits") and replies._thread is None, "its thread has ended")
    member.close()


@pytest.mark.usefixtures("long_blocks")
def test_workers_that_open_after_the_last_has_left_wait_together_again(ironclaim_url: str, client: Any) -> None:
    endpoint, ended = Endpoint(ironclaim_url), list[Sent | EngineError | Flight]()
    shared = SharedConnections(endpoint, "ic:")
    for _ in range(3):
        member = shared.waiting(SyncDriver(endpoint, (), block_ms_max=LONG_MS))
        assert member.begin(blocking_wait("list"), ended.append) is None
        client.rpush("list", "1")
        wait_until(lambda: len(ended) == 1, "the wake-up has come")
        sent = ended.pop()
        assert isinstance(sent, Sent) and sent.reply == [b"list", b"1"]
        # The last one leaves while it waits once more.
        assert member.begin(blocking_wait("list"), ended.append) is None
        member.interrupt()
        assert isinstance(ended.pop(), OutcomeUnknown)
        member.close()
    wait_until(lambda: not named("waits") and "waits" not in {one.name for one in threading.enumerate()}, "no thread is left")


@pytest.mark.usefixtures("long_blocks")
def test_an_interrupt_as_a_wait_begins_takes_no_wake_up(ironclaim_url: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, ended, others = Endpoint(ironclaim_url), list[object](), list[object]()
    shared = SharedConnections(endpoint, "ic:")
    leaving, staying = (shared.waiting(SyncDriver(endpoint, (), block_ms_max=LONG_MS)) for _ in range(2))
    waits = shared._waits
    assert isinstance(waits, _Waits)
    real = waits.begin

    def begin(member: SharedWait) -> None:
        """The interrupt comes between the look whether there was one and the wait."""
        if member is leaving:
            member.interrupt()
        real(member)

    monkeypatch.setattr(waits, "begin", begin)
    assert leaving.begin(blocking_wait("left"), ended.append) is None
    assert len(ended) == 1 and isinstance(ended[0], OutcomeUnknown)
    assert staying.begin(blocking_wait("stays"), others.append) is None
    wait_until(lambda: any(one["cmd"] == "blpop" for one in client.client_list()), "the block is on")
    client.rpush("left", "1")
    client.rpush("stays", "1")
    wait_until(lambda: len(others) == 1, "the wake-up of the other one has come")
    assert client.llen("left") == 1
    staying.interrupt()


@pytest.mark.usefixtures("long_blocks")
def test_an_end_of_a_wait_that_cannot_be_told_leaves_the_others_waiting(ironclaim_url: str, client: Any) -> None:
    endpoint, ended = Endpoint(ironclaim_url), list[object]()
    shared, replies = SharedConnections(endpoint, "ic:"), _Replies(endpoint)
    for members in (
        [shared.waiting(SyncDriver(endpoint, (), block_ms_max=LONG_MS)) for _ in range(2)],
        [SharedWait(replies, SyncDriver(endpoint, (), block_ms_max=LONG_MS)) for _ in range(2)],
    ):
        for member in members:
            if member._waits is replies:
                replies.join(member)
                member._alone.run(Call(None, ("x",), ("LLEN", "x"), lambda raw: raw, Wait(0, (), None)))
        assert members[0].begin(blocking_wait("a"), raises(NO_THREAD)) is None
        assert members[1].begin(blocking_wait("b"), ended.append) is None
        client.rpush("a", "1")
        wait_until(lambda: client.llen("a") == 0, "the first has been woken")
        client.rpush("b", "1")
        wait_until(lambda: len(ended) == 1, "the other one, too")
        ended.clear()
        for member in members:
            member.interrupt()


def test_waits_on_several_nodes_share_one_selector_and_do_without_one_that_fails(
    ironclaim_url: str, client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, ended, made = Endpoint(ironclaim_url), list[object](), list[object]()
    real = selectors.DefaultSelector

    def counted() -> object:
        made.append(None)
        return real()

    monkeypatch.setattr(selectors, "DefaultSelector", counted)
    replies, alone = _Replies(endpoint), SyncDriver(endpoint, (), block_ms_max=LONG_MS)
    member = SharedWait(replies, alone)
    replies.join(member)
    alone.run(Call(None, ("x",), ("LLEN", "x"), lambda raw: raw, Wait(0, (), None)))

    def wait() -> None:
        assert member.begin(blocking_wait("list"), ended.append) is None
        client.rpush("list", "1")
        wait_until(lambda: len(ended) == 1, "it has ended")
        flight = ended.pop()
        assert isinstance(flight, Flight) and member.arrive(flight).reply == [b"list", b"1"]

    for _ in range(5):
        wait()
    assert len(made) == 1
    monkeypatch.setattr(replies._selector, "select", raises(OSError(errno.EMFILE, "too many open files")))
    wait()
    assert "too many open files" in caplog.text
    monkeypatch.undo()
    wait()
    member.interrupt()


def test_a_group_can_be_stopped_before_it_runs(ironclaim_url: str) -> None:
    with Queue("a", url=ironclaim_url) as one, Queue("b", url=ironclaim_url) as other:
        group = WorkerGroup([one, other], some_handlers())
        group.stop()
        begun_s = time.monotonic()
        assert group.run() == "stopped" and time.monotonic() - begun_s < DEADLINE_S
        # And runs again.
        one.enqueue("work", None)
        assert group.run(burst=True) == "empty" and one.counts().finished == 1


def test_what_a_worker_of_a_group_raises_is_raised(ironclaim_url: str) -> None:
    handlers, before = some_handlers(), set(threading.enumerate())
    gone = Queue("b", url="redis://127.0.0.1:1", connect=ConnectOptions(deadline_ms=50))
    with Queue("a", url=ironclaim_url) as one, gone:
        refused(EngineError, "cannot connect", WorkerGroup([one, gone], handlers).run)
        wait_until(lambda: set(threading.enumerate()) <= before, "its threads have ended")
        refused(EngineError, "cannot connect", Worker(gone, handlers).run)


@pytest.mark.parametrize(("part", "method"), [
    (OpenRun, "close"), (OpenRun, "__init__"), (Loop, "add"), (Executor, "too_large"), (Executor, "take"), (Executor, "process"),
])  # fmt: skip
def test_a_defect_at_the_begin_or_the_end_of_a_run_is_raised_and_hangs_nothing(
    part: type, method: str, ironclaim_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue("a", url=ironclaim_url) as one, Queue("b", url=ironclaim_url) as other:
        group, real, defects = WorkerGroup([one, other], some_handlers()), getattr(part, method), [RuntimeError("a defect")]

        def defective(*given: object) -> object:
            found = real(*given) if method == "close" else None
            if defects:
                raise defects.pop()
            return found if method == "close" else real(*given)

        monkeypatch.setattr(part, method, defective)
        with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="a defect"):
            pool.submit(group.run, burst=True).result(DEADLINE_S)
        # And it can run again.
        assert group.run(burst=True) == "empty"


def test_an_end_that_cannot_be_told_ends_no_other_machine() -> None:
    loop, told = Loop(LoopThread("loop")), threading.Event()
    # A machine that has ended as soon as it is looked at.
    machine: Any = SimpleNamespace(start=print, too_large=print, take=lambda most_ns: Over("stopped"))
    loop.add(machine, machine, Events(), raises(NO_THREAD))
    loop.add(machine, machine, Events(), lambda reason: told.set())
    assert told.wait(DEADLINE_S)
    loop.close()


def test_a_second_run_of_a_group_is_refused_and_the_first_goes_on(ironclaim_url: str) -> None:
    with Queue("a", url=ironclaim_url) as one, Queue("b", url=ironclaim_url) as other, ExitStack() as ends:
        book, pool = Book(hold=True), ends.enter_context(ThreadPoolExecutor(1))
        one.enqueue("work", 1)
        group = WorkerGroup([one, other], book.handlers("w", "work"))
        ends.callback(lambda: (group.stop(), book.release()))
        first = pool.submit(group.run)
        wait_until(lambda: book.running == 1, "a job runs")
        for _ in range(3):
            refused(Malformed, "does not run already", group.run)
        book.release()
        wait_until(lambda: one.counts().finished == 1, "it has run")
        other.enqueue("work", 2)
        wait_until(lambda: other.counts().finished == 1, "the first run goes on")
        group.stop()
        assert first.result(DEADLINE_S) == "stopped"


def test_a_loop_that_the_system_has_no_thread_for_is_an_error(ironclaim_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, once = threading.Thread.start, list[str]()

    def start(thread: threading.Thread) -> None:
        if thread.name == "worker-loop" and not once:
            once.append(thread.name)
            raise NO_THREAD
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with Queue("a", url=ironclaim_url) as one, Queue("b", url=ironclaim_url) as other, ThreadPoolExecutor(1) as pool:
        group = WorkerGroup([one, other], some_handlers())
        refused(RuntimeError, "can't start", pool.submit(group.run).result, DEADLINE_S)
        assert group.run(burst=True) == "empty"
