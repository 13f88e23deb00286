"""Enqueues of many threads or greenlets that leave together, as databases commit in groups: while one thread
waits for its reply, those that come meanwhile line up. The first of them sends for all.

A thread that is alone sends at once. No thread is made for this and no timer is involved."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from engine.errors import EngineError, ScriptFault
from engine.observer import Intended
from engine.ops.base import Call
from engine.ops.jobs import Enqueue, EnqueuedMany, EnqueueMany
from engine.redis.driver import SyncDriver
from engine.redis.exchange import InFlightCall, Sent

# -- Enqueues of several callers that leave together: the calls that carry them, and what each caller is
# answered. No socket.
#
# Neighbours become one call where the model allows it, with the identity of each job in its own envelope. The
# server then answers fifty of them for the price of a few. A job that needs others or has callbacks keeps a
# call of its own between its neighbours, and so does the second job of one id. What a call refuses, it
# refuses item by item. When the whole call fails by an error of its script, such as a key of the wrong type,
# each of its enqueues is sent alone, so that one bad lane fails its own jobs only.

#: Bounds of what leaves together: the server answers the last enqueue of it after all the others.
BATCH_JOBS_MAX = 200
BATCH_BYTES_MAX = 256 * 1024
#: A batch that has been under way for this long holds up the next one no longer.
OVERDUE_S = 0.02


class GatheredEnqueue:
    """The enqueue of one caller, which is stamped when it leaves. `intended_ns` (monotonic) is for the
    observer."""

    __slots__ = ("intended_ns", "operation")

    def __init__(self, operation: Enqueue, intended_ns: int | None) -> None:
        self.operation = operation
        self.intended_ns = intended_ns

    @property
    def size_bytes(self) -> int:
        """Its size, roughly."""
        return len(self.operation.payload)

    def ends(self, outcome: Sent | EngineError) -> None:
        """Give its caller what came of it. Nothing here: who sends one alone reads its call."""


class CallMaker(NamedTuple):
    """How the enqueues of a queue become calls: its model's `call`, and whether the model takes jobs of
    several enqueues, each with a nonce of its own, in one call."""

    call: Callable[[Enqueue | EnqueueMany], Call[Any]]
    merges: bool


class MergedCall(NamedTuple):
    """A call and the enqueues that it carries, in their order."""

    call: Call[Any]
    jobs: Sequence[Enqueue]
    intended_ns: Intended

    def outcomes(self, outcome: Sent | EngineError) -> list[Sent | EngineError]:
        """What came of each enqueue, from what came of the call."""
        if isinstance(outcome, EngineError):
            # Each caller raises an exception of its own: one that several threads raise would collect the
            # traces of all.
            return [outcome, *(copy(outcome) for _ in self.jobs[1:])]
        reply, first_send_ns, done_ns, definite = outcome
        if not isinstance(reply, EnqueuedMany):
            return [outcome]
        return [Sent(item, first_send_ns, done_ns, definite) for item in reply.items]

    def apart(self, outcome: Sent | EngineError, maker: CallMaker) -> list[MergedCall]:
        """The enqueues as calls of their own, when the call of several has failed by an error of its script;
        else none."""
        if len(self.jobs) == 1 or not isinstance(outcome, ScriptFault):
            return []
        each = self.intended_ns if isinstance(self.intended_ns, tuple) else (None,) * len(self.jobs)
        return [
            MergedCall(maker.call(job), (job,), intended_ns)
            for job, intended_ns in zip(self.jobs, each, strict=True)
        ]


class StartedCalls:
    """The calls of a batch, which are about to be sent, and the enqueues that each of them carries. `again`:
    what is to be sent once more, each enqueue in a call of its own, after a call of several has failed as a
    whole."""

    def __init__(
        self,
        merged_calls: Sequence[MergedCall],
        enqueues: Sequence[GatheredEnqueue],
        start: Callable[[Call[Any], Intended], InFlightCall],
        maker: CallMaker,
    ) -> None:
        self.in_flight = [start(merged_call.call, merged_call.intended_ns) for merged_call in merged_calls]
        self.again: tuple[list[MergedCall], list[GatheredEnqueue]] = ([], [])
        self._maker = maker
        self._open: list[tuple[MergedCall, InFlightCall, Sequence[GatheredEnqueue]]] = []
        at = 0
        for merged_call, in_flight_call in zip(merged_calls, self.in_flight, strict=True):
            carried = enqueues[at : at + len(merged_call.jobs)]
            at += len(carried)
            self._open.append((merged_call, in_flight_call, carried))

    def hand_out(self) -> None:
        """Give each caller of the calls that have ended what came of its enqueue."""
        ended = [part for part in self._open if part[1].ended]
        self._open = [part for part in self._open if not part[1].ended]
        for merged_call, in_flight_call, enqueues in ended:
            outcome = in_flight_call.outcome()
            if parts := merged_call.apart(outcome, self._maker):
                self.again[0].extend(parts)
                self.again[1].extend(enqueues)
                continue
            for enqueue, its_outcome in zip(enqueues, merged_call.outcomes(outcome), strict=True):
                enqueue.ends(its_outcome)


def merged(gathered: Iterable[GatheredEnqueue], not_after_ms: int, maker: CallMaker) -> list[MergedCall]:
    """The calls of these enqueues, which leave now, in their order."""
    found: list[MergedCall] = []
    jobs: list[Enqueue] = []
    known: set[str] = set()
    intended: list[int | None] = []

    def close() -> None:
        if len(jobs) == 1:
            found.append(MergedCall(maker.call(jobs[0]), (jobs[0],), intended[0]))
        elif jobs:
            each = tuple(intended) if any(intended) else None
            found.append(MergedCall(maker.call(EnqueueMany(tuple(jobs))), tuple(jobs), each))
        jobs.clear()
        known.clear()
        intended.clear()

    for enqueue in gathered:
        job = enqueue.operation.stamped(not_after_ms)
        alone = not maker.merges or job.options.goes_alone
        if alone or job.job in known:
            close()
        jobs.append(job)
        known.add(job.job)
        intended.append(enqueue.intended_ns)
        if alone:
            close()
    close()
    return found


#: A thread whose enqueue has left with another thread's batch looks so often whether that one is still at it.
_LOOK_S = 0.1


class _Waiting(GatheredEnqueue):
    """An enqueue whose thread waits for its outcome, or for the right to send a batch that begins with it."""

    __slots__ = ("leads", "left", "not_after_ms", "outcome", "wake")

    def __init__(self, operation: Enqueue, intended_ns: int | None) -> None:
        super().__init__(operation, intended_ns)
        #: Its thread sends the next batch.
        self.leads = False
        #: The thread that sent it has ended its batch, or was interrupted.
        self.left = False
        #: The stamp of its call, from the moment when a batch takes it.
        self.not_after_ms: int | None = None
        self.outcome: Sent | EngineError | None = None
        # A lock as a semaphore: the thread waits by taking it a second time.
        self.wake = threading.Lock()
        self.wake.acquire()

    def ends(self, outcome: Sent | EngineError) -> None:
        """Keep the outcome for its thread."""
        self.outcome = outcome


class Gathering:
    """Sends the enqueues of one queue in batches, in the order in which they came, one batch at a time. A
    batch that is under way for long holds up no other.

    A thread may be interrupted anywhere, by a signal or as a greenlet that is killed: no other thread waits
    for it without end.
    """

    def __init__(self, driver: SyncDriver, maker: CallMaker) -> None:
        self._driver = driver
        self._maker = maker
        self._begin()

    def _begin(self) -> None:
        """Begin without waiting enqueues: at first, and in a forked child, which has none of its parent's
        threads."""
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        #: What stands for the batches that threads send, and for the right to send one that was given to a
        #: thread.
        self._under_way: set[object] = set()
        self._pid = os.getpid()

    def send(self, operation: Enqueue, intended_ns: int | None = None) -> Sent:
        """Stamp an enqueue and send it, alone or with others. Raises as `SyncDriver.send` does."""
        if self._pid != os.getpid():
            self._begin()
        waiting: _Waiting | None = None
        sending = object()
        try:
            with self._lock:
                if self._under_way:
                    waiting = _Waiting(operation, intended_ns)
                    self._waiting.append(waiting)
                else:
                    self._under_way.add(sending)
            if waiting is None:
                return self._driver.send(
                    self._maker.call(operation.stamped(self._driver.not_after_ms())), intended_ns
                )
            return self._wait(waiting)
        finally:
            if waiting is None:
                self._end_sending(sending)
            elif waiting.outcome is None or waiting.leads:
                self._withdraw(waiting)

    def _wait(self, waiting: _Waiting) -> Sent:
        """Wait for what becomes of an enqueue, and send the batch that begins with it, where it may."""
        if not waiting.wake.acquire(timeout=OVERDUE_S) and not self._overtakes(waiting):
            # By then the thread that sent it has an answer or has given up, unless it was interrupted and
            # could not even say so.
            until_s = time.monotonic() + 2 * self._driver.deadline_ms / 1000
            while not (waiting.wake.acquire(timeout=_LOOK_S) or waiting.left) and time.monotonic() < until_s:
                pass
        if waiting.leads:
            self._send_batch(waiting)
        if waiting.outcome is None:
            # The thread that took it was interrupted, or stands still and may send its copy later. Both
            # copies have one stamp and one identity: a late one is void, an early one finds the other.
            assert waiting.not_after_ms is not None
            call = self._maker.call(replace(waiting.operation, not_after_ms=waiting.not_after_ms))
            return self._driver.send(call, waiting.intended_ns, again=True)
        if isinstance(waiting.outcome, EngineError):
            raise waiting.outcome
        return waiting.outcome

    def _overtakes(self, waiting: _Waiting) -> bool:
        """Whether the thread of this enqueue sends a batch now: it still waits, so it overtakes the batch
        that takes so long; or a thread gave it the right to send, and was interrupted
        before it could say so."""
        with self._lock:
            if waiting in self._waiting:
                self._under_way.add(waiting)
                waiting.leads = True
                self._waiting.remove(waiting)
            return waiting.leads

    def _withdraw(self, waiting: _Waiting) -> None:
        """The thread of an enqueue waits no more: take it back, unless it has left; its right to send goes to
        the next one."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if waiting.leads:
            self._end_sending(waiting)

    def _end_sending(self, sending: object) -> None:
        """A batch is over: the thread of the first enqueue that waits sends the next one. Harmless when
        repeated."""
        with self._lock:
            self._under_way.discard(sending)
            if self._under_way or not self._waiting:
                return
            first = self._waiting[0]
            self._under_way.add(first)
            first.leads = True
            self._waiting.popleft()
        first.wake.release()

    def _send_batch(self, first: _Waiting) -> None:
        """Send the enqueues that wait behind this one, with it, and give each thread its outcome."""
        batch = [first]
        try:
            with self._lock:
                # Stamped before they are taken. A process that is frozen in between for longer than a
                # tombstone lives would send a copy with a new stamp beside the one of the waiting thread.
                not_after_ms = first.not_after_ms = self._driver.not_after_ms()
                size_bytes = first.size_bytes
                while self._waiting and len(batch) < BATCH_JOBS_MAX and size_bytes < BATCH_BYTES_MAX:
                    batch.append(self._waiting[0])
                    self._waiting[0].not_after_ms = not_after_ms
                    size_bytes += self._waiting.popleft().size_bytes
            self._carry(merged(batch, not_after_ms, self._maker), batch)
        finally:
            for waiting in batch[1:]:
                waiting.left = True
                waiting.wake.release()

    def _carry(self, merged_calls: Sequence[MergedCall], batch: Sequence[GatheredEnqueue]) -> None:
        """Send the calls of a batch until each has ended, and those that failed as a whole once more in
        parts."""
        calls = StartedCalls(merged_calls, batch, self._driver.start, self._maker)
        self._driver.carry(calls.in_flight)
        calls.hand_out()
        if calls.again[0]:
            self._carry(*calls.again)


