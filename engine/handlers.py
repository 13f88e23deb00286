"""The registry of handlers by job name, how a handler is called, and the record of a failed run."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast, overload

from engine import validate
from engine.errors import BatchFailed, Malformed, bounded_error, describe, logger, spared
from engine.hooks import RunHooks
from engine.job import Job
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import FAILED, ErrorMatches, ErrorRules, RunRequest, request_of
from engine.parameters import TypedJob

#: A plain function, or one that returns a coroutine (`async def`). What it returns is the job's result, as
#: JSON; None is none.
Handler = Callable[[Job], object]
#: The same for up to n jobs of one lane: it returns None, a result for each job, or results by job id.
BatchHandler = Callable[[list[Job]], object]
#: Jobs of a batch, at most.
BATCH_MAX = 1000
_NO_RULES = ErrorRules()

log = logger("ironclaim.worker")


class Handlers:
    """A registry: `@handlers("name")` on a function of one argument, the Job; plain or `async def`.

    `backoff` is called after each failed run with the number of failed runs and the error text. It returns
    the wait in ms. If it returns None or raises, the job's own back-off holds.

    `bury_on`: exceptions of which a job dies at once, as by Bury, and `retry_on`: those that alone are
    retried, so that it dies of every other Exception; classes, or functions of an exception. `bury_on` goes
    first. A handler may have rules of its own, which are asked first, and these where they say nothing. What
    a handler raises to say how its run ends, and the job's `skip_on` and `reroute_on`, go before them all. A
    run that takes too long has raised TimeoutError. A job that was cancelled, or whose child process died, is
    not meant. Raises Malformed for what is no such thing or cannot be called.
    """

    def __init__(
        self,
        *,
        backoff: Callable[[int, str], int | None] | None = None,
        retry_on: ErrorMatches | None = None,
        bury_on: ErrorMatches | None = None,
    ) -> None:
        if backoff is not None and not callable(backoff):  # pyright: ignore[reportUnnecessaryComparison]
            raise Malformed("backoff", backoff, "a function of two arguments, the failed runs and the error")
        self._backoff = backoff
        self._error_rules = ErrorRules.of(retry_on, bury_on)
        self._own_rules: dict[str, ErrorRules] = {}
        self._by_name: dict[str, Handler] = {}
        self._coroutines: set[str] = set()
        self._inline: set[str] = set()
        self._batches: dict[str, int] = {}
        # Whose back-off and hooks hold for the names that were included.
        self._origins: dict[str, Handlers] = {}
        #: What is to be done around each run, and when a worker starts and stops.
        self.hooks = RunHooks()

    @overload
    def __call__(
        self,
        name: str,
        *,
        inline: bool = False,
        retry_on: ErrorMatches | None = None,
        bury_on: ErrorMatches | None = None,
    ) -> Callable[[Handler], Handler]: ...
    @overload
    def __call__(
        self,
        name: str,
        *,
        inline: bool = False,
        batch: int,
        retry_on: ErrorMatches | None = None,
        bury_on: ErrorMatches | None = None,
    ) -> Callable[[BatchHandler], BatchHandler]: ...
    def __call__(
        self,
        name: str,
        *,
        inline: bool = False,
        batch: int | None = None,
        retry_on: object = None,
        bury_on: object = None,
    ) -> Any:
        """Register the decorated function. `inline` is for plain functions that are short and do not block. A
        worker runs them one after the other in one thread, which saves the switch of threads for each. One
        that blocks holds up the other inline jobs of its worker, and nothing else.

        With `batch` (1 to 1000) the function gets a list of 1 to so many Jobs of one lane. It gets those that
        are there, and never waits for more. When it returns, all have finished; each has its own result where
        it returns a list of results or a mapping by job id. When it raises, all have failed; with
        BatchFailed, those that it names. A job whose worker died runs alone. A batch takes one place; each of
        its jobs has its own lease and timeout, and a coroutine is cancelled with the first one. How many jobs
        there are is up to the claim: of many lanes it takes some of each. In a WorkerGroup each one takes a
        place.

        Raises Malformed for a batch out of bounds, and for a name that is bad or taken. Also for what cannot
        be called with one argument, and for an async function that is to run inline. A generator is refused,
        because a call of it would run nothing. A task (`queue.job`) is called with the arguments that the
        payload holds, as a worker of its own queue calls it.
        """
        validate.not_bare(name, '@handlers("name")')
        validate.truth("inline", inline)
        # Which of them are allowed depends on the model of the queue: a worker asks it.
        checked = validate.any_text("name", name)
        most = 0 if batch is None else validate.integer("batch", batch, 1, BATCH_MAX)
        if checked in self._by_name:
            raise Malformed("name", checked, "a name that has no handler yet")
        rules = ErrorRules.of(retry_on, bury_on)

        def register(function: Handler) -> Handler:
            given: object = function
            handler: Handler = given.handler if isinstance(given, TypedJob) else function
            call = getattr(handler, "__call__", None)  # noqa: B004
            if any(
                inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part)
                for part in (handler, call)
            ):
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
            self._own_rules[checked] = rules
            self._by_name[checked] = handler
            return function

        return register

    def include(self, *others: Handlers) -> None:
        """Take over the handlers that other registries have by now, those of `queue.handlers` for one. They
        keep the hooks of their registry, inside of the hooks of this one, and its back-off and its rules of
        errors, where it has some. Raises Malformed for a name that two of them have: then nothing is taken
        over."""
        names = [*self._by_name]
        for other in others:
            if not isinstance(other, Handlers):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Malformed("handlers", other, "Handlers objects")
            names += other._by_name
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise Malformed("name", twice[0], "the name of one handler: two registries have one for it")
        for other in others:
            self._by_name |= other._by_name
            self._coroutines |= other._coroutines
            self._inline |= other._inline
            self._batches |= other._batches
            self._origins |= dict.fromkeys(other._by_name, other)

    def error_rules(self, name: str) -> tuple[ErrorRules, ...]:
        """What its handler and their registries say of the exceptions of this name, the nearest first."""
        origin = self._origins.get(name)
        nearest = (self._own_rules.get(name, _NO_RULES),) if origin is None else origin.error_rules(name)
        return tuple(rules for rules in (*nearest, self._error_rules) if rules != _NO_RULES)

    def hooks_of(self, name: str) -> tuple[RunHooks, ...]:
        """The hooks around the runs of a name, if there are any: those of this registry, and inside of them
        those of the one it was included from."""
        origin = self._origins.get(name)
        inner = () if origin is None else origin.hooks_of(name)
        # Asked for each run: without a hook of any kind no call is made.
        return (self.hooks, *inner) if self.hooks.modules and self.hooks else inner

    def registries(self) -> list[Handlers]:
        """This one, and those that it has included."""
        found: list[Handlers] = [self]
        for origin in dict.fromkeys(self._origins.values()):
            found += [other for other in origin.registries() if other not in found]
        return found

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
        """What a run has left behind, with the wait of this registry where it has one and the handler has not
        said its own. For a name that was included, the registry that it comes from is asked first."""
        backoff = self._backoff_of(leased.name)
        if backoff is None or fault.request.asked:
            return fault

        def wait_ms() -> int | None:
            given = backoff(leased.failures + 1, fault.error)
            return (
                None if given is None else validate.duration_ms("backoff", given, 0, validate.DURATION_MS_MAX)
            )

        # The failed run must be recorded all the same.
        said = ("job %s: the back-off of its handlers failed, so the job's own is taken", leased.lease.job)
        delay_ms = spared(wait_ms, otherwise=None, log=log, said=said)
        return (
            fault if delay_ms is None else fault._replace(request=fault.request._replace(delay_ms=delay_ms))
        )

    def _backoff_of(self, name: str) -> Callable[[int, str], int | None] | None:
        origin = self._origins.get(name)
        return (origin._backoff_of(name) if origin is not None else None) or self._backoff

    @property
    def batches(self) -> Mapping[str, int]:
        """Names of the handlers that take several jobs at once, and how many at most."""
        return self._batches

    def find(self, name: str) -> Handler:
        """The handler of a job name. Raises Malformed for a name without one."""
        handler = self._by_name.get(name)
        if handler is None:
            raise Malformed(
                "name", name, f"one that this worker handles: {', '.join(sorted(self._by_name)) or 'none'}"
            )
        return handler


def _takes_a_job(handler: object) -> bool:
    """Whether a function can be called with one argument. True where Python does not know, as for some
    functions in C."""
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
    """Run a plain handler and return its result. Raises what it raises, TypeError when it returns a coroutine
    or the like, and Malformed when its result is no JSON or too long."""
    result = call_here(handler, job, job.name)
    return None if result is None else job.encode_result(result)


def call_here(handler: Callable[[Any], object], jobs: object, name: str) -> object:
    """Call a plain handler and return its value unchanged. Raises what it raises, and TypeError as above."""
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
        raise TypeError(
            f"the handler of {name} returned a {type(result).__name__}: make it an async function"
        )
    return result


class _Thread(threading.local):
    #: Whether it runs the event loop of the async handlers of workers.
    awaits = False


_thread = _Thread()


def mark_loop() -> None:
    """This thread runs the event loop of async handlers from now on."""
    _thread.awaits = True


def refuse_wait(call: str, of: object, instead: str) -> None:
    """Raise Malformed for a call that waits, made by an async handler, because all the others of its loop
    would wait as well. Other loops are their owners' own: a notebook has one, and waits on purpose."""
    if _thread.awaits:
        bound = f"awaited in an async handler, because it holds up its loop else: await {instead}"
        raise Malformed(call, of, bound)


