"""The worker: its settings, and its run from the first connection to the last thread.

`executor` carries out what the state machine decides, `handler_pool` runs the handlers. Only C code that
holds the interpreter lock for a third of a lease can starve the renewals. Then the lease is lost and reported
(rule 14)."""

from __future__ import annotations

import functools
import os
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Unpack, cast

from engine import routing, validate
from engine.errors import EngineError, Malformed, counted, logger, spared
from engine.handlers import Handlers
from engine.logs import Source, about, mark_records
from engine.models import bind
from engine.ops.admin import ReadShards
from engine.ops.base import BLOCK_MS, Call, Operation
from engine.ops.claims import Attributes
from engine.ops.workers import HANDLERS_TOLD
from engine.options import checked_settings, read_often, settings_of, shows
from engine.outcomes import request_of
from engine.queue import admin
from engine.queue.settings import QueueSettings, synchronous
from engine.queue.sharding import read_record
from engine.queue.synchronous import Queue
from engine.redis.driver import SyncDriver
from engine.serializers import Serializers
from engine.validate import Milliseconds
from engine.version import __version__
from engine.worker.connections import Control, Controls, SharedConnections, SharedWait
from engine.worker.executor import Events, Executor
from engine.worker.handler_pool import HandlerPool, check_references
from engine.worker.machine.claiming import Gate
from engine.worker.machine.concurrency import Quota, Share
from engine.worker.machine.events import PauseAsked, StopAsked, StopReason, TimerFired, WatchAsked
from engine.worker.machine.machine import WorkerMachine
from engine.worker.machine.settings import JOBS_MAX, SWEEP_MS, Settings, WorkerSettings
from engine.worker.process import default_name, stop_signals, warn_of_namesakes
from engine.worker.several import ShardWorkers, SharedThreads

log = logger("ironclaim.worker")

#: No lease says how often it has to sweep.
SCHEDULER_SWEEP_MS_MAX = 2000
#: A call that the server does not answer holds up the end of a worker for no longer.
_CALLERS_END_S = 2.0
#: A control connection that was silently cut shows within a third of a lease, of this length at most.
_LOOK_MS_MAX = 30_000
#: A start that takes longer says so.
_PATIENCE_S = 2.0
_looked_under: set[str] = set()
_NO_ANSWER = "worker %s: the server does not answer yet"


