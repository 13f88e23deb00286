"""The jobs of a queue, to look at and to change by hand: `queue.jobs`, synchronous and for asyncio (rules 7 and 26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.operations import Altered, NameCounts
from engine.queue import altering
from engine.queue.job_info import JobInfo, JobState

if TYPE_CHECKING:
    from engine.queue.asynchronous.queue import AsyncQueue
    from engine.queue.synchronous.queue import Queue


class Jobs:
    """The jobs of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def get(self, id: str) -> JobInfo | None:
        """All that is known of a job; None when the server knows nothing of it (any more). Raises as `enqueue` does."""
        return self._queue.carry_out(altering.getting(self._queue.model, id))

    def state(self, id: str) -> JobState:
        """The state of a job: waiting, delayed, active, stuck (its lease has ended, and no sweep has taken it yet), dead,
        finished, cancelled, discarded, or gone. Of an ended job it is known for 20 s, and of the last 1,000 finished ones
        (`set_retention`)."""
        return self._queue.carry_out(altering.telling_state(self._queue.model, id))

    def list(self, state: str, *, offset: int = 0, limit: int = 100, newest_first: bool = False) -> list[JobInfo]:
        """One page of the jobs that are waiting, delayed, active, stuck, dead or finished, at most 1,000: in the order of time,
        those that wait lane by lane in their order. What changes its state between the page and the look at it is left out."""
        return self._queue.carry_out(altering.listing(self._queue.model, state, offset, limit, newest_first))

    def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name that wait, are delayed, active and dead; '' stands for those that nobody can read. It reads 1,000
        jobs a call, the waiting ones by lane, so with many delayed or dead jobs it takes its time, and is no instant."""
        return self._queue.carry_out(altering.counting_names(self._queue.model))

    def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs. A running one loses its token at once: what its worker still says about it is
        refused, and its handler hears of it at the next renewal, a third of a lease later at most (`Job.cancelled`,
        `Job.cancelled_by_hand`).

        With `expected_state` only if it is in that state; without it is looked at first, and again when it changes meanwhile.
        Returns Altered: `done`, or `changed` with the state that keeps it from being done. Its id is known for 20 s."""
        return self._queue.carry_out(altering.altering(self._queue.model, "cancel", id, expected_state))

    def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job: it is claimable at once, at its place among its equals. As `cancel`, for delayed jobs and those
        that wait for another attempt."""
        return self._queue.carry_out(altering.altering(self._queue.model, "run_now", id, expected_state))

    def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, or take a finished one from the list with its result. As `cancel`; it never
        touches one that runs."""
        return self._queue.carry_out(altering.altering(self._queue.model, "remove", id, expected_state))


class AsyncJobs:
    """The jobs of one queue."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue

    async def get(self, id: str) -> JobInfo | None:
        """All that is known of a job; None when the server knows nothing of it (any more). Raises as `enqueue` does."""
        return await self._queue.carry_out(altering.getting(self._queue.model, id))

    async def state(self, id: str) -> JobState:
        """The state of a job: waiting, delayed, active, stuck (its lease has ended, and no sweep has taken it yet), dead,
        finished, cancelled, discarded, or gone. Of an ended job it is known for 20 s, and of the last 1,000 finished ones
        (`set_retention`)."""
        return await self._queue.carry_out(altering.telling_state(self._queue.model, id))

    async def list(self, state: str, *, offset: int = 0, limit: int = 100, newest_first: bool = False) -> list[JobInfo]:
        """One page of the jobs that are waiting, delayed, active, stuck, dead or finished, at most 1,000: in the order of time,
        those that wait lane by lane in their order. What changes its state between the page and the look at it is left out."""
        return await self._queue.carry_out(altering.listing(self._queue.model, state, offset, limit, newest_first))

    async def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name that wait, are delayed, active and dead; '' stands for those that nobody can read. It reads 1,000
        jobs a call, the waiting ones by lane, so with many delayed or dead jobs it takes its time, and is no instant."""
        return await self._queue.carry_out(altering.counting_names(self._queue.model))

    async def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs. A running one loses its token at once: what its worker still says about it is
        refused, and its handler hears of it at the next renewal, a third of a lease later at most (`Job.cancelled`,
        `Job.cancelled_by_hand`).

        With `expected_state` only if it is in that state; without it is looked at first, and again when it changes meanwhile.
        Returns Altered: `done`, or `changed` with the state that keeps it from being done. Its id is known for 20 s."""
        return await self._queue.carry_out(altering.altering(self._queue.model, "cancel", id, expected_state))

    async def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job: it is claimable at once, at its place among its equals. As `cancel`, for delayed jobs and those
        that wait for another attempt."""
        return await self._queue.carry_out(altering.altering(self._queue.model, "run_now", id, expected_state))

    async def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, or take a finished one from the list with its result. As `cancel`; it never
        touches one that runs."""
        return await self._queue.carry_out(altering.altering(self._queue.model, "remove", id, expected_state))