# -- Enqueues of many tasks that leave together: those that come while others are under way form the next
# batch.
#
# A task that is alone pays nothing for this, because its call leaves at once. With fifty tasks one call
# carries twenty-five jobs or more, and while the server works on one batch the tasks of the other make
# their next jobs: two batches are under way on one connection, whose replies come in the order of the
# batches. No timer is involved: a batch leaves when the tasks that can run have run.

#: Batches under way: while the server answers one, the tasks of the other are busy.
BATCHES_MAX = 2
#: Fewer jobs than this are not divided between two batches.
_DIVIDED_MIN = 8


class Carrier(Protocol):
    """The driver that sends a batch."""

    @property
    def permits(self) -> asyncio.Semaphore:
        """One of these is held while a batch is under way."""
        ...

    def start(self, call: Call[Any], intended_ns: Intended) -> InFlightCall:
        """A call that is sent now for the first time."""
        ...

    def not_after_ms(self) -> int:
        """The server time after which a call that leaves now is void."""
        ...

    async def carry(
        self, in_flight: Sequence[InFlightCall], after_send: Callable[[], None], *, shared: bool
    ) -> None:
        """Send until each call has ended; `after_send` is called after each send. `shared`: the first send
        goes out on the connection of the batches that are under way."""
        ...


class _WaitingTask(GatheredEnqueue):
    """An enqueue whose task waits for its end."""

    __slots__ = ("future",)

    def __init__(self, operation: Enqueue, intended_ns: int | None, future: asyncio.Future[Sent]) -> None:
        super().__init__(operation, intended_ns)
        self.future = future

    def ends(self, outcome: Sent | EngineError) -> None:
        """Give the task what came of its enqueue, if it still waits for it."""
        if not self.future.done():
            if isinstance(outcome, EngineError):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)


