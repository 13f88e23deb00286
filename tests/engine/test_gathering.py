"""Jobs that many threads or greenlets enqueue one by one leave together, and each keeps its own identity and outcome."""

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from engine import ConnectOptions, Enqueued, Queue, WrongKeyType
from engine.models.lanes import Lanes
from engine.redis import gathering
from engine.redis.endpoint import DEADLINE_MS_MAX
from engine.redis.gathering import CallMaker, GatheredEnqueue
from tests.engine.using import DEADLINE_S, Enqueue, Options, Relay, ids_of, in_child, raises, refused, wait_until

#: A call that the relay holds is under way until the test lets it go, or breaks its connection.
ENDLESS = ConnectOptions(timeout_ms=600_000, deadline_ms=DEADLINE_MS_MAX)


@pytest.fixture
def queue(relay: Relay) -> Iterator[Queue]:
    with Queue("q", url=relay.url, connect=ENDLESS) as made:
        made.enqueue("work", None, id="contact")
        yield made


class Held:
    """Threads that enqueue while the call of the first of them is held before it reaches the server."""

    def __init__(self, relay: Relay, queue: Queue, enqueues: list[Callable[[], Enqueued]]) -> None:
        #: The number of jobs in each write.
        self.writes, self._release = list[int](), threading.Event()
        self._pool = ThreadPoolExecutor(len(enqueues))
        relay.before_call = self._hold
        self.ends: list[Future[Enqueued]] = []
        for enqueue in enqueues:
            self.ends.append(self._pool.submit(enqueue))
            wait_until(lambda: self.writes and len(queue.gathering._waiting) == len(self.ends) - 1, "the thread waits")

    def _hold(self, data: bytes) -> None:
        self.writes.append(data.count(b":job:"))
        if len(self.writes) == 1:
            assert self._release.wait(600)

    def release(self) -> list[Any]:
        """Let it go; how each of them has ended."""
        self._release.set()
        self._pool.shutdown()
        return [end.exception() or end.result() for end in self.ends]


def enqueues(queue: Queue, *jobs: str, **options: Any) -> list[Callable[[], Enqueued]]:
    return [lambda job=job: queue.enqueue("work", None, id=job, **options) for job in jobs]


def test_gathered_enqueues_become_as_few_calls_as_their_order_allows() -> None:
    def enqueue(job: str, intended_ns: int | None = None, **options: Any) -> GatheredEnqueue:
        return GatheredEnqueue(Enqueue(job, "work", b"{}", b"nonce---", Options(**options)), intended_ns)

    gathered = [enqueue("a", 5), enqueue("b"), enqueue("a", 7), enqueue("c", 9, needs=("a",)), enqueue("d"), enqueue("b")]
    alone = [("a", 5), ("b", None), ("a", 7), ("c", 9), ("d", None), ("b", None)]
    for merges, wanted in ((True, [("ab", (5, None)), ("a", 7), ("c", 9), ("db", None)]), (False, alone)):
        calls = gathering.merged(gathered, 1, CallMaker(Lanes("q").call, merges))
        assert [("".join(job.job for job in call.jobs), call.intended_ns) for call in calls] == wanted
        assert {job.not_after_ms for call in calls for job in call.jobs} == {1}


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("most", "writes"), [(gathering.BATCH_JOBS_MAX, [1, 19]), (4, [1, 4, 4, 4, 4, 3])])
def test_enqueues_that_come_while_one_is_under_way_leave_together_in_order(
    relay: Relay, queue: Queue, direct: Queue, monkeypatch: pytest.MonkeyPatch, most: int, writes: list[int]
) -> None:
    monkeypatch.setattr(gathering, "BATCH_JOBS_MAX", most)
    jobs = [f"j{number}" for number in range(20)]
    held = Held(relay, queue, enqueues(queue, *jobs))
    assert [(end.job, end.result) for end in held.release()] == [(job, "created") for job in jobs]
    assert held.writes == writes and ids_of(direct, "waiting") == ["contact", *jobs]
    assert not queue.gathering._under_way and queue.enqueue("work", None).created


@pytest.mark.usefixtures("patient")
def test_a_bad_lane_and_a_taken_id_are_the_errors_of_their_own_threads(relay: Relay, queue: Queue, client: Any) -> None:
    client.set(queue.model.keys.lane("bad"), "no zset")
    bad = partial(queue.enqueue, "bad", None, id="c")
    held = Held(relay, queue, [*enqueues(queue, "a", "b"), bad, *enqueues(queue, "contact", "d")])
    ends = held.release()
    assert [getattr(end, "result", type(end)) for end in ends] == ["created", "created", WrongKeyType, "duplicate", "created"]
    assert held.writes == [1, 4, 4], "what failed as a whole is sent once more, job by job, in one write"


