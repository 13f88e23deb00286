"""Executes the state machine with threads: the thread that brings an event processes it under a lock, and
executes what follows.

Callers run the machine's calls, and one of them the inline handlers; the machines of several queues share
them. Who brings a reply sends the next call or runs the next handler itself. Each hand-over to another thread
costs a switch and a wait for the interpreter lock. So a thread of the handlers reads the reply of a claim,
and is awake when a job comes with it; and it reads that of a finish when nothing else is to run in its place.
While a handler is on, callers take the replies and send the renewals, so that a busy one holds up neither
(rule 14).
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial

from engine.errors import EngineError, ScriptFault, UnsafeServer, WrongKeyType, counted, logger
from engine.handlers import Fault
from engine.logs import NOBODY, Source, about
from engine.ops.base import Operation, immutable
from engine.ops.claims import Bury, Finish, LeasedJob, ReapLost, Release, Retry, Swept
from engine.ops.jobs import Lease
from engine.ops.schedules import Tick
from engine.redis.driver import Flight, SyncDriver
from engine.redis.exchange import Sent
from engine.worker.connections import SharedWait
from engine.worker.handler_pool import Batch, HandlerPool, Place, Run
from engine.worker.machine.events import (
    MS,
    Answered,
    BatchEnded,
    Event,
    Exit,
    Forked,
    GiveUpHandler,
    HandlerEnded,
    LoseLease,
    NotStarted,
    PauseAsked,
    Send,
    Start,
    StopAsked,
    StopHandler,
    StopReason,
    TimerFired,
    Unanswered,
)
from engine.worker.machine.machine import WorkerMachine
from engine.worker.process import SIGNAL_LOOK_S, Threads, rss_mb
from engine.worker.runs import LateEnds, job_run

log = logger("ironclaim.worker")

#: A reply waits at most this long for the handlers of the caller that sent the call.
PARKED_MS = 5
#: The reason why calls of a kind fail is logged again after so long.
SAY_AGAIN_MS = 10_000


@immutable
class Departed:
    """A call that was sent and whose reply has not been read."""

    send: Send
    flight: Flight


@dataclass(frozen=True, slots=True)
class WaitEnded:
    """A wait of this machine that ended elsewhere: with this answer, or error, or with a reply to read."""

    send: Send
    started_ns: int
    outcome: Sent | EngineError | Flight


@dataclass(frozen=True, slots=True)
class Over:
    """The machine is done (None: why), or has to end because of this failure."""

    reason: StopReason | BaseException


@dataclass(slots=True)
class Decided:
    """What is to be done now: calls to send, what to run inline, and what the asking place of the pool runs
    itself."""

    sends: list[Send] = field(default_factory=list[Send])
    inline: Run | None = None
    pooled: Run | None = None


class Events:
    """What the thread that serves a machine is to bring it; None: look at the time again. Safe from threads
    and from signal handlers. `bell` gets this at each event, where that thread serves several machines."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | Over | None] = queue.SimpleQueue()
        self.bell: queue.SimpleQueue[Events | None] | None = None

    def put(self, event: Event | Over | None) -> None:
        """Bring an event. Does not wait."""
        self._events.put(event)
        if self.bell is not None:
            self.bell.put(self)

    def clear(self) -> None:
        """A run has ended: what came for it is not for the next one."""
        self.bell = None
        while self.count:
            self._events.get()

    @property
    def count(self) -> int:
        """How many wait."""
        return self._events.qsize()

    def get(self, timeout_s: float) -> Event | Over | None:
        """The next event, waiting for it so long. Raises queue.Empty."""
        return self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait()


Task = Send | Departed | WaitEnded | Run


