"""The workers of a queue: who lives, since when, and what each has in hand, as their beats tell it (BQ02 to BQ04, MQ30).

A worker beats every 10 s unless told otherwise, and is taken for dead when three beats in a row have not come; then a sweep looks
for leases that it has left behind, and the next beat may find it gone from the list. A worker that stops takes its leave at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from engine import validate
from engine.errors import ScriptFault
from engine.operations import ListedWorker, ListedWorkers, ListWorkers
from engine.queue import administering
from engine.queue.steps import InTime, Steps

if TYPE_CHECKING:
    from engine.queue.asynchronous.queue import AsyncQueue
    from engine.queue.settings import Surface
    from engine.queue.synchronous.queue import Queue

#: Workers of one answer.
LIMIT_MAX = 1_000


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its last beat told it. `beat_age_ms` is by the server's clock; `in_hand` counts its leases, of which `jobs` are
    at most 100 ids; `leads`: its sweeps come at once, those of the others follow."""

    name: str
    incarnation: str
    host: str
    pid: int
    version: str
    alive: bool
    beat_age_ms: int
    started_ms: int
    in_hand: int
    jobs: tuple[str, ...]
    leads: bool
    concurrency: int
    lease_ms: int
    handlers: tuple[str, ...]
    attributes: Mapping[str, Any]


def _list(surface: Surface, offset: object, limit: object) -> Steps[list[WorkerInfo]]:
    first = validate.integer("offset", offset, 0, 2**31)
    most = validate.integer("limit", limit, 1, LIMIT_MAX)
    reply = yield surface.model.call(ListWorkers(first, most))
    if not isinstance(reply, ListedWorkers):
        raise ScriptFault(f"ListWorkers: a reply of type {type(reply).__name__}")
    # What has no name is a former incarnation of a worker that is listed anyway, or was forgotten.
    return [_info(listed, reply.srv_us // 1000) for listed in reply.workers if listed.ttl_ms]


def _get(surface: Surface, name: object) -> Steps[WorkerInfo | None]:
    wanted = validate.worker_name(name)
    offset = 0
    while True:
        reply = yield surface.model.call(ListWorkers(offset, LIMIT_MAX))
        found = [_info(listed, reply.srv_us // 1000) for listed in reply.workers if listed.ttl_ms]
        match = [info for info in found if wanted in (info.name, info.incarnation)]
        if match or len(reply.workers) < LIMIT_MAX:
            return max(match, key=lambda info: -info.beat_age_ms, default=None)
        offset += LIMIT_MAX


def _info(listed: ListedWorker, now_ms: int) -> WorkerInfo:
    try:
        about = cast("dict[str, Any]", json.loads(listed.about))
        return WorkerInfo(
            name=str(about.get("name", "")),
            incarnation=listed.incarnation,
            host=str(about.get("host", "")),
            pid=int(about.get("pid", 0)),
            version=str(about.get("version", "")),
            alive=listed.until_ms > now_ms,
            beat_age_ms=max(0, now_ms - (listed.until_ms - listed.ttl_ms)),
            started_ms=int(about.get("started_ms", 0)),
            in_hand=int(about.get("in_hand", 0)),
            jobs=tuple(map(str, about.get("jobs", ()))),
            leads=listed.leads,
            concurrency=int(about.get("concurrency", 0)),
            lease_ms=listed.lease_ms,
            handlers=tuple(map(str, about.get("handlers", ()))),
            attributes=dict(about.get("attributes", {})),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ScriptFault(f"ListWorkers: the beat of {listed.incarnation} cannot be read ({error})") from error


def _set(draft: administering.Draft) -> Steps[None]:
    administering.conclude((yield InTime(draft)))


class Workers:
    """The workers of a queue, as `queue.workers`."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def list(self, *, offset: int = 0, limit: int = LIMIT_MAX) -> list[WorkerInfo]:
        """The workers, those whose beats end first at the front: at most `limit` (1 to 1,000) from rank `offset` on."""
        return self._queue.carry_out(_list(self._queue, offset, limit))

    def get(self, name: str) -> WorkerInfo | None:
        """The worker of this name or incarnation, the one that beat last where several have it; None when there is none."""
        return self._queue.carry_out(_get(self._queue, name))

    def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Let the worker of this name, or every worker without a number of its own (None), run so many handlers at once: 1 to
        1,000, of which it uses no more than it was started with; None: as it was started. Workers hear of it at their next sweep
        at the latest, and what runs goes on. Raises as `Queue.enqueue` does."""
        self._queue.carry_out(_set(administering.set_concurrency(name, concurrency)))

    def pause(self, name: str, *, length_ms: int = 0) -> None:
        """Let the worker of this name claim and start nothing until `resume`, or for `length_ms`; what runs goes on. The queue
        and its other workers are not touched. Raises as `Queue.enqueue` does."""
        self._queue.carry_out(_set(administering.pause_worker(name, length_ms)))

    def resume(self, name: str) -> None:
        """End the pause of a worker."""
        self._queue.carry_out(_set(administering.pause_worker(name, None)))


class AsyncWorkers:
    """The workers of a queue, as `queue.workers`."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue

    async def list(self, *, offset: int = 0, limit: int = LIMIT_MAX) -> list[WorkerInfo]:
        """The workers, those whose beats end first at the front: at most `limit` (1 to 1,000) from rank `offset` on."""
        return await self._queue.carry_out(_list(self._queue, offset, limit))

    async def get(self, name: str) -> WorkerInfo | None:
        """The worker of this name or incarnation, the one that beat last where several have it; None when there is none."""
        return await self._queue.carry_out(_get(self._queue, name))

    async def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Let the worker of this name, or every worker without a number of its own (None), run so many handlers at once: 1 to
        1,000, of which it uses no more than it was started with; None: as it was started. Workers hear of it at their next sweep
        at the latest, and what runs goes on. Raises as `Queue.enqueue` does."""
        await self._queue.carry_out(_set(administering.set_concurrency(name, concurrency)))

    async def pause(self, name: str, *, length_ms: int = 0) -> None:
        """Let the worker of this name claim and start nothing until `resume`, or for `length_ms`; what runs goes on. The queue
        and its other workers are not touched. Raises as `Queue.enqueue` does."""
        await self._queue.carry_out(_set(administering.pause_worker(name, length_ms)))

    async def resume(self, name: str) -> None:
        """End the pause of a worker."""
        await self._queue.carry_out(_set(administering.pause_worker(name, None)))
