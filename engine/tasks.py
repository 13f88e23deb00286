"""Functions that are jobs: `@queue.job("send")` registers a typed function as a handler, and lets it be
enqueued by calling it.

    @queue.job("send", attempts=5)
    def send(user: int, at: datetime) -> None: ...

    send.enqueue(3, at=now)                              # checked before anything is sent
    await send.aenqueue(3, at=now)                       # the same from a coroutine
    send.with_options(delay_ms=1000).enqueue(3, at=now)
    queue.enqueue_many([send.new(user, now) for user in users])
    queue.enqueue("send", {"user": 3, "at": "2026-01-01T00:00:00"})  # the same, by name, and checked as well

Without a name, `@queue.job()`, a job has those of its module and function, `shop.mail.send`.

The payload holds the arguments by name. A first parameter of type Job (or called `job`, without an
annotation) is the context of the run, and is not an argument of `enqueue`. What the function returns travels
by its annotation as well, and comes back with its type: `send.call(...)`, `queue.results.wait(id,
send).get()`. Without an annotation it is what JSON makes of it. `engine.kinds` lists what travels.

With `batch` a function takes the calls of several jobs at once:

    @queue.job("index", batch=50)
    def index(documents: list[Document]) -> None: ...

    index.enqueue(Document(...))  # one job, which has one item

Each parameter is a list with one item for every job of the batch, in the same order. A first one of type
`list[Job]`, or called `jobs` without an annotation, is the list of the Jobs. A job whose payload does not fit
fails alone, and the function does not see it. It returns None, a `list[R]` with a result for each job, or a
`dict[str, R]` of results by job id. A job whose result is no R fails alone."""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, Unpack, cast, overload

from engine import validate
from engine.errors import BatchFailed, Malformed
from engine.handlers import Handler, Job, by_id
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Enqueued, Lease
from engine.options import OPTIONS, JobOptions, checked
from engine.outcomes import ErrorMatches
from engine.parameters import Parameters, TypedJob
from engine.queue.producing import TaskJob
from engine.queue.settings import QueueSettings, asynchronous, synchronous
from engine.validate import Milliseconds

# -- Batches: what a function gets of the payloads of its jobs, and what its return value says of each.


class _Calls(NamedTuple):
    """The jobs whose payloads fit, what the function is called with, why the others do not, and how a result
    is written."""

    jobs: list[Job]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    unfit: dict[str, BaseException | str]
    write_result: Callable[[Any], Any]

    def returned(self, what: object) -> object:
        """The results by job, from the return value of the function. Raises BatchFailed for jobs whose
        payload or result does not fit."""
        results, unfit = self._written(by_id(self.jobs, what))
        if not (unfit or self.unfit):
            return results
        raise BatchFailed({**self.unfit, **unfit}, results)

    def failed(self, failure: BatchFailed) -> BatchFailed:
        """The exception of the batch, from the exception of the function."""
        results, unfit = self._written(
            {job: one for job, one in failure.results.items() if job not in failure.failures}
        )
        return BatchFailed({**self.unfit, **unfit, **failure.failures}, results)

    def _written(
        self, results: Mapping[str, object]
    ) -> tuple[dict[str, object], dict[str, BaseException | str]]:
        written: dict[str, object] = {}
        unfit: dict[str, BaseException | str] = {}
        for job, result in results.items():
            try:
                written[job] = self.write_result(result)
            except BaseException as error:
                # Also of a validator of the service: its neighbours have nothing to do with it.
                unfit[job] = error
        return written, unfit


class BatchOf:
    """A task's function as a handler of batches. A child process finds it by the function's own module and
    name."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.__module__ = function.__module__
        self.__qualname__ = f"{function.__qualname__}.handler"
        self._function = function
        self._parameters = parameters

    def __call__(self, jobs: list[Job]) -> Any:
        """Run the function on the jobs that fit. Raises BatchFailed."""
        calls = self._read(jobs)
        try:
            returned = self._function(*calls.args, **calls.kwargs)
        except BatchFailed as failure:
            raise calls.failed(failure) from failure
        return calls.returned(returned)

    def _read(self, jobs: list[Job]) -> _Calls:
        """Raises BatchFailed where no payload fits."""
        fit: list[Job] = []
        items: list[dict[str, Any]] = []
        unfit: dict[str, BaseException | str] = {}
        for job in jobs:
            try:
                items.append(self._parameters.came(job.payload))
                fit.append(job)
            except BaseException as error:
                unfit[job.id] = error
        if not fit:
            raise BatchFailed(unfit)
        args, kwargs = self._parameters.listed(items)
        given = (fit, *args) if self._parameters.takes_job else args
        return _Calls(fit, given, kwargs, unfit, self._parameters.write_result)


class AsyncBatchOf(BatchOf):
    """A task's async function as a handler of batches."""

    async def __call__(self, jobs: list[Job]) -> Any:
        """Run the function on the jobs that fit. Raises BatchFailed."""
        calls = self._read(jobs)
        try:
            returned = await self._function(*calls.args, **calls.kwargs)
        except BatchFailed as failure:
            raise calls.failed(failure) from failure
        return calls.returned(returned)