class Executor:
    """The machine behind its lock. `driver` runs its calls and `waiting` those that block on the server, in
    the threads of `callers`; `source` is for the log. With `max_memory_mb` it asks for a stop when the
    process holds more."""

    def __init__(
        self,
        steps: WorkerMachine,
        driver: SyncDriver,
        waiting: SyncDriver | SharedWait,
        events: Events,
        callers: Threads,
        *,
        source: Source = NOBODY,
        max_memory_mb: int = 0,
    ) -> None:
        self._steps = steps
        self._source = source
        self._max_memory_mb = max_memory_mb
        self._memory_at_ns = 0
        self._driver = driver
        self._waiting = waiting
        self._lock = threading.Lock()
        self._over = False
        self._running: HandlerPool
        self._callers = callers
        # Tasks that callers have in hand, or are to have.
        self._tasks = 0
        self._no_tasks = threading.Condition(self._lock)
        # Calls that left while their caller runs inline handlers: it takes the replies itself afterwards,
        # unless that lasts.
        self._parked: deque[Departed] = deque()
        self._parked_until_ns = 0
        self._events = events
        # When calls of a kind were last said to have failed for a reason.
        self._said: dict[tuple[str, str], int] = {}
        self._late_ends = LateEnds(source)
        self._wake_at_ns = 0
        self._sleeps_until_ns = 0

    def run(self, running: HandlerPool) -> StopReason:
        """Work until the machine has ended. Returns the reason. Raises what ended the worker before that."""
        self.start(running)
        event = self._next_event()
        while not isinstance(event, Over):
            self.process(event)
            event = self._next_event()
        if isinstance(event.reason, BaseException):
            raise event.reason
        return event.reason

    def start(self, running: HandlerPool) -> None:
        """Begin to work. What came before, such as a pause, holds from the first claim on."""
        self._running = running
        self._pid = os.getpid()
        before = [self._events.get(0) for _ in range(self._events.count)]
        stops = [event for event in before if isinstance(event, StopAsked)]
        pauses = [event for event in before if isinstance(event, PauseAsked)][-1:]
        # Stops and the last pause first, because the machine claims at any other event.
        for event in (*stops, *(pause for pause in pauses if pause.paused)):
            self.process(event)
        for event in before:
            if not isinstance(event, Over | StopAsked | PauseAsked):
                self.process(event)
        self.process(TimerFired())

    def process(self, event: Event | None) -> None:
        """Tell the machine an event, and see to what nobody tells."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._feed(Forked())
        self._release_parked()
        # Counted before, told once the machine has taken it: of the jobs in hand it gives some back.
        owned = self._steps.owned if isinstance(event, StopAsked) else 0
        if event is not None:
            self._feed(event)
        if isinstance(event, StopAsked):
            log.info("stopping: %s in hand", counted(owned, "job"), extra=about(None, self._source))

    def close(self, timeout_s: float) -> None:
        """Wait until no caller has a task of this machine. A call that the server never answers and a handler
        that does not return are not waited for."""
        with self._lock:
            self._over = True
            self._no_tasks.wait_for(lambda: not self._tasks, timeout_s)
            left = self._tasks
        if left:
            text = "%s not waited for: a call without an answer, or a handler that goes on"
            log.info(text, counted(left, "task"), extra=about(None, self._source))

    def ended(
        self, leased: LeasedJob, fault: Fault | None, place: Place, result: bytes | None = None
    ) -> Run | Departed | None:
        """A run is over. What is next in its place, if there is something."""
        following = self._next_start(leased, result) if fault is None else None
        if following is not None:
            return following
        # Error, trace and request; or the result.
        event = (
            HandlerEnded(leased.lease, None, result=result)
            if fault is None
            else HandlerEnded(leased.lease, *fault)
        )
        return self._follow(event, place)

    def batch_ended(self, ends: tuple[HandlerEnded, ...], place: Place) -> Run | Departed | None:
        """As `ended`, for a batch: the end of each of its jobs."""
        return self._follow(BatchEnded(ends), place)

    def not_started(self, leases: tuple[Lease, ...]) -> None:
        """Runs that were to start will not."""
        self._feed(NotStarted(leases))

    def _follow(self, event: HandlerEnded | BatchEnded, place: Place) -> Run | Departed | None:
        decided = self._decide(event, pool=place != "inline")
        following: Run | Departed | None = decided.inline if place == "inline" else decided.pooled
        reads = place == "inline" or (place == "thread" and self._running.reads)
        for send in decided.sends:
            task = self._depart(send)
            # What a thread of the pool waits for brings the next job of its place: none comes meanwhile.
            if following is None and reads and send.kind == "work" and isinstance(task, Departed):
                following = task
                with self._lock:
                    self._tasks += place == "thread"
            else:
                self._pass_on(task, park=place == "inline")
        if place != "inline" and decided.inline is not None:
            self._hand_over(decided.inline)
        return following

    # -- deciding

    def _next_start(self, ended: LeasedJob, result: bytes | None) -> LeasedJob | None:
        """The cheap way from one job to the next, where nothing else is to be decided."""
        with self._lock:
            try:
                return (
                    None if self._over else self._steps.next_start(ended.lease, time.monotonic_ns(), result)
                )
            except BaseException as failure:
                self._end(failure)
                return None

    def _feed(self, event: Event) -> None:
        """Process an event, and have the callers execute the actions."""
        decided = self._decide(event)
        for send in decided.sends:
            self._pass_on(self._depart(send))
        if decided.inline is not None:
            self._hand_over(decided.inline)

    def _decide(self, event: Event, *, pool: bool = False) -> Decided:
        """Tell the machine. What it wants at once is done here. What has to be done outside of the lock is
        returned; with `pool` also the first job for the pool, which else gets it."""
        decided = Decided()
        with self._lock:
            if self._over:
                return decided
            try:
                now_ns = time.monotonic_ns()
                for action in self._steps.on(event, now_ns):
                    match action:
                        case Send():
                            decided.sends.append(action)
                        case Start():
                            run = Batch(action.batch) if action.batch else action.job
                            if action.inline:
                                decided.inline = run
                            elif pool and decided.pooled is None:
                                decided.pooled = run
                            else:
                                self._running.start(run)
                        case LoseLease():
                            lease, extra = action.lease, about(action.lease, self._source)
                            if action.started:
                                # Before it is logged: who reads that may take it that the handler knows.
                                self._late_ends.lost(lease)
                                self._running.runs.lose(lease, cancelled=action.cancelled)
                            how = (
                                "ended, for the job was cancelled"
                                if action.cancelled
                                else f"lost{_why(action)}"
                            )
                            log.warning(
                                "job %s: lease with fence %d %s", lease.job, lease.fence, how, extra=extra
                            )
                        case StopHandler():
                            self._running.stop(action.job, action.cause)
                        case GiveUpHandler():
                            self._running.runs.give_up(action.job.lease)
                            self._tell_stuck(action)
                        case Exit():
                            self._tell_left()
                            self._end(action.reason)
                self._wake_at_ns = self._steps.wake_at_ns(now_ns)
                if self._parked:
                    self._wake_at_ns = min(self._wake_at_ns, self._parked_until_ns)
            except BaseException as failure:
                # A defect of ours must not leave a worker that looks alive and does nothing.
                self._end(failure)
            self._rearm()
        return decided

    def _rearm(self) -> None:
        """Wake the thread in `run` when it would sleep too long."""
        if self._wake_at_ns < self._sleeps_until_ns:
            self._sleeps_until_ns = 0
            self._events.put(None)

    def _tell_stuck(self, given_up: GiveUpHandler) -> None:
        job = given_up.job
        log.error(
            "%s timed out after %d ms and cannot be stopped; its place is taken until it returns, "
            "like %d of %d",
            *(job_run(job), job.options.timeout_ms, given_up.stuck, self._steps.places),
            extra=about(job, self._source),
        )

    def _tell_left(self) -> None:
        left = self._steps.owned
        if left:
            log.warning(
                "stopped with %s in hand: leases will run out",
                counted(left, "job"),
                extra=about(None, self._source),
            )

    def _end(self, reason: StopReason | BaseException) -> None:
        if not self._over:
            self._over = True
            self._events.put(Over(reason))

    def too_large(self) -> StopAsked | None:
        """Looks once a second at the memory that the process holds, where that has a bound."""
        now_ns = time.monotonic_ns()
        if not self._max_memory_mb or now_ns < self._memory_at_ns:
            return None
        self._memory_at_ns = now_ns + 1000 * MS
        held_mb = rss_mb()
        if held_mb <= self._max_memory_mb:
            return None
        text = "worker %s holds %.0f MB, more than its %d: it stops"
        log.warning(text, self._source.worker, held_mb, self._max_memory_mb, extra=about(None, self._source))
        self._max_memory_mb = 0
        return StopAsked("recycled")

    def _next_event(self) -> Event | Over | None:
        """Wait for the next event."""
        self._running.look()
        sleeps_ns = self.sleeps_until_ns() - time.monotonic_ns()
        return self.too_large() or self.take(max(0, min(sleeps_ns, int(SIGNAL_LOOK_S * 1000) * MS)))

    def sleeps_until_ns(self) -> int:
        """Until when the thread that serves the machine may sleep; an event comes when that is too long."""
        with self._lock:
            self._sleeps_until_ns = self._wake_at_ns
        return self._sleeps_until_ns

    def take(self, most_ns: int) -> Event | Over | None:
        """The next event, waiting for it at most so long; then TimerFired when the machine wants it."""
        try:
            return self._events.get(most_ns / (1000 * MS))
        except queue.Empty:
            # Events of other threads may have moved the time of its next wake-up.
            return TimerFired() if time.monotonic_ns() >= self._wake_at_ns else None

    # -- calling

    def _depart(self, send: Send) -> Send | Departed:
        """A claim or a finish leaves here and now: the server works on it meanwhile."""
        if send.kind not in ("work", "finish"):
            return send
        try:
            return Departed(send, self._driver.depart(send.call, again=send.again))
        except Exception:
            # A defect of ours. The thread that runs handlers goes on; the caller that takes the call up fails
            # again, and logs it.
            return send

    def _pass_on(self, task: Send | Departed, *, park: bool = False) -> None:
        """Have another thread carry out a call. `park`: this caller goes on to run handlers, and takes the
        reply after them if they are short; to wake another one would cost more."""
        if park and isinstance(task, Departed):
            with self._lock:
                self._parked.append(task)
                self._parked_until_ns = time.monotonic_ns() + PARKED_MS * MS
                self._wake_at_ns = min(self._wake_at_ns, self._parked_until_ns)
                self._rearm()
        elif not self._offer(task):
            self._hand_over(task)

    def _offer(self, task: Send | Departed) -> bool:
        """Whether a thread of the handlers, which has nothing to run, reads the reply of this call."""
        if not self._running.reads or not isinstance(task, Departed) or task.send.kind != "work":
            return False
        with self._lock:
            self._tasks += 1
        offered = self._running.offer(partial(self.serve, task))
        if not offered:
            self._done()
        return offered

    def _take_parked(self) -> Departed | None:
        with self._lock:
            return self._parked.popleft() if self._parked else None

    def _release_parked(self) -> None:
        """Hand over unread replies to other callers: the handler in this thread takes long."""
        while self._parked and time.monotonic_ns() >= self._parked_until_ns:
            departed = self._take_parked()
            if departed is not None:
                self._hand_over(departed)

    def _hand_over(self, task: Task) -> None:
        """Have a caller carry out a task. Does not wait."""
        with self._lock:
            self._tasks += 1
        self._callers.run(partial(self.serve, task, "inline"))

    def serve(self, first: Task, place: Place = "thread") -> None:
        """What a caller does with a task, or a thread of the handlers with a run or a reply, and what follows
        in its place."""
        task: Task | None = first
        try:
            while task is not None:
                if place == "thread" and isinstance(task, LeasedJob | Batch):
                    task = self._running.run_here(task, place)
                    continue
                try:
                    task = self._take_up(task, place)
                finally:
                    self._done()
        except BaseException as failure:
            # A defect of ours, or an observer that raises: without its callers the worker would look alive
            # and do nothing.
            self._end(failure)

    def _done(self) -> None:
        """A task is no longer in hand."""
        with self._lock:
            self._tasks -= 1
            if self._over and not self._tasks:
                self._no_tasks.notify_all()

    def _log_error(self, kind: str, error: EngineError) -> None:
        """Log why a call failed: the same reason once in a while, however often it is tried again."""
        # How many tries it took, and whether one of them may have arrived, differs each time.
        now_ns, reason = time.monotonic_ns(), str(error).rpartition(", last error ")[2][:60]
        recent = {said: at_ns for said, at_ns in self._said.items() if now_ns - at_ns <= SAY_AGAIN_MS * MS}
        if (kind, reason) not in recent:
            recent[kind, reason] = now_ns
            log.warning("%s", error)
        self._said = recent

    def _take_up(self, first: Task, place: Place) -> Run | None:
        """Execute what was decided, and what follows from it. Returns what a thread of the handlers is to run
        after that."""
        inline = place == "inline"
        task: Task | None = first
        while task is not None:
            if isinstance(task, LeasedJob | Batch):
                if not inline:
                    return task
                task = self._running.run_here(task, place) or self._take_parked()
                continue
            event = self._call(task)
            decided = self._decide(event, pool=not inline) if event is not None else Decided()
            run = decided.inline if inline else decided.pooled
            if not inline and decided.inline is not None:
                self._hand_over(decided.inline)
            # What this thread cannot wait for at once leaves before it waits for anything.
            busy, task = inline and bool(self._parked), run
            for send in decided.sends:
                sent = self._depart(send)
                if busy or task is not None or not (inline or send.kind == "work"):
                    self._pass_on(sent, park=inline and (busy or run is not None))
                elif not (inline and self._offer(sent)):
                    task = sent
            task = task or (self._take_parked() if inline else None)
        return None

    def _call(self, task: Send | Departed | WaitEnded) -> Event | None:
        """Run a call until it is answered or has failed. None: its answer comes as another task."""
        started_ns = time.monotonic_ns()
        send = task if isinstance(task, Send) else task.send
        try:
            if isinstance(task, Departed):
                sent = self._driver.arrive(task.flight)
            elif isinstance(task, WaitEnded):
                started_ns = task.started_ns
                sent = self._outcome(task.outcome)
            elif send.kind != "wake":
                sent = self._driver.send(send.call, again=send.again)
            elif isinstance(self._waiting, SyncDriver):
                sent = self._waiting.send(send.call, again=send.again)
            else:

                def ends(outcome: Sent | EngineError | Flight) -> None:
                    self._hand_over(WaitEnded(send, started_ns, outcome))

                began = self._waiting.begin(send.call, ends, again=send.again)
                if began is None:
                    return None
                sent = began
        except UnsafeServer as error:
            self._end(error)
            return None
        except EngineError as error:
            if not self._over:
                self._log_error(send.kind, error)
            return Unanswered(send.kind, send.call, started_ns, _is_final(error, send.call.operation))
        except Exception:
            # A defect of ours must not leave the call without its answer, for the worker would look alive and
            # do nothing.
            log.exception("%s: unexpected", type(send.call.operation).__name__)
            return Unanswered(send.kind, send.call, started_ns, fault=True)
        if isinstance(sent.reply, Swept):
            _tell_swept(send.call.operation, sent.reply, self._source)
        operation = send.call.operation
        self._late_ends.answered(operation, sent.reply)
        if isinstance(operation, Tick) and operation.error:
            text = "schedule %s cannot tick until it is put again: %s"
            log.warning(text, operation.schedule, operation.error, extra=about(None, self._source))
        return Answered(send.kind, send.call, sent.reply, sent.first_send_ns, sent.done_ns)

    def _outcome(self, outcome: Sent | EngineError | Flight) -> Sent:
        """What a wait has brought. Raises its error."""
        if isinstance(outcome, EngineError):
            raise outcome
        return self._waiting.arrive(outcome) if isinstance(outcome, Flight) else outcome


def _is_final(error: EngineError, operation: Operation) -> bool:
    """Whether it is no use to send the same call again. What ends leases is sent until it is answered, also
    past a key of another type: somebody will put that right."""
    repairable = isinstance(error, WrongKeyType) and isinstance(operation, Finish | Retry | Bury | Release)
    fused = isinstance(operation, Finish) and operation.claim is not None
    return isinstance(error, ScriptFault) and (fused or not repairable)


def _tell_swept(operation: Operation, swept: Swept, source: Source) -> None:
    """Log leases that were reaped, and jobs that were buried, because the workers that they killed cannot."""
    if swept.leases:
        first = swept.leases[0][0]
        text = "taken from gone or stalled workers: %s that ran out; the first: job %s"
        if isinstance(operation, ReapLost):
            text = "taken from workers that have lost their connections: %s; the first: job %s"
        log.warning(text, counted(len(swept.leases), "lease"), first.job, extra=about(first, source))
    for job in swept.buried:
        log.warning(
            "job %s is dead: it has crashed too often", job, extra={**about(None, source), "job_id": job}
        )


def _why(lost: LoseLease) -> str:
    """Advice for a lease that was not renewed because the process was blocked (rule 14)."""
    if not lost.starved_ms:
        return ""
    return (
        f": this process stood still for {lost.starved_ms} ms, so it was not renewed, and the job may "
        "run again elsewhere; "
        "handlers that hold the interpreter lock for long (C code) belong into processes of their "
        "own: --processes"
    )
