"""Workers that share one process: their threads, and a worker for each shard of a queue.

The threads are for their calls, for plain handlers, for coroutines, and one serves the machines of all. So a
worker of sixteen shards has about as many as one of a whole queue.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, get_args

from engine.errors import EngineError, logger, spared
from engine.handlers import Handlers
from engine.hooks import RunHooks
from engine.logs import Source, about
from engine.queue.synchronous import Queue
from engine.worker.connections import SharedConnections
from engine.worker.executor import Events, Executor, Over
from engine.worker.handler_pool import HandlerPool
from engine.worker.machine.concurrency import Places, Quota
from engine.worker.machine.events import MS, PauseAsked, StopAsked, StopReason
from engine.worker.machine.settings import Settings
from engine.worker.process import Threads, stop_signals
from engine.worker.runs import Coroutines, LoopThread, RunContexts

log = logger("ironclaim.worker")

#: Callers that stay when they have nothing to do: about as many as one machine has under way. More come while
#: these are busy, or wait for a server that does not answer.
CALLERS = 4
#: So long get the async hooks of a stop, each registry's.
_AT_END_S = 5.0


@dataclass(slots=True)
class Served:
    """A machine that a loop serves, what is to be told that it has ended, and until when it needs nothing."""

    executor: Executor
    ended: Callable[[StopReason | BaseException], None]
    sleeps_until_ns: int = 0


class Loop:
    """Brings events, and the time, to several machines, in a thread that starts with the first of them. What
    lasts is not done here: callers make the calls, and handlers run in threads of their own."""

    def __init__(self, coroutines: LoopThread) -> None:
        self._coroutines = coroutines
        self._lock = threading.Lock()
        self._bell: queue.SimpleQueue[Events | None] = queue.SimpleQueue()
        self._served: dict[Events, Served] = {}
        self._thread: threading.Thread | None = None

    def add(
        self,
        executor: Executor,
        running: HandlerPool,
        events: Events,
        ended: Callable[[StopReason | BaseException], None],
    ) -> None:
        """Serve one more machine. `ended` is told why it has ended; it must be short."""
        executor.start(running)
        events.bell = self._bell
        with self._lock:
            self._served[events] = Served(executor, ended)
            if self._thread is None:
                made = threading.Thread(target=self._serve, name="worker-loop", daemon=True)
                try:
                    made.start()
                except RuntimeError:
                    # The system has no thread left for this process: the next one tries again.
                    del self._served[events]
                    raise
                self._thread = made
        for _ in range(1 + events.count):
            self._bell.put(events)

    def close(self) -> None:
        """End the thread. Nothing is served any more."""
        self._bell.put(None)
        if self._thread is not None:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            self._coroutines.look()
            idle_until_ns = time.monotonic_ns() + 1000 * MS
            with self._lock:
                wake_at_ns = min(
                    [idle_until_ns, *(served.sleeps_until_ns for served in self._served.values())]
                )
            try:
                rung = self._bell.get(timeout=max(0, wake_at_ns - time.monotonic_ns()) / (1000 * MS))
            except queue.Empty:
                now_ns = time.monotonic_ns()
                with self._lock:
                    due = [
                        events for events, served in self._served.items() if served.sleeps_until_ns <= now_ns
                    ]
                for events in due:
                    self._serve_one(events)
            else:
                if rung is None:
                    return
                self._serve_one(rung)

    def _serve_one(self, events: Events) -> None:
        """Bring a machine its next event, or the time."""
        served = self._served.get(events)
        if served is None:
            return
        try:
            event = served.executor.too_large() or served.executor.take(0)
            if not isinstance(event, Over):
                served.executor.process(event)
                served.sleeps_until_ns = served.executor.sleeps_until_ns()
                return
        except Exception as failure:
            # A defect of ours must end its own machine alone.
            event = Over(failure)
        with self._lock:
            del self._served[events]
        spared(
            served.ended, event.reason, otherwise=None, log=log, said=("the end of a worker was not told",)
        )


class SharedThreads(NamedTuple):
    """The threads of the workers of one process: those that make their calls and run their plain handlers,
    the one of their coroutines, and the one that serves their machines."""

    callers: Threads
    handlers: Threads
    coroutines: LoopThread
    loop: Loop

    @classmethod
    def of(cls, places: int) -> SharedThreads:
        """Threads for so many handlers at once, which begin with the first task."""
        coroutines = LoopThread("handlers-async")
        return cls(
            Threads("caller", kept=CALLERS),
            Threads("handler", kept=places, most=places),
            coroutines,
            Loop(coroutines),
        )

    @contextmanager
    def lifetime(self, *registries: Handlers) -> Generator[None]:
        """Call the hooks `on_start` of these registries, each once, and at the end `on_stop` of those that
        have started; async ones on the loop of the coroutines. Raises what the former raise."""
        all_hooks = dict.fromkeys(each.hooks for registry in registries for each in registry.registries())
        coroutines = Coroutines(self.coroutines, RunContexts())
        started: list[RunHooks] = []
        try:
            for hooks in all_hooks:
                hooks.start()
                if hooks.has_async_life:
                    coroutines.wait_for(hooks.start_async)
                started.append(hooks)
            yield
        finally:
            for hooks in reversed(started):
                if hooks.has_async_life:
                    coroutines.wait_for(partial(_stop_async, hooks))
                hooks.stop()

    def close(self) -> None:
        """Let them end. Handlers that still run go on, and so do calls that are not answered."""
        self.loop.close()
        self.coroutines.close()
        self.handlers.close()
        self.callers.close()


async def _stop_async(hooks: RunHooks) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(hooks.stop_async(), _AT_END_S)


class Ends:
    """How the workers of one run that work together have ended. Who uses it holds a lock."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []
        self._reasons: list[StopReason] = []

    def note(self, why: StopReason | BaseException) -> None:
        """One more has ended."""
        if isinstance(why, BaseException):
            self.failures.append(why)
        else:
            self._reasons.append(why)

    def outcome(self) -> StopReason:
        """Why all have ended: the last of their reasons in the order of StopReason. Raises the first
        failure."""
        if self.failures:
            raise self.failures[0]
        return max(self._reasons or ["stopped"], key=get_args(StopReason).index)