class Worker:
    """Runs the handlers of a queue's jobs until it is told to stop. Jobs of other names are left to other
    workers. Without `handlers` these are the functions that `queue.job` has registered. `queue` may be an
    AsyncQueue as well: the worker has connections of its own, with its settings.

    `settings`: see WorkerSettings.

    Async handlers run on an event loop in a thread of the worker, plain functions in threads. Inline ones run
    one after the other in one thread, beside the `concurrency` of the others. With `processes` N plain
    functions run in N child processes.

    A job whose run takes longer than its `timeout_ms` has failed. Its coroutine is cancelled and gets 5 s to
    clean up; its child process is killed. At its `soft_timeout_ms` SoftTimeout is raised in those. A function
    in a thread, or an inline one, cannot be stopped. Its run is over for the server, what comes of it is
    refused, and its place stays taken until it returns; the log says so.

    The cancel of a job takes effect within a second. A coroutine gets CancelledError and cleans up; a child
    process is killed; in a thread `job.cancelled` becomes true. So it does in a handler of batches, whose
    other jobs go on. The worker is told on a connection of its own. Where that is away, or the queue has
    the format of another library, the next renewal tells it (rule 26).

    Of a queue with shards it serves all of them (docs/guides/shards.md): it has no child processes then, and
    `max_jobs` counts the jobs of each shard.

    Raises Malformed for settings out of bounds, and for handlers that a child process would not find.
    """

    @shows(WorkerSettings)
    def __init__(
        self, queue: QueueSettings, handlers: Handlers | None = None, **settings: Unpack[WorkerSettings]
    ) -> None:
        _check_queue(queue)
        handlers = queue.handlers if handlers is None else handlers
        validate.instance("handlers", handlers, Handlers, "a Handlers object")
        given: Mapping[str, Any] = read_often(settings) if queue.shards else settings
        own = checked_settings(WorkerSettings, given)
        own["name"] = own["name"] or default_name()
        names, attributes, gate = own.pop("names"), own.pop("attributes"), own.pop("gate")
        classes = tuple(map(queue.model.names.job_name, routing.names_among(handlers.by_name, names)))
        if own["sweep_ms"] > (most_ms := max(own["lease_ms"], SWEEP_MS)):
            bound = f"at most {most_ms}, since leases last {own['lease_ms']} ms"
            raise Malformed("sweep_ms", own["sweep_ms"], bound)
        processes = own["processes"]
        asked = settings.get("concurrency", processes)
        if processes and asked != processes:
            bound = f"left out, because processes={processes} says how many run at once, async ones as well"
            raise Malformed("concurrency", asked, bound)
        plain = frozenset(handlers.by_name) - handlers.inline - handlers.coroutines
        spawned = plain if own["processes"] else frozenset[str]()
        # No threads for handlers that nobody has.
        own["concurrency"] = (
            0 if len(handlers.inline) == len(handlers.by_name) else own["processes"] or own["concurrency"]
        )
        routed = Attributes(
            own["name"], *(own.pop(of) for of in ("stack", "capabilities", "region", "routes"))
        )
        # What is left are the fields of the same names: a row without one fails here.
        configured = Settings(
            classes=classes,
            inline=handlers.inline,
            stoppable=handlers.coroutines | spawned,
            spawned=spawned,
            batches=dict(handlers.batches),
            attributes=routed,
            routes_at_claim=queue.model.routes_at_claim,
            **own,
        )
        if not handlers.by_name:
            bound = f"at least one: a worker claims the jobs of {queue.name} that it has handlers for"
            raise Malformed("handlers", "none", bound)
        self._set_up(queue, handlers, replace(configured, about=_about(configured, attributes)))
        self._gate = None if gate is None else partial(_ask, gate, configured.name)
        if configured.processes:
            check_references(handlers)
            _check_travels(queue.serializers)
        if queue.shards:
            if configured.processes:
                bound = "0 for a queue with shards: start several workers instead"
                raise Malformed("processes", configured.processes, bound)

            def of_one(shard: Queue, sweep_ms: int) -> Worker:
                mine = {**given, "name": configured.name, "sweep_ms": sweep_ms}
                return Worker(shard, handlers, **cast("WorkerSettings", mine))

            self._shards = ShardWorkers(self._queue, handlers, configured, of_one)

    def _set_up(self, queue: QueueSettings, handlers: Handlers, settings: Settings) -> None:
        """Build what a run needs."""
        self._queue: Queue = synchronous(queue)
        self._handlers = handlers
        self._settings = settings
        self._gate: Gate | None = None
        #: Those that run in place of this one, of a queue with shards.
        self._shards: ShardWorkers | None = None
        self._share: Share | Quota | None = None
        self._connections: SharedConnections | None = None
        self._pools: SharedThreads | None = None
        self._on_lead: Callable[[bool], None] | None = None
        self._events = Events()
        self._at_work = threading.Lock()

    @property
    def queue(self) -> Queue:
        """The queue that it works for."""
        return self._queue

    @property
    def handlers(self) -> Handlers:
        """The registry whose handlers it runs."""
        return self._handlers

    def stop(self, *, at_once: bool = False) -> None:
        """Ask for a graceful stop: nothing more starts, unstarted leases go back uncharged, running handlers
        finish. `at_once`: they are not waited for. Coroutines and child processes are ended, and their jobs
        go back uncharged once they have; those of threads run again when their leases are over. Safe from any
        thread and from a signal handler."""
        self.ask(StopAsked("at once" if at_once else "stopped"))

    def pause(self) -> None:
        """Claim and start nothing more until `resume`; what runs goes on. Safe from any thread, and before
        `run`."""
        self.ask(PauseAsked(True))

    def resume(self) -> None:
        """End the pause."""
        self.ask(PauseAsked(False))

    def ask(self, event: StopAsked | PauseAsked) -> None:
        """What `stop`, `pause` and `resume` ask."""
        if self._shards is not None:
            self._shards.ask(event)
        else:
            self._events.put(event)

    def take_part(self, share: Share | Quota, connections: SharedConnections, threads: SharedThreads) -> None:
        """Share the places of a group, the connections on which its workers wait, and their threads: for
        groups, before `run`. Raises Malformed for a queue with shards."""
        if self._shards is not None:
            bound = "queues without shards: a queue with shards has a Worker of its own"
            raise Malformed("queues", self._queue.name, bound)
        self._share = share
        self._connections = connections
        self._pools = threads
        share.poke = lambda: self._events.put(TimerFired())

    def beats_rarely(self, times: int) -> None:
        """Beat so many times more rarely while nothing is in hand and this does not watch: for the worker of
        a shard, before `run`."""
        self._settings = replace(self._settings, idle_beats=times)

    def watch(self, on: bool) -> None:
        """Look after the leader of the shard although nothing is in hand. Safe from any thread."""
        self._events.put(WatchAsked(on))

    def on_lead(self, told: Callable[[bool], None]) -> None:
        """Call this when the worker leads its queue, and when it does so no more; it must be quick. Before
        `run`."""
        said = ("worker %s: what is told of its lead failed", self._settings.name)
        self._on_lead = partial(spared, told, otherwise=None, log=log, said=said)

    def run(self, *, burst: bool = False, delayed: bool = True) -> StopReason:
        """Work until stopped by `stop`, SIGTERM or SIGINT. With `burst`, until no job waits that it has a
        handler for and may run, and none is delayed or leased. Without `delayed`, until none can be claimed
        now. A second signal stops at once.

        Returns why it ended: "stopped", "grace over" when jobs were in hand then (they run again, as after
        `stop(at_once=True)`), "empty" (burst), "recycled", "at once". Raises UnsafeServer or
        ServerUnavailable when the first connection fails, what a hook `on_start` raises, and Malformed while
        another thread is in it. The two would take each other's updates.
        """
        burst, delayed = validate.truth("burst", burst), validate.truth("delayed", delayed)
        self._claim_run()
        try:
            return self._run(burst, delayed)
        finally:
            self._at_work.release()

    def _claim_run(self) -> None:
        """Raise Malformed while it runs already: two would take each other's events."""
        if not self._at_work.acquire(blocking=False):
            raise Malformed(
                "run", self._settings.name, "a worker that does not run already; make another Worker"
            )

    def _check_whole(self) -> None:
        """Raise Malformed for a queue that has shards on the server and none here: all but shard 0 would be
        left alone."""
        queue = self._queue
        if queue.is_shard or queue.model.name != "lanes":
            return
        record = ""
        # Who cannot be asked is believed.
        with suppress(EngineError):
            record = queue.driver.run(queue.model.call(ReadShards()))
        if record:
            has = read_record(record).layouts[-1].shards
            raise Malformed("shards", queue.shards, f"{has}: so many shards has queue {queue.name}")

    def _look_under_prefix(self, source: Source) -> None:
        """Warn, once in a process, where nothing has ever been under the prefix: it may be misspelt."""
        prefix, spec = self._queue.prefix, self._queue.spec
        if prefix in _looked_under or prefix == bind(spec, "any", None, None).prefix:
            return
        _looked_under.add(prefix)
        # Who cannot be asked warns of nothing.
        with suppress(EngineError):
            if not self._queue.driver.run(admin.listing(spec, prefix, 1)):
                said = "worker %s: nothing has ever been under the prefix %s"
                log.warning(said, self._settings.name, prefix, extra=about(None, source))

    def begin(
        self,
        ended: Callable[[StopReason | BaseException], None],
        *,
        burst: bool = False,
        delayed: bool = True,
    ) -> None:
        """As `run`, in the threads that it shares: `ended` is told in one of them why it has ended. Does
        not wait. For groups, after `take_part`."""
        pools = self._pools
        assert pools is not None

        def end(open_run: OpenRun | None, reason: StopReason | BaseException) -> None:
            try:
                if open_run is not None:
                    open_run.close()
            except BaseException as failure:
                reason = reason if isinstance(reason, BaseException) else failure
            self._at_work.release()
            ended(reason)

        def open_it() -> None:
            try:
                self._claim_run()
            except Malformed as failure:
                ended(failure)
                return
            open_run: OpenRun | None = None
            try:
                open_run = self._open(burst, delayed, pools)
                pools.loop.add(
                    *(open_run.executor, open_run.running, self._events),
                    lambda reason: pools.callers.run(partial(end, open_run, reason)),
                )
            except BaseException as failure:
                # Whatever it is: a group that was not told would wait for ever.
                end(open_run, failure)

        # In the context of the caller, in which its runs begin.
        pools.callers.run(partial(copy_context().run, open_it))

    def forget_events(self) -> None:
        """What came for a run that `begin` began and that has ended is not for the next one: for groups, once
        no worker stops others any more."""
        # Unless somebody else runs it, for which `begin` was refused.
        if self._at_work.acquire(blocking=False):
            self._events.clear()
            self._at_work.release()

    def _run(self, burst: bool, delayed: bool) -> StopReason:
        if self._shards is not None:
            return self._shards.run(burst, delayed)
        threads = SharedThreads.of(self._settings.concurrency)
        try:
            with threads.lifetime(self._handlers):
                open_run = self._open(burst, delayed, threads)
                try:
                    with stop_signals(lambda reason: self._events.put(StopAsked(reason))):
                        return open_run.executor.run(open_run.running)
                finally:
                    open_run.close()
                    self._events.clear()
        finally:
            threads.close()

    def _open(self, burst: bool, delayed: bool, threads: SharedThreads) -> OpenRun:
        """Meet the server, and start what a run needs."""
        settings = replace(self._settings, burst=burst, delayed=delayed)
        source = Source(settings.name, self._queue.name)
        mark_records()
        clock = self._queue.driver.clock
        patience = threading.Timer(
            _PATIENCE_S, log.warning, [_NO_ANSWER, settings.name], {"extra": about(None, source)}
        )
        patience.start()
        try:
            self._queue.driver.server_now_ms()
            self._check_whole()
        finally:
            patience.cancel()
        self._queue.note_era()
        self._look_under_prefix(source)
        if settings.beat_ms:
            # Who cannot be asked warns of nothing.
            with suppress(EngineError):
                warn_of_namesakes(self._queue.workers.list(), source)
        if self._queue.observer is not None:
            named: dict[str, object] = {
                name: sorted(getattr(settings, name)) for name in ("inline", "stoppable", "spawned")
            }
            named["attributes"] = routing.described(settings.attributes)
            config = {
                **asdict(replace(settings, about={})),
                **named,
                "queue": self._queue.name,
                "pid": os.getpid(),
            }
            self._queue.observer.configured(config)
        connections, model = self._connections, self._queue.model
        own = (self._queue.endpoint, model.scripts.values())
        alone = SyncDriver(*own, observer=self._queue.observer, clock=clock, block_ms_max=BLOCK_MS)
        with ExitStack() as undo:
            waiting = alone if connections is None else connections.waiting(alone)
            # Should anything fail from here on, it leaves those of its server that it would have waited with.
            undo.callback(waiting.close)
            undo.callback(waiting.interrupt)

            @functools.cache
            def elsewhere(queue: str) -> Callable[[Operation], Call[Any]]:
                return model.sibling(queue).call

            def gate() -> bool | int:
                return running.usable and (self._gate is None or self._gate())

            steps = WorkerMachine(
                *(settings, model.call, clock, _new_incarnation, time.monotonic_ns()),
                gate=gate if settings.processes else self._gate,
                judge=lambda name, failure: request_of(failure, self._handlers.error_rules(name)),
                share=self._share if isinstance(self._share, Share) else None,
                quota=self._share if isinstance(self._share, Quota) else None,
                elsewhere=elsewhere,
            )
            steps.on_lead = self._on_lead
            executor = Executor(
                *(steps, self._queue.driver, waiting, self._events, threads.callers),
                source=source,
                max_memory_mb=settings.max_memory_mb,
            )
            running = HandlerPool(
                self._handlers,
                self._queue.observer,
                executor.ended,
                threads.handlers,
                threads.coroutines,
                executor.serve,
                batch_ended=executor.batch_ended,
                not_started=executor.not_started,
                say=self._events.put,
                places=settings.concurrency,
                processes=settings.processes > 0,
                child_max_jobs=settings.child_max_jobs,
                serializers=self._queue.serializers,
                source=source,
                alone=self._share is None,
            )
            undo.callback(running.close)
            running.open()
            channels = model.control(settings.name)
            control = Control(
                Controls(self._queue.endpoint) if connections is None else connections.controls,
                channels,
                say=self._events.put,
                busy=lambda: steps.leased > 0,
                look_s=min(settings.lease_ms, _LOOK_MS_MAX) / 3000,
                source=source,
                # A worker that is not listed names its connection nowhere.
                presence=settings.presence and settings.beat_ms > 0,
            )
            undo.callback(control.close)
            if channels:
                control.start()
            places = counted(settings.places, "job")
            told = (settings.name, self._queue.name, places, ", ".join(sorted(settings.classes)))
            log.info("worker %s: queue %s, %s at once, runs %s", *told, extra=about(None, source))
            open_run = OpenRun(executor, running, control, waiting)
            undo.pop_all()
            return open_run


