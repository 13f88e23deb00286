"""Handlers by job name, and the job that a handler sees."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, overload

from engine import validate
from engine.errors import LeaseLost, Malformed
from engine.hooks import RunHooks
from engine.machine.step_values import MoreTime, Progressed
from engine.operations import Lease, LeasedJob
from engine.outcomes import FAILED, Verdict, verdict_of
from engine.serializers import BUILT_IN, Serializers

#: A plain function, or one that returns a coroutine (`async def`). What it returns is the job's result, as JSON; None is none.
Handler = Callable[["Job"], object]
#: The same for up to n jobs of one lane: it returns None, a result for each job, or results by job id.
BatchHandler = Callable[[list["Job"]], object]
#: Jobs of a batch, at most.
BATCH_MAX = 1000
#: Takes what a handler tells its worker while it runs.
Say = Callable[[MoreTime | Progressed], None]

log = logging.getLogger("ironclaim.worker")

_ERROR_CHARACTERS_MAX = 1000
_UNREAD = object()
_making_event = threading.Lock()


class Job:
    """One run of a job. A handler runs *at least* once (rule 34): write `id` down together with an effect that must not come
    twice. `fence` grows with every claim of the job: a system that stores what a run writes can refuse a smaller one, which
    stops a zombie's late write. It does not stop the next run, and fences of different jobs do not compare."""

    __slots__ = ("_cancelled", "_leased", "_lost", "_lost_event", "_payload", "_say", "_serializers")

    def __init__(self, leased: LeasedJob, say: Say | None = None, serializers: Serializers = BUILT_IN) -> None:
        self._leased = leased
        self._serializers = serializers
        self._say = say
        # The three are made when somebody asks: most handlers want one of them at most.
        self._payload: Any = _UNREAD
        self._lost = self._cancelled = False
        self._lost_event: threading.Event | None = None

    @property
    def payload(self) -> Any:
        """What was enqueued: the same value each time. Raises ValueError where the bytes are no JSON, or were written by a
        serialiser that this worker does not know."""
        if self._payload is _UNREAD:
            self._payload = self._serializers.read(self._leased.options.serializer, self._leased.payload)
        return self._payload

    @property
    def lease_lost(self) -> threading.Event:
        """Set when the worker learns that the lease has ended: another worker may be running the job."""
        with _making_event:
            if self._lost_event is None:
                self._lost_event = threading.Event()
        # The flag is set before the event is looked for, so that one of the two sees the other.
        if self._lost:
            self._lost_event.set()
        return self._lost_event

    @property
    def cancelled_by_hand(self) -> bool:
        """Whether the lease has ended because somebody cancelled the job (rule 26): then no other worker runs it. The worker
        hears of it with its next renewal, a third of a lease later at most."""
        return self._cancelled

    def lose(self, *, cancelled: bool = False) -> None:
        """The lease has ended; called by the worker."""
        self._cancelled = cancelled
        self._lost = True
        if self._lost_event is not None:
            self._lost_event.set()

    def __repr__(self) -> str:
        return f"<Job {self.id} ({self.name}), fence {self.fence}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._leased.lease.job

    @property
    def name(self) -> str:
        """The job's name."""
        return self._leased.name

    @property
    def payload_bytes(self) -> bytes:
        """The payload as it was enqueued."""
        return self._leased.payload

    @property
    def fence(self) -> int:
        """The fence of this claim (rule 6)."""
        return self._leased.lease.fence

    @property
    def nonce(self) -> str:
        """The nonce of this claim: incarnation and counter of the worker."""
        return self._leased.lease.nonce

    @property
    def priority(self) -> int:
        """1 to 10."""
        return self._leased.options.priority

    @property
    def attempt(self) -> int:
        """Which run of the job this is, from 1 to `attempts`: runs that ended in a crash or were given back do not count."""
        return self._leased.failures + 1

    @property
    def attempts(self) -> int:
        """How many runs may fail."""
        return self._leased.options.attempts

    @property
    def token(self) -> tuple[int, str]:
        """Fence and nonce of this claim: what tells one run from all others."""
        return self._leased.lease.fence, self._leased.lease.nonce

    @property
    def timeout_ms(self) -> int:
        """How long this run may take, 0 = as long as it wants."""
        return self._leased.options.timeout_ms

    @property
    def enqueued_ms(self) -> int:
        """When the job was enqueued, by the server's clock."""
        return self._leased.enqueued_ms

    @property
    def timestamp_ms(self) -> int:
        """When its producer says that it was made; when it was enqueued, where that was not said."""
        return self._leased.options.timestamp_ms or self._leased.enqueued_ms

    @property
    def headers(self) -> dict[str, str]:
        """What the producer gave as headers."""
        return dict(self._leased.options.headers)

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the jobs that this one needed, as it named them."""
        return self._leased.options.needs

    @property
    def claims(self) -> int:
        """Claims so far, this one included."""
        return self._leased.claims

    @property
    def failures(self) -> int:
        """Failed runs so far."""
        return self._leased.failures

    @property
    def crashes(self) -> int:
        """Leases of this job that ran out so far."""
        return self._leased.crashes

    @property
    def cancelled(self) -> bool:
        """Whether the worker knows that this run is of no use any more: its lease has ended."""
        return self._lost

    def progress(self, percent: float, message: str | None = None, data: object = None) -> None:
        """Tell how far the run has come, for `queue.results.progress`: `percent` from 0 to 100, and a text and any JSON value, of
        16 KiB together. Does not wait: the worker sends it at once, or the newest of several when it is busy; what is on its way
        when the handler ends may never be noted. Raises LeaseLost when the worker knows that the lease has ended, Malformed."""
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:  # pyright: ignore
            raise Malformed("percent", percent, "a number from 0 to 100")
        if message is not None and not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("message", message, "text")
        body = {"percent": percent, "message": message, "data": data}
        told = validate.json_bytes("progress", body, validate.PROGRESS_BYTES_MAX)
        self.check_lease()
        if self._say is not None:
            self._say(Progressed(self._leased.lease, told[1:]))

    def encode_result(self, result: object) -> bytes | None:
        """What the handler returned, as it is kept; None: nothing is. Raises Malformed; called by the worker."""
        if result is None or not self._leased.options.result_ttl_ms:
            return None
        return validate.json_bytes("result", result, validate.RESULT_BYTES_MAX)

    def check_lease(self) -> None:
        """Raise LeaseLost when the worker knows that the lease has ended: for handlers that can stop early."""
        if self._lost:
            why = "was cancelled" if self._cancelled else f"the lease with fence {self.fence} has ended"
            raise LeaseLost(f"job {self.id}: {why}")

    def extend(self, for_ms: int) -> None:
        """Let this run take `for_ms` from now on, instead of what is left of its `timeout_ms`; nothing changes for a job without
        one. Leases need no call: the worker renews them as long as the handler runs. Raises Malformed."""
        checked = validate.integer("for_ms", for_ms, 1, validate.BACKOFF_MS_MAX)
        if self._say is not None and self.timeout_ms:
            self._say(MoreTime(self._leased.lease, checked))


class Handlers:
    """A registry: `@handlers("name")` on a function of one argument, the Job; plain or `async def`.

    `backoff` is asked after each failed run of any of them: called with the failed runs so far, this one included, and the error
    as text, it returns the wait in ms, or None for what the job itself says. Raises Malformed for what cannot be called.
    """

    def __init__(self, *, backoff: Callable[[int, str], int | None] | None = None) -> None:
        if backoff is not None and not callable(backoff):  # pyright: ignore[reportUnnecessaryComparison]
            raise Malformed("backoff", backoff, "a function of two arguments, the failed runs and the error")
        self._backoff = backoff
        self._by_name: dict[str, Handler] = {}
        self._coroutines: set[str] = set()
        self._inline: set[str] = set()
        self._batches: dict[str, int] = {}
        #: What is to be done around each run.
        self.hooks = RunHooks()

    @overload
    def __call__(self, name: str, *, inline: bool = False) -> Callable[[Handler], Handler]: ...
    @overload
    def __call__(self, name: str, *, inline: bool = False, batch: int) -> Callable[[BatchHandler], BatchHandler]: ...
    def __call__(self, name: str, *, inline: bool = False, batch: int | None = None) -> Any:
        """Register the decorated function. `inline` is for plain functions that are short and do not block: a worker runs them
        one after the other in one thread, which costs a fraction of a thread's turn for each. One that blocks holds up the other
        inline jobs of its worker, and nothing else.

        With `batch` (1 to 1000) the function gets a list of 1 to so many Jobs of one lane, those that are there: it never waits
        for more. When it returns, all have finished, each with its own result where it returns a list of results or a mapping by
        job id; when it raises, all have failed, and with BatchFailed those that it names. A job whose worker died runs alone.
        A batch takes one place; each of its jobs has its own lease and timeout, and a coroutine is cancelled with the first one.
        How many jobs there are is up to the claim: of many lanes it takes some of each. In a WorkerGroup each one takes a place.

        Raises Malformed for a batch out of bounds, for a bad name or one that is taken, for what cannot be called with one
        argument, for a generator, since calling it would run nothing, and for an async function that is to run inline.
        """
        given: object = name
        if callable(given):
            raise Malformed("name", given, 'text: @handlers("name"), with the name that jobs are enqueued under')
        if not isinstance(inline, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Malformed("inline", inline, "True or False")
        checked = validate.job_name(name)
        most = 0 if batch is None else validate.integer("batch", batch, 1, BATCH_MAX)
        if checked in self._by_name:
            raise Malformed("name", checked, "a name that has no handler yet")

        def register(handler: Handler) -> Handler:
            call = getattr(handler, "__call__", None)  # noqa: B004
            if any(inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part) for part in (handler, call)):
                raise Malformed("handler", handler, "a function or an async function, without yield")
            if not _takes_a_job(handler):
                raise Malformed("handler", handler, "something to call with one argument, the Job")
            if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
                if inline:
                    raise Malformed("inline", inline, "False for an async function")
                self._coroutines.add(checked)
            if inline:
                self._inline.add(checked)
            if most:
                self._batches[checked] = most
            self._by_name[checked] = handler
            return handler

        return register

    @property
    def by_name(self) -> Mapping[str, Handler]:
        """The handlers."""
        return self._by_name

    def is_coroutine(self, name: str) -> bool:
        """Whether the handler of this name is an async function."""
        return name in self._coroutines

    @property
    def coroutines(self) -> frozenset[str]:
        """Names of the handlers that are async functions."""
        return frozenset(self._coroutines)

    @property
    def inline(self) -> frozenset[str]:
        """Names of the handlers that run inline."""
        return frozenset(self._inline)

    def waits(self, leased: LeasedJob, fault: Fault) -> Fault:
        """What a run has left behind, with the wait of this registry where it has one and the handler has not said its own."""
        if self._backoff is None or fault.verdict.asked:
            return fault
        try:
            given = self._backoff(leased.failures + 1, fault.error)
            delay_ms = None if given is None else validate.integer("backoff", given, 0, validate.DURATION_MS_MAX)
        except Exception:
            # The failed run must be told all the same.
            log.exception("job %s: the back-off of its handlers failed, so the job's own is taken", leased.lease.job)
            return fault
        return fault._replace(verdict=fault.verdict._replace(delay_ms=delay_ms))

    @property
    def batches(self) -> Mapping[str, int]:
        """Names of the handlers that take several jobs at once, and how many at most."""
        return self._batches

    def find(self, name: str) -> Handler:
        """The handler of a job name. Raises Malformed for a name without one."""
        handler = self._by_name.get(name)
        if handler is None:
            raise Malformed("name", name, f"one that this worker handles: {', '.join(sorted(self._by_name)) or 'none'}")
        return handler


def _takes_a_job(handler: object) -> bool:
    """Whether it can be called with one argument. True where Python cannot tell, as for some functions in C."""
    if not callable(handler):
        return False
    try:
        signature = inspect.signature(handler)
    except ValueError:
        return True
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True


def call_plain(handler: Handler, job: Job) -> bytes | None:
    """Run a plain handler; its result. Raises what it raises, TypeError when it returns something that still waits to be run, and
    Malformed when its result is no JSON or too long."""
    result = call_here(handler, job, job.name)
    return None if result is None else job.encode_result(result)


def call_here(handler: Callable[[Any], object], jobs: object, name: str) -> object:
    """Call a plain handler; what it returns, as it is. Raises what it raises, and TypeError as above."""
    pid = os.getpid()
    try:
        result = handler(jobs)
    except BaseException as failure:
        if os.getpid() != pid:
            end_fork(failure)
        raise
    if os.getpid() != pid:
        end_fork(None)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"the handler of {name} returned a {type(result).__name__}: make it an async function")
    return result


def end_fork(failure: BaseException | None) -> NoReturn:
    """End a process that a handler has forked and that comes out of the handler with `failure`, as a program ends that does: its
    parent has the job, and what this process told the server or ran next would be told and run twice."""
    code = 0 if failure is None else 1
    try:
        if isinstance(failure, SystemExit) and (failure.code is None or isinstance(failure.code, int)):
            code = failure.code or 0
        elif failure is not None:
            traceback.print_exception(failure)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


class Lost(NamedTuple):
    """A lease that has ended under its handler, as it is told to a child process; `cancelled`: by hand (rule 26)."""

    lease: Lease
    cancelled: bool


class Fault(NamedTuple):
    """What a run that failed leaves behind: what was raised, in short, and where, as text that can travel."""

    error: str
    trace: str
    verdict: Verdict = FAILED


def fault_of(failure: BaseException) -> Fault:
    """What a handler raised, with the end of its stack trace, where it was raised: at most `validate.TRACE_BYTES_MAX` bytes."""
    try:
        lines = "".join(traceback.format_exception(failure))
    except BaseException:
        # Whatever its text raises, as in `describe`.
        lines = "".join(traceback.format_tb(failure.__traceback__))
    return Fault(describe(failure), bounded(lines), verdict_of(failure))


def bounded(trace: str) -> str:
    """The last lines of a stack trace, bounded."""
    data = trace.rstrip().encode(errors="replace")
    return data[-validate.TRACE_BYTES_MAX :].decode(errors="ignore")


def describe(failure: BaseException) -> str:
    """What a handler raised, as text that can travel: bounded, and without characters that UTF-8 cannot carry."""
    try:
        text = f"{type(failure).__name__}: {failure}"
    except BaseException:
        # Whatever its text raises, also SystemExit: this thread still has to say that the run has failed.
        text = type(failure).__name__
    return bounded_error(text)


def bounded_error(text: str) -> str:
    """A short error that can travel."""
    return text[:_ERROR_CHARACTERS_MAX].encode(errors="replace").decode()