def end_fork(failure: BaseException | None) -> NoReturn:
    """End a forked process that leaves the handler with `failure`, as a program ends. The job belongs to its
    parent. Whatever it reported or ran next would happen twice."""
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


class Ready(NamedTuple):
    """The message of a child process that it takes jobs from now on; or why it never will."""

    fault: Fault | None


class SoftOver(NamedTuple):
    """The message to a child process that the soft timeout of its job is over."""

    lease: Lease


class Lost(NamedTuple):
    """The message to a child process that the lease of its job has ended; `cancelled`: by a cancel (rule
    26)."""

    lease: Lease
    cancelled: bool


class Fault(NamedTuple):
    """The record of a failed run, as text: the exception in one line, and where it was raised."""

    error: str
    trace: str
    request: RunRequest = FAILED


def fault_of(failure: BaseException, rules: Sequence[ErrorRules] = ()) -> Fault:
    """The record of an exception, judged by these rules, with the end of its stack trace: at most
    `validate.TRACE_BYTES_MAX` bytes."""
    try:
        lines = "".join(traceback.format_exception(failure))
    except BaseException:
        # Whatever its text raises, as in `describe`.
        lines = "".join(traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(failure)))
    try:
        request = request_of(failure, rules)
    except BaseException:
        # Of a class whose attributes raise when they are read.
        request = FAILED
    return Fault(describe(failure), bounded(lines), request)