#: What `with_options` takes beside the options of jobs.
_OF_CALLS = ("id", "wait_ms", "queue")

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
D = TypeVar("D")


class _Plain:
    """A task's function as a handler. A child process finds it by the function's own module and name."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.__module__ = function.__module__
        self.__qualname__ = f"{function.__qualname__}.handler"
        self._function = function
        self._parameters = parameters

    def _called(self, job: Job) -> Any:
        args, kwargs = self._parameters.read(job.payload)
        return (
            self._function(job, *args, **kwargs)
            if self._parameters.takes_job
            else self._function(*args, **kwargs)
        )

    def __call__(self, job: Job) -> Any:
        return self._parameters.write_result(self._called(job))


class _Async(_Plain):
    """A task's async function as a handler."""

    async def __call__(self, job: Job) -> Any:
        return self._parameters.write_result(await self._called(job))


class Task(TypedJob[R], Generic[P, R]):
    """A function that is a job of a queue, which `queue.job` makes, of a Queue as of an AsyncQueue. P: what a
    job is enqueued with. R: what it returns; of an async function, what it is awaited for; with `batch`, what
    is returned for each job."""

    def __init__(
        self,
        queue: QueueSettings,
        name: str,
        function: Callable[..., Any],
        options: JobOptions,
        batch: int = 0,
    ) -> None:
        self._queue = queue
        #: Its options, and its `id` if it was given one.
        self.options = cast("Mapping[str, object]", options)
        self._wait_ms = 30_000
        self._batch = batch
        given: object = function
        before: Task[..., R] | None = cast("Any", given) if isinstance(given, Task) else None
        own: Callable[..., Any] = function if before is None else before.function
        if before is not None and (before._batch > 0) != (batch > 0):
            raise Malformed(
                "batch",
                batch or None,
                "given for both queues of the function or for none: its parameters are lists",
            )
        #: What its payload holds.
        self.parameters = Parameters(own, Job, batch=batch > 0)
        #: The function itself.
        self.function = own
        #: Its job's name.
        self.name = name
        #: What a worker calls with the Job, or with a list of them: one for all queues of the function, since
        #: a child process finds it by the function's name.
        self.handler: Handler = _handler_of(own, self.parameters, batch) if before is None else before.handler
        self.__doc__ = own.__doc__
        self.__wrapped__ = own

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a call with these arguments. Raises Malformed before any I/O where they do not fit, else as
        `Queue.enqueue`. It blocks: a coroutine awaits `aenqueue`, and for an AsyncQueue must."""
        return self._blocking("aenqueue").enqueue(self.name, self.payload(*args, **kwargs), **self._given())

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """As `enqueue`, without blocking the event loop."""
        return await asynchronous(self._queue).enqueue(
            self.name, self.payload(*args, **kwargs), **self._given()
        )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Enqueue a call with these arguments, wait until it has ended, and return what the function
        returned, with its type. Raises as `enqueue` and as `Queue.call`; `with_options(wait_ms=...)` says how
        long to wait."""
        return self._blocking("acall").call(self, self.payload(*args, **kwargs), wait_ms=self._wait_ms)

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `call`, without blocking the event loop."""
        return await asynchronous(self._queue).call(
            self, self.payload(*args, **kwargs), wait_ms=self._wait_ms
        )

    def new(self, *args: P.args, **kwargs: P.kwargs) -> TaskJob[R]:
        """The job of a call with these arguments, with the task's options and an id. Nothing is sent: it is
        for `enqueue_many`, for the `needs` of other jobs, and then for `results.wait`. Raises Malformed where
        the arguments do not fit."""
        return TaskJob(
            self,
            self.payload(*args, **kwargs),
            id=None if "id" in self.options else self._queue.model.new_id(),
        )

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """What `enqueue` sends for these arguments: for schedules. Raises Malformed."""
        try:
            return self.parameters.write(args, kwargs)
        except Malformed as error:
            options = [
                name
                for name in kwargs
                if not self.parameters.knows(name) and (name in OPTIONS or name in _OF_CALLS)
            ]
            if not options:
                raise
            given = ", ".join(
                f"{name}={kwargs[name] if type(kwargs[name]) in (int, bool) else '...'}" for name in options
            )
            bound = f"{error.bound}; an option goes into {self.function.__name__}.with_options({given})"
            raise Malformed(error.field, error.value, bound, private=True, said=error.said) from None

    def with_options(
        self,
        *,
        id: str | None = None,
        wait_ms: Milliseconds | None = None,
        queue: QueueSettings | None = None,
        **options: Unpack[JobOptions],
    ) -> Self:
        """The same task with these options instead of, or beside, its own. `id` is for one call, and
        `wait_ms` says how long `call` waits (30 s unless told). `queue`: another Queue or AsyncQueue to
        enqueue on; who works for that one needs a handler of this name. Raises Malformed."""
        made = copy.copy(self)
        checked(cast("Mapping[str, object]", options), own=self._queue.model.names.options)
        merged: dict[str, Any] = {**self.options, **options}
        made.options = merged
        if wait_ms is not None:
            made._wait_ms = validate.duration_ms("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX)
        if queue is not None:
            if not isinstance(queue, QueueSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Malformed("queue", queue, "a Queue or an AsyncQueue")
            made._queue = queue
        if id is not None:
            merged["id"] = made._queue.model.check_id(id)
        return made

    @property
    def queue(self) -> QueueSettings:
        """The queue that it is enqueued on."""
        return self._queue

    def _blocking(self, instead: str) -> Any:
        """The Queue to call. Raises Malformed in a coroutine where the task is of an AsyncQueue: its loop
        would stand still."""
        if self._queue.endpoint.asynchronous and _loop_runs():
            raise Malformed(
                "event loop", "one that runs", f"left free: await {self.name}.{instead}(...) in a coroutine"
            )
        return synchronous(self._queue)

    def _given(self) -> Any:
        return self.options

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.function.__qualname__}>"


class TaskFunction(Task[P, R], Generic[P, R, D]):
    """A task that is called as its function is, and returns D: a coroutine for an async function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> D:
        """Call the function here and now, without a queue. A parameter for the Job gets one that belongs to
        no worker."""
        given, named = self.parameters.alone(args, kwargs) if self._batch else (args, kwargs)
        if not self.parameters.takes_job:
            return self.function(*given, **named)
        lease, options = (
            Lease("direct", 0, ""),
            {name: value for name, value in self.options.items() if name != "id"},
        )
        known = checked(options, own=self._queue.model.names.options)
        job = Job(LeasedJob(lease, 0, self.name, self.name, self.name, b"null", known, 0, 0, 1, 0, 0))
        return self.function([job] if self._batch else job, *given, **named)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _handler_of(function: Callable[..., Any], parameters: Parameters, batch: int) -> Handler:
    is_async = inspect.iscoroutinefunction(function)
    made = (AsyncBatchOf if is_async else BatchOf) if batch else _Async if is_async else _Plain
    return cast("Any", made(function, parameters))


