"""Calls of many tasks that leave together: while one batch is under way, those that come meanwhile wait and form the next one.

A task that is alone pays nothing for this, because its call leaves at once. With fifty tasks one write carries fifty calls, and
one wake-up of the event loop brings their replies. Each call stays a call of its own, with its own identity and outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.wire.call import Call
from engine.wire.drivers.in_flight import InFlightCall, Sent

#: Bounds of one batch: the server answers the last call of it after all the others.
BATCH_CALLS_MAX = 200
BATCH_BYTES_MAX = 256 * 1024
#: A batch that has been under way for this long holds up the next one no longer.
OVERDUE_S = 0.02


class Carrier(Protocol):
    """The driver that sends a batch."""

    @property
    def turns(self) -> asyncio.Semaphore:
        """One of these is held while a batch is under way."""
        ...

    def start(self, call: Call[Any], intended_ns: int | None) -> InFlightCall:
        """A call that is sent now for the first time."""
        ...

    async def carry(self, in_flight: Sequence[InFlightCall], after_send: Callable[[], None]) -> None:
        """Send until each call has ended; `after_send` is called after each send."""
        ...


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A call that has not left yet: it is built when it leaves, so that its time starts then."""

    build: Callable[[], Call[Any]]
    size_bytes: int
    intended_ns: int | None
    future: asyncio.Future[Sent]
    in_flight: InFlightCall | None = None

    def leaves(self, carrier: Carrier) -> InFlightCall | None:
        """The call as it is sent now; None when it cannot be built, which its task hears."""
        try:
            self.in_flight = carrier.start(self.build(), self.intended_ns)
        except Exception as error:
            self.future.set_exception(error)
        return self.in_flight

    def ends(self) -> None:
        """Give the task its reply, when it is there and the task still waits."""
        if self.in_flight is not None and self.in_flight.ended and not self.future.done():
            try:
                self.future.set_result(self.in_flight.sent())
            except Exception as error:
                self.future.set_exception(error)


class AsyncGathering:
    """Sends the calls of one driver in batches, in the order in which they came, one batch at a time.

    The sends that follow a failed one hold up no other batch. A task that is cancelled before its call has left takes it back.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: deque[WaitingCall] = deque()
        self._under_way = 0
        self._left_s = 0.0
        self._batches: set[asyncio.Task[None]] = set()

    async def send(self, build: Callable[[], Call[Any]], size_bytes: int, intended_ns: int | None) -> Sent:
        """Send a call of about this size with the next batch. Raises as `AsyncDriver.send` does, and what `build` raises."""
        turns, loop = self._carrier.turns, asyncio.get_running_loop()
        if loop is not self._loop:
            # What another loop left behind when it was closed ends with it.
            self._loop, self._waiting, self._under_way, self._batches = loop, deque(), 0, set()
        if not self._under_way and not self._waiting and not turns.locked():
            return await self._send_alone(build, intended_ns)
        waiting_call = WaitingCall(build, size_bytes, intended_ns, loop.create_future())
        self._waiting.append(waiting_call)
        if not self._under_way or loop.time() - self._left_s > OVERDUE_S:
            self._start_batch()
        return await waiting_call.future

    async def _send_alone(self, build: Callable[[], Call[Any]], intended_ns: int | None) -> Sent:
        """A batch of one, without a task of its own."""
        landed = self._depart()
        try:
            async with self._carrier.turns:
                in_flight_call = self._carrier.start(build(), intended_ns)
                await self._carrier.carry((in_flight_call,), landed)
                return in_flight_call.sent()
        finally:
            landed()

    def _start_batch(self) -> None:
        """Send the calls that wait, in a task that no caller's cancellation ends."""
        batch = asyncio.ensure_future(self._send_batch(self._depart()))
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    async def _send_batch(self, landed: Callable[[], None]) -> None:
        batch: list[WaitingCall] = []

        def after_send() -> None:
            for waiting_call in batch:
                waiting_call.ends()
            landed()

        try:
            async with self._carrier.turns:
                batch = self._next_batch()
                in_flight = [found for waiting_call in batch if (found := waiting_call.leaves(self._carrier)) is not None]
                if in_flight:
                    await self._carrier.carry(in_flight, after_send)
        except Exception as error:
            for waiting_call in batch:
                if not waiting_call.future.done():
                    waiting_call.future.set_exception(error)
        finally:
            # Only a batch that was cut off has calls without an end: their outcome is unknown, as that of a cancelled task.
            for waiting_call in batch:
                waiting_call.future.cancel()
            landed()

    def _next_batch(self) -> list[WaitingCall]:
        """Those that leave now: the first in line, within the bounds of a batch, without those whose task was cancelled."""
        batch: list[WaitingCall] = []
        size_bytes = 0
        while self._waiting and len(batch) < BATCH_CALLS_MAX and (not batch or size_bytes < BATCH_BYTES_MAX):
            waiting_call = self._waiting.popleft()
            if not waiting_call.future.done():
                batch.append(waiting_call)
                size_bytes += waiting_call.size_bytes
        return batch

    def _depart(self) -> Callable[[], None]:
        """Count a batch as under way. Returns what to call when its first send is over, or it has ended; only the first call
        counts."""
        loop, over = asyncio.get_running_loop(), False
        self._under_way += 1
        self._left_s = loop.time()

        def landed() -> None:
            nonlocal over
            if over or loop is not self._loop:
                return
            over = True
            self._under_way -= 1
            if self._waiting:
                self._start_batch()

        return landed
