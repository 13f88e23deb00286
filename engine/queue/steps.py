"""Steps: operations that take several calls, as generators without I/O, written once for both interfaces.

They yield what is to be sent and are sent what came of it. `carry_out` of a queue runs them, and so does the simulator, which
interrupts them anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from engine.ops.base import Operation
from engine.redis.call import Call

T = TypeVar("T")


class DeadlineBound(NamedTuple):
    """An operation that lacks only the server time (ms) after which it is void (rules 3 and 7). Its answer is a Sent."""

    operation: Callable[[int], Operation]


#: What steps yield: a call, whose answer is its reply, or an operation that is to be sent with its deadline.
Ask = Call[Any] | DeadlineBound
#: Steps that return T.
Steps = Generator[Ask, Any, T]
