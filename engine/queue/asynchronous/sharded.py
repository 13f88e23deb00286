"""A queue in several shards: each call goes to the shard of its job, or to all of them
(docs/guides/shards.md).

The shards are queues of their own that share one driver, and what is asked of all of them leaves in one
pipeline. The record of how many there are is read with the first call and again with each look at all shards,
so one that has become another is noticed; an enqueue need not look, because a shard that takes no new jobs
says so.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn, TypeVar, cast

from engine import validate
from engine.errors import EngineError, Malformed, ServerUnavailable, UnknownJob, UnsupportedFeature
from engine.ops.admin import AdminOperation, Altered, Window
from engine.ops.base import DeadlineBound, Operation
from engine.ops.jobs import Enqueue, Enqueued
from engine.ops.looks import (
    Count,
    Counts,
    Inspect,
    Inspected,
    ListObstacles,
    Look,
    NameCounts,
    ReadProgress,
    Seen,
    Snapshot,
)
from engine.ops.transfers import ReadShards, SetGate, SetShards
from engine.ops.workers import WORKERS_MAX, HandlerTimes, WorkerInfo
from engine.parameters import TypedJob
from engine.queue import admin, producing, sharding
from engine.queue.asynchronous.parts import (
    AsyncDead,
    AsyncEvents,
    AsyncJobs,
    AsyncJobsPart,
    AsyncResults,
    AsyncWorkers,
)
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.looks import (
    AWAY,
    JobInfo,
    JobPage,
    JobState,
    Listing,
    Progress,
    Result,
    Selection,
    Waiting,
    progress_of,
    result_of,
    typed,
)
from engine.queue.producing import Steps
from engine.queue.sharding import ShardRecord, added_times, added_workers
from engine.queue.why import Obstacles, Why, added_obstacles, obstacles_of
from engine.redis.async_driver import AsyncDriver
from engine.redis.call import Call
from engine.redis.exchange import PIPELINE_MAX, Sent
from engine.validate import Milliseconds

#: Looks at a record that changes all the time, or at a job that is on its way to another shard.
_TRIES = 50
T = TypeVar("T")


class AsyncShard(AsyncQueue):
    """One shard: a queue that uses the driver of the whole one."""

    is_shard = True

    @classmethod
    def of(cls, queue: AsyncQueue, name: str) -> AsyncShard:
        """The shard of this name."""
        made = cls.__new__(cls)
        made._take_over(queue, None)
        made.name, made.shards, made.model = name, None, queue.model.sibling(name)
        made.endpoint = queue.endpoint.for_keys_like(made.model.keys.prefix)
        # The whole queue is listed on its server, not each shard.
        made._noted = True
        made._set_up(queue.driver)
        return made


class AsyncShardedQueue(AsyncQueue):
    """A queue in several shards. Its own keys are those of shard 0."""

    shards: int

    def _set_up(self, driver: AsyncDriver | None = None) -> None:
        super()._set_up(driver)
        self._known: ShardRecord | None = None
        self._made: dict[str, AsyncShard] = {}
        self.workers = AsyncShardedWorkers(self)
        self.results = AsyncShardedResults(self)
        self.jobs = AsyncShardedJobs(self)
        self.dead = AsyncShardedDead(self)
        self.events = AsyncShardedEvents(self)

    # -- the record

    async def record(self) -> ShardRecord:
        """How many shards there are, as it was when this was last asked; for the engine's own parts. The
        first client writes it. Raises Malformed for another number than this client has."""
        return self._known or await self.look_up()

    async def look_up(self) -> ShardRecord:
        """Read the record anew."""
        async with self.driver.permits:
            text: str = await self.driver.run(self.model.call(ReadShards()))
            if not text:
                first, closed = sharding.first_record(self.shards).text(), sharding.moved(self.shards)
                made = await self.driver.run(self.model.call(SetShards("", first, closed, fresh=True)))
                if made.result == "used":
                    raise Malformed(
                        "shards",
                        self.shards,
                        f"left out: queue {self.name} is whole; `ironclaim reshard` divides it",
                    )
                text = made.record
        return self._learn(text)

    def _learn(self, text: str) -> ShardRecord:
        record = sharding.read_record(text)
        record.check(self.name, self.shards)
        self._known = record
        return record

    def shard(self, name: str) -> AsyncShard:
        """The shard of this name."""
        if name not in self._made:
            self._made[name] = AsyncShard.of(self, name)
        return self._made[name]

    async def in_use(self) -> list[AsyncShard]:
        """All shards that may hold jobs, shard 0 first."""
        return [self.shard(name) for name in (await self.look_up()).names(self.name)]

    # -- calls

    async def each(self, operation: Operation) -> list[tuple[AsyncShard, Any]]:
        """Ask all shards at once, and the record. Raises the first failure."""
        for _ in range(_TRIES):
            # The replies belong to the record that the shards were taken from; another thread may learn a
            # newer one meanwhile.
            record = await self.record()
            shards = [self.shard(name) for name in record.names(self.name)]
            calls = [shard.model.call(operation) for shard in shards]
            text, *replies = await self._pipeline([self.model.call(ReadShards()), *calls])
            if text == record.text():
                return list(zip(shards, replies, strict=True))
            await self.look_up()
        raise ServerUnavailable(f"the record of the shards of queue {self.name} changes all the time")

    async def _pipeline(self, calls: Sequence[Call[Any]], intended_ns: int | None = None) -> list[Any]:
        """The replies of calls that leave together. Raises the first failure."""
        outcomes = await self._outcomes(calls, intended_ns)
        for outcome in outcomes:
            if isinstance(outcome, EngineError):
                raise outcome
        return [cast("Sent", outcome).reply for outcome in outcomes]

    async def _outcomes(
        self, calls: Sequence[Call[Any]], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        outcomes: list[Sent | EngineError] = []
        async with self.driver.permits:
            for at in range(0, len(calls), PIPELINE_MAX):
                outcomes += await self.driver.send_many(calls[at : at + PIPELINE_MAX], intended_ns)
        return outcomes

    async def find(self, id: str) -> AsyncShard | None:
        """The shard that has a job; of an ended one also that which still knows its id."""
        job = validate.known_id(id)
        for _ in range(_TRIES):
            found: dict[str, AsyncShard] = {}
            for shard, reply in await self.each(Inspect((job,), whole=False)):
                found.setdefault(cast("Inspected", reply).items[0].state, shard)
            open_states = [state for state in found if state in admin.LISTED[:-1]]
            ended = [state for state in found if state not in ("gone", "moving")]
            if open_states or ended or "moving" not in found:
                # One that still is to run before one of the same id and another key that has ended.
                return next((found[state] for state in (*open_states, *ended)), None)
        return None

    async def homes(self, key: str, unique: str, job: str) -> list[AsyncShard]:
        """The shards that a job may be in, in the order in which they are asked."""
        return [self.shard(name) for name in (await self.record()).homes(self.name, key, unique, job)]

    async def carry_out(self, steps: Steps[T], intended_ns: int | None = None) -> T:
        """Run steps on shard 0, once the number of shards is known to be right."""
        await self.record()
        return await super().carry_out(steps, intended_ns)

    async def send_in_time(self, operation: DeadlineBound) -> Sent:
        """Send an operation to shard 0, as `carry_out` does."""
        await self.record()
        return await super().send_in_time(operation)

    # -- enqueues

    async def _send_enqueue(self, job: Enqueue, intended_ns: int | None) -> Sent:
        sharding.check_job(job)
        if not self._noted:
            async with self.driver.permits:
                await self._note_use()
        for _ in range(_TRIES):
            for shard in await self.homes(job.options.key, job.options.unique, job.job):
                sent = await shard._send_enqueue(job, intended_ns)
                if sent.reply.result != "moved":
                    return sent
            await self.look_up()
        raise ServerUnavailable(
            f"the shards of queue {self.name} change all the time: job {job.job} was not enqueued"
        )

    async def _send_drafts(self, drafts: list[Enqueue], intended_ns: int | None) -> list[Enqueued]:
        for draft in drafts:
            sharding.check_job(draft)
        results: list[Enqueued | EngineError] = [
            ServerUnavailable("not sent: the shards change all the time")
        ] * len(drafts)
        left = list(range(len(drafts)))
        if drafts:
            async with self.driver.permits:
                await self._note_use()
        for _ in range(_TRIES):
            for layout in (await self.record()).layouts if left else ():
                groups: dict[str, list[int]] = {}
                for at in left:
                    job, options = drafts[at].job, drafts[at].options
                    home = layout.name(self.name, layout.home(options.key, options.unique, job))
                    groups.setdefault(home, []).append(at)
                came = await self._send_groups(
                    {name: [drafts[at] for at in group] for name, group in groups.items()}, intended_ns
                )
                for name, group in groups.items():
                    for at, result in zip(group, came[name], strict=True):
                        results[at] = result
                left = [at for at in left if getattr(results[at], "result", "") == "moved"]
            if not left:
                break
            await self.look_up()
        return producing.concluded(results)

    async def _send_groups(
        self, groups: dict[str, list[Enqueue]], intended_ns: int | None
    ) -> dict[str, list[Enqueued | EngineError]]:
        """Enqueue the jobs of several shards, the pipelines of all of them together."""
        each = {name: producing.enqueue_each(jobs, one_nonce=True) for name, jobs in groups.items()}
        came: dict[str, list[Enqueued | EngineError]] = {}
        answers: dict[str, Any] = dict.fromkeys(each)
        while each:
            asked: dict[str, list[Call[Any]]] = {}
            for name, steps in list(each.items()):
                try:
                    asked[name] = self.shard(name)._calls(cast("Any", steps.send(answers[name])))
                except StopIteration as end:
                    came[name] = end.value
                    del each[name]
            outcomes = await self._outcomes([call for calls in asked.values() for call in calls], intended_ns)
            for name, calls in asked.items():
                answers[name], outcomes = outcomes[: len(calls)], outcomes[len(calls) :]
        return came

    # -- administration

    async def administer(self, operation: AdminOperation) -> None:
        """Carry out an admin action in all shards."""
        for shard in await self.in_use():
            await shard.do(operation)

    async def resume(self, name: str | None = None) -> bool:
        """End the pause of a name, or that of the whole queue, in all shards."""
        was_paused = [await shard.resume(name) for shard in await self.in_use()]
        return any(was_paused)

    async def set_limit(
        self,
        name: str | None = None,
        *,
        key: str | None = None,
        concurrency: int = 0,
        rate: int = 0,
        per_ms: Milliseconds = 0,
        window: Window = "sliding",
    ) -> None:
        """Limit a key, whose jobs are in one shard, or each key (`*`); or a name: its limit is divided among
        the shards, so each must be as large as their number."""
        if name is None:
            bounds: dict[str, Any] = {
                "concurrency": concurrency,
                "rate": rate,
                "per_ms": per_ms,
                "window": window,
            }
            operation = admin.set_limit(self.model.names, name, key, **bounds)
            for shard in await self._of_key(key):
                await shard.do(operation)
            return
        limit = validate.limit(concurrency=concurrency, rate=rate, per_ms=per_ms, window=window)
        sharding.divided(limit, self.shards)
        for layout in (await self.look_up()).layouts:
            for shard, part in zip(
                layout.names(self.name), sharding.divided(limit, layout.shards), strict=True
            ):
                await self.shard(shard).set_limit(
                    name, concurrency=part.concurrency, rate=part.rate, per_ms=part.per_ms, window=part.window
                )

    async def remove_limit(self, name: str | None = None, *, key: str | None = None) -> None:
        """Remove the limit of a name or of a key."""
        operation = admin.remove_limit(self.model.names, name, key)
        for shard in await (self.in_use() if name is not None else self._of_key(key)):
            await shard.do(operation)

    async def _of_key(self, key: str | None) -> builtins.list[AsyncShard]:
        """The shards that a limit of a key holds in."""
        shards = await self.in_use()
        return shards if key == "*" else await self.homes(cast("str", key), "", "")

    async def obstacles(self, *, one_call: bool = False) -> Obstacles:
        """What holds jobs back in all shards; the limit of a name is that of all of them together.
        `one_call`: one of each."""
        parts: list[Obstacles] = []
        for shard, part in await self.each(ListObstacles()):
            parts.append(await shard.obstacles() if part.cursor and not one_call else obstacles_of([part]))
        return added_obstacles(parts)

    async def set_retention(
        self,
        *,
        done_max: int | None = None,
        done_age_ms: Milliseconds | None = None,
        dead_max: int | None = None,
        dead_age_ms: Milliseconds | None = None,
    ) -> None:
        """Bound what is kept of ended jobs; numbers are divided among the shards."""
        admin.set_retention(done_max, done_age_ms, dead_max, dead_age_ms)

        def share(most: int | None) -> int | None:
            return None if most is None else -(-most // self.shards)

        ages = done_age_ms, dead_age_ms
        await self.administer(admin.set_retention(share(done_max), ages[0], share(dead_max), ages[1]))

    async def clean(self, state: str, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Remove jobs of a state from all shards."""
        done = 0
        for shard in await self.in_use():
            done += (
                await shard.clean(state, older_than_ms=older_than_ms, limit=limit - done)
                if done < limit
                else 0
            )
        return done

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove the jobs that wait in all shards."""
        return sum([await shard.drain(delayed=delayed) for shard in await self.in_use()])

    async def obliterate(self, *, force: bool = False) -> bool:
        """Remove what is in all shards. Raises UnsupportedFeature while the queue is resharded."""
        record = await self.look_up()
        if record.former is not None:
            raise UnsupportedFeature(f"queue {self.name} is being resharded: obliterate it afterwards")
        gone = [await shard.obliterate(force=force) for shard in await self.in_use()]
        # Shard 0 has forgotten that it takes no new jobs.
        await self._pipeline([self.model.call(SetGate(sharding.moved(record.layout.shards)))])
        return all(gone)

    # -- looks

    async def counts(self, *, one_call: bool = False) -> Counts:
        """Jobs in each state, in all shards together. `one_call`: one of each."""
        parts: list[Counts] = []
        for shard, part in await self.each(Count()):
            parts.append(await shard.counts() if part.cursor and not one_call else part)
        names = [field.name for field in fields(Counts) if field.name not in ("srv_us", "cursor")]
        numbers = {name: sum(getattr(part, name) for part in parts) for name in names}
        return replace(parts[0], cursor=next(filter(None, (part.cursor for part in parts)), ""), **numbers)

    async def stats(self) -> builtins.list[HandlerTimes]:
        """How long the handlers of each name took, in all shards together."""
        return added_times([times for shard in await self.in_use() for times in await shard.stats()])

    async def snapshot(self) -> Snapshot:
        """The ids of the jobs in every state, shard by shard."""
        states: dict[str, list[tuple[str, int]]] = {}
        srv_us = 0
        for shard in await self.in_use():
            part = await shard.snapshot()
            srv_us = srv_us or part.srv_us
            for state, entries in part.states.items():
                states.setdefault(state, []).extend(entries)
        return Snapshot(srv_us, states)

    async def use_test_clock(self, now_ms: int) -> None:
        """Not of a queue with shards."""
        raise UnsupportedFeature("the test clock is for queues without shards")

    async def close(self) -> None:
        """Close the idle connections."""
        for shard in self._made.values():
            await shard.results.close()
            await shard.events.close()
        await super().close()


def _of(part: Any) -> AsyncShardedQueue:
    """The queue of a part."""
    return part._queue


class _AsyncShardedList(AsyncJobsPart):
    """Pages of the jobs of all shards together."""

    async def _select(self, state: str, listing: Listing) -> builtins.list[JobInfo]:
        first, most = listing.offset, listing.offset + listing.limit
        found: list[JobInfo] = []
        for shard in await _of(self).in_use():
            at = 0
            while at < most:
                piece = replace(listing, offset=at, limit=min(validate.PAGE_MAX, most - at))
                page = await shard.jobs._select(state, piece)
                found += page
                at += validate.PAGE_MAX if page else most
            if state == "waiting" and len(found) >= most:
                break
        if state != "waiting":
            found.sort(
                key=lambda info: info.ended_ms or info.lease_end_ms or info.due_ms,
                reverse=listing.newest_first,
            )
        return found[first:most]

    async def _page(self, state: str, listing: Listing) -> JobPage:
        found = await self._select(state, replace(listing, wanted=Selection()))
        now_ms, looked = await _of(self).driver.server_now_ms(), len(found)
        meant = tuple(info for info in found if listing.wanted.matches(info, now_ms))
        return JobPage(
            now_ms * 1000, meant, looked, listing.offset + looked if looked == listing.limit else None
        )


class AsyncShardedJobs(_AsyncShardedList, AsyncJobs):
    """The jobs of all shards. An id is looked for in each of them: the key that chose its shard is not known.
    `list` has those that wait shard by shard, and the others by time."""

    async def get(self, id: str) -> JobInfo | None:
        """Return what is known of a job; None when no shard knows it."""
        shard = await _of(self).find(id)
        return None if shard is None else await shard.jobs.get(id)

    async def state(self, id: str) -> JobState:
        """The state of a job."""
        shard = await _of(self).find(id)
        return "gone" if shard is None else await shard.jobs.state(id)

    async def why(self, id: str) -> Why:
        """Why a job does not run, or what else it does."""
        queue = _of(self)
        return await (await queue.find(id) or queue.shard(queue.name)).jobs.why(id)

    async def counts_by_name(self) -> dict[str, NameCounts]:
        """Jobs of each name in each state, in all shards together."""
        counts: dict[str, NameCounts] = {}
        for shard in await _of(self).in_use():
            for name, found in (await shard.jobs.counts_by_name()).items():
                counts[name] = NameCounts(*map(sum, zip(counts.get(name, NameCounts()), found, strict=True)))
        return dict(sorted(counts.items()))

    async def cancel(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that waits, is delayed or runs, in its shard."""
        shard = await _of(self).find(id)
        return _gone(id) if shard is None else await shard.jobs.cancel(id, expected_state=expected_state)

    async def run_now(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End the delay of a job, in its shard."""
        shard = await _of(self).find(id)
        return _gone(id) if shard is None else await shard.jobs.run_now(id, expected_state=expected_state)

    async def remove(self, id: str, *, expected_state: str | None = None) -> Altered:
        """End a job that is waiting, delayed or dead, in its shard."""
        shard = await _of(self).find(id)
        return _gone(id) if shard is None else await shard.jobs.remove(id, expected_state=expected_state)


class AsyncShardedDead(_AsyncShardedList, AsyncDead):
    """The dead jobs of all shards."""

    async def requeue(self, id: str) -> Altered:
        """Let a dead job run again, in its shard."""
        shard = await _of(self).find(id)
        return _gone(id) if shard is None else await shard.dead.requeue(id)

    async def requeue_all(
        self,
        name: str | None = None,
        *,
        limit: int = 10_000,
        key: str | None = None,
        error: str | None = None,
        older_than_ms: int = 0,
        newer_than_ms: int | None = None,
    ) -> int:
        """Requeue dead jobs, shard by shard."""
        most, done = validate.integer("limit", limit, 1, validate.DEAD_MAX), 0
        meant: dict[str, Any] = {
            "key": key,
            "error": error,
            "older_than_ms": older_than_ms,
            "newer_than_ms": newer_than_ms,
        }
        for shard in await _of(self).in_use():
            done += await shard.dead.requeue_all(name, limit=most - done, **meant) if done < most else 0
        return done

    async def discard(self, id: str) -> Altered:
        """End a dead job for good, in its shard."""
        shard = await _of(self).find(id)
        return _gone(id) if shard is None else await shard.dead.discard(id)

    async def clear(self, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Discard dead jobs, shard by shard."""
        return await _of(self).clean("dead", older_than_ms=older_than_ms, limit=limit)


def _gone(id: str) -> Altered:
    """What came of an action on a job that no shard knows."""
    return Altered(id, "changed", "gone")


def _best(job: str, looks: Iterable[Seen]) -> Result[Any] | None:
    """How a job has ended. After a resharding its id may be known to several shards, and its result to one of
    them."""
    found = [result for seen in looks if (result := result_of(job, seen)) is not None]
    return max(
        found, key=lambda result: (result.took_ms is not None, result.error, result.ended_ms), default=None
    )


class AsyncShardedResults(AsyncResults):
    """The results of the jobs of all shards; a wait listens in the shard of its job."""

    async def get(self, id: str, task: TypedJob[Any] | None = None) -> Result[Any] | None:
        """How this job has ended; None for one that has not, and for one that no shard knows."""
        job = validate.known_id(id)
        found = _best(job, [seen for _, seen in await _of(self).each(Look(job))])
        return None if found is None else typed(found, task)

    async def progress(self, id: str) -> Progress | None:
        """The progress that the handler of this job reported last."""
        for _, reply in await _of(self).each(ReadProgress(validate.known_id(id))):
            if reply is not None:
                return progress_of(reply)
        return None

    async def wait_out(self, waiting: Waiting) -> Result[Any]:
        """The result of the job of a wait that has begun; the job may change its shard meanwhile."""
        seen_in: AsyncShard | None = None
        while True:
            try:
                looks = await _of(self).each(Look(waiting.job))
                shard = next((shard for shard, seen in looks if seen.state == "pending"), None)
                if shard is not None:
                    seen_in = shard
                    return await shard.results.wait_out(waiting)
                found = _best(waiting.job, [seen for _, seen in looks])
                if found is not None:
                    return found
                if seen_in is None:
                    raise UnknownJob(f"job {waiting.job}: no shard knows such a job")
            except UnknownJob:
                # It has been moved to another shard, or its end is forgotten.
                if seen_in is None:
                    raise
                seen_in = None
            except AWAY as error:
                waiting.failed(error)


class AsyncShardedWorkers(AsyncWorkers):
    """The workers of all shards: one process is listed once, with what it has in hand in all of them."""

    async def _page(self, offset: int, limit: int) -> tuple[builtins.list[WorkerInfo], bool]:
        found: list[WorkerInfo] = []
        for shard in await _of(self).in_use():
            at, page = 0, [cast("Any", None)] * WORKERS_MAX
            while len(page) == WORKERS_MAX:
                page = await shard.workers.list(offset=at)
                found += page
                at += WORKERS_MAX
        merged = added_workers(found)
        return merged[offset : offset + limit], len(merged) > offset + limit

    async def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Not of a queue with shards, whose workers share their places among them."""
        raise UnsupportedFeature(
            "the concurrency of a worker of a queue with shards is that which it was started with"
        )


class AsyncShardedEvents(AsyncEvents):
    """The events of the shards: each has a stream of its own, which `queue.shard(name).events` reads."""

    async def last(self) -> str:
        """Not of several shards at once."""
        raise UnsupportedFeature(_STREAMS)

    def read(self, after: str = "$", *, wait_ms: Milliseconds | None = None) -> NoReturn:
        """Not of several shards at once."""
        raise UnsupportedFeature(_STREAMS)


_STREAMS = (
    "each shard has its own stream of events: queue.shard(name).events, with the names of queue.record()"
)