class AsyncGathering:
    """Sends the enqueues of one queue in batches, in the order in which they came; those of each event loop
    apart.

    The sends that follow a failed one hold up no other batch. A task that is cancelled before its enqueue has
    left takes it back.
    """

    def __init__(self, carrier: Carrier, maker: CallMaker) -> None:
        from engine.redis.async_driver import OfEachLoop

        self._of_loops = OfEachLoop(lambda: _Gathering(carrier, maker))

    async def send(self, operation: Enqueue, intended_ns: int | None = None) -> Sent:
        """Stamp an enqueue and send it with the next batch. Raises as `AsyncDriver.send` does."""
        return await self._of_loops.here().send(operation, intended_ns)


class _Gathering:
    """The enqueues of one event loop."""

    def __init__(self, carrier: Carrier, maker: CallMaker) -> None:
        self._carrier = carrier
        self._maker = maker
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_WaitingTask] = deque()
        self._under_way = 0
        self._jobs_under_way = 0
        self._left_s = 0.0
        #: The last batch had one job: most likely no other task enqueues now.
        self._alone = True
        self._leaving = False
        self._batches: set[asyncio.Task[None]] = set()

    async def send(self, operation: Enqueue, intended_ns: int | None = None) -> Sent:
        """Stamp an enqueue and send it with the next batch. Raises as `AsyncDriver.send` does."""
        loop = self._loop
        if self._alone and not self._under_way and not self._waiting and not self._carrier.permits.locked():
            return await self._send_alone(GatheredEnqueue(operation, intended_ns))
        waiting = _WaitingTask(operation, intended_ns, loop.create_future())
        self._waiting.append(waiting)
        # A call that left alone has a connection of its own: what comes after it waits for it, to keep the
        # order.
        if self._under_way < (1 if self._alone else BATCHES_MAX) or loop.time() - self._left_s > OVERDUE_S:
            self._leave_soon()
        return await waiting.future

    async def _send_alone(self, enqueue: GatheredEnqueue) -> Sent:
        """A batch of one, without a task of its own."""
        landed = self._depart(1)
        try:
            async with self._carrier.permits:
                (merged_call,) = merged((enqueue,), self._carrier.not_after_ms(), self._maker)
                in_flight_call = self._carrier.start(merged_call.call, merged_call.intended_ns)
                await self._carrier.carry((in_flight_call,), landed, shared=False)
                return in_flight_call.sent()
        finally:
            landed()

    def _leave_soon(self) -> None:
        """Send what waits as soon as the tasks that can run now have added theirs."""
        if not self._leaving:
            self._leaving = True
            self._loop.call_soon(self._leave)

    def _leave(self) -> None:
        """Send a batch of what waits, and a second one if there is room for it."""
        self._leaving = False
        first = True
        while self._waiting and (first or self._under_way < BATCHES_MAX):
            first = False
            batch = self._next_batch()
            if batch:
                self._alone = len(batch) == 1
                sending = asyncio.ensure_future(self._send_batch(batch, self._depart(len(batch))))
                self._batches.add(sending)
                sending.add_done_callback(self._batches.discard)

    async def _send_batch(self, batch: list[_WaitingTask], landed: Callable[[], None]) -> None:
        """Send a batch, in a task that no caller's cancellation ends."""
        try:
            async with self._carrier.permits:
                merged_calls = merged(batch, self._carrier.not_after_ms(), self._maker)
                await self._carry(merged_calls, batch, landed)
        except Exception as error:
            for waiting in batch:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
        finally:
            # Only a batch that was cut off has enqueues without an end: their outcome is unknown, as that of
            # a cancelled task.
            for waiting in batch:
                waiting.future.cancel()
            landed()

    async def _carry(
        self, merged_calls: Sequence[MergedCall], batch: Sequence[GatheredEnqueue], landed: Callable[[], None]
    ) -> None:
        """Send the calls of a batch until each has ended, and those that failed as a whole once more in
        parts."""
        calls = StartedCalls(merged_calls, batch, self._carrier.start, self._maker)

        def after_send() -> None:
            calls.hand_out()
            landed()

        await self._carrier.carry(calls.in_flight, after_send, shared=True)
        if calls.again[0]:
            await self._carry(*calls.again, landed)

    def _next_batch(self) -> list[_WaitingTask]:
        """What leaves now: the enqueues that came first, within the bounds of a batch, without those whose
        task was cancelled. What waits and what is under way is divided evenly between two batches."""
        batch: list[_WaitingTask] = []
        size_bytes, known = 0, len(self._waiting) + self._jobs_under_way
        most = min(BATCH_JOBS_MAX, max(_DIVIDED_MIN, (known + 1) // BATCHES_MAX))
        while self._waiting and len(batch) < most and (not batch or size_bytes < BATCH_BYTES_MAX):
            waiting = self._waiting.popleft()
            if not waiting.future.done():
                batch.append(waiting)
                size_bytes += waiting.size_bytes
        return batch

    def _depart(self, jobs: int) -> Callable[[], None]:
        """Count a batch as under way. Returns what to call when its first send is over, or it has ended; only
        the first call counts."""
        over = False
        self._under_way += 1
        self._jobs_under_way += jobs
        self._left_s = self._loop.time()

        def landed() -> None:
            nonlocal over
            if over:
                return
            over = True
            self._under_way -= 1
            self._jobs_under_way -= jobs
            if self._waiting:
                self._leave_soon()

        return landed
