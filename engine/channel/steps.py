"""What a channel decides is written once as steps, generators without I/O: they yield one of these requests
and are sent what came of it. `Channel` and `AsyncChannel` carry them out."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.errors import EngineError
from engine.observer import Observer
from engine.ops.base import Operation
from engine.redis.exchange import Sent

T = TypeVar("T")

#: What one storage answered, a Sent or an error for each operation that it was asked for.
Answers = list[Sent | EngineError]


class Send(NamedTuple):
    """Run one operation in one storage; answered with a Sent. What it raises ends the steps."""

    storage: str
    operation: Operation
    intended_ns: int | None = None


class SendMany(NamedTuple):
    """Run at most 100 operations in one storage, atomically; answered with a Sent or an EngineError for
    each."""

    storage: str
    operations: Sequence[Operation]
    intended_ns: int | None = None


class Round(NamedTuple):
    """Run operations in several storages at once, those of one storage atomically; answered with a mapping
    of storage -> a Sent or an EngineError for each of its operations.

    When `enough` says so of the answer of one storage, the others have `grace_ms` more. Those that have not
    answered by then are not in the mapping. None: all are waited for.
    """

    asks: Mapping[str, Sequence[Operation]]
    intended_ns: int | None = None
    enough: Callable[[Sequence[Any]], bool] | None = None
    grace_ms: int = 300


class Rest(NamedTuple):
    """Wait until a storage tells of a publication, unless one has since the last rest was over; at most so
    long, `deaf_ms` while there is a storage that may not tell. Answered with False when the channel was
    closed meanwhile."""

    most_ms: int
    deaf_ms: int


Request = Send | SendMany | Round | Rest
#: Steps that return T.
Steps = Generator[Request, Any, T]


def sent_of(answer: object) -> Sent:
    """The answer of a Send."""
    assert isinstance(answer, Sent)
    return answer


@dataclass(frozen=True, slots=True)
class Opening:
    """Which channel a storage is opened for. `lua`: another folder of scripts; `observer` hears of every
    call."""

    channel: str
    lua: Path | None = None
    observer: Observer | None = None


# -- How a fetch waits: it polls, rests until a storage reports a publication, and polls again. No wake-up
# is lost: a waiting call has been listening since before its poll, and a storage that could not tell for
# a while tells as soon as it can again.

#: The longest wait, as in the original.
WAIT_MS_MAX = 30_000
#: A look from time to time keeps the subscriber alive, and bounds what a lost notification could cost.
_LOOK_MS = 10_000
#: How long a rest may be while a storage may not tell.
_DEAF_MS = 1_000


def waiting(
    look: Callable[[int], Steps[tuple[T, bool]]],
    wait_ms: int,
    ttl_s: int,
    now_ns: Callable[[], int] = time.monotonic_ns,
    has_more: Callable[[T], bool] = lambda _: False,
) -> Steps[T]:
    """Look until one says that it has something to tell, or the time is over; what the last one brought. Each
    is told how many ms had been waited for it: 0 for the first alone. After one that has more to find, the
    next follows at once: nothing tells of messages that are there already."""
    begun_ns = now_ns()
    waited_ms = 0
    until_ns = begun_ns + min(wait_ms, WAIT_MS_MAX) * 1_000_000
    while True:
        found, speaks = yield from look(waited_ms)
        left_ms = (until_ns - now_ns()) // 1_000_000
        if speaks or left_ms <= 0:
            return found
        most_ms = 0 if has_more(found) else min(left_ms, _LOOK_MS, ttl_s * 1000 // 3)
        if not (yield Rest(most_ms, min(most_ms, _DEAF_MS))):
            return found
        waited_ms = max(1, (now_ns() - begun_ns) // 1_000_000)