class TaskOptions(JobOptions, total=False):
    """What `queue.job` takes beside the options of its jobs: how their handler is registered (Handlers), and
    the names that they had before, under which they may still wait or come."""

    inline: bool
    retry_on: ErrorMatches | None
    bury_on: ErrorMatches | None
    aliases: Sequence[str]


def handling(options: TaskOptions) -> dict[str, Any]:
    """Take out of these options what is none of a job."""
    given: dict[str, Any] = cast("Any", options)
    names = TaskOptions.__annotations__.keys() - JobOptions.__annotations__.keys()
    return {name: given.pop(name) for name in names & given.keys()}


def name_of(function: Callable[..., Any]) -> str:
    """The name of a job that is given none: that of a task, else module and name of the function. A module
    that is run as a program has the name by which others import it. Raises Malformed."""
    if isinstance(function, TypedJob):
        return function.name
    module, name = (getattr(function, of, "") for of in ("__module__", "__qualname__"))
    name = name.rpartition("<locals>.")[2]
    if not module or not name.replace(".", "").isidentifier():
        raise Malformed("name", None, 'given, as in @queue.job("name"): this function has none of its own')
    if module == "__main__":
        main = sys.modules[module]
        module = main.__spec__.name if main.__spec__ else Path(getattr(main, "__file__", module)).stem
    return f"{module}.{name}"


class TaskDecorator:
    """What `job` of a queue returns."""

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._make = make

    @overload
    def __call__(self, function: TaskFunction[P, R, D]) -> TaskFunction[P, R, D]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, R]]
    ) -> TaskFunction[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> TaskFunction[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], R]) -> TaskFunction[P, R, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> TaskFunction[P, R, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function, or that of a task of another queue."""
        return self._make(function)


class BatchTaskDecorator:
    """What `job` of a queue returns with `batch`."""

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._make = make

    @overload
    def __call__(self, function: TaskFunction[P, R, D]) -> TaskFunction[P, R, D]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Job], list[T]], Coroutine[Any, Any, list[R]]]
    ) -> TaskFunction[[T], R, Coroutine[Any, Any, list[R]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, list[R]]]
    ) -> TaskFunction[[T], R, Coroutine[Any, Any, list[R]]]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Job], list[T]], list[R]]
    ) -> TaskFunction[[T], R, list[R]]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], list[R]]) -> TaskFunction[[T], R, list[R]]: ...
    @overload
    def __call__(self, function: Callable[[list[Job], list[T]], D]) -> TaskFunction[[T], Any, D]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], D]) -> TaskFunction[[T], Any, D]: ...
    @overload
    def __call__(self, function: Callable[..., D]) -> TaskFunction[..., Any, D]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function, or that of a task of another queue with `batch`."""
        return self._make(function)
