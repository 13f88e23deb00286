"""Enqueues of many tasks that leave together: those that come while others are under way form the next batch.

A task that is alone pays nothing for this, because its call leaves at once. With fifty tasks one call carries
twenty-five jobs or more, and while the server works on one batch the tasks of the other make their next jobs:
two batches are under way on one connection, whose replies come in the order of the batches. No timer is
involved: a batch leaves when the tasks that can run have run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.errors import EngineError
from engine.observer import Intended
from engine.ops.base import Call
from engine.ops.jobs import Enqueue
from engine.redis.async_connections import OfEachLoop
from engine.redis.exchange import InFlightCall, Sent
from engine.redis.gathering import (
    BATCH_BYTES_MAX,
    BATCH_JOBS_MAX,
    OVERDUE_S,
    CallMaker,
    GatheredEnqueue,
    MergedCall,
    StartedCalls,
    merged,
)

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


class _Waiting(GatheredEnqueue):
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
        self._waiting: deque[_Waiting] = deque()
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
        waiting = _Waiting(operation, intended_ns, loop.create_future())
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

    async def _send_batch(self, batch: list[_Waiting], landed: Callable[[], None]) -> None:
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

    def _next_batch(self) -> list[_Waiting]:
        """What leaves now: the enqueues that came first, within the bounds of a batch, without those whose
        task was cancelled. What waits and what is under way is divided evenly between two batches."""
        batch: list[_Waiting] = []
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
