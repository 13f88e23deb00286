"""The runs in progress: notifies handlers that a lease has ended, stops handlers, and logs and records
runs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import logging
import sys
import threading
import time
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, ParamSpec, Protocol, TypeVar

from engine.errors import LeaseLost, logger
from engine.handlers import Fault, Handlers, fault_of, mark_loop
from engine.job import Job, Say
from engine.logs import Source, about
from engine.observer import Observer
from engine.ops.base import Operation
from engine.ops.claims import FINISHED, Bury, Drop, Ended, Finish, FinishedAndClaimed, LeasedJob, Retry
from engine.ops.jobs import Lease
from engine.outcomes import SoftTimeout, backoff_delay_ms, ending, request_of
from engine.serializers import Serializers
from engine.worker.child_processes import ChildFailed, WorkerStopped
from engine.worker.machine.events import StopCause
from engine.worker.machine.leases import timed_out, timeout_of

# -- Where runs begin: each in a copy of the context of the worker, so that no run sees the context
# variables of another one.
#
# It is the context of the moment when this is made: what a service has set before `Worker.run` is seen by all
# of its runs.

P = ParamSpec("P")
T = TypeVar("T")


class RunContexts:
    """The contexts of the runs of one worker, or of one child process. Safe from threads."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a context of its own."""
        return self.new().run(function, *args, **kwargs)

    def new(self) -> contextvars.Context:
        """A context for one run."""
        context = self._context.copy()
        if "decimal" in sys.modules:
            context.run(_own_decimals)
        return context


def _own_decimals() -> None:
    """A copied context shares the decimal context, which runs change in place (`getcontext().prec = 6`)."""
    decimal = sys.modules["decimal"]
    decimal.setcontext(decimal.getcontext().copy())


# -- An asyncio event loop in a thread of its own, for handlers that are coroutines.

log = logger("ironclaim.worker")

#: Coroutines that are cut off at the end get this long to clean up.
CLEAN_UP_S = 1.0

#: A loop that does nothing for so long is told, and it is looked at so often while it has tasks.
STILL_S = 2.0
_LOOK_S = 1.0

Start = Callable[[], Coroutine[Any, Any, None]]
#: A call of an async handler.
AsyncCall = Callable[[Any], Any]


