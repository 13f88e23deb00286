# Generated from engine/queue/asynchronous/tasks.py by "make generate"; do not edit.
"""Tasks: functions that are jobs of a queue, which `queue.job` makes. See `engine.tasks`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from engine.handlers import Job
from engine.tasks import AnyTask
from engine.wire.operations import Enqueued

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Task(AnyTask[P, R, Enqueued]):
    """A function that is a job of a queue."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a call with these arguments. Raises Malformed before any I/O where they do not fit, else as `Queue.enqueue`."""
        return self._send(args, kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Enqueue a call with these arguments, wait until it has ended, and return what the function returned, as JSON has it.
        Raises as `enqueue` and as `Queue.call`; `with_options(wait_ms=...)` says how long to wait."""
        return self._ask(args, kwargs)


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


class BatchTaskDecorator:
    """What `Queue.job` returns with `batch`."""

    def __init__(self, make: Callable[[Callable[..., Any]], Any]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[[list[Job], list[T]], R]) -> Task[[T], R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], R]) -> Task[[T], R]: ...
    @overload
    def __call__(self, function: Callable[..., R]) -> Task[..., R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        """Register the function."""
        return self._make(function)
