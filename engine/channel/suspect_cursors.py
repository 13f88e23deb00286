"""Subscribers that a storage had lost and was given back: what it says of their older messages is not believed. No I/O.

Such a subscriber begins at the clock that the storage has at that moment, so everything published before counts as old there,
also what nobody has fetched yet. Other storages still deliver that, and would be told not to. Which messages these are is known
only in this process: another one that takes the subscriber over within seconds believes the storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from engine.channel import clock as clocks
from engine.drivers.delivery import DEADLINE_MS

#: A publish that one storage has may be on its way to another for so long.
_UNDERWAY_NS = (DEADLINE_MS + 5_000) * 1_000_000
_DOUBTS_MAX = 100_000


class _Doubt:
    """`until`: the clocks of the other storages when everything underway had arrived; None before."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.until: Mapping[str, int] | None = None


class Doubts:
    """Of one channel."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._doubts: dict[tuple[str, str], _Doubt] = {}

    def began(self, subscriber: str, storage: str) -> None:
        """The subscriber was created there now."""
        if len(self._doubts) >= _DOUBTS_MAX:
            self._doubts.clear()
        self._doubts[subscriber, storage] = _Doubt(self._now_ns())

    def learn(self, subscriber: str, storage: str, places: Mapping[str, tuple[int, int]]) -> None:
        """Take the clocks of the storages and of the subscriber in them: when it has acknowledged all that was there, the doubt
        is over."""
        doubt = self._doubts.get((subscriber, storage))
        others = {id: place for id, place in places.items() if id != storage}
        if doubt is None or not others:
            return
        if doubt.until is None:
            if self._now_ns() - doubt.since_ns > _UNDERWAY_NS:
                doubt.until = {id: clock for id, (clock, _) in others.items()}
        elif all(id in others and not clocks.after(until, others[id][1]) for id, until in doubt.until.items()):
            del self._doubts[subscriber, storage]

    def believed(self, subscriber: str, storage: str, places: Mapping[str, int]) -> bool:
        """Whether this storage is believed that a message is old, which others have at these clocks."""
        doubt = self._doubts.get((subscriber, storage))
        if doubt is None:
            return True
        until = doubt.until
        return until is not None and all(id in until and clocks.after(clock, until[id]) for id, clock in places.items())