@dataclass(frozen=True, slots=True)
class OpenRun:
    """What one run of a worker holds open, beside its threads."""

    executor: Executor
    running: HandlerPool
    control: Control
    waiting: SyncDriver | SharedWait

    def close(self) -> None:
        """Close it. Handlers that do not return are not waited for."""
        self.control.close()
        self.running.close()
        self.waiting.interrupt()
        self.executor.close(_CALLERS_END_S)
        self.waiting.close()


def _check_queue(queue: object) -> None:
    """Raise Malformed for the name of a queue, which would else be an AttributeError inside of `run`."""
    validate.instance("queue", queue, QueueSettings, "a Queue or an AsyncQueue")


def _about(settings: Settings, attributes: Mapping[str, Any]) -> dict[str, object]:
    """What a heartbeat says about the worker, beside its leases."""
    return {
        "name": settings.name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "concurrency": settings.places,
        "handlers": sorted(settings.classes)[:HANDLERS_TOLD],
        "routing": routing.described(settings.attributes),
        "attributes": attributes,
        **({"priorities": settings.priorities} if settings.priorities else {}),
    }


def _check_travels(serializers: Serializers) -> None:
    """Raise Malformed when a child process would not get the queue's serialisers."""
    try:
        pickle.dumps(serializers)
    except Exception as error:
        bound = f"one that pickle can send to child processes ({error})"
        raise Malformed("serializer", serializers, bound) from error