class LoopThread:
    """The event loop of the async handlers and hooks of all workers that work together, so that what one
    hook has opened serves all of them. It starts with the first coroutine. One that blocks holds up the
    others of this loop, and nothing else of the workers."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        #: What workers and hooks run on it.
        self.tasks: set[asyncio.Task[None]] = set()
        # When it was last looked at and asked for a sign; 0: it has given one. Where it was found standing.
        self._looked_s = self._asked_s = 0.0
        self._stood_at: set[tuple[str, int]] = set()

    @property
    def started(self) -> bool:
        """Whether there has been a coroutine."""
        return self._loop is not None

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the loop. Safe from any thread; does not wait. Raises RuntimeError once the loop
        is closed."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run_loop, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
        self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        with self._lock:
            loop, thread, self._closing = self._loop, self._thread, True
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2 * CLEAN_UP_S)

    def look(self) -> None:
        """Warn, once for each place in the code, when a coroutine has held up the loop for long. Whoever
        serves the workers calls this often, from one thread."""
        now_s, loop = time.monotonic(), self._loop
        since_s = now_s - self._looked_s
        if loop is None or since_s < _LOOK_S:
            return
        self._looked_s = now_s
        if not self._asked_s or since_s > STILL_S:
            # Or this thread stood still itself: nobody knows what the loop did meanwhile.
            self._asked_s = now_s if self.tasks else 0.0
            if self.tasks:
                with contextlib.suppress(RuntimeError):
                    # RuntimeError: the loop is closed.
                    loop.call_soon_threadsafe(self._answer)
        elif now_s - self._asked_s >= STILL_S:
            self._tell_still(loop, now_s - self._asked_s)

    def _answer(self) -> None:
        self._asked_s = 0.0

    def _tell_still(self, loop: asyncio.AbstractEventLoop, still_s: float) -> None:
        thread = self._thread.ident if self._thread is not None else None
        frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
        task = asyncio.current_task(loop)
        if frame is None or task is None:
            return
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place in self._stood_at:
            return
        self._stood_at.add(place)
        who = task.get_name() if task in self.tasks else "a task that a handler has started"
        text = (
            "the loop of the async handlers has stood still for %.0f s, and so have all its jobs (%d): %s "
            "blocks it at %s:%d, in %s; await there, or use asyncio.to_thread"
        )
        log.warning(text, still_s, len(self.tasks), who, *place, frame.f_code.co_name)

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        mark_loop()
        while not self._closing:
            try:
                loop.run_forever()
            except BaseException:
                # SystemExit in a task that a handler started goes through the loop; the other handlers must
                # not end with it.
                log.exception("the loop of the coroutine handlers goes on after")
        # Those that handlers and hooks have started, and those of the queues that they have awaited.
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=CLEAN_UP_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Coroutines:
    """What one worker, or the hooks of a life, run on a loop. Each coroutine begins in a context of its own,
    not in that of the handler that started it."""

    def __init__(self, loop: LoopThread, contexts: RunContexts) -> None:
        self._loop = loop
        self._contexts = contexts
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def run(self, start: Start, name: str = "a hook") -> None:
        """Run a coroutine on the loop, beside the others. Safe from any thread; does not wait. `name`: for
        the log."""
        self._loop.call(self._create, start, name)

    def wait_for(self, start: Start) -> None:
        """Run a coroutine on the loop, and return when it has. Raises what it raises."""
        ended: concurrent.futures.Future[None] = concurrent.futures.Future()

        async def run() -> None:
            try:
                await start()
            except BaseException as failure:
                ended.set_exception(failure)
            else:
                ended.set_result(None)

        self.run(run)
        ended.result()

    def look(self) -> None:
        """Warn when the loop stands still: see LoopThread."""
        self._loop.look()

    def canceller(self) -> Callable[[], None]:
        """A function that cancels the coroutine which calls this. Safe from any thread; once the coroutine
        has ended it does nothing."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):
                # RuntimeError: the loop is closed.
                loop.call_soon_threadsafe(task.cancel)

        return cancel

    def close(self) -> None:
        """Cancel those that still run, and give them a second to clean up. None begins any more."""
        self._closing = True
        if self._loop.started:
            cleaned_up = threading.Event()
            self._loop.call(self._cancel, cleaned_up)
            # A coroutine that blocks the loop is not waited for.
            cleaned_up.wait(2 * CLEAN_UP_S)

    def _create(self, start: Start, name: str) -> None:
        if self._closing:
            return
        begun = False

        async def begin() -> None:
            nonlocal begun
            begun = True
            await start()

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._loop.tasks.discard(task)
            if not begun:
                # A handler has cancelled all tasks of the loop: without its beginning the run would have no
                # end.
                self._create(start, name)

        task = asyncio.get_running_loop().create_task(begin(), name=name, context=self._contexts.new())
        # The loop itself holds its tasks weakly.
        self._tasks.add(task)
        self._loop.tasks.add(task)
        task.add_done_callback(done)

    def _cancel(self, cleaned_up: threading.Event) -> None:
        for task in self._tasks:
            task.cancel()
        loop = asyncio.get_running_loop()
        last = loop.call_later(CLEAN_UP_S, cleaned_up.set)
        left = set(self._tasks)

        def done(task: asyncio.Task[None]) -> None:
            left.discard(task)
            if not left:
                last.cancel()
                cleaned_up.set()

        for task in self._tasks:
            task.add_done_callback(done)
        if not left:
            last.cancel()
            cleaned_up.set()


