"""What the two faces of a queue carry out: steps that yield calls and are sent what came of them, written once, without I/O.

`Queue.carry_out` and `AsyncQueue.carry_out` run the same steps; so a part of a queue (its schedules, its dead jobs) is one module
with the steps and two thin classes over them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from engine.call import Call
from engine.operations import Operation

T = TypeVar("T")


class InTime(NamedTuple):
    """An operation that lacks only the server time after which it is void (rules 3 and 7). Its answer is a Sent."""

    operation: Callable[[int], Operation]
    intended_ns: int | None = None


#: What steps yield: a call, whose answer is its reply, or an operation that is to be made in time.
Ask = Call[Any] | InTime
#: Steps that return T.
Steps = Generator[Ask, Any, T]
