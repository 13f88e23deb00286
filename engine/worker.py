"""The worker: its settings, and its run from the first connection to the last thread (DESIGN 3.7).

`engine.executor` carries out what the step machine decides, and `engine.running` runs the handlers. Only C code that holds the
interpreter lock for a third of a lease can starve the renewals, and then the lease is lost and reported (rule 14).
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import FrameType

from engine import validate
from engine.driver import SyncDriver
from engine.errors import Malformed
from engine.executor import Executor, News
from engine.handlers import Handlers
from engine.queue import Queue
from engine.running import Running, check_references
from engine.step_values import Settings, StopAsked
from engine.steps import WorkerSteps

log = logging.getLogger("ironclaim.worker")

#: Child processes of one worker.
PROCESSES_MAX = 64
#: Allowed beside every lease: a caller who gives a short lease alone has not asked for it.
_SWEEP_MS = 1000
#: A start that takes longer says so.
_PATIENCE_S = 2.0


class Worker:
    """Runs the handlers of a queue's jobs until it is told to stop. Jobs of other names are left to other workers.

    `concurrency` handlers at once, leases of `lease_ms`, a sweep at least every `sweep_ms` and every quarter of a lease. Ahead of
    its handlers a worker leases what they work off in 50 ms by their measured time, at most `prefetch` jobs (0 = none).
    `grace_ms` bounds how long a stop waits for handlers.

    Async handlers run on an event loop in a thread of the worker, plain functions in threads, and inline ones one after the other
    in one thread, beside the `concurrency` of the others. With `processes` N plain functions run in N child processes, for
    handlers that keep the interpreter lock for long; N, not `concurrency`, handlers then run at once. A child finds a handler by
    its module and name; one that dies is a failed run.

    Raises Malformed for settings out of bounds, and for handlers that a child process would not find.
    """

    def __init__(
        self,
        queue: Queue,
        handlers: Handlers,
        *,
        name: str = "",
        concurrency: int = 8,
        prefetch: int = 128,
        lease_ms: int = 9000,
        sweep_ms: int = _SWEEP_MS,
        grace_ms: int = 30_000,
        processes: int = 0,
    ) -> None:
        # An AsyncQueue, or the name of a queue, would else be an AttributeError inside of `run`.
        if not isinstance(queue, Queue):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("queue", queue, "a Queue")
        if not isinstance(handlers, Handlers):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("handlers", handlers, "a Handlers object")
        processes = validate.integer("processes", processes, 0, PROCESSES_MAX)
        concurrency = validate.integer("concurrency", concurrency, 1, validate.CONCURRENCY_MAX)
        lease = validate.integer("lease_ms", lease_ms, 100, 86_400_000)
        settings = Settings(
            name=validate.worker_name(name or f"worker-{os.getpid()}"),
            # No threads for handlers that nobody has.
            concurrency=0 if len(handlers.inline) == len(handlers.by_name) else processes or concurrency,
            prefetch=validate.integer("prefetch", prefetch, 0, validate.CONCURRENCY_MAX),
            lease_ms=lease,
            # Settings bring it down to a quarter of the lease.
            sweep_ms=validate.integer("sweep_ms", sweep_ms, 10, max(lease, _SWEEP_MS)),
            grace_ms=validate.integer("grace_ms", grace_ms, 0, 86_400_000),
            classes=tuple(handlers.by_name),
            inline=handlers.inline,
        )
        if not handlers.by_name:
            raise Malformed("handlers", "none", "at least one: a worker claims the jobs that it has handlers for")
        self._set_up(queue, handlers, settings, processes=processes > 0)
        if self._processes:
            check_references(handlers)

    def _set_up(self, queue: Queue, handlers: Handlers, settings: Settings, *, processes: bool = False) -> None:
        """What a run needs; the settings are checked."""
        self._queue = queue
        self._handlers = handlers
        self._settings = settings
        self._processes = processes
        self._news = News()

    def stop(self) -> None:
        """Ask for a graceful stop: nothing more starts, unstarted leases go back uncharged, running handlers finish. Safe from
        any thread and from a signal handler."""
        self._news.put(StopAsked())

    def run(self, *, burst: bool = False) -> None:
        """Work until stopped by `stop`, SIGTERM or SIGINT; with `burst`, until no job that it has a handler for
        waits, and none is delayed or in hand.

        Raises UnsafeServer or ServerUnavailable when the first connection fails.
        """
        settings = replace(self._settings, burst=burst)
        clock = self._queue.driver.clock
        patience = threading.Timer(_PATIENCE_S, log.warning, ["worker %s: the server does not answer yet", settings.name])
        patience.start()
        try:
            self._queue.driver.server_now_ms()
        finally:
            patience.cancel()
        if self._queue.observer is not None:
            config = {**asdict(settings), "inline": sorted(settings.inline), "queue": self._queue.name, "pid": os.getpid()}
            self._queue.observer.configured(config)
        waiting = SyncDriver(
            self._queue.url,
            self._queue.model.scripts.values(),
            observer=self._queue.observer,
            clock=clock,
            block_ms_max=settings.sweep_ms,
        )
        steps = WorkerSteps(settings, self._queue.model.call, clock, _new_incarnation, time.monotonic_ns())
        executor = Executor(steps, self._queue.driver, waiting, self._news)
        running = Running(
            self._handlers,
            self._queue.observer,
            executor.ended,
            places=settings.concurrency,
            processes=self._processes,
        )
        names = ", ".join(sorted(settings.classes))
        log.info("worker %s: queue %s, %d jobs at once, runs %s", settings.name, self._queue.name, settings.places, names)
        try:
            with self._signals():
                executor.run(running)
        finally:
            running.close()
            # A blocking wait ends within a sweep.
            executor.close(settings.sweep_ms / 1000 + 1)
            waiting.close()

    @contextmanager
    def _signals(self) -> Generator[None]:
        """SIGTERM and SIGINT ask for a stop while the worker runs in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(_number: int, _frame: FrameType | None) -> None:
            self.stop()

        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _new_incarnation() -> str:
    """64 random bits, so that no restarted or forked worker is taken for another (rule 4)."""
    return secrets.token_hex(8)