def test_a_call_without_an_answer_holds_up_nobody(relay: Relay, queue: Queue, direct: Queue) -> None:
    relay.next("hush_reply")
    calls = relay.calls
    with ThreadPoolExecutor(5) as pool:
        silent = pool.submit(queue.enqueue, "work", None, id="silent")
        wait_until(lambda: relay.calls > calls, "the call has left")
        others = [pool.submit(queue.enqueue, "work", None, id=f"j{number}") for number in range(4)]
        assert {other.result().result for other in others} == {"created"} and not silent.done()
        relay.break_all()
        assert silent.result().result == "repeated"
    assert direct.counts().waiting == 6 and not queue.gathering._under_way


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("method", "left"), [("carry", True), ("not_after_ms", False)])
def test_when_who_sends_for_others_is_interrupted_each_sends_its_own(
    relay: Relay, queue: Queue, direct: Queue, monkeypatch: Any, method: str, left: bool
) -> None:
    """After the call has left its copies must have its identity, so that the jobs are there once."""
    held = Held(relay, queue, enqueues(queue, *(f"j{number}" for number in range(6))))
    real, interrupts = getattr(queue.driver, method), [KeyboardInterrupt()]

    def interrupted(*given: Any) -> Any:
        found = real(*given)
        if interrupts:
            raise interrupts.pop()
        return found

    monkeypatch.setattr(queue.driver, method, interrupted)
    first, leader, *others = held.release()
    assert first.result == "created" and isinstance(leader, KeyboardInterrupt)
    assert [other.result for other in others] == ["repeated" if left else "created"] * 4
    assert sorted(ids_of(direct, "waiting")) == ["contact", *(f"j{number}" for number in range(6) if left or number != 1)]
    assert not queue.gathering._under_way


@pytest.mark.usefixtures("patient")
def test_a_thread_that_is_interrupted_while_it_waits_takes_its_job_back(relay: Relay, queue: Queue, direct: Queue) -> None:
    held = Held(relay, queue, enqueues(queue, "first"))
    before, main = signal.signal(signal.SIGUSR2, raises(KeyboardInterrupt())), threading.get_ident()

    def signal_when_it_waits() -> None:
        wait_until(lambda: len(queue.gathering._waiting) == 1, "the main thread waits")
        signal.pthread_kill(main, signal.SIGUSR2)

    try:
        with ThreadPoolExecutor(1) as helper:
            helper.submit(signal_when_it_waits)
            refused(KeyboardInterrupt, "", queue.enqueue, "work", None, id="withdrawn")
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert [end.result for end in held.release()] == ["created"] and queue.enqueue("work", None, id="after").created
    assert ids_of(direct, "waiting") == ["contact", "first", "after"]


@pytest.mark.usefixtures("patient")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(relay: Relay, queue: Queue, direct: Queue) -> None:
    held = Held(relay, queue, enqueues(queue, "parent"))
    # The relay holds the first call alone.
    assert in_child(lambda: queue.enqueue("work", None, id="child").created) == 0
    assert [end.result for end in held.release()] == ["created"]
    assert sorted(ids_of(direct, "waiting")) == ["child", "contact", "parent"]


_GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys, gevent
from engine import ConnectOptions, Queue
from engine.redis import gathering
gathering.OVERDUE_S = 600.0
with Queue("q", url=sys.argv[1], connect=ConnectOptions(timeout_ms=600_000, deadline_ms=15_000)) as queue:
    queue.enqueue("work", None)
    import redis
    raw = redis.Redis.from_url(sys.argv[1])
    raw.config_resetstat()
    # A reply that is there at once makes no greenlet wait: then they run one after the other, and nobody lines up. Writes alone
    # are held back, or nobody could end it.
    raw.client_pause(600_000, all=False)
    ends = [gevent.spawn(queue.enqueue, "work", number) for number in range(200)]
    while len(queue.gathering._waiting) < 199:
        gevent.sleep(0.001)
    raw.client_unpause()
    gevent.joinall(ends, raise_error=True)
    print(len({end.value.job for end in ends}), raw.info("commandstats")["cmdstat_evalsha"]["calls"])
