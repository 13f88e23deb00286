"""What a channel decides is written once as steps, generators without I/O: they yield one of these requests and are sent what
came of it. `Channel` and `AsyncChannel` carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from engine.errors import EngineError
from engine.ops.base import Operation
from engine.redis.exchange import Sent

T = TypeVar("T")

#: An operation, or one that lacks only the server time (ms) after which it is void: `not_after_ms` in, operation out (rule 3).
Ask = Operation | Callable[[int], Operation]
#: What one storage answered, a Sent or an error for each operation that it was asked for.
Answers = list[Sent | EngineError]


class Send(NamedTuple):
    """Run one operation in one storage; answered with a Sent. What it raises ends the steps."""

    storage: str
    ask: Ask
    intended_ns: int | None = None


class SendMany(NamedTuple):
    """Run at most 100 operations in one storage, in one piece; answered with a Sent or an EngineError for each."""

    storage: str
    asks: Sequence[Ask]
    intended_ns: int | None = None


class Round(NamedTuple):
    """Run operations in several storages at once, those of one storage in one piece; answered with a mapping of storage -> a Sent
    or an EngineError for each of its operations.

    As soon as `enough` says so of what one storage answered, the others have `grace_ms` more; those that have not answered by
    then are not in the mapping. None: all are waited for.
    """

    asks: Mapping[str, Sequence[Ask]]
    intended_ns: int | None = None
    enough: Callable[[Sequence[Any]], bool] | None = None
    grace_ms: int = 300


class Rest(NamedTuple):
    """Wait until a storage tells of a publication, unless one has since the last rest was over; at most so long, `deaf_ms` while
    there is a storage that may not tell. Answered with False when the channel was closed meanwhile."""

    most_ms: int
    deaf_ms: int


Request = Send | SendMany | Round | Rest
#: Steps that return T.
Steps = Generator[Request, Any, T]


def sent_of(answer: object) -> Sent:
    """The answer of a Send."""
    assert isinstance(answer, Sent)
    return answer
