"""Short ways to use a queue below its public face: a driver with short times, claims, raw keys; and what a call raises."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from engine import Handlers, Queue
from engine.ops.claims import Claim, Claimed
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import DEADLINE_MS_MAX, ConnectOptions, Endpoint
from engine.redis.gathering import CallMaker, Gathering

_counters = itertools.count(1)


#: After so long a driver of a test gives an answer up. A busy machine may stand still for ten seconds, and a test that looks at
#: what was sent would then see a call sent twice that nothing had harmed.
PATIENCE_MS = 60_000
#: The same where the test itself keeps the answer back, and waits for so long: there a call may be sent once more than is needed.
HASTE_MS = 1_000


def hurry(queue: Queue, *, timeout_ms: int = PATIENCE_MS, deadline_ms: int = DEADLINE_MS_MAX) -> Queue:
    """The same queue with a driver of these times."""
    queue.driver.close()
    endpoint = Endpoint(queue.url, options=ConnectOptions(timeout_ms=timeout_ms, deadline_ms=deadline_ms))
    queue.driver = SyncDriver(endpoint, queue.model.scripts.values(), observer=queue.observer)
    queue.gathering = Gathering(queue.driver, CallMaker(queue.model.call, queue.model.merges_enqueues))
    return queue


def some_handlers(handler: Callable[[Any], object] = lambda job: None, name: str = "work", **options: Any) -> Handlers:
    """A worker needs at least one."""
    handlers = Handlers()
    handlers(name, **options)(handler)
    return handlers


def refused(error: Any, said: str | None, call: Callable[..., object], /, *given: Any, **named: Any) -> Any:
    """The error of one of these classes that this call raises, which says so (a regular expression; none: anything)."""
    with pytest.raises(error, match=said or None) as caught:
        call(*given, **named)
    return caught.value


def raises(error: BaseException) -> Callable[..., Any]:
    """A handler, or whatever else is called, that does."""

    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def claim_operation(
    queue: Queue, *, limit: int = 10, lease_ms: int = 9000, incarnation: str = "0123456789abcdef", classes: Any = ("main", "work")
) -> Claim:
    """A claim with a counter that was not used before, which is not void however busy the machine is."""
    not_after_ms = queue.driver.server_now_ms() + max(60_000, lease_ms * 4 // 5)
    return Claim(incarnation, next(_counters), limit, lease_ms, not_after_ms, "a-test", 1000, classes)


def claim(queue: Queue, **wanted: Any) -> Claimed:
    """Claim with a fresh counter."""
    return queue.driver.run(queue.model.call(claim_operation(queue, **wanted)))


@contextmanager
def raw_client(url: str) -> Iterator[Any]:
    """redis-py itself, for what the engine does not do; typed Any, since its own types are partly unknown."""
    client: Any = redis.Redis.from_url(url, decode_responses=True, encoding_errors="backslashreplace")
    try:
        yield client
    finally:
        client.close()


def ids_of(queue: Queue, state: str) -> list[str]:
    """The job ids of one state, from a snapshot."""
    return [job for job, _ in queue.snapshot().states[state]]
