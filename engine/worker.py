"""The worker: executes the step machine with threads (DESIGN 3.7).

One thread decides (the caller of `run`), each channel of the machine has a thread and a connection of its own, and handlers
run as `engine.running` says. The renewal thread depends on nobody; only C code that holds the interpreter lock for a third of a
lease can starve it, and then the lease is lost and reported (rule 14).
"""

from __future__ import annotations

import logging
import os
import queue
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
from engine.errors import EngineError, Malformed, ScriptFault, UnsafeServer
from engine.handlers import Handlers
from engine.queue import Queue
from engine.running import Running, check_references
from engine.server_clock import ServerClock
from engine.step_values import (
    MS,
    Action,
    Answered,
    Channel,
    Event,
    Exit,
    Forked,
    LoseLease,
    Send,
    Settings,
    Start,
    StopAsked,
    TimerFired,
    Unanswered,
)
from engine.steps import WorkerSteps

log = logging.getLogger("ironclaim.worker")

Inbox = queue.SimpleQueue[Send | None]

#: Child processes of one worker.
PROCESSES_MAX = 64
#: A start that takes longer says so.
_PATIENCE_S = 2.0


class Worker:
    """Runs the handlers of a queue's jobs until it is told to stop. Jobs of other names are left to other workers.

    `concurrency` handlers at once, leases of `lease_ms`, a sweep at least every `sweep_ms` and every quarter of a lease. Ahead of
    its handlers a worker leases what they work off in 50 ms by their measured time, at most `prefetch` jobs (0 = none).
    `grace_ms` bounds how long a stop waits for handlers.

    Async handlers run on an event loop in a thread of the worker, plain functions in threads. With `processes` N plain functions
    run in N child processes, for handlers that keep the interpreter lock for long; N, not `concurrency`, handlers then run at
    once. A child finds a handler by its module and name; one that dies is a failed run.

    Raises Malformed for settings out of bounds, and for handlers that a child process would not find.
    """

    def __init__(
        self,
        jobs: Queue,
        handlers: Handlers,
        *,
        name: str = "",
        concurrency: int = 8,
        prefetch: int = 64,
        lease_ms: int = 9000,
        sweep_ms: int = 1000,
        grace_ms: int = 30_000,
        processes: int = 0,
    ) -> None:
        self._queue = jobs
        processes = validate.integer("processes", processes, 0, PROCESSES_MAX)
        concurrency = validate.integer("concurrency", concurrency, 1, validate.CONCURRENCY_MAX)
        lease = validate.integer("lease_ms", lease_ms, 100, 86_400_000)
        self._settings = Settings(
            name=validate.worker_name(name or f"worker-{os.getpid()}"),
            concurrency=processes or concurrency,
            prefetch=validate.integer("prefetch", prefetch, 0, validate.CONCURRENCY_MAX),
            lease_ms=lease,
            # Settings bring it down to a quarter of the lease.
            sweep_ms=validate.integer("sweep_ms", sweep_ms, 10, lease),
            grace_ms=validate.integer("grace_ms", grace_ms, 0, 86_400_000),
            classes=tuple(handlers.by_name),
        )
        if not handlers.by_name:
            raise Malformed("handlers", "none", "at least one: a worker claims the jobs that it has handlers for")
        self._events: queue.SimpleQueue[Event | UnsafeServer] = queue.SimpleQueue()
        self._handlers = handlers
        self._processes = processes > 0
        if self._processes:
            check_references(handlers)

    def stop(self) -> None:
        """Ask for a graceful stop: nothing more starts, unstarted leases go back uncharged, running handlers finish. Safe from
        any thread and from a signal handler."""
        self._events.put(StopAsked())

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
            self._queue.observer.configured({**asdict(settings), "queue": self._queue.name, "pid": os.getpid()})
        steps = WorkerSteps(settings, self._queue.model.call, clock, _new_incarnation, time.monotonic_ns())
        inboxes = self._start_channels(clock, settings)
        self._running = Running(
            self._handlers,
            self._queue.observer,
            self._events.put,
            places=settings.concurrency,
            processes=self._processes,
        )
        log.info("worker %s: queue %s, %d handlers", settings.name, self._queue.name, settings.concurrency)
        try:
            with self._signals():
                self._loop(steps, inboxes)
        finally:
            for inbox in inboxes.values():
                inbox.put(None)
            self._running.close()
            # A blocking wait ends within a sweep; a call that the server never answers is not waited for.
            for thread in self._channels:
                thread.join(settings.sweep_ms / 1000 + 1)

    def _loop(self, steps: WorkerSteps, inboxes: dict[Channel, Inbox]) -> None:
        pid = os.getpid()
        event: Event = TimerFired()
        while True:
            if os.getpid() != pid:
                pid = os.getpid()
                self._execute(steps.on(Forked(), time.monotonic_ns()), inboxes)
            if self._execute(steps.on(event, time.monotonic_ns()), inboxes):
                return
            now_ns = time.monotonic_ns()
            try:
                received = self._events.get(timeout=(steps.wake_at_ns(now_ns) - now_ns) / (1000 * MS))
            except queue.Empty:
                received = TimerFired()
            if isinstance(received, UnsafeServer):
                raise received
            if isinstance(received, StopAsked):
                log.info("stopping: at most %d ms for the jobs in hand, %d", self._settings.grace_ms, steps.in_hand)
            event = received

    def _execute(self, actions: list[Action], inboxes: dict[Channel, Inbox]) -> bool:
        """Carry out what the machine decided; True when the worker is done."""
        for action in actions:
            match action:
                case Send():
                    inboxes[action.channel].put(action)
                case Start():
                    self._running.start(action.job)
                case LoseLease():
                    log.warning("job %s: lease with fence %d lost%s", action.lease.job, action.lease.fence, _why(action))
                    self._running.lose(action.lease)
                case Exit():
                    return True
        return False

    # -- channels

    def _start_channels(self, clock: ServerClock, settings: Settings) -> dict[Channel, Inbox]:
        waiting = SyncDriver(
            self._queue.url,
            self._queue.model.scripts.values(),
            observer=self._queue.observer,
            clock=clock,
            block_ms_max=settings.sweep_ms,
        )
        inboxes: dict[Channel, Inbox] = {}
        self._channels: list[threading.Thread] = []
        channels: tuple[Channel, ...] = ("work", "renew", "sweep", "wake")
        for channel in channels:
            inboxes[channel] = queue.SimpleQueue()
            driver = waiting if channel == "wake" else self._queue.driver
            arguments = (driver, inboxes[channel])
            thread = threading.Thread(target=self._serve, args=arguments, name=f"channel-{channel}", daemon=True)
            thread.start()
            self._channels.append(thread)
        return inboxes

    def _serve(self, driver: SyncDriver, inbox: Inbox) -> None:
        """Run the calls of one channel, one at a time."""
        while (send := inbox.get()) is not None:
            started_ns = time.monotonic_ns()
            try:
                sent = driver.send(send.call, again=send.again)
            except UnsafeServer as error:
                self._events.put(error)
                return
            except EngineError as error:
                log.warning("%s", error)
                self._events.put(Unanswered(send.channel, send.call, started_ns, isinstance(error, ScriptFault)))
            except Exception:
                # A defect of ours must not leave the channel without its thread, for the worker would look alive and do nothing.
                log.exception("%s: unexpected", type(send.call.operation).__name__)
                self._events.put(Unanswered(send.channel, send.call, started_ns, fault=True))
            else:
                self._events.put(Answered(send.channel, send.call, sent.reply, sent.first_send_ns, sent.done_ns))

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


def _why(lost: LoseLease) -> str:
    """What to do about a lease that nobody renewed because nothing in this process could run (rule 14)."""
    if not lost.starved_ms:
        return ""
    return (
        f": this process stood still for {lost.starved_ms} ms, so it was not renewed; "
        "handlers that hold the interpreter lock for long (C code) belong into processes of their own: --processes"
    )


def _new_incarnation() -> str:
    """64 random bits, so that no restarted or forked worker is taken for another (rule 4)."""
    return secrets.token_hex(8)
