"""What else a queue has: its schedules, events, history, results, workers and locks."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any, TypeVar, Unpack, overload

from engine import validate
from engine.errors import Malformed, UnknownJob, UnsupportedFeature
from engine.ops import schedules
from engine.ops.admin import HistoryRule, SetHistory
from engine.ops.base import BLOCK_MS
from engine.ops.jobs import Enqueue, Enqueued
from engine.ops.looks import Event, EventPage, HistoryPart, ListHistory, Look, ReadEvents, ReadProgress
from engine.ops.schedules import ListSchedules, Missed, Overlap, SchedulePage
from engine.ops.workers import WORKERS_MAX, ListedWorkers, ListWorkers, WorkerInfo
from engine.options import JobOptions
from engine.parameters import JobName, TypedJob
from engine.queue import admin, history, producing, scheduling
from engine.queue.admin import Lock
from engine.queue.asynchronous.calls import AsyncBlockingCalls, AsyncPart, AsyncQueueCalls
from engine.queue.history import HistoryOptions, PastJobs
from engine.queue.producing import TaskJob
from engine.queue.results import AWAY, AsyncEndListeners, Progress, Result, Waiting, best, progress_of, typed
from engine.queue.scheduling import PutResult, Schedule, schedule_of, template
from engine.queue.sharding import added_workers
from engine.validate import Milliseconds

# -- The schedules of a queue, `queue.schedules`: jobs that come again and again, by a cron expression or
# an interval (rule 24).
#
# Any worker or `Scheduler` of the queue ticks them; however many there are, a tick makes one job, whose id is
# `cron:<schedule>:<tick in ms>`. The server's clock decides. When it steps back, a schedule waits until it
# has caught up: no tick comes twice.

_PAGE = 100


class AsyncSchedules(AsyncPart):
    """The schedules of a queue."""

    async def put(
        self,
        name: str,
        job_name: JobName,
        payload: object = None,
        *,
        cron: str | None = None,
        zone: str = "UTC",
        every_ms: Milliseconds = 0,
        months: int = 0,
        start_ms: int = 0,
        enabled: bool | None = None,
        missed: Missed = "once",
        late_ms: Milliseconds = 60_000,
        overlap: Overlap = "allow",
        **options: Unpack[JobOptions],
    ) -> PutResult:
        """Define a schedule, or change it. Putting the same again changes nothing, so a service may put its
        schedules at each start. `job_name` may also be a task, with its options; a task without a payload is
        called without arguments, else with `task.payload(...)`.

        One of three says when it ticks. `cron` has five fields in the dialect of crontab(5) (minute, hour,
        day, month, weekday), or six of which the *first* is the second. `every_ms` is at least 100. `months`
        ticks on the day and at the time of day of the start (31 January, 28 February, 31 March). `zone` is an
        IANA name, for cron and months. Nothing ticks before `start_ms` (server time), from which intervals
        count without drift; 0: from now. A time of day that the clocks skip ticks once right after the gap,
        one that comes twice ticks the first time. A cron expression for every hour follows the clock on the
        wall instead.

        Where nobody saw the first due tick for more than `late_ms`, `missed="once"` runs the last one for
        all, `"all"` runs each, `"skip"` those that are not late. At most the last 100 run. Each of the
        others counts as missed. `overlap="skip"` makes no job while the one before is waiting or running.
        `enabled=None` leaves it as it is; a new one is. `options` are those of `enqueue` that travel with the
        job: no delay and no dedup.

        Returns `new`, `changed` or `same`; with the same timing the next tick stays. Raises as `enqueue`
        does.
        """
        scheduling.check_words(options)
        timing, policy = (
            scheduling.timing(cron, zone, every_ms, months, start_ms),
            scheduling.policy(missed, late_ms, overlap),
        )
        job = template(self._queue, job_name, payload, options)
        return await self._queue.carry_out(
            scheduling.putting(self._queue.model.names, name, timing, policy, job, enabled)
        )

    async def remove(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. Returns False when there is none of this name."""
        return await self._queue.carry_out(scheduling.removing(self._queue.model.names, name))

    async def enable(self, name: str) -> bool:
        """Let a schedule tick again, from its next tick on. Returns False when there is none of this name."""
        return await self._queue.carry_out(scheduling.enabling(self._queue.model.names, name, True))

    async def disable(self, name: str) -> bool:
        """Stop the ticks of a schedule until it is enabled; its jobs stay. Returns False when there is none
        of this name."""
        return await self._queue.carry_out(scheduling.enabling(self._queue.model.names, name, False))

    async def run_now(self, name: str) -> Enqueued | None:
        """Enqueue one more of its jobs now, beside its ticks, whose state it leaves as it is. None when there
        is none of this name."""
        model = self._queue.model
        schedule = model.names.schedule(name)
        page: SchedulePage = await self._queue.do(ListSchedules(schedule))
        if not page.items:
            return None
        job, id = (
            model.read_template(page.items[0].job),
            model.schedule_id(schedule, f"now-{os.urandom(8).hex()}"),
        )
        run = Enqueue(id, job.name, job.payload, os.urandom(8), job.options)
        return producing.enqueued(await self._queue.send_in_time(run), run.name)

    async def get(self, name: str) -> Schedule | None:
        """Return a schedule with its state; None when there is none of this name."""
        page: SchedulePage = await self._queue.do(ListSchedules(self._queue.model.names.schedule(name)))
        return schedule_of(page.items[0], self._queue.model, self._queue.serializers) if page.items else None

    async def list(self, *, offset: int = 0, limit: int = schedules.SCHEDULES_MAX) -> tuple[Schedule, ...]:
        """The schedules, by next tick, those that do not tick last: at most `limit` (all) from rank `offset`
        on. Pages of 100: one is one instant, several are not."""
        first = validate.integer("offset", offset, 0, 2**31)
        end = first + validate.integer("limit", limit, 1, schedules.SCHEDULES_MAX)
        found: dict[str, Schedule] = {}
        for rank in range(first, end, _PAGE):
            page: SchedulePage = await self._queue.do(ListSchedules("", rank, min(_PAGE, end - rank)))
            # A schedule that has ticked between two pages may come twice.
            for stored in page.items:
                found[stored.schedule] = schedule_of(stored, self._queue.model, self._queue.serializers)
            if not page.more:
                break
        return tuple(found.values())


