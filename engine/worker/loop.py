"""Threads that the workers of one process share: for their calls, for plain handlers, for coroutines, and one
that serves the machines of all. So a worker of sixteen shards has about as many as one of a whole queue.
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
from typing import NamedTuple, get_args

from engine.errors import logger, spared
from engine.handlers import Handlers
from engine.hooks import RunHooks
from engine.worker.executor import Events, Executor, Over
from engine.worker.handler_pool import HandlerPool
from engine.worker.machine.events import MS, StopReason
from engine.worker.runs import Coroutines, LoopThread, RunContexts
from engine.worker.threads import Threads

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
        """Serve one more machine. `ended` hears why it has ended; it must be short."""
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
