"""A queue: enqueue, count and administer jobs; its parts are attributes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

import redis.asyncio

from engine import tasks, validate
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.handlers import BATCH_MAX
from engine.models import Spec
from engine.observer import Observer
from engine.ops.admin import MakeTestQueue, Pause, Resume, Resumed, SetGate, Window
from engine.ops.jobs import Enqueued
from engine.ops.looks import Count, Counts, LimitInfo, Listing, ListObstacles, ObstaclesPart, Snapshot
from engine.ops.workers import HandlerTimes, ListedRunTimes, ListRunTimes
from engine.options import JobOptions, checked
from engine.parameters import JobName, TypedJob
from engine.queue import admin, producing
from engine.queue.admin import QueueInfo
from engine.queue.asynchronous.calls import AsyncQueueCalls
from engine.queue.asynchronous.jobs import AsyncDead, AsyncJobs, AsyncWorkflows
from engine.queue.asynchronous.parts import (
    AsyncEvents,
    AsyncHistory,
    AsyncLocks,
    AsyncResults,
    AsyncSchedules,
    AsyncWorkers,
)
from engine.queue.metrics import DemandWatch, Scaling, exposition
from engine.queue.producing import NewJob
from engine.queue.results import AsyncEndListeners, Waiting, typed
from engine.queue.settings import TEST_CLOCK_LEAST_MS, Durable, QueueSettings, asynchronous
from engine.queue.sharding import added_times, moved
from engine.queue.why import Obstacles, added_obstacles, obstacles_of
from engine.redis.async_driver import AsyncDriver
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions, Endpoint
from engine.redis.gathering import AsyncGathering, CallMaker
from engine.serializers import Serializer
from engine.tasks import BatchTaskDecorator, TaskDecorator, TaskFunction, TaskOptions
from engine.validate import Milliseconds

if TYPE_CHECKING:
    # Of both kinds of queue this is the asyncio one.
    from engine.queue.asynchronous.queue import AsyncQueue as Awaitable

_SNAPSHOT_PAGE = 1_000
_SNAPSHOT_PAGES_MAX = 10_000
#: Names of one answer of `stats`.
_STATS_PAGE = 100
_STATS_PAGES_MAX = 1_000
#: Parts of some 100 lanes that `obstacles` looks at.
_LANE_PARTS_MAX = 50

R = TypeVar("R")
T = TypeVar("T")


class AsyncQueue(AsyncQueueCalls):
    """A named queue on one Redis or Valkey server, for the tasks of any event loops; connects on first use.

    At most 16 calls of a loop run at once, each on a connection of its own; more wait for a permit. Jobs
    that many tasks enqueue one by one leave together; each is accepted or refused by itself. A task that is
    cancelled in mid-call leaves its outcome unknown.

    `model` is the data model, one of `engine.models`: None is Lanes, the engine's own. `url` or `client` says
    where the server is: a url (redis://, rediss:// or unix://, with user and password),
    sentinel://host:port,host:port/service or redis+cluster://host:port,host:port; or a redis.asyncio.Redis or
    RedisCluster whose addresses, credentials and TLS settings the engine then uses for connections of its
    own. `connect`: times and bounds of those. `prefix` is what all keys begin with, None: as the model has
    it. `durability="replica"`: a call counts as answered when one replica has what it wrote; each send waits
    `replica_wait_ms` for that (rule 8). `payload_bytes_max` is this producer's limit, 512 KiB unless told.
    `lua` replaces the folder of scripts; services do not need it. `observer` is told of every call and run;
    None: the one that the environment names by `IRONCLAIM_OBSERVER`, if it does (docs/guides/observing.md).
    `shards`: the queue is divided into so many, each in a slot of its own, 2 to 256 (Lanes alone;
    docs/guides/shards.md). Raises Malformed for what does not fit, and UnsupportedFeature for shards of
    another model, and for a model whose keys a cluster would scatter.
    """

    def __init__(
        self,
        name: str,
        model: Spec | None = None,
        *,
        url: str = DEFAULT_URL,
        client: redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        prefix: str | None = None,
        connect: ConnectOptions | None = None,
        durability: Durable = "server",
        replica_wait_ms: Milliseconds = 1000,
        payload_bytes_max: int = validate.PAYLOAD_BYTES_MAX,
        lua: Path | None = None,
        observer: Observer | None = None,
        serializer: Serializer | None = None,
        serializers: Iterable[Serializer] = (),
        shards: int | None = None,
    ) -> None:
        super().__init__(
            name,
            Endpoint(url, client, connect, asynchronous=True),
            model,
            prefix=prefix,
            durability=durability,
            replica_wait_ms=replica_wait_ms,
            payload_bytes_max=payload_bytes_max,
            lua=lua,
            observer=observer,
            serializer=serializer,
            serializers=serializers,
            shards=shards,
        )
        self._set_up()

    @classmethod
    def like(
        cls, queue: QueueSettings, *, observer: Observer | None = None, connect: ConnectOptions | None = None
    ) -> AsyncQueue:
        """A queue with the settings, handlers and hooks of another one, of either kind, and connections of
        its own, with `connect` in place of its options: for the engine's own parts. Raises Malformed where
        the client of the other one cannot be made anew."""
        made = cls.__new__(cls)
        made._take_over(queue, observer)
        made.endpoint = queue.endpoint.of_kind(asynchronous=True).with_options(connect)
        made._set_up()
        return made

    def _set_up(self, driver: AsyncDriver | None = None) -> None:
        """What connects, and the parts. `driver`: that of the queue that this is a shard of."""
        scripts, durability = self.model.scripts.values(), self.durability
        self.driver = driver or AsyncDriver(
            self.endpoint, scripts, observer=self.observer, clock=self.clock, durability=durability
        )
        self.gathering = AsyncGathering(self.driver, CallMaker(self.model.call, self.model.merges_enqueues))
        #: Jobs that come again and again, by cron or interval.
        self.schedules = AsyncSchedules(self)
        #: Who works for it, and locks that processes share.
        self.workers = AsyncWorkers(self)
        self.locks = AsyncLocks(self)
        #: How jobs have ended, and waiting for it.
        self.results = AsyncResults(self)
        #: Jobs, to look at and to change by admin actions.
        self.jobs = AsyncJobs(self)
        #: Dead jobs.
        self.dead = AsyncDead(self)
        #: Jobs that need each other, as one.
        self.workflows = AsyncWorkflows(self)
        #: What happens in it, once that is switched on.
        self.events = AsyncEvents(self)
        #: How its jobs have ended, for whoever asks later, once that is switched on.
        self.history = AsyncHistory(self)
        self._demand = DemandWatch()
        self._made = {}

    @property
    def aio(self) -> Awaitable:
        """This queue for coroutines: `await queue.aio.results.wait(id)`. It has each call that blocks, to be
        awaited, with the same settings, handlers and hooks. Raises Malformed where a client of redis-py
        cannot be made anew for it."""
        return asynchronous(self)

    async def enqueue(
        self,
        name: JobName,
        payload: object,
        *,
        id: str | None = None,
        intended_ns: int | None = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Put one job into the queue; it is there once, however often the network makes the engine send it
        (rule 3).

        `payload` is any JSON value of at most `payload_bytes_max` bytes (as JSON has it, a tuple arrives as a
        list and a key as text; two keys that are the same text are refused), or bytes, which arrive
        untouched. A queue with a `serializer` of its own takes what that one can write. `options`: see
        JobOptions. `name` may be a task, with its options; the payload of a name that `job` has registered
        here must fit its function's parameters. `intended_ns` (monotonic) is only told to the observer.

        Returns Enqueued: `created`, or `duplicate` when the id was already there or another job keeps it out.
        `job` is the id of the job that is there. Raises Malformed before any I/O, ServerUnavailable when
        nothing was applied, OutcomeUnknown when that cannot be said. With an `id` of your own the same call
        may be sent again, for it is there once. Without one it could be there twice. An id is known for 20 s
        after its job has finished.
        """
        operation, job = self._drafted(name, payload, id, options)
        sent = await self._send_enqueue(operation, validate.intended_ns(intended_ns))
        enqueued = producing.enqueued(sent, operation.name)
        if job is not None:
            self.hooks.announce([job], [enqueued])
        return enqueued

    @overload
    def job(self, name: str | None = None, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @overload
    def job(
        self, name: str | None = None, *, batch: int, **options: Unpack[TaskOptions]
    ) -> BatchTaskDecorator: ...
    def job(
        self, name: str | None = None, *, batch: int | None = None, **options: Unpack[TaskOptions]
    ) -> Any:
        """Make a typed function a job: `@queue.job("send", attempts=5)` registers it in `handlers` for
        workers, and makes it a Task, with `enqueue`, `call`, `aenqueue` and `acall` of its own parameters,
        `new` and `with_options`. Without a name it has those of its module and function: `shop.mail.send`.
        Jobs that wait under an earlier name run as well where that is one of its `aliases`.

        See `engine.tasks` for such functions, also those with `batch`, and Handlers for `inline`, `batch`,
        `retry_on` and `bury_on`. A task of another queue may be decorated again: it is then a job of both,
        each with the options of its own decorator.

        Raises Malformed for a bad name or option, and for a function whose parameters or whose result cannot
        travel.
        """
        given, names = tasks.handling(options), self.model.names
        if name is not None:
            validate.not_bare(name, '@queue.job() or @queue.job("name")')
            names.job_name(name)
        most = 0 if batch is None else validate.integer("batch", batch, 1, BATCH_MAX)
        checked(cast("Mapping[str, object]", options), own=names.options)
        task: type[TaskFunction[..., Any, Any]] = TaskFunction

        def make(function: Callable[..., Any]) -> Any:
            own = names.job_name(tasks.name_of(function) if name is None else name)
            made = task(self, own, function, cast("JobOptions", options), most)
            return self._register(made, batch, given)

        return TaskDecorator(make) if batch is None else BatchTaskDecorator(make)

    @overload
    async def call(
        self,
        name: TypedJob[R],
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> R: ...
    @overload
    async def call(
        self,
        name: str,
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> Any: ...
    async def call(
        self,
        name: JobName,
        payload: object,
        *,
        id: str | None = None,
        wait_ms: Milliseconds = 30_000,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Enqueue one job, wait until it has ended, and return what its handler returned: as JSON has it, or
        with the type of the function where `name` is a task.

        `options`: see JobOptions; where `unique`, `dedup` or the `id` say that the job is there already, that
        one is waited for. Raises as `enqueue` does; JobFailed when the job is dead, cancelled or discarded;
        NoResult when a task returns something and that is not kept; TimedOut after `wait_ms`: the job goes
        on, and `results.wait` with the error's `job` still finds it.
        """
        instead = "queue.aio.call(...), or of a task acall(...)"
        AsyncEndListeners.check_may_wait("call", name if isinstance(name, str) else name.name, instead)
        waiting = Waiting("-", wait_ms)
        enqueued = await self.enqueue(name, payload, id=id, **options)
        waiting.job = enqueued.job
        return typed(await self.results.wait_out(waiting), name).get()

    async def enqueue_many(
        self, jobs: Iterable[NewJob | Mapping[str, Any]], *, intended_ns: int | None = None
    ) -> list[Enqueued]:
        """Put many jobs into the queue, each there once, in this order; what came of each, in the same order.

        `jobs` are NewJob, or mappings with its fields: `{"name": ..., "payload": ...}` and the options of
        `enqueue`; at most 100,000, all with different ids. Give ids to be able to send all of them again. Up
        to 1,000 jobs or 1 MiB go in one piece, all of them or none. More go as several pieces in pipelines,
        and then another producer's jobs may come between the pieces.

        Raises Malformed that names the bad job by its index, before any I/O: then nothing was sent. Raises
        ServerUnavailable and OutcomeUnknown as `enqueue` does; when only some pieces failed, PartlyEnqueued,
        whose `results` tells them apart.
        """
        given = producing.listed(jobs)
        prepared = producing.new_jobs(given, self.hooks.prepare) if self.hooks.some else []
        drafts = self._drafted_many(prepared or given)
        came = await self._send_drafts(drafts, validate.intended_ns(intended_ns))
        producing.note_ids(given, came)
        self.hooks.announce(prepared, came if prepared else ())
        return came

    async def pause(self, name: JobName | None = None, *, length_ms: Milliseconds = 0) -> None:
        """Claim no jobs of this name or task, or of the whole queue, until `resume`, or for `length_ms`; jobs
        in hand go on. Raises as `enqueue` does."""
        most_ms = validate.DURATION_MS_MAX
        await self.do(
            Pause(self.model.names.class_name(name), validate.duration_ms("length_ms", length_ms, 0, most_ms))
        )

    async def resume(self, name: JobName | None = None) -> bool:
        """End the pause of a name, or that of the whole queue; they are two pauses. False where there was no
        such pause."""
        reply: Resumed = await self.do(Resume(self.model.names.class_name(name)))
        return reply.was_paused

    async def set_limit(
        self,
        name: JobName | None = None,
        *,
        key: str | None = None,
        concurrency: int = 0,
        rate: int = 0,
        per_ms: Milliseconds = 0,
        window: Window = "sliding",
    ) -> None:
        """Let at most `concurrency` jobs be in hand at once, and at most `rate` be claimed in `per_ms`; 0 =
        not limited. Either of all jobs of a name, or of all jobs with a `key`, whatever their names.
        `key="*"` is for each key that has no limit of its own (rule 20).

        It counts the claims from now on, and replaces the limit that was there. Shards of a queue divide the
        limit of a name among them, so it must be as large as their number. Raises as `enqueue` does.
        """
        limit = admin.set_limit(
            self.model.names, name, key, concurrency=concurrency, rate=rate, per_ms=per_ms, window=window
        )
        await self.do(limit)

    async def remove_limit(self, name: JobName | None = None, *, key: str | None = None) -> None:
        """Remove the limit of a name or of a key."""
        await self.do(admin.remove_limit(self.model.names, name, key))

    async def limits(self) -> list[LimitInfo]:
        """The limits, each with how far it is used up and who fills it: at most 200, first those that jobs
        wait for, and of keys that have the limit of `*` no others. Raises as `enqueue` does."""
        return list((await self.obstacles()).limits)

    async def obstacles(self, *, one_call: bool = False) -> Obstacles:
        """What holds jobs back: the pauses that are on (200 at most), the limits with who fills them, and
        what each lane waits for and how long already. It reads some 100 lanes a call, and at most 50 times,
        or once with `one_call`: `cut` says that there are more. Raises as `enqueue` does."""
        found: list[Obstacles] = []
        for shard, first in await self.each(ListObstacles()):
            parts: list[ObstaclesPart] = [first]
            while parts[-1].cursor and len(parts) < (1 if one_call else _LANE_PARTS_MAX):
                parts.append(await shard.do(ListObstacles(parts[-1].cursor)))
            found.append(obstacles_of(parts))
        return added_obstacles(found)

    async def set_retention(
        self,
        *,
        done_max: int | None = None,
        done_age_ms: Milliseconds | None = None,
        dead_max: int | None = None,
        dead_age_ms: Milliseconds | None = None,
    ) -> None:
        """Bound what the queue keeps of jobs that have ended: how many finished and dead ones, and for how
        long; None leaves a bound as it is. Unless told these are the last 1,000 finished jobs, and 100,000
        dead ones for 90 days. The sweeps of the workers see to it, the longest dead first. Raises as
        `enqueue` does."""
        await self.do(admin.set_retention(done_max, done_age_ms, dead_max, dead_age_ms))

    async def clean(self, state: str, *, older_than_ms: Milliseconds = 0, limit: int = 1_000_000) -> int:
        """Remove jobs that are waiting or delayed and were enqueued so long ago, or that have been dead or
        finished for so long; how many there were. In pieces of 500; what comes after its begin stays. Raises
        as `enqueue` does; what was removed until then is gone, and it may simply be called again."""
        return await self.carry_out_up_to(lambda most: admin.cleaning(state, older_than_ms, most), limit)

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove the jobs that wait, with `delayed` also those that are not due yet; how many there were.
        Jobs in hand go on, dead ones and what is enqueued meanwhile stay. As `clean` otherwise."""
        return sum([await shard.carry_out(admin.draining(delayed)) for shard in await self.in_use()])

    async def obliterate(self, *, force: bool = False) -> bool:
        """Remove the queue: jobs in every state, limits, pauses, counters. False, and nothing is removed,
        while jobs are in hand; with `force` their leases end, and what their workers say of them is refused.

        It removes what was there when it began, in pieces, and a late copy of a call touches no newer job
        (rule 7). Interrupted, it is called again. What expires by itself does so: ids that were known (20 s),
        dedup windows, windows of rates. Raises UnsupportedFeature while the queue is resharded.
        """
        record = await self.look_up()
        if record.former is not None:
            raise UnsupportedFeature(f"queue {self.name} is being resharded: obliterate it afterwards")
        gone = [await shard.carry_out(admin.obliterating(force)) for shard in await self.in_use()]
        if self.shards is not None:
            # Shard 0 has forgotten that it takes no new jobs.
            await self.do(SetGate(moved(record.layout.shards)))
        return all(gone)

    async def counts(self, *, one_call: bool = False) -> Counts:
        """Jobs in each state. `waiting` also counts those that no worker has a handler for. With more than
        some 500 lanes (names and keys) it takes several calls, and the waiting jobs are not all counted at
        one instant. With `one_call` those of the first 500 are counted, and a `cursor` says that there are
        more."""
        parts: list[Counts] = []
        for shard, part in await self.each(Count()):
            waiting = part.waiting
            while part.cursor and not one_call:
                part = await shard.do(Count(cursor=part.cursor))
                waiting += part.waiting
            parts.append(replace(part, waiting=waiting))
        return parts[0] if self.shards is None else Count().merge(parts)

    async def stats(self) -> list[HandlerTimes]:
        """How long the handlers of each name took, in the order of the names: how many runs succeeded and
        failed, their sum, the longest, and a histogram for percentiles. Workers tell it with their beats,
        every 10 s unless told otherwise, and when they stop. What a killed one has not told is not counted,
        and nothing twice. Kept until the queue is obliterated."""
        found: list[HandlerTimes] = []
        for shard in await self.in_use():
            of_shard: dict[str, HandlerTimes] = {}
            for page in range(_STATS_PAGES_MAX):
                reply: ListedRunTimes = await shard.do(ListRunTimes(page * _STATS_PAGE, _STATS_PAGE))
                of_shard.update({times.name: times for times in reply.names})
                if len(reply.names) < _STATS_PAGE:
                    break
            found += of_shard.values()
        return added_times(found)

    async def metrics(self, *, scaling: Scaling | None = None) -> str:
        """The numbers of `counts`, `stats`, `obstacles` and `workers.list` in Prometheus' text format 0.0.4,
        for a service to serve beside its own: `ironclaim_jobs` by state, `ironclaim_jobs_waiting` by name,
        `ironclaim_oldest_waiting_seconds`, `ironclaim_paused`, `ironclaim_workers` and
        `ironclaim_worker_places`, the counters `ironclaim_jobs_finished_total` and
        `ironclaim_jobs_dead_total`, and the histogram `ironclaim_run_seconds` by name and outcome. An
        autoscaler follows `ironclaim_wanted_workers`, which aims at `scaling` (None: its defaults), or
        `ironclaim_worker_utilisation_ratio`. The rates in it are taken from one call of this queue object to
        the next. `join_metrics` makes one page of several queues. An old keyspace has no waiting jobs by
        name, no oldest one and no pauses."""
        counts, times, workers = await self.counts(), await self.stats(), await self.workers.list()
        try:
            held = await self.obstacles()
        except UnsupportedFeature:
            held = None
        aim = scaling or Scaling()
        demand = self._demand.note(counts, times, workers, held, aim)
        return exposition(self.name, counts, times, workers, held, demand=demand, scaling=aim)

    async def snapshot(self) -> Snapshot:
        """The ids of the jobs in every state, in pages of 1,000, shard by shard. One page is consistent,
        several are not."""
        states: dict[str, list[tuple[str, int]]] = {}
        srv_us = 0
        for shard in await self.in_use():
            for page in range(_SNAPSHOT_PAGES_MAX):
                part: Snapshot = await shard.do(Listing(page * _SNAPSHOT_PAGE, _SNAPSHOT_PAGE))
                srv_us = srv_us or part.srv_us
                for state, entries in part.states.items():
                    states.setdefault(state, []).extend(entries)
                if all(len(entries) < _SNAPSHOT_PAGE for entries in part.states.values()):
                    break
            else:
                most = _SNAPSHOT_PAGES_MAX * _SNAPSHOT_PAGE
                raise ScriptFault(f"snapshot: more than {most} jobs in one state")
        return Snapshot(srv_us, states)

    async def use_test_clock(self, now_ms: int) -> None:
        """Give the scripts this time instead of the server's. Only on a queue that has never held a job, or
        one that this was called on before; anything else is Malformed. The time lies in 2100 or later: keys
        expire by the server's own clock. So an expiry in its past would delete what the script has just
        written. Raises UnsupportedFeature for a queue with shards."""
        if self.shards is not None:
            raise UnsupportedFeature("the test clock is for queues without shards")
        now = validate.integer("now_ms", now_ms, TEST_CLOCK_LEAST_MS, 2**52)
        if self.model.now_ms is None and not await self.do(MakeTestQueue()):
            raise Malformed(
                "queue", self.name, "a queue that has never held a job, to take its time from a test"
            )
        self.model.now_ms = now
        self.driver.clock.learn(now * 1000, time.monotonic_ns())

    async def close(self) -> None:
        """Close the idle connections."""
        for queue in (*self._made.values(), self):
            await queue.results.close()
            await queue.events.close()
        await self.driver.close()

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def async_queues(
    url: str = DEFAULT_URL,
    *,
    client: Any = None,
    model: Spec | None = None,
    prefix: str | None = None,
    limit: int = admin.LIMIT_MAX,
) -> list[QueueInfo]:
    """The queues of a model (None: Lanes) that live under a prefix (None: that of the model), last used
    first. Raises ServerUnavailable, and Malformed for bad values."""
    call, endpoint = admin.listing(model, prefix, limit), Endpoint(url, client, asynchronous=True)
    driver = AsyncDriver(endpoint, ())
    try:
        return await driver.run(call)
    finally:
        await driver.close()