# -- The events of a queue, for monitoring.

_ENTRY = re.compile(r"\d{1,20}(-\d{1,20})?\Z", re.ASCII)
_STREAMS = (
    "each shard has its own stream of events: queue.shard(name).events, with the names of queue.record()"
)


class AsyncEvents(AsyncPart):
    """The events of a queue, for monitoring: `queue.events`. Off unless switched on, then an entry of a
    stream for each.

    The script that does a thing writes its entry, last and only where it changes something: a call that is
    sent twice tells once. One that the server cut off just before the end may have told nothing. Kinds,
    and what their `detail` says:

    - `created` (waiting, delayed or blocked), `promoted` (its delay is over, or somebody said so),
      `unblocked` (its parents ended);
    - `claimed` (the worker), `progress` (percent), `released` (given back), `finished`;
    - `failed` (the error; the job is tried again unless `buried` follows), `reaped` (the worker that stalled
      or died with it);
    - `buried` (the reason), `requeued`, `cancelled`, `discarded`, `skipped`, `rerouted` (why), `expired`;
    - `paused` (length in ms, if any) and `resumed` of a name, or of the queue, `*`; a pause that ends by
      itself is not told.
    """

    def __init__(self, queue: AsyncQueueCalls) -> None:
        super().__init__(queue)
        self._blocking = AsyncBlockingCalls(queue)

    async def on(self, keep: int = 10_000) -> None:
        """Record events from now on. The last `keep` events stay (at most 1,000,000), and up to 100 more: the
        server drops them by pages. Each costs a write of the script that tells it, and some 100 bytes. Raises
        as `queue.pause` does."""
        await self._queue.do(admin.set_events(keep))

    async def off(self) -> None:
        """Stop recording events and delete those that were recorded. Raises as `queue.pause` does."""
        await self._queue.do(admin.set_events(None))

    async def last(self) -> str:
        """The id of the last event, to read after it; `0-0` where there is none. Raises ServerUnavailable,
        and UnsupportedFeature for a queue with shards: each has a stream of its own,
        `queue.shard(name).events`."""
        self._check_whole()
        page: EventPage = await self._queue.do(ReadEvents("$", 1, 0))
        return page.after

    async def read(self, after: str = "$", *, wait_ms: Milliseconds | None = None) -> AsyncIterator[Event]:
        """The events after this one, and each further one when it comes, until for `wait_ms` none has; None:
        for ever.

        `after`: the id of an event, `0` for all that are kept, or `$` for what comes from the first step of
        the iterator on. Who falls behind by more than are kept misses some. Raises Malformed at the first
        step, and so UnsupportedFeature as `last` does, and ServerUnavailable or OutcomeUnknown when the
        server is away. Then read on after the last event that came.
        """
        self._check_whole()
        if not isinstance(after, str) or not (after == "$" or _ENTRY.match(after)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("after", after, "the id of an event, 0 or $")
        AsyncEndListeners.check_may_wait("events.read", after, "queue.aio.events.read(...)")
        waiting = None if wait_ms is None else Waiting("-", wait_ms)
        page: EventPage = (
            await self._blocking.run(ReadEvents("$", 1, 0)) if after == "$" else EventPage((), after)
        )
        came = True
        while True:
            if waiting is not None and came:
                waiting.begin()
            left_ms = BLOCK_MS if waiting is None else waiting.left_ms
            page = await self._blocking.run(ReadEvents(page.after, _PAGE, min(BLOCK_MS, left_ms)))
            for event in page.events:
                yield event
            came = bool(page.events)
            if not came and left_ms == 0:
                return

    def _check_whole(self) -> None:
        if self._queue.shards is not None:
            raise UnsupportedFeature(_STREAMS)

    async def close(self) -> None:
        """Close the idle connections of readers."""
        await self._blocking.close()


# -- The history of a queue: see `engine.queue.history`.


class AsyncHistory(AsyncPart):
    """How the jobs of a queue have ended, for whoever asks later what became of order 7: `queue.history`. Off
    unless switched on, and then kept by the script that ends a job, whoever ends it: a worker, a sweep, an
    admin action. An end is kept once, however often its call was sent."""

    async def on(
        self,
        keep: int = 10_000,
        *,
        age_ms: Milliseconds | None = None,
        names: Iterable[str] | None = None,
        payload_bytes: int = 0,
    ) -> None:
        """Keep how jobs end from now on: the last `keep` ends (at most 1,000,000), each for `age_ms` (None:
        for any time), of the jobs of these `names` (None: of all). The sweeps of the workers remove the
        others. With `payload_bytes` (up to 16,384) also payloads of at most so many bytes. It replaces the
        setting that was there; entries stay. Raises as `queue.pause` does."""
        await self._queue.do(history.set_history(self._queue.model.names, keep, age_ms, names, payload_bytes))

    async def off(self) -> None:
        """Keep no more ends, and delete those that were kept. Raises as `queue.pause` does."""
        await self._queue.do(SetHistory(HistoryRule(0)))

    async def rule(self) -> HistoryRule | None:
        """What is kept, as `on` was given it; None where nothing is. Raises as `enqueue` does."""
        first, _, _ = history.wanted(self._queue.model.names)
        return history.rule_of(part for _, part in await self._queue.each(replace(first, limit=1)))

    async def list(self, **options: Unpack[HistoryOptions]) -> PastJobs:
        """How jobs have ended, the latest first, and with them the `rule` as one answer; `options`: see
        HistoryOptions. It reads 500 entries a call until it has found enough, and looks at the latest 100,000
        of the time that is meant. Raises as `enqueue` does."""
        first, before, most = history.wanted(self._queue.model.names, **options)
        # An entry that goes to another shard just now is in both.
        found: set[tuple[int, bytes]] = set()
        settings: builtins.list[HistoryPart] = []
        for shard in await self._queue.in_use():
            of_shard: builtins.list[tuple[int, bytes]] = []
            asked: ListHistory | None = first
            looked = 0
            while asked is not None and len(of_shard) < most and looked < history.LOOKED_MAX:
                part: HistoryPart = await shard.do(asked)
                settings += [part] if asked is first else []
                of_shard += history.meant(part, before)
                asked, looked = history.following(asked, part), looked + part.read
            found.update(of_shard)
        serializers = self._queue.serializers
        jobs = [history.past_job(*entry, serializers) for entry in sorted(found, reverse=True)[:most]]
        return PastJobs(jobs, history.rule_of(settings))


# -- The results of a queue's jobs, and waiting for them: see `engine.queue.results`.

R = TypeVar("R")


class AsyncResults(AsyncPart):
    """The results of a queue's jobs: `queue.results`."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        super().__init__(queue)
        self._listeners: dict[str, AsyncEndListeners] = {}

    @overload
    async def get(self, id: TaskJob[R]) -> Result[R] | None: ...
    @overload
    async def get(self, id: str) -> Result[Any] | None: ...
    @overload
    async def get(self, id: str, task: TypedJob[R]) -> Result[R] | None: ...
    async def get(self, id: str | TaskJob[Any], task: TypedJob[Any] | None = None) -> Result[Any] | None:
        """How the job ended. None: it has not ended, is unknown, or nothing of it is kept any more. A result
        is kept for `result_ttl_ms`; the fact that it finished, a while longer.

        The value is as JSON has it. With the `task` that the job is of, and for what `task.new(...)` made, it
        has the type that its function returns.

        Raises Malformed, also for a value that is not of the task's type, ServerUnavailable, OutcomeUnknown.
        """
        id, task = producing.meant(id, task)
        job = self._queue.model.names.known_id(id)
        found = best(job, [seen for _, seen in await self._queue.each(Look(job))])
        return None if found is None else typed(found, task)

    async def progress(self, id: str) -> Progress | None:
        """The progress that the handler of this job reported last with `job.progress`, in this run or an
        earlier one; None without any, and when the job has finished. Raises as `get` does."""
        return progress_of(await self._queue.do(ReadProgress(self._queue.model.names.known_id(id))))

    @overload
    async def wait(self, id: TaskJob[R], *, wait_ms: Milliseconds = 30_000) -> Result[R]: ...
    @overload
    async def wait(self, id: str, *, wait_ms: Milliseconds = 30_000) -> Result[Any]: ...
    @overload
    async def wait(self, id: str, task: TypedJob[R], *, wait_ms: Milliseconds = 30_000) -> Result[R]: ...
    async def wait(
        self,
        id: str | TaskJob[Any],
        task: TypedJob[Any] | None = None,
        *,
        wait_ms: Milliseconds = 30_000,
    ) -> Result[Any]:
        """Wait until this job has ended and return its result. No wake-up is lost, whenever the job ends and
        whatever happens to the connection meanwhile. `task`: as for `get`.

        Raises TimedOut when that takes longer than `wait_ms`, UnknownJob for an id that the server does not
        know, and ServerUnavailable or OutcomeUnknown when the server is away at the end of that time, then up
        to 10 s later.
        """
        id, task = producing.meant(id, task)
        AsyncEndListeners.check_may_wait("results.wait", id, "queue.aio.results.wait(...)")
        return typed(await self.wait_out(Waiting(self._queue.model.names.known_id(id), wait_ms)), task)

    async def wait_out(self, waiting: Waiting) -> Result[Any]:
        """The result of the job of a wait that has begun, as `wait` returns it: for `call` of a queue. In a
        queue with shards it listens in that of the job, which may change meanwhile."""
        if self._queue.shards is None:
            return await self._wait_in(self._queue, waiting)
        seen_in: AsyncQueueCalls | None = None
        while True:
            try:
                replies = await self._queue.each(Look(waiting.job))
                shard = next((shard for shard, seen in replies if seen.state == "pending"), None)
                if shard is not None:
                    seen_in = shard
                    return await self._wait_in(shard, waiting)
                found = best(waiting.job, [seen for _, seen in replies])
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

    async def _wait_in(self, shard: AsyncQueueCalls, waiting: Waiting) -> Result[Any]:
        listeners = self._listeners.get(shard.name)
        if listeners is None:
            listeners = self._listeners.setdefault(shard.name, AsyncEndListeners(AsyncBlockingCalls(shard)))
        with listeners.listening_for(waiting.job) as listener:
            while True:
                try:
                    found = waiting.take(await shard.do(Look(waiting.job, listener.waiter)))
                    if found is not None:
                        return found
                    await listener.rest(waiting.block_ms)
                except AWAY as error:
                    waiting.failed(error)

    async def close(self) -> None:
        """Close the idle connections of waits."""
        for listeners in self._listeners.values():
            await listeners.close()


# -- The workers of a queue: which are alive, since when, and what each has leased, from their heartbeats
# (BQ02 to BQ04, MQ30).
#
# A worker beats every 10 s unless told otherwise, and is taken for dead when three beats in a row have not
# come. Then a sweep looks for leases that it has left behind. The next beat may find it gone from the
# list. A worker that stops takes its leave at once.


class AsyncWorkers(AsyncPart):
    """The workers of a queue, as `queue.workers`."""

    async def list(self, *, offset: int = 0, limit: int = WORKERS_MAX) -> list[WorkerInfo]:
        """List the workers, those whose heartbeats expire first: at most `limit` (1 to 1,000) from rank
        `offset` on."""
        first = validate.integer("offset", offset, 0, 2**31)
        return (await self._page(first, validate.integer("limit", limit, 1, WORKERS_MAX)))[0]

    async def get(self, name: str) -> WorkerInfo | None:
        """Return the worker of this name or incarnation, the latest where several have it; None when there is
        none."""
        wanted = validate.worker_name(name)
        offset, more = 0, True
        while more:
            found, more = await self._page(offset, WORKERS_MAX)
            match = [info for info in found if wanted in (info.name, info.incarnation)]
            if match:
                return max(match, key=lambda info: -info.beat_age_ms)
            offset += WORKERS_MAX
        return None

    async def set_concurrency(self, name: str | None, concurrency: int | None) -> None:
        """Let the worker of this name, or every worker without a number of its own (None), run so many
        handlers at once: 1 to 1,000, of which it uses no more than it was started with; None: as it was
        started. Workers are told by their next sweep at the latest, and what runs goes on. Raises as
        `Queue.enqueue` does."""
        await self._queue.do(admin.set_concurrency(name, concurrency))

    async def pause(self, name: str, *, length_ms: Milliseconds = 0) -> None:
        """Let the worker of this name claim and start nothing until `resume`, or for `length_ms`; what runs
        goes on. The queue and its other workers are not touched. Raises as `Queue.enqueue` does."""
        await self._queue.do(admin.pause_worker(name, length_ms))

    async def resume(self, name: str) -> None:
        """End the pause of a worker."""
        await self._queue.do(admin.pause_worker(name, None))

    async def _page(self, offset: int, limit: int) -> tuple[builtins.list[WorkerInfo], bool]:
        """Some workers, and whether there may be more: those of one reply; of several shards each process
        once, with what it has in hand in all of them."""
        shards = await self._queue.in_use()
        if len(shards) == 1:
            reply: ListedWorkers = await shards[0].do(ListWorkers(offset, limit))
            return [*reply.workers], reply.seen >= limit
        found: list[WorkerInfo] = []
        for shard in shards:
            at, more = 0, True
            while more:
                reply = await shard.do(ListWorkers(at, WORKERS_MAX))
                found += reply.workers
                at, more = at + WORKERS_MAX, reply.seen >= WORKERS_MAX
        merged = added_workers(found)
        return merged[offset : offset + limit], len(merged) > offset + limit


# -- Locks that processes share: see `engine.queue.admin`.


class AsyncLocks(AsyncPart):
    """Locks of a queue, as `queue.locks`."""

    async def acquire(self, name: str, *, ttl_ms: Milliseconds = 30_000) -> Lock | None:
        """Take a lock for `ttl_ms` (10 to a day); None when somebody holds it. Does not wait. Raises as
        `enqueue` does."""
        return await self._queue.carry_out(admin.acquiring(name, ttl_ms))

    async def extend(self, lock: Lock, *, ttl_ms: Milliseconds = 30_000) -> Lock:
        """Hold a lock for `ttl_ms` from now on. Raises LeaseLost when it has expired."""
        return await self._queue.carry_out(admin.extending(lock, ttl_ms))

    async def release(self, lock: Lock) -> bool:
        """Release a lock. Returns False when it was not held any more."""
        return await self._queue.carry_out(admin.releasing(lock))
