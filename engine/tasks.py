"""Functions that are jobs: `@queue.job("send")` registers a typed function as a handler, and lets it be enqueued by calling it.

    @queue.job("send", attempts=5)
    def send(user: int, at: datetime) -> None: ...

    send.enqueue(3, at=now)                              # checked against the signature before anything is sent
    send.with_options(delay_ms=1000).enqueue(3, at=now)
    queue.enqueue("send", {"user": 3, "at": "2026-01-01T00:00:00"})  # the same, by name

The payload holds the arguments by name. A first parameter of type Job (or called `job`, without an annotation) is the context of
the run, and is not an argument of `enqueue`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from engine import validate
from engine.handlers import Handler, Job
from engine.operations import Enqueued, Lease, LeasedJob
from engine.options import JobOptions, checked
from engine.parameters import Parameters

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", covariant=True)


class Enqueues(Protocol[E]):
    """What a task needs of its queue; E is an Enqueued, or something that awaits one."""

    def enqueue(
        self, name: str, payload: object, *, id: str | None = None, intended_ns: int | None = None, **options: Unpack[JobOptions]
    ) -> E:
        """Put one job into the queue."""
        ...


class Registered(Protocol):
    """What a queue registers of a task."""

    name: str
    handler: Handler


class _Plain:
    """A task's function as a handler. A child process finds it by the function's own module and name."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.__module__ = function.__module__
        self.__qualname__ = f"{function.__qualname__}.handler"
        self._function = function
        self._parameters = parameters

    def _called(self, job: Job) -> Any:
        args, kwargs = self._parameters.read(job.payload)
        return self._function(job, *args, **kwargs) if self._parameters.takes_job else self._function(*args, **kwargs)

    def __call__(self, job: Job) -> Any:
        return self._called(job)


class _Async(_Plain):
    """The same for an async function."""

    async def __call__(self, job: Job) -> Any:
        return await self._called(job)


class _Base(Generic[P, R, E]):
    def __init__(
        self, queue: Enqueues[E], name: str, function: Callable[..., R], options: JobOptions, known: _Plain | None = None
    ) -> None:
        self._queue = queue
        self._options = options
        self._parameters = Parameters(function, Job)
        #: The function itself.
        self.function = function
        #: Its job's name.
        self.name = name
        made = _Async if inspect.iscoroutinefunction(function) else _Plain
        #: What a worker calls with the Job.
        self.handler: Handler = known or made(function, self._parameters)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, without a queue. A parameter for the Job gets one that belongs to no worker."""
        if self._parameters.takes_job:
            lease = Lease("direct", 0, "")
            job = Job(LeasedJob(lease, 0, self.name, self.name, self.name, b"null", checked(self._given), 0, 0, 1, 0, 0))
            return self.function(job, *args, **kwargs)
        return self.function(*args, **kwargs)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """What `enqueue` sends for these arguments: for `NewJob(task.name, task.payload(...))`. Raises Malformed."""
        return self._parameters.write(args, kwargs)

    @property
    def _given(self) -> Mapping[str, object]:
        return {name: value for name, value in self._options.items() if name != "id"}

    def _send(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> E:
        options: Any = self._options
        return self._queue.enqueue(self.name, self._parameters.write(args, kwargs), **options)

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.function.__qualname__}>"


class Task(_Base[P, R, Enqueued]):
    """A function that is a job of a Queue."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a call with these arguments. Raises Malformed before any I/O where they do not fit, else as `Queue.enqueue`."""
        return self._send(args, kwargs)

    def with_options(self, *, id: str | None = None, **options: Unpack[JobOptions]) -> Task[P, R]:
        """The same task with these options instead of, or beside, its own; `id` is for one call. Raises Malformed."""
        return Task(self._queue, self.name, self.function, _merged(self._options, id, options), cast("Any", self.handler))


class AsyncTask(_Base[P, R, Awaitable[Enqueued]]):
    """A function that is a job of an AsyncQueue."""

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a call with these arguments. Raises Malformed before any I/O where they do not fit, else as `Queue.enqueue`."""
        return await self._send(args, kwargs)

    def with_options(self, *, id: str | None = None, **options: Unpack[JobOptions]) -> AsyncTask[P, R]:
        """The same task with these options instead of, or beside, its own; `id` is for one call. Raises Malformed."""
        return AsyncTask(self._queue, self.name, self.function, _merged(self._options, id, options), cast("Any", self.handler))


def _merged(before: JobOptions, id: str | None, options: JobOptions) -> JobOptions:
    checked(cast("Mapping[str, object]", options))
    merged: dict[str, Any] = {**before, **options}
    if id is not None:
        merged["id"] = validate.job_id(id)
    return cast("JobOptions", merged)


class TaskDecorator:
    """What `Queue.job` returns."""

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function."""
        return self._make(function)


class AsyncTaskDecorator:
    """What `AsyncQueue.job` returns."""

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], R]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> AsyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function."""
        return self._make(function)