"""


@pytest.mark.slow
def test_greenlets_of_one_thread_gather_as_threads_do(ironclaim_url: str, direct: Queue) -> None:
    done = subprocess.run([sys.executable, "-c", _GREENLETS, ironclaim_url], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    jobs, calls = map(int, done.stdout.split())
    assert jobs == 200 and calls < 20 and direct.counts().waiting == 201


class Unwoken:
    """What a thread waits for in vain. Its time is over when the test says so; who would wake it may be interrupted."""

    def __init__(self, *, interrupts: bool = True) -> None:
        self.over, self.interrupts, self.waited_s = threading.Event(), interrupts, 0.0

    def acquire(self, timeout: float) -> bool:
        assert self.over.wait(DEADLINE_S)
        self.waited_s += timeout
        return False

    def release(self) -> None:
        if self.interrupts:
            raise KeyboardInterrupt


@pytest.fixture
def unwoken(monkeypatch: pytest.MonkeyPatch) -> Unwoken:
    """All enqueues that wait do so for this."""
    made = Unwoken()
    monkeypatch.setattr(gathering, "_Waiting", waiting_for(made))
    return made


def waiting_for(wake: Any, *jobs: str) -> type[gathering._Waiting]:
    """Enqueues of these jobs, or of all, wait for this."""

    class Waiting(gathering._Waiting):
        __slots__ = ()

        def __init__(self, operation: Any, *given: Any) -> None:
            super().__init__(operation, *given)
            if not jobs or operation.job in jobs:
                self.wake = wake

    return Waiting


@contextmanager
def behind_a_batch(queue: Queue, unwoken: Unwoken) -> Iterator[Any]:
    """While the block lasts an enqueue waits behind a batch; afterwards its time is over, and its job is made."""
    with ThreadPoolExecutor(1) as pool:
        queue.gathering._under_way.add("a batch")
        end = pool.submit(queue.enqueue, "work", None, id="a")
        wait_until(lambda: bool(queue.gathering._waiting), "the enqueue waits")
        yield queue.gathering
        unwoken.over.set()
        assert end.result(DEADLINE_S).result == "created"


def test_a_thread_that_was_given_the_turn_and_not_woken_takes_it(queue: Queue, unwoken: Unwoken) -> None:
    """The thread that gave it was interrupted in between."""
    with behind_a_batch(queue, unwoken) as gathers:
        refused(KeyboardInterrupt, "", gathers._end_sending, "a batch")
        under_way = {*gathers._under_way}
    assert under_way and not gathers._under_way, "who comes meanwhile lines up"


def test_an_enqueue_taken_by_interrupted_threads_is_sent(queue: Queue, unwoken: Unwoken, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one could not even say that it has ended: twice the deadline is waited for it."""
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: unwoken.waited_s))
    monkeypatch.setattr(gathering, "_LOOK_S", 0.005)
    with behind_a_batch(queue, unwoken) as gathers:
        gathers._waiting[0].not_after_ms = queue.driver.not_after_ms()
        gathers._waiting.popleft()
    assert round(unwoken.waited_s - gathering.OVERDUE_S, 2) == 2 * queue.driver.deadline_ms / 1_000


@pytest.mark.usefixtures("patient")
def test_copies_of_an_enqueue_have_one_stamp(relay: Relay, queue: Queue, direct: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends for others stands still once it has taken theirs, for so long that one of them sends its own.
    With a stamp of its own the later copy might come when the tombstone of the first is gone: the job would run twice."""
    stamps, impatient, goes_on = list[int | None](), Unwoken(interrupts=False), threading.Event()
    real, send, not_after_ms = gathering.merged, queue.driver.send, queue.driver.not_after_ms

    class Taken(deque[gathering._Waiting]):
        def popleft(self) -> gathering._Waiting:
            taken = super().popleft()
            if not taken.leads:
                stamps.append(taken.not_after_ms)
            return taken

    def merged(gathered: Any, not_after_ms: int, maker: Any) -> Any:
        impatient.over.set()
        assert goes_on.wait(DEADLINE_S)
        stamps.extend([not_after_ms] * len(list(gathered)[1:]))
        return real(gathered, not_after_ms, maker)

    def sending(call: Any, *given: Any, **more: Any) -> Any:
        stamps.append(call.operation.not_after_ms)
        return send(call, *given, **more)

    monkeypatch.setattr(gathering, "_Waiting", waiting_for(impatient, "other"))
    held = Held(relay, queue, enqueues(queue, "first", "leads", "other"))
    queue.gathering._waiting = Taken(queue.gathering._waiting)
    monkeypatch.setattr(gathering, "merged", merged)
    monkeypatch.setattr(queue.driver, "send", sending)
    # It waits for twice the deadline; what it sends then is not void so soon.
    monkeypatch.setattr(queue.driver, "not_after_ms", lambda: not_after_ms() + 60_000)
    queue.driver.deadline_ms = 100
    held._release.set()
    assert impatient.over.wait(DEADLINE_S)
    # The one that waits loses patience and sends its own.
    wait_until(lambda: held.ends[2].done(), "the other thread has sent its own")
    goes_on.set()
    assert [end.result for end in held.release()] == ["created"] * 3 and len(stamps) == 3 and len(set(stamps)) == 1
    assert sorted(ids_of(direct, "waiting")) == ["contact", "first", "leads", "other"]


def test_a_thread_that_is_interrupted_while_it_sends_alone_leaves_the_way_free(queue: Queue, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(queue.driver, "send", raises(KeyboardInterrupt()))
        queue.enqueue("work", None)
    assert not queue.gathering._under_way and queue.enqueue("work", None).created
