"""What the views read of a queue: each look is at most two calls of bounded cost, however many jobs and lanes there are.

The methods of a queue that answer for all lanes or all jobs take as many calls as that needs; a page that many people look at
must not. So each look here says what part it has seen. Of a queue with shards a call is one of each shard, all at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from engine.errors import UnsupportedFeature
from engine.http.page.rounds import ObstaclesRound
from engine.queue.altering import PIECE
from engine.queue.asynchronous.calls import AsyncPart
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.asynchronous.sharded import AsyncShardedQueue
from engine.queue.durations import HandlerTimes, added_times, handler_times
from engine.queue.job_info import JobInfo, job_info, state_of
from engine.queue.obstacles import Obstacles, added_obstacles, obstacles_of
from engine.queue.scheduling import Schedule, schedule_of
from engine.queue.workers import WorkerInfo, worker_info
from engine.wire.operations import (
    Count,
    Counts,
    Event,
    EventPage,
    Explain,
    Explained,
    Inspect,
    Inspected,
    ListedRunTimes,
    ListedWorkers,
    ListObstacles,
    ListRunTimes,
    ListSchedules,
    ListWorkers,
    ObstaclesPart,
    Operation,
    Page,
    Paged,
    ReadEvents,
    SchedulePage,
)

#: Jobs that one look reads, of a filtered list and of one that shows all of them; names with handler times, schedules, workers
#: and events.
JOBS_MAX, JOBS_SHOWN = 250, 50
TIMES_MAX = 100
SCHEDULES_MAX = 50
WORKERS_MAX = 50
EVENTS_MAX = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SomeJobs:
    """Jobs from rank `offset` of their state on: `jobs` are those that were still in the state when they were read, `next_offset`
    is where the next look begins, None at the end. `now_ms` is the server's time."""

    jobs: tuple[JobInfo, ...]
    offset: int
    seen: int
    next_offset: int | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class OneJob:
    """A job, and all that bears on it; None on an old keyspace, where that cannot be told."""

    job: JobInfo
    explained: Explained | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class SomeSchedules:
    """Schedules by next tick, each with what its intervals count from."""

    schedules: tuple[tuple[Schedule, int], ...]
    more: bool
    now_ms: int


@dataclass(frozen=True, slots=True)
class SomeWorkers:
    """Workers, those whose heartbeats expire first."""

    workers: tuple[WorkerInfo, ...]
    more: bool
    now_ms: int


