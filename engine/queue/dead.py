"""The dead jobs of a queue: `queue.dead`, synchronous and for asyncio. They stay until they are requeued, discarded, or too many
or too old (`set_retention`; 100,000 and 90 days unless told)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.operations import Altered
from engine.queue import altering, clearing
from engine.queue.job_info import JobInfo

if TYPE_CHECKING:
    from engine.queue.asynchronous.queue import AsyncQueue
    from engine.queue.synchronous.queue import Queue


class Dead:
    """The dead jobs of one queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def list(self, *, offset: int = 0, limit: int = 100, newest_first: bool = False) -> list[JobInfo]:
        """One page of the dead jobs, at most 1,000, the longest dead first: `last_error` is why, `errors` its runs with their
        stack traces. A corrupt one is among them, with `unreadable` and its bytes. Raises as `enqueue` does."""
        return self._queue.carry_out(altering.listing(self._queue.model, "dead", offset, limit, newest_first))

    def requeue(self, id: str) -> Altered:
        """Let a dead job run again, with all its attempts, at the place that it had. Its error history stays.

        Returns Altered: `done`; `changed` when it is not dead; `held` when the job `holder` has its unique key by now (rule 23);
        `corrupt` when nobody can read it."""
        return self._queue.carry_out(altering.altering(self._queue.model, "requeue", id, None))

    def requeue_all(self, name: str | None = None, *, limit: int = 10_000) -> int:
        """Requeue the dead jobs of a name, or all, the longest dead first, in pieces of 100; how many there were. Those that are
        held or corrupt stay dead."""
        return self._queue.carry_out(altering.requeueing_all(self._queue.model, name, limit))

    def discard(self, id: str) -> Altered:
        """End a dead job for good, also a corrupt one."""
        return self._queue.carry_out(altering.altering(self._queue.model, "discard", id, None))

    def clear(self, *, older_than_ms: int = 0, limit: int = 1_000_000) -> int:
        """Discard the jobs that have been dead for so long, in pieces; how many there were."""
        return self._queue.carry_out(clearing.cleaning("dead", older_than_ms, limit))


class AsyncDead:
    """The dead jobs of one queue."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue

    async def list(self, *, offset: int = 0, limit: int = 100, newest_first: bool = False) -> list[JobInfo]:
        """One page of the dead jobs, at most 1,000, the longest dead first: `last_error` is why, `errors` its runs with their
        stack traces. A corrupt one is among them, with `unreadable` and its bytes. Raises as `enqueue` does."""
        return await self._queue.carry_out(altering.listing(self._queue.model, "dead", offset, limit, newest_first))

    async def requeue(self, id: str) -> Altered:
        """Let a dead job run again, with all its attempts, at the place that it had. Its error history stays.

        Returns Altered: `done`; `changed` when it is not dead; `held` when the job `holder` has its unique key by now (rule 23);
        `corrupt` when nobody can read it."""
        return await self._queue.carry_out(altering.altering(self._queue.model, "requeue", id, None))

    async def requeue_all(self, name: str | None = None, *, limit: int = 10_000) -> int:
        """Requeue the dead jobs of a name, or all, the longest dead first, in pieces of 100; how many there were. Those that are
        held or corrupt stay dead."""
        return await self._queue.carry_out(altering.requeueing_all(self._queue.model, name, limit))

    async def discard(self, id: str) -> Altered:
        """End a dead job for good, also a corrupt one."""
        return await self._queue.carry_out(altering.altering(self._queue.model, "discard", id, None))

    async def clear(self, *, older_than_ms: int = 0, limit: int = 1_000_000) -> int:
        """Discard the jobs that have been dead for so long, in pieces; how many there were."""
        return await self._queue.carry_out(clearing.cleaning("dead", older_than_ms, limit))
