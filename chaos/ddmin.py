"""Delta debugging (ddmin): the least of a list of things that is enough for something to happen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def minimal(
    items: tuple[T, ...], enough: Callable[[tuple[T, ...]], bool], late: Callable[[], bool] = lambda: False
) -> tuple[T, ...]:
    """What is left of items that are enough, when no single one can be left out any more, or when it is `late`. Large pieces are
    left out first, then small ones; `enough` decides on what is left."""
    pieces = 2
    while items and not late():
        size = max(1, -(-len(items) // pieces))
        for start in range(0, len(items), size):
            rest = items[:start] + items[start + size :]
            if late():
                return items
            if enough(rest):
                items, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                return items
            pieces = min(len(items), pieces * 2)
    return items
