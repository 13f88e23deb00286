"""The clocks of a channel's messages in memory, in the order of the circle: what a sorted set is on a server."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator


class LiveIndex:
    """A set of clocks in order. Clocks of expired messages may still be among them."""

    def __init__(self) -> None:
        # Each half grows at its end: a single list would be moved as a whole for each message after the wrap.
        self._below = _Run()
        self._above = _Run()

    def add(self, at: int) -> None:
        """Add the clock of a new message."""
        (self._above if at >= 0 else self._below).add(at)

    def between(self, after: int, upto: int) -> Iterator[int]:
        """Those in (after, upto] on the circle: across the wrap where `upto` is the smaller number."""
        if after < upto:
            yield from self._below.between(after, upto)
            yield from self._above.between(after, upto)
        elif after > upto:
            yield from self._below.between(after, None)
            yield from self._above.between(after, None)
            yield from self._below.between(None, upto)
            yield from self._above.between(None, upto)

    def drop(self, alive: Callable[[int], bool]) -> bool:
        """Drop those in front that are not alive any more; whether any are left."""
        below, above = self._below.drop(alive), self._above.drop(alive)
        return below or above


class _Run:
    """Ascending numbers, of which the first are dropped sooner or later."""

    def __init__(self) -> None:
        self._all: list[int] = []
        #: Those before are dropped. They are deleted by many: one by one each would cost as much as there are behind it.
        self._start = 0

    def add(self, at: int) -> None:
        """Add a number, which is mostly the largest."""
        if not self._all or at > self._all[-1]:
            self._all.append(at)
            return
        place = bisect_left(self._all, at, self._start)
        if self._all[place] != at:
            insort(self._all, at, self._start)

    def between(self, after: int | None, upto: int | None) -> Iterator[int]:
        """Those in (after, upto]; None for no bound."""
        begin = self._start if after is None else bisect_right(self._all, after, self._start)
        end = len(self._all) if upto is None else bisect_right(self._all, upto, self._start)
        for place in range(begin, end):
            yield self._all[place]

    def drop(self, alive: Callable[[int], bool]) -> bool:
        """Drop those in front that are not alive any more; whether any are left."""
        while self._start < len(self._all) and not alive(self._all[self._start]):
            self._start += 1
        if self._start == len(self._all) or (self._start > 1_000 and self._start * 2 > len(self._all)):
            del self._all[: self._start]
            self._start = 0
        return bool(self._all)