def _ask(gate: Gate, worker: str) -> bool | int:
    """Ask the gate. One that raises, or answers something else, counts as closed: what it guards against may
    be the reason."""

    def ask() -> bool | int:
        said = gate()
        # Infinity is no bound; what is no number raises here.
        return said if isinstance(said, bool) else int(max(0, min(said, JOBS_MAX)))

    return spared(
        ask, otherwise=False, log=log, said=("worker %s: its gate raised, so nothing is claimed", worker)
    )


def _new_incarnation() -> str:
    """64 random bits, so that no restarted or forked worker is taken for another (rule 4)."""
    return secrets.token_hex(8)


# -- A worker that runs no jobs: it promotes, reaps and ticks. The worker that leads does that as well, so
# a queue with workers needs none. One keeps delayed jobs, lost leases and schedules going where no worker
# is up, or where they are all busy elsewhere.


class Scheduler(Worker):
    """Sweeps a queue until it is stopped, at least every `sweep_ms`, and runs nothing. Any number may run at
    once, beside any number of workers: no tick fires twice. Raises Malformed for settings out of bounds."""

    def __init__(self, queue: QueueSettings, *, name: str = "", sweep_ms: Milliseconds = SWEEP_MS) -> None:
        _check_queue(queue)
        settings = Settings(
            name=validate.worker_name(name, lambda: f"scheduler-{os.getpid()}"),
            concurrency=0,
            prefetch=0,
            lease_ms=settings_of(WorkerSettings)["lease_ms"].default,
            sweep_ms=validate.duration_ms("sweep_ms", sweep_ms, 10, SCHEDULER_SWEEP_MS_MAX),
            grace_ms=1000,
            classes=(),
        )
        self._set_up(queue, Handlers(), settings)
