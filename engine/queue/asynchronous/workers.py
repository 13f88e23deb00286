"""The workers of a queue: which are alive, since when, and what each has leased, from their heartbeats (BQ02 to BQ04, MQ30)."""

from __future__ import annotations

import builtins

from engine import validate
from engine.ops.workers import ListedWorkers, ListWorkers
from engine.queue import administering
from engine.queue.asynchronous.calls import AsyncPart
from engine.queue.workers import LIMIT_MAX, WorkerInfo, worker_info
from engine.validate import Milliseconds


class AsyncWorkers(AsyncPart):
    """The workers of a queue, as `queue.workers`."""

    async def list(self, *, offset: int = 0, limit: int = LIMIT_MAX) -> list[WorkerInfo]:
        """List the workers, those whose heartbeats expire first: at most `limit` (1 to 1,000) from rank `offset` on."""
        first = validate.integer("offset", offset, 0, 2**31)
        return (await self._page(first, validate.integer("limit", limit, 1, LIMIT_MAX)))[0]

    async def get(self, name: str) -> WorkerInfo | None:
        """Return the worker of this name or incarnation, the latest where several have it; None when there is none."""
        wanted = validate.worker_name(name)
        offset, more = 0, True
        while more:
            found, more = await self._page(offset, LIMIT_MAX)
            match = [info for info in found if wanted in (info.name, info.incarnation)]
            if match:
                return max(match, key=lambda info: -info.beat_age_ms)
            offset += LIMIT_MAX
        return None

    async def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Let the worker of this name, or every worker without a number of its own (None), run so many handlers at once: 1 to
        1,000, of which it uses no more than it was started with; None: as it was started. Workers hear of it at their next sweep
        at the latest, and what runs goes on. Raises as `Queue.enqueue` does."""
        await self._queue.carry_out(administering.sending(administering.set_concurrency(name, concurrency)))

    async def pause(self, name: str, *, length_ms: Milliseconds = 0) -> None:
        """Let the worker of this name claim and start nothing until `resume`, or for `length_ms`; what runs goes on. The queue
        and its other workers are not touched. Raises as `Queue.enqueue` does."""
        await self._queue.carry_out(administering.sending(administering.pause_worker(name, length_ms)))

    async def resume(self, name: str) -> None:
        """End the pause of a worker."""
        await self._queue.carry_out(administering.sending(administering.pause_worker(name, None)))

    async def _page(self, offset: int, limit: int) -> tuple[builtins.list[WorkerInfo], bool]:
        """The workers of one reply, and whether there may be more."""
        reply: ListedWorkers = await self._run(ListWorkers(offset, limit))
        # What has no name is a former incarnation of a worker that is listed anyway, or was forgotten.
        found = [worker_info(listed, reply.srv_us // 1000) for listed in reply.workers if listed.ttl_ms]
        return found, len(reply.workers) >= limit