def bounded(trace: str) -> str:
    """The last lines of a stack trace, bounded."""
    data = trace.rstrip().encode(errors="replace")
    return data[-validate.TRACE_BYTES_MAX :].decode(errors="ignore")


# -- How each job of a batch has ended, from what its handler returned or raised. Pure code, used where
# the handler ran: in the worker or in a child process.

#: What a run of a job raised, or its result as it is kept.
End = tuple[BaseException | None, bytes | None]


class Said(Exception):
    """A failure of one job that was given as a text instead of an exception."""

    def __init__(self, text: str) -> None:
        # A class of the service may say something else of itself, or raise.
        super().__init__(str.__str__(text))


def ends(jobs: Sequence[Job], returned: object, failure: BaseException | None) -> list[End]:
    """The end of each job that the handler was given. What was returned or raised may be of classes of the
    service: whatever reading them raises has failed all of the jobs."""
    try:
        if failure is None:
            return _kept(jobs, by_id(jobs, returned), {})
        if isinstance(failure, BatchFailed) and {*failure.failures, *failure.results} <= {
            job.id for job in jobs
        }:
            return _kept(jobs, failure.results, failure.failures)
    except BaseException as wrong:
        failure = wrong
    return [(failure, None) for _ in jobs]


def by_id(jobs: Sequence[Job], returned: object) -> Mapping[str, object]:
    """The results that a handler returned, by job id. Raises TypeError and ValueError for what cannot be told
    apart by job."""
    if returned is None:
        return {}
    if isinstance(returned, Mapping):
        found = cast("Mapping[str, object]", returned)
        if not found.keys() <= {job.id for job in jobs}:
            raise ValueError("a batch handler returned results for ids that are not of its batch")
        return found
    if isinstance(returned, list | tuple):
        results = cast("Sequence[object]", returned)
        if len(results) != len(jobs):
            raise ValueError(f"a batch handler returned {len(results)} results for {len(jobs)} jobs")
        return {job.id: result for job, result in zip(jobs, results, strict=True)}
    raise TypeError(
        f"a batch handler returned a {type(returned).__name__}: None, a list or a mapping by job id "
        "are allowed"
    )


def faults(found: Sequence[End], rules: Sequence[ErrorRules]) -> list[tuple[Fault | None, bytes | None]]:
    """The ends as a child process sends them: jobs that failed by the same exception share one fault."""
    known: dict[int, Fault] = {}
    told: list[tuple[Fault | None, bytes | None]] = []
    for failure, result in found:
        if failure is not None and id(failure) not in known:
            known[id(failure)] = fault_in_batch(failure, rules)
        told.append((known[id(failure)] if failure is not None else None, result))
    return told


def fault_in_batch(failure: BaseException, rules: Sequence[ErrorRules]) -> Fault:
    """The record of a failure; of a text, which no rules are about, the text itself."""
    return Fault(bounded_error(str(failure)), "") if type(failure) is Said else fault_of(failure, rules)


def _kept(
    jobs: Sequence[Job], results: Mapping[str, object], failures: Mapping[str, BaseException | str]
) -> list[End]:
    found: list[End] = []
    for job in jobs:
        failure = failures.get(job.id)
        if failure is not None:
            found.append((failure if isinstance(failure, BaseException) else Said(failure), None))
            continue
        try:
            found.append((None, job.encode_result(results.get(job.id))))
        except BaseException as wrong:
            # Only the job whose result cannot be stored has failed.
            found.append((wrong, None))
    return found