class Looks(AsyncPart):
    """The looks at one queue."""

    async def counts(self, cursor: str = "") -> Counts:
        """Jobs in each state; the waiting ones of some 500 lanes. One call."""
        found: Counts = await self._run(Count(cursor=cursor))
        return found

    async def obstacles(self, cursor: str = "") -> ObstaclesPart | None:
        """Pauses, limits and some 100 lanes; None on an old keyspace, where that cannot be told. One call."""
        return await self._if_known(ListObstacles(cursor), ObstaclesPart)

    async def held(self) -> Obstacles | None:
        """Pauses and limits with what holds some 100 lanes back. One call."""
        part = await self.obstacles()
        return None if part is None else obstacles_of([part])

    async def look_on(self, round: ObstaclesRound) -> None:
        """Look at the next lanes of a round. One call."""
        part = await self.obstacles(round.cursor)
        if part is not None:
            round.add(part)

    async def run_times(self) -> tuple[HandlerTimes, ...]:
        """How long handlers took, of the names that were told of first. One call."""
        found = await self._if_known(ListRunTimes(0, TIMES_MAX), ListedRunTimes)
        return () if found is None else tuple(handler_times(name, since_ms, items) for name, since_ms, items in found.names)

    async def workers(self, offset: int = 0, limit: int = WORKERS_MAX) -> SomeWorkers:
        """Workers from this rank on. One call."""
        found: ListedWorkers = await self._run(ListWorkers(offset, limit))
        now_ms = found.srv_us // 1000
        # What has no life is a former incarnation of a worker that is listed anyway, or was forgotten.
        known = tuple(worker_info(listed, now_ms) for listed in found.workers if listed.ttl_ms)
        return SomeWorkers(known, len(found.workers) >= limit, now_ms)

    async def schedules(self, offset: int) -> SomeSchedules:
        """Schedules from this rank on. One call."""
        page: SchedulePage = await self._run(ListSchedules("", offset, SCHEDULES_MAX))
        queue = self._queue
        found = tuple((schedule_of(item, queue.model, queue.serializers), item.anchor_ms) for item in page.items)
        return SomeSchedules(found, bool(page.more), page.srv_us // 1000)

    async def jobs(self, state: str, offset: int, *, newest_first: bool, limit: int = JOBS_MAX) -> SomeJobs:
        """Jobs of a state from this rank on. Two calls."""
        page: Paged = await self._run(Page(state, offset, limit, newest_first))
        if not page.jobs:
            return SomeJobs((), offset, 0, None, page.srv_us // 1000)
        reply: Inspected = await self._run(Inspect(page.jobs))
        found: list[JobInfo] = []
        for job, looked in zip(page.jobs, reply.items, strict=False):
            now = state_of(looked, reply.srv_us)
            if now == state or (now, state) == ("stuck", "active"):
                found.append(job_info(self._queue.model, job, looked, reply.srv_us))
        # A reply ends after 1 MiB of payloads: the next look goes on behind what was read.
        seen = len(reply.items)
        more = seen < page.seen or page.seen == limit
        return SomeJobs(tuple(found), offset, seen, offset + seen if more else None, reply.srv_us // 1000)

    async def job(self, id: str) -> OneJob | None:
        """One job; None when the server does not know it. Two calls."""
        reply: Inspected = await self._run(Inspect((id,)))
        looked = reply.items[0]
        if looked.state == "gone":
            return None
        explained = await self._if_known(Explain(id), Explained)
        return OneJob(job_info(self._queue.model, id, looked, reply.srv_us), explained, reply.srv_us // 1000)

    async def events_of(self, job: str, since_ms: int) -> tuple[tuple[Event, ...], bool]:
        """What was recorded of a job among the first 1,000 events since this time, and whether there are more. One call."""
        page: EventPage = await self._run(ReadEvents(f"{max(0, since_ms - 1)}-0", EVENTS_MAX, 0))
        return tuple(event for event in page.events if event.job == job), len(page.events) == EVENTS_MAX

    async def _if_known(self, operation: Operation, kind: type[T]) -> T | None:
        try:
            found = await self._run(operation)
        except UnsupportedFeature:
            return None
        assert isinstance(found, kind)
        return found


class ShardedLooks(Looks):
    """The looks at a queue with shards. Schedules are in shard 0, as the base looks for them."""

    def __init__(self, queue: AsyncShardedQueue) -> None:
        super().__init__(queue)
        self._sharded = queue

    async def counts(self, cursor: str = "") -> Counts:
        """Jobs in each state, of all lanes of all shards."""
        return await self._sharded.counts()

    async def held(self) -> Obstacles | None:
        """Pauses and limits with what holds some 100 lanes of each shard back."""
        found = await self._sharded.each(ListObstacles())
        return added_obstacles([obstacles_of([part]) for _, part in found])

    async def look_on(self, round: ObstaclesRound) -> None:
        """Look at the first lanes of each shard."""
        round.whole = await self.held()

    async def run_times(self) -> tuple[HandlerTimes, ...]:
        """How long handlers took in all shards."""
        found = await self._sharded.each(ListRunTimes(0, TIMES_MAX))
        return tuple(added_times(handler_times(*names) for _, reply in found for names in reply.names))

    async def workers(self, offset: int = 0, limit: int = WORKERS_MAX) -> SomeWorkers:
        """Workers from this rank on, each with what it has in hand in all shards."""
        found = tuple(await self._sharded.workers.list(offset=offset, limit=limit))
        return SomeWorkers(found, len(found) >= limit, await self._sharded.driver.server_now_ms())

    async def jobs(self, state: str, offset: int, *, newest_first: bool, limit: int = JOBS_MAX) -> SomeJobs:
        """Jobs of a state from this rank on."""
        most = min(limit, PIECE)
        page = await self._sharded.jobs.page(state, offset=offset, limit=most, newest_first=newest_first)
        seen = len(page.jobs) if page.next is None else page.next - offset
        return SomeJobs(page.jobs, offset, seen, page.next, await self._sharded.driver.server_now_ms())

    async def job(self, id: str) -> OneJob | None:
        """One job, in its shard."""
        shard = await self._sharded.find(id)
        return None if shard is None else await Looks(shard).job(id)

    async def events_of(self, job: str, since_ms: int) -> tuple[tuple[Event, ...], bool]:
        """What the shard of a job has recorded of it."""
        shard = await self._sharded.find(job)
        return ((), False) if shard is None else await Looks(shard).events_of(job, since_ms)


def looks_at(queue: AsyncQueue) -> Looks:
    """The looks at a queue, with shards or without."""
    return ShardedLooks(queue) if isinstance(queue, AsyncShardedQueue) else Looks(queue)
