"""Parity: the synchronous and the asyncio face of everything have the same calls, signatures and documentation."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from engine import AsyncChannel, AsyncQueue, AsyncResults, Channel, Queue, Results
from engine.queue.dead import AsyncDead, Dead
from engine.queue.events import AsyncEvents, Events
from engine.queue.jobs import AsyncJobs, Jobs
from engine.queue.locks import AsyncLocks, Locks
from engine.queue.schedules import AsyncSchedules, Schedules
from engine.queue.workers import AsyncWorkers, Workers
from engine.tasks import AsyncTask, Task

#: Queues and their parts, and channels: the synchronous class and the asyncio class.
PAIRS: list[tuple[type[Any], type[Any]]] = [
    (Queue, AsyncQueue),
    (Schedules, AsyncSchedules),
    (Workers, AsyncWorkers),
    (Locks, AsyncLocks),
    (Results, AsyncResults),
    (Jobs, AsyncJobs),
    (Dead, AsyncDead),
    (Events, AsyncEvents),
    (Task, AsyncTask),
    (Channel, AsyncChannel),
]
#: What is made here and now, without a call: a coroutine on neither face, and each makes its own kind.
LOCAL = {"job", "payload", "with_options"}
CALLS = [
    (sync, twin, name)
    for sync, twin in PAIRS
    for name in sorted({*dir(sync), *dir(twin)})
    if not name.startswith("_") and inspect.isroutine(getattr(sync, name, None) or getattr(twin, name, None))
]


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("sync", "twin", "name"), CALLS, ids=lambda value: getattr(value, "__name__", value))
def test_both_faces_have_the_same_signatures_and_documentation(sync: type[Any], twin: type[Any], name: str) -> None:
    one, other = getattr(sync, name), getattr(twin, name)
    assert parameters(one) == parameters(other)
    assert inspect.getdoc(one) == inspect.getdoc(other) != ""
    if name in LOCAL:
        assert not inspect.iscoroutinefunction(other) and not inspect.iscoroutinefunction(one)
        return
    returns = str(inspect.signature(other).return_annotation)
    assert inspect.signature(one).return_annotation == returns.removeprefix("Async" if inspect.isasyncgenfunction(other) else "")
    waits = inspect.iscoroutinefunction(other) or inspect.isasyncgenfunction(other)
    assert waits and not inspect.iscoroutinefunction(one)


@pytest.mark.parametrize(("sync", "twin"), PAIRS)
def test_both_faces_are_made_alike(sync: type[Any], twin: type[Any]) -> None:
    assert [p[:3] for p in parameters(sync)] == [p[:3] for p in parameters(twin)]
    assert hasattr(sync, "__enter__") == hasattr(twin, "__aenter__")
