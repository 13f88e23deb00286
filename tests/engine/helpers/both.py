"""The two faces of a queue behind one blocking face, so that a test can run over both."""

import asyncio
import inspect
from typing import Any

from engine import AsyncQueue, Queue
from engine.redis.async_driver import AsyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, ConnectOptions, Endpoint
from engine.redis.gathering import AsyncGathering, CallMaker
from tests.engine.helpers.producing import PATIENCE_MS, hurry

_PARTS = ("driver", "jobs", "dead", "workflows", "results", "schedules", "workers", "locks", "events", "history")


class Blocking:
    """Calls an object's coroutine functions and waits for each on one event loop; hands everything else through."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self._target, self._runner = target, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name in _PARTS:
            return Blocking(value, self._runner)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *arguments, **options: self._runner.run(value(*arguments, **options))


def hurried(kind: str, runner: asyncio.Runner, name: str, url: str, **options: Any) -> Any:
    """A queue of that kind ("sync" or "async") with a driver of these times (`timeout_ms`, `deadline_ms`)."""
    times = {at: options.pop(at) for at in ("timeout_ms", "deadline_ms") if at in options}
    if kind == "sync":
        return hurry(Queue(name, url=url, **options), **times)
    queue = AsyncQueue(name, url=url, **options)
    scripts = queue.model.scripts.values()
    patience = ConnectOptions(**{"timeout_ms": PATIENCE_MS, "deadline_ms": DEADLINE_MS_MAX, **times})
    queue.driver = AsyncDriver(Endpoint(url, options=patience, asynchronous=True), scripts, observer=queue.observer)
    queue.gathering = AsyncGathering(queue.driver, CallMaker(queue.model.call, queue.model.merges_enqueues))
    return Blocking(queue, runner)
