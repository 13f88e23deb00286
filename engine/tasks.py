"""Functions that are jobs: `@queue.job("send")` registers a typed function as a handler, and lets it be enqueued by calling it.

    @queue.job("send", attempts=5)
    def send(user: int, at: datetime) -> None: ...

    send.enqueue(3, at=now)                              # checked against the signature before anything is sent
    send.with_options(delay_ms=1000).enqueue(3, at=now)
    queue.enqueue("send", {"user": 3, "at": "2026-01-01T00:00:00"})  # the same, by name, and checked as well

The payload holds the arguments by name. A first parameter of type Job (or called `job`, without an annotation) is the context of
the run, and is not an argument of `enqueue`. With `batch` see `engine.task_batches`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from engine import validate
from engine.handlers import Handler, Job
from engine.options import JobOptions, checked
from engine.parameters import Parameters, TypedJob
from engine.task_batches import AsyncBatchOf, BatchOf
from engine.wire.operations import Lease, LeasedJob

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

    def call(
        self, name: str, payload: object, *, id: str | None = None, wait_ms: int = 30_000, **options: Unpack[JobOptions]
    ) -> Any:
        """Put one job into the queue, and wait for what its handler returns."""
        ...


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
    """A task's async function as a handler."""

    async def __call__(self, job: Job) -> Any:
        return await self._called(job)


class AnyTask(TypedJob, Generic[P, R, E]):
    """A function that is a job: what tasks of a Queue and of an AsyncQueue have in common."""

    def __init__(self, queue: Enqueues[E], name: str, function: Callable[..., R], options: JobOptions, batch: int = 0) -> None:
        self._queue = queue
        #: Its options, and its `id` if it was given one.
        self.options = cast("Mapping[str, object]", options)
        self._wait_ms = 30_000
        self._batch = batch
        #: What its payload holds.
        self.parameters = Parameters(function, Job, batch=batch > 0)
        #: The function itself.
        self.function = function
        #: Its job's name.
        self.name = name
        is_async = inspect.iscoroutinefunction(function)
        made = (AsyncBatchOf if is_async else BatchOf) if batch else _Async if is_async else _Plain
        #: What a worker calls with the Job, or with a list of them.
        self.handler: Handler = cast("Any", made(function, self.parameters))
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now, without a queue. A parameter for the Job gets one that belongs to no worker."""
        given, named = self.parameters.alone(args, kwargs) if self._batch else (args, kwargs)
        if not self.parameters.takes_job:
            return self.function(*given, **named)
        lease, options = Lease("direct", 0, ""), {name: value for name, value in self.options.items() if name != "id"}
        job = Job(LeasedJob(lease, 0, self.name, self.name, self.name, b"null", checked(options), 0, 0, 1, 0, 0))
        return self.function([job] if self._batch else job, *given, **named)

    def payload(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """What `enqueue` sends for these arguments: for `NewJob(task.name, task.payload(...))`, and for schedules. Raises
        Malformed."""
        return self.parameters.write(args, kwargs)

    def with_options(self, *, id: str | None = None, wait_ms: int | None = None, **options: Unpack[JobOptions]) -> Self:
        """The same task with these options instead of, or beside, its own; `id` is for one call, and `wait_ms` says how long
        `call` waits (30 s unless told). Raises Malformed."""
        made = copy.copy(self)
        checked(cast("Mapping[str, object]", options))
        merged: dict[str, Any] = {**self.options, **options}
        if id is not None:
            merged["id"] = validate.job_id(id)
        made.options = merged
        if wait_ms is not None:
            made._wait_ms = validate.integer("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX)
        return made

    def _send(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> E:
        options: Any = self.options
        return self._queue.enqueue(self.name, self.parameters.write(args, kwargs), **options)

    def _ask(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        options: Any = self.options
        return self._queue.call(self.name, self.parameters.write(args, kwargs), wait_ms=self._wait_ms, **options)

    def __repr__(self) -> str:
        return f"<task {self.name}: {self.function.__qualname__}>"