# -- The workers of all shards of a queue (docs/guides/shards.md).
#
# They share the places of the handlers, one block on the wake lists of all shards, one control connection and
# one driver. An idle shard costs little: its leader sweeps every quarter of a lease, and its other workers
# beat rarely. So somebody has to notice when that leader dies with jobs in hand. That is the process that
# leads shard 0, which is looked after as any queue is. It also looks after the leaders of all other shards.
#
# The record of the shards is read every few seconds. When the queue is resharded, workers of new shards
# begin, and those of former ones stop once these are empty.

#: Between two looks at the record.
LOOK_S = 5.0
#: A worker beats in an idle shard so many times more rarely, unless it watches.
IDLE_BEATS = 16


class OfShard(Protocol):
    """What a Worker can be asked as that of one shard."""

    def ask(self, event: StopAsked | PauseAsked) -> None:
        """What it is asked like all others: to stop, or to pause."""
        ...

    def watch(self, on: bool) -> None:
        """Whether it looks after the leader of its shard."""
        ...

    def beats_rarely(self, times: int) -> None:
        """Beat so many times more rarely."""
        ...

    def on_lead(self, told: Callable[[bool], None]) -> None:
        """Whom to tell that it leads."""
        ...

    def take_part(self, share: Quota, connections: SharedConnections, threads: SharedThreads) -> None:
        """What it shares with the others."""
        ...

    def begin(
        self, ended: Callable[[StopReason | BaseException], None], *, burst: bool, delayed: bool
    ) -> None:
        """Begin to work."""
        ...


