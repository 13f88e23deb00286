"""Where runs begin: each in a copy of the context of the worker, so that no run sees the context variables of another one.

It is the context of the moment when this is made: what a service has set before `Worker.run` is seen by all of its runs.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class RunContexts:
    """The contexts of the runs of one worker, or of one child process. Safe from threads."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a context of its own."""
        return self.new().run(function, *args, **kwargs)

    def new(self) -> contextvars.Context:
        """A context for one run."""
        context = self._context.copy()
        if "decimal" in sys.modules:
            context.run(_own_decimals)
        return context


def _own_decimals() -> None:
    """A copied context shares the decimal context, which runs change in place (`getcontext().prec = 6`)."""
    decimal = sys.modules["decimal"]
    decimal.setcontext(decimal.getcontext().copy())
