"""What the views read of a queue, in at most three calls of bounded cost, however many jobs and lanes there
are. A round over all lanes takes a part a call, and each look says what part it has seen. Others read some
workers, names, one job, or the last events. Of a queue with shards a call is one of each shard, all at
once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from engine.errors import ScriptFault, UnsupportedFeature
from engine.ops.base import Operation
from engine.ops.looks import (
    Count,
    Counts,
    Event,
    EventPage,
    Explain,
    Explained,
    Inspect,
    Inspected,
    ListObstacles,
    ObstaclesPart,
    ReadEvents,
    Relatives,
    RelativesTold,
)
from engine.ops.workers import (
    HandlerTimes,
    ListedRunTimes,
    ListedWorkers,
    ListRunTimes,
    ListWorkers,
    WorkerInfo,
)
from engine.queue.asynchronous.calls import AsyncPart
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import JobInfo, job_info
from engine.queue.sharding import added_times
from engine.queue.why import Obstacles, obstacles_of

# -- Looks at all lanes of a queue, a part a call: what is known while a round goes on, and after it.

#: Parts of a round: with more lanes, names and reasons are of the first ones.
_PARTS_MAX = 200


class LanesRound:
    """Numbers of lanes that come in parts: the sum of a whole round, and of the parts so far while there was
    none."""

    def __init__(self) -> None:
        self.cursor = ""
        self._so_far = 0
        self._whole: int | None = None

    def add(self, counts: Counts) -> None:
        """The answer to the call with `cursor`."""
        self._so_far += counts.waiting
        self.cursor = counts.cursor
        if not counts.cursor:
            self._whole, self._so_far = self._so_far, 0

    @property
    def least(self) -> bool:
        """Whether there are lanes that were never counted."""
        return self._whole is None

    @property
    def waiting(self) -> int:
        """The waiting jobs as far as they are known."""
        return self._so_far if self._whole is None else self._whole


class ObstaclesRound:
    """What holds jobs back, in parts."""

    def __init__(self) -> None:
        self._parts: list[ObstaclesPart] = []
        self.whole: Obstacles | None = None

    @property
    def cursor(self) -> str:
        """Where the next part begins."""
        return self._parts[-1].cursor if self._parts else ""

    def add(self, part: ObstaclesPart) -> None:
        """The answer to the call with `cursor`."""
        self._parts.append(part)
        known = obstacles_of(self._parts)
        if not part.cursor or len(self._parts) >= _PARTS_MAX:
            self.whole, self._parts = known, []
        elif self.whole is None or self.whole.cut:
            # Until the first round has ended the parts so far are better than nothing.
            self.whole = known


#: Names with handler times, workers and events that one look reads.
TIMES_MAX = 100
WORKERS_MAX = 50
EVENTS_MAX = 1_000
#: Children of a dead job that its page shows.
CHILDREN_MAX = 10
#: Workers that are looked at for what they have handlers for.
ALL_WORKERS_MAX = 1_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OneJob:
    """A job, and all that bears on it; None on an old keyspace, where that cannot be told."""

    job: JobInfo
    explained: Explained | None
    now_ms: int
    #: Of a dead one, whose children wait for it no more: some of them with their states, and whether there
    #: are others.
    children: tuple[tuple[str, str], ...] = ()
    more_children: bool = False


@dataclass(frozen=True, slots=True)
class SomeWorkers:
    """Workers, those whose heartbeats expire first."""

    workers: tuple[WorkerInfo, ...]
    more: bool
    now_ms: int

    @property
    def alive(self) -> list[WorkerInfo] | None:
        """Those that live; None where there are more than are known."""
        return None if self.more else [info for info in self.workers if info.alive]


class Looks(AsyncPart):
    """The looks at one queue."""

    async def count_on(self, round: LanesRound) -> Counts:
        """Count the jobs in each state, the waiting ones of the next 500 or so lanes of a round. One call."""
        counts: Counts = await self._queue.do(Count(cursor=round.cursor))
        round.add(counts)
        return counts

    async def look_on(self, round: ObstaclesRound) -> None:
        """Look at the next 100 or so lanes of a round; an old keyspace cannot tell them. One call."""
        part = await self._if_known(ListObstacles(round.cursor), ObstaclesPart)
        if part is not None:
            round.add(part)

    async def run_times(self) -> tuple[HandlerTimes, ...]:
        """How long handlers took, of the names that were told of first. One call."""
        found = await self._if_known(ListRunTimes(0, TIMES_MAX), ListedRunTimes)
        return () if found is None else found.names

    async def workers(self, offset: int = 0, limit: int = WORKERS_MAX) -> SomeWorkers:
        """Workers from this rank on. One call."""
        found: ListedWorkers = await self._queue.do(ListWorkers(offset, limit))
        return SomeWorkers(found.workers, found.seen >= limit, found.srv_us // 1000)

    async def job(self, id: str) -> OneJob | None:
        """One job; None when the server does not know it. Two calls, and two more of a dead one for its
        children."""
        reply: Inspected = await self._queue.do(Inspect((id,)))
        looked = reply.items[0]
        if looked.state == "gone":
            return None
        try:
            explained = await self._if_known(Explain(id), Explained)
        except ScriptFault:
            # Somebody else has written its run; what can be read of the job says so.
            explained = None
        job = job_info(self._queue.model, self._queue.serializers, id, looked, reply.srv_us)
        children, more = await self._children(id) if job.state == "dead" else ((), False)
        return OneJob(job, explained, reply.srv_us // 1000, children, more)

    async def _children(self, parent: str) -> tuple[tuple[tuple[str, str], ...], bool]:
        """Some of the jobs that need one, whatever became of them, with their states, and whether there are
        more."""
        told = await self._if_known(Relatives((parent,), ("",)), RelativesTold)
        if told is None or not told.items or not told.items[0].children:
            return (), False
        known = told.items[0].children
        some = known[:CHILDREN_MAX]
        found: RelativesTold = await self._queue.do(Relatives(some, ("",) * len(some)))
        states = tuple(zip(some, (item.state for item in found.items), strict=False))
        return states, len(known) > len(states) or bool(told.items[0].more)

    async def events_of(self, job: str, since_ms: int) -> tuple[tuple[Event, ...], bool]:
        """What was recorded of a job among the first 1,000 events since this time, and whether there are
        more. One call."""
        page: EventPage = await self._queue.do(ReadEvents(f"{max(0, since_ms - 1)}-0", EVENTS_MAX, 0))
        return tuple(event for event in page.events if event.job == job), len(page.events) == EVENTS_MAX

    async def _if_known(self, operation: Operation, kind: type[T]) -> T | None:
        try:
            found = await self._queue.do(operation)
        except UnsupportedFeature:
            return None
        assert isinstance(found, kind)
        return found


class ShardedLooks(Looks):
    """The looks at a queue with shards."""

    def __init__(self, queue: AsyncQueue) -> None:
        super().__init__(queue)
        self._sharded = queue

    async def count_on(self, round: LanesRound) -> Counts:
        """Count the jobs in each state, of all lanes of all shards."""
        counts = await self._sharded.counts()
        round.add(counts)
        return counts

    async def look_on(self, round: ObstaclesRound) -> None:
        """Look at the first lanes of each shard."""
        round.whole = await self._sharded.obstacles(one_call=True)

    async def run_times(self) -> tuple[HandlerTimes, ...]:
        """How long handlers took in all shards."""
        found = await self._sharded.each(ListRunTimes(0, TIMES_MAX))
        return tuple(added_times(times for _, reply in found for times in reply.names))

    async def workers(self, offset: int = 0, limit: int = WORKERS_MAX) -> SomeWorkers:
        """Workers from this rank on, each with what it has in hand in all shards."""
        found = tuple(await self._sharded.workers.list(offset=offset, limit=limit))
        return SomeWorkers(found, len(found) >= limit, await self._sharded.driver.server_now_ms())

    async def job(self, id: str) -> OneJob | None:
        """One job, in its shard."""
        shard = await self._sharded.find(id)
        return None if shard is None else await Looks(shard).job(id)

    async def events_of(self, job: str, since_ms: int) -> tuple[tuple[Event, ...], bool]:
        """What the shard of a job has recorded of it."""
        shard = await self._sharded.find(job)
        return ((), False) if shard is None else await Looks(shard).events_of(job, since_ms)


async def held(queue: AsyncQueue) -> Obstacles | None:
    """Pauses and limits with what holds the first lanes back; None on an old keyspace, where that cannot be
    told. One call."""
    try:
        return await queue.obstacles(one_call=True)
    except UnsupportedFeature:
        return None


async def alive(queue: AsyncQueue) -> list[WorkerInfo] | None:
    """The live workers; None where there are more than are looked at. One call."""
    return (await looks_at(queue).workers(0, ALL_WORKERS_MAX)).alive


def looks_at(queue: AsyncQueue) -> Looks:
    """The looks at a queue, with shards or without."""
    return Looks(queue) if queue.shards is None else ShardedLooks(queue)