class ShardWorkers:
    """The workers of all shards of a queue, which have these settings; `make` makes that of one shard, which
    sweeps so often, in ms. `max_jobs` counts the jobs of each shard."""

    def __init__(
        self, whole: Queue, handlers: Handlers, settings: Settings, make: Callable[[Queue, int], OfShard]
    ) -> None:
        self._whole = whole
        self._handlers = handlers
        self._settings = settings
        self._make = make
        self._of_each: dict[str, OfShard] = {}
        self._quotas: dict[str, Quota] = {}
        self._ended = threading.Condition()
        self._ends = Ends()
        self._asked: list[StopAsked | PauseAsked] = []
        self._watches = self._begun = False

    @property
    def _stopping(self) -> bool:
        return any(isinstance(asked, StopAsked) for asked in self._asked)

    def ask(self, event: StopAsked | PauseAsked) -> None:
        """Ask the workers of all shards, also those that begin later."""
        with self._ended:
            if isinstance(event, PauseAsked):
                # Of several the last one holds.
                self._asked = [asked for asked in self._asked if not isinstance(asked, PauseAsked)]
            self._asked.append(event)
            for worker in self._of_each.values():
                worker.ask(event)
            self._ended.notify_all()

    def run(self, burst: bool, delayed: bool) -> StopReason:
        """As Worker.run."""
        whole, settings = self._whole, self._settings
        self._places = Places(settings.concurrency or settings.places)
        self._connections = SharedConnections(whole.endpoint, whole.model.keys.prefix)
        self._threads = threads = SharedThreads.of(settings.concurrency)
        self._ends, self._begun = Ends(), False
        try:
            with (
                threads.lifetime(self._handlers),
                stop_signals(lambda reason: self.ask(StopAsked(reason))),
            ):
                self._serve(burst, delayed)
        finally:
            threads.close()
            with self._ended:
                # What was asked before a run that could not begin is for the next one.
                if self._begun:
                    self._asked = []
        return self._ends.outcome()

    def _serve(self, burst: bool, delayed: bool) -> None:
        """Have a worker for each shard in use, until all have ended."""
        while True:
            try:
                names = self._whole.look_up().names(self._whole.name)
            except EngineError:
                if not self._of_each:
                    raise
                # The server is away: the workers of the shards say so.
                names = tuple(self._of_each)
            with self._ended:
                for name in names:
                    if name not in self._of_each and not self._stopping and not self._ends.failures:
                        self._begin(name, burst, delayed)
                for name, worker in self._of_each.items():
                    if name not in names:
                        worker.ask(StopAsked())
                self._ended.wait_for(self._over, LOOK_S)
                if self._over():
                    return

    def _over(self) -> bool:
        """Whether all have ended."""
        return not self._of_each

    def _begin(self, name: str, burst: bool, delayed: bool) -> None:
        """Start the worker of one shard."""
        settings, first = self._settings, name == self._whole.name
        sweep_ms = settings.sweep_ms if first or burst else max(settings.sweep_ms, settings.lease_ms // 4)
        worker = self._make(self._whole.shard(name), sweep_ms)
        if not first:
            worker.beats_rarely(IDLE_BEATS)
            worker.watch(self._watches)
        else:
            worker.on_lead(self._lead)
        # First of all: a signal may come between any two lines, and tells those that are here.
        self._of_each[name] = worker
        self._begun = True
        for asked in self._asked:
            worker.ask(asked)
        quota = self._quotas[name] = self._places.join()
        worker.take_part(quota, self._connections, self._threads)
        worker.begin(partial(self._shard_ended, name), burst=burst, delayed=delayed)

    def _shard_ended(self, name: str, why: StopReason | BaseException) -> None:
        """The worker of one shard has ended."""
        with self._ended:
            self._of_each.pop(name, None)
            self._quotas.pop(name).leave()
            self._ends.note(why)
            others = list(self._of_each.values())
            left = why == "stopped" and not self._stopping and not self._ends.failures
            self._ended.notify_all()
        if why != "empty" and not left:
            for other in others:
                other.ask(StopAsked())

    def _lead(self, leads: bool) -> None:
        """This process leads shard 0, and looks after the leaders of the others; or it does so no more."""
        self._watches = leads
        with suppress(RuntimeError):
            for name, worker in list(self._of_each.items()):
                if name != self._whole.name:
                    worker.watch(leads)
        source = Source(self._settings.name, self._whole.name)
        log.debug("looks after the leaders of all shards: %s", leads, extra=about(None, source))