class SoftCancel:
    """Raises SoftTimeout in the coroutine of these jobs, once, when the soft timeout of one of them is over.
    It cancels the task of who makes this, and `awaits` turns the cancel into that exception."""

    def __init__(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._due: SoftTimeout | None = None
        self._asked = self._awaiting = False

    def over(self, job: Job) -> None:
        """The soft timeout of a job is over. Safe from any thread; does not wait."""
        with contextlib.suppress(RuntimeError):
            # RuntimeError: the loop is closed.
            self._loop.call_soon_threadsafe(self._interrupt, job)

    def _interrupt(self, job: Job) -> None:
        due = job.end_soon()
        if not self._asked:
            self._asked, self._due = True, due
            if self._awaiting and self._task is not None:
                self._task.cancel()

    @types.coroutine
    def awaits(self, running: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Await a coroutine; returns what it returns. Where the time is over by now, it does not begin."""
        if self._due is not None:
            running.close()
            raise self._due
        self._awaiting = True
        thrown: BaseException | None = None
        try:
            while True:
                waits_for = running.send(None) if thrown is None else running.throw(thrown)
                thrown = None
                try:
                    yield waits_for
                except BaseException as failure:
                    thrown = failure
                    due, self._due = self._due, None
                    # Unless somebody else has cancelled it as well.
                    if due is not None and self._task is not None and not self._task.uncancel():
                        thrown = due
        except StopIteration as end:
            return end.value
        finally:
            self._awaiting = False


#: The error of a run that ended because its job was cancelled, and because its worker stopped.
CANCELLED = "cancelled"
STOPPED = "its worker stopped"


class Tell(Protocol):
    """Notifies a handler that its lease has ended."""

    def __call__(self, *, cancelled: bool) -> None:
        """The lease has ended; `cancelled`: because the job was cancelled (rule 26)."""
        ...


class Runs:
    """All runs of one worker, each known by its lease. Safe from threads."""

    def __init__(
        self,
        handlers: Handlers,
        observer: Observer | None,
        *,
        say: Say,
        serializers: Serializers,
        source: Source,
    ) -> None:
        self._handlers = handlers
        self._observer = observer
        self._say = say
        self._serializers = serializers
        self.source = source
        # What notifies each running handler of the end of its lease, and the leases that have ended.
        self._tell: dict[Lease, Tell] = {}
        self._lost: dict[Lease, bool] = {}
        # What stops each handler, and whether its job is alone in that run; threads cannot be stopped and are
        # not in here. The leases of those that were stopped, and why.
        self._stop: dict[Lease, tuple[Callable[[], None], bool]] = {}
        self._stopped: dict[Lease, StopCause] = {}
        # What tells each handler that its soft timeout is over, and the leases whose soft timeout is.
        self._soften: dict[Lease, Callable[[], object]] = {}
        self._soft_over: set[Lease] = set()
        # Names of which was said that a soft timeout interrupts nothing.
        self._unheard: dict[str, object] = {}
        # Those whose run was told as failed before it has ended.
        self._given_up: set[Lease] = set()

    def lose(self, lease: Lease, *, cancelled: bool) -> None:
        """Notify the handler of this lease that the lease has ended, and whether because its job was
        cancelled. Then it is stopped, too; but for a batch, whose other jobs go on."""
        # The handler's thread registers and then looks in here: one of the two sees the other.
        self._lost[lease] = cancelled
        tell = self._tell.get(lease)
        if tell is not None:
            tell(cancelled=cancelled)
        if cancelled:
            self._stop_cancelled(lease)

    def give_up(self, lease: Lease) -> None:
        """The run has failed for the server: what it brings later counts for nothing."""
        self._given_up.add(lease)

    def _stop_cancelled(self, lease: Lease) -> None:
        known = self._stop.get(lease)
        if known is not None and known[1]:
            self._halt(lease)

    def _halt(self, lease: Lease) -> None:
        """Stop a handler, once: a coroutine that cleans up is not cancelled again."""
        known = self._stop.pop(lease, None)
        if known is not None:
            known[0]()

    def stop(self, leased: LeasedJob, cause: StopCause) -> None:
        """Stop the handler of this job: cancel the coroutine or kill the child process. At its soft timeout
        tell it to end. Does not wait."""
        if cause == "soft timeout":
            # As in `lose`.
            self._soft_over.add(leased.lease)
            soften = self._soften.get(leased.lease)
            if soften is not None:
                soften()
            return
        self._stopped.setdefault(leased.lease, cause)
        self._halt(leased.lease)

    def begins(self, leased: LeasedJob) -> tuple[int, object]:
        """Record the begin of a run. Returns its time, monotonic ns, and the observer's ticket."""
        if self._observer is None:
            return 0, None
        start_ns = time.monotonic_ns()
        return start_ns, self._observer.handler_started(leased, start_ns)

    def stoppable(self, leased: LeasedJob, stop: Callable[[], None], *, alone: bool = True) -> None:
        """Register what stops the handler that is about to run, for a timeout or a cancel of its job. Not
        `alone`: the run is that of other jobs as well."""
        lease = leased.lease
        self._stop[lease] = (stop, alone)
        # As in `register`: one of the two threads sees the other.
        if lease in self._stopped:
            self._halt(lease)
        elif self._lost.get(lease):
            self._stop_cancelled(lease)

    def job(self, leased: LeasedJob) -> Job:
        """The Job that a handler gets; it is notified when its lease has ended."""
        job = Job(leased, self._say, self._serializers, self.source.queue)
        plain = not self._handlers.is_coroutine(leased.name)
        self.register(
            leased, job.lose, functools.partial(self._soften_plain, leased, job) if plain else job.end_soon
        )
        return job

    def _soften_plain(self, leased: LeasedJob, job: Job) -> None:
        """The soft timeout of a run in a thread is over: its job says so. Nothing interrupts it, which is
        said once of each name."""
        job.end_soon()
        lease, name, mine = leased.lease, leased.name, object()
        ends = lease in self._stopped or lease in self._lost
        # Two threads may be here: the one that tells, and the one that registers meanwhile.
        if ends or self._unheard.setdefault(name, mine) is not mine:
            return
        text = (
            "job %s (%s) has run for its soft_timeout_ms of %d, and goes on in its thread, where only "
            "job.cancelled says so; SoftTimeout is raised with --processes, or in an async def"
        )
        told = (lease.job, name, leased.options.soft_timeout_ms)
        log.warning(text, *told, extra=about(leased, self.source))

    def register(self, leased: LeasedJob, tell: Tell, soften: Callable[[], object]) -> None:
        """Register what notifies the handler of the end of its lease, and of its soft timeout."""
        lease = leased.lease
        self._tell[lease] = tell
        self._soften_by(leased, soften)
        cancelled = self._lost.get(lease)
        if cancelled is not None:
            tell(cancelled=cancelled)

    def _soften_by(self, leased: LeasedJob, soften: Callable[[], object]) -> None:
        if leased.options.soft_timeout_ms:
            self._soften[leased.lease] = soften
            if leased.lease in self._soft_over:
                soften()

    def softened(self, handler: AsyncCall, jobs: list[tuple[LeasedJob, Job]]) -> AsyncCall:
        """The async handler of these jobs, in which their soft timeouts raise SoftTimeout; to be awaited by
        the task that calls this."""
        if not any(leased.options.soft_timeout_ms for leased, _ in jobs):
            return handler
        soft = SoftCancel()
        for leased, job in jobs:
            self._soften_by(leased, functools.partial(soft.over, job))
        return lambda given: soft.awaits(handler(given))

    def failed(self, leased: LeasedJob, failure: BaseException, known: Fault | None = None) -> Fault:
        """Log that a run has failed; what it leaves behind. `known`: it was told of another job before, with
        its trace."""
        try:
            return self._failed(leased, failure, known)
        except BaseException:
            # An exception whose class raises when it is asked what it is. The run has failed all the same.
            return known or fault_of(failure)

    def _failed(self, leased: LeasedJob, failure: BaseException, known: Fault | None) -> Fault:
        here = not isinstance(failure, ChildFailed)
        rules = self._handlers.error_rules(leased.name)
        fault = known or (fault_of(failure, rules) if here else failure.fault)
        if self._lost.get(leased.lease) and (
            isinstance(failure, asyncio.CancelledError | LeaseLost) or not fault.trace
        ):
            # What the cancel made of it: of a coroutine, of a handler that looks at its lease, of a child
            # that was killed.
            fault = Fault(CANCELLED, "")
        elif isinstance(failure, WorkerStopped) or (
            self._stopped.get(leased.lease) == "stop" and not fault.request.asked
        ):
            fault = Fault(STOPPED, "")
        elif self._stopped.get(leased.lease) == "timeout":
            more = fault.error if here and not isinstance(failure, asyncio.CancelledError) else ""
            fault = Fault(timed_out(leased, more), fault.trace, request_of(timeout_of(leased), rules))
        extra: dict[str, object] = about(leased, self.source)
        if fault.error == STOPPED:
            said = "job %s (%s) goes back uncharged: its worker stops"
            log.warning(said, leased.lease.job, leased.name, extra=extra)
            return fault
        fault = self._handlers.waits(leased, fault)
        if fault.error == CANCELLED:
            log.info("%s ended: it was cancelled", job_run(leased), extra=extra)
            return fault
        outcome, said = _outcome(leased, fault)
        error = fault.error
        # What the server refuses has no outcome.
        if leased.lease not in self._lost and leased.lease not in self._given_up:
            extra["outcome"] = outcome
            error = error if error.endswith(said) else f"{error}; {said}"
        if fault.request.asked or outcome == "skipped":
            # A job that dies is a warning, however it came to that.
            level = logging.WARNING if outcome == "dead" else logging.INFO
            log.log(level, "%s ended: %s", job_run(leased), error, extra=extra)
        elif here:
            raised = failure if known is None else None
            log.warning("%s failed: %s", job_run(leased), error, exc_info=raised, extra=extra)
        else:
            trace = f"\n{fault.trace}".rstrip() if known is None else ""
            log.warning(
                "%s failed: %s%s",
                job_run(leased),
                error,
                trace,
                extra=extra | {"traceback": fault.trace},
            )
        return fault

    def over(self, leased: LeasedJob, ticket: object, start_ns: int, fault: Fault | None) -> None:
        """Forget a handler that has ended: nothing notifies or stops it any more."""
        lease = leased.lease
        self._tell.pop(lease, None)
        if self._stop:
            self._stop.pop(lease, None)
        if self._soften:
            self._soften.pop(lease, None)
        if self._observer is not None:
            error = None if fault is None else fault.error
            self._observer.handler_ended(leased, ticket, start_ns, time.monotonic_ns(), error)

    def forget(self, lease: Lease) -> None:
        """Its end was told. Not before: until then another thread may still decide that it is lost, or has
        used up its time."""
        if self._lost or self._stopped or self._soft_over or self._given_up:
            self._given_up.discard(lease)
            self._soft_over.discard(lease)
            self._lost.pop(lease, None)
            self._stopped.pop(lease, None)


def job_run(leased: LeasedJob) -> str:
    """The run for the log: whether a failure is the job's last one is what people ask first."""
    return (
        f"job {leased.lease.job} ({leased.name}), attempt {leased.failures + 1} of {leased.options.attempts},"
    )


def _outcome(leased: LeasedJob, fault: Fault) -> tuple[str, str]:
    """What becomes of the job of a failed run, as a word and as the log says it. A jitter is drawn later."""
    end = ending(leased.options, fault.request)
    match end.kind:
        case "bury" if not fault.request.asked:
            return "dead", "dead, by the rules of its handler (bury_on, retry_on)"
        case "bury":
            return "dead", "dead"
        case "skipped":
            return "skipped", "skipped (skip_on)"
        case "rerouted":
            return "rerouted", f"rerouted to {end.target} (reroute_on)"
        case "discarded":
            return "discarded", "discarded"
        case "retry":
            pass
    if fault.request.charge and leased.failures + 1 >= leased.options.attempts:
        return "dead", "dead: no attempt is left"
    wait_ms, about_it = fault.request.delay_ms, ""
    if wait_ms is None:
        wait_ms = backoff_delay_ms(leased.options, leased.failures, lambda: 1.0)
        about_it = "at most " if leased.options.jitter_share else ""
    return "retried", f"again in {about_it}{wait_ms} ms"


# -- Says what came of runs whose lease was lost, when the server has answered their ends (rule 37: they
# are sent all the same).


class LateEnds:
    """The leases of one worker that were lost while their handlers ran. Safe from threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lost: set[Lease] = set()

    def lost(self, lease: Lease) -> None:
        """A running job has lost its lease, or may have: its end will tell."""
        self._lost.add(lease)

    def answered(self, operation: Operation, reply: object) -> None:
        """Log the ends that were refused, and those that were accepted although their lease had counted as
        lost."""
        ended = reply.finished if isinstance(reply, FinishedAndClaimed) else reply
        if not isinstance(ended, Ended) or (
            not self._lost and ended.items.count(FINISHED) == len(ended.items)
        ):
            return
        for lease, (result, outcome) in zip(_ended_by(operation), ended.items, strict=False):
            extra = about(lease, self._source)
            if result == "stale" and outcome == "cancelled":
                log.info(
                    "job %s: the end of the run with fence %d was refused, for the job was cancelled",
                    *lease[:2],
                    extra=extra,
                )
            elif result == "stale":
                text = (
                    "job %s: the end of the run with fence %d was refused: its lease was over, so "
                    "the job runs again, unless it is gone"
                )
                log.warning(text, *lease[:2], extra=extra)
            elif lease in self._lost:
                text = "job %s: the end of the run with fence %d counts: no other worker had claimed it (%s)"
                log.info(text, *lease[:2], outcome, extra=extra)
            self._lost.discard(lease)


def _ended_by(operation: Operation) -> tuple[Lease, ...]:
    """The leases of runs that the operation ends."""
    match operation:
        case Finish() | Drop():
            return operation.leases
        case Retry() | Bury():
            return tuple(failure.lease for failure in operation.failures)
        case _:
            return ()
