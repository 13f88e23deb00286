"""Enqueues of many threads or greenlets that leave together, as databases commit in groups: while one thread waits for its reply,
those that come meanwhile line up, and the first of them sends for all.

A thread that is alone sends at once. No thread is made for this and no timer is involved.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

from engine.errors import EngineError
from engine.wire.drivers.driver import SyncDriver
from engine.wire.drivers.in_flight import Sent
from engine.wire.drivers.merging import (
    BATCH_BYTES_MAX,
    BATCH_JOBS_MAX,
    OVERDUE_S,
    CallMaker,
    GatheredEnqueue,
    MergedCall,
    merged,
)
from engine.wire.operations import Enqueue


class _Waiting(GatheredEnqueue):
    """An enqueue whose thread waits for its outcome, or for its turn to send a batch that begins with it."""

    __slots__ = ("leads", "not_after_ms", "outcome", "wake")

    def __init__(self, operation: Callable[[int], Enqueue], size_bytes: int, intended_ns: int | None) -> None:
        super().__init__(operation, size_bytes, intended_ns)
        #: Its thread sends the next batch.
        self.leads = False
        #: Of its call, once it has left.
        self.not_after_ms: int | None = None
        self.outcome: Sent | EngineError | None = None
        # A lock as a semaphore: the thread waits by taking it a second time.
        self.wake = threading.Lock()
        self.wake.acquire()


class Gathering:
    """Sends the enqueues of one queue in batches, in the order in which they came, one batch at a time. A batch that is under way
    for long holds up no other."""

    def __init__(self, driver: SyncDriver, maker: CallMaker) -> None:
        self._driver = driver
        self._maker = maker
        self._begin()

    def _begin(self) -> None:
        """Begin without waiting enqueues: at first, and in a forked child, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        #: Batches that threads send, and turns to send one that were given to a thread.
        self._under_way = 0
        self._pid = os.getpid()

    def send(self, operation: Callable[[int], Enqueue], size_bytes: int, intended_ns: int | None = None) -> Sent:
        """Send an enqueue of about this size, alone or with others. Raises as `SyncDriver.send` does."""
        if self._pid != os.getpid():
            self._begin()
        waiting = None
        with self._lock:
            if self._under_way:
                waiting = _Waiting(operation, size_bytes, intended_ns)
                self._waiting.append(waiting)
            else:
                self._under_way = 1
        if waiting is not None:
            return self._wait(waiting)
        try:
            return self._driver.send(self._maker.call(operation(self._driver.not_after_ms())), intended_ns)
        finally:
            self._end_turn()

    def _wait(self, waiting: _Waiting) -> Sent:
        """Wait for what becomes of an enqueue, and send the batch that begins with it when it is its turn."""
        try:
            if not waiting.wake.acquire(timeout=OVERDUE_S) and not self._overtakes(waiting):
                waiting.wake.acquire()
        except BaseException:
            # A killed greenlet or an interrupt.
            self._withdraw(waiting)
            raise
        if waiting.leads:
            self._send_batch(waiting)
        if waiting.outcome is None:
            # The thread that sent it was interrupted. The same call once more is harmless, whatever became of the first.
            assert waiting.not_after_ms is not None
            call = self._maker.call(waiting.operation(waiting.not_after_ms))
            return self._driver.send(call, waiting.intended_ns, again=True)
        if isinstance(waiting.outcome, EngineError):
            raise waiting.outcome
        return waiting.outcome

    def _overtakes(self, waiting: _Waiting) -> bool:
        """Whether this enqueue still waits: then its thread sends a batch beside the one that takes so long."""
        with self._lock:
            if waiting.leads:
                # The thread that gave it the turn was interrupted before it could wake this one.
                return True
            if waiting not in self._waiting:
                return False
            self._waiting.remove(waiting)
            self._under_way += 1
            waiting.leads = True
        return True

    def _withdraw(self, waiting: _Waiting) -> None:
        """Take an enqueue back whose thread waits no more, unless it has left. A turn to send goes to the next one."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if waiting.leads:
            self._end_turn()

    def _end_turn(self) -> None:
        """A batch is over: the thread of the first enqueue that waits sends the next one."""
        with self._lock:
            self._under_way -= 1
            if self._under_way or not self._waiting:
                return
            first = self._waiting.popleft()
            self._under_way = 1
            first.leads = True
        first.wake.release()

    def _send_batch(self, first: _Waiting) -> None:
        """Send the enqueues that wait behind this one, with it, and give each thread its outcome."""
        batch = [first]
        try:
            with self._lock:
                size_bytes = first.size_bytes
                while self._waiting and len(batch) < BATCH_JOBS_MAX and size_bytes < BATCH_BYTES_MAX:
                    batch.append(self._waiting.popleft())
                    size_bytes += batch[-1].size_bytes
            not_after_ms = self._driver.not_after_ms()
            for waiting in batch:
                waiting.not_after_ms = not_after_ms
            self._carry(merged(batch, not_after_ms, self._maker), batch)
        finally:
            for waiting in batch[1:]:
                waiting.wake.release()
            self._end_turn()

    def _carry(self, merged_calls: Sequence[MergedCall], batch: Sequence[_Waiting]) -> None:
        """Send the calls of a batch until each has ended, and those that failed as a whole once more in parts."""
        in_flight = [self._driver.start(merged_call.call, merged_call.intended_ns) for merged_call in merged_calls]
        self._driver.carry(in_flight)
        at = 0
        for merged_call, in_flight_call in zip(merged_calls, in_flight, strict=True):
            waiting = batch[at : at + len(merged_call.jobs)]
            at += len(waiting)
            outcome = in_flight_call.outcome()
            parts = merged_call.apart(outcome, self._maker)
            if parts:
                self._carry(parts, waiting)
                continue
            for one, its_outcome in zip(waiting, merged_call.outcomes(outcome), strict=True):
                one.outcome = its_outcome
