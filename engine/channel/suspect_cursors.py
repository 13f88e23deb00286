"""Suspect cursors: those of subscribers that a storage had lost and that were created in it again. What it reports about their
older messages is not trusted. No I/O.

Such a subscriber begins at the clock that the storage has at that moment, so everything published before counts as old there,
also what nobody has fetched yet. Other storages still deliver that, and would be told not to. Which messages these are is known
only in this process: another one that takes the subscriber over within seconds believes the storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from engine.channel import clock as clocks
from engine.redis.exchange import DEADLINE_MS

#: A publish that one storage has may be on its way to another for so long.
_UNDERWAY_NS = (DEADLINE_MS + 5_000) * 1_000_000
_SUSPECTS_MAX = 100_000


class _Suspicion:
    """A cursor that is suspect since `since_ns`. `until`: the clocks of the other storages when everything underway had arrived;
    None before."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns = since_ns
        self.until: Mapping[str, int] | None = None


class SuspectCursors:
    """The suspect cursors of one channel."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._suspects: dict[tuple[str, str], _Suspicion] = {}

    def began(self, subscriber: str, storage: str) -> None:
        """Suspect the cursor of this subscriber, which was created there now."""
        if len(self._suspects) >= _SUSPECTS_MAX:
            self._suspects.clear()
        self._suspects[subscriber, storage] = _Suspicion(self._now_ns())

    def learn(self, subscriber: str, storage: str, places: Mapping[str, tuple[int, int]]) -> None:
        """Take the clocks of the storages and of the subscriber in them: when it has acknowledged all that was there, its cursor
        is suspect no more."""
        suspicion = self._suspects.get((subscriber, storage))
        others = {id: place for id, place in places.items() if id != storage}
        if suspicion is None or not others:
            return
        if suspicion.until is None:
            if self._now_ns() - suspicion.since_ns > _UNDERWAY_NS:
                suspicion.until = {id: clock for id, (clock, _) in others.items()}
        elif all(id in others and not clocks.after(until, others[id][1]) for id, until in suspicion.until.items()):
            del self._suspects[subscriber, storage]

    def believed(self, subscriber: str, storage: str, places: Mapping[str, int]) -> bool:
        """Whether to trust this storage that a message is old, which other storages have at these clocks."""
        suspicion = self._suspects.get((subscriber, storage))
        if suspicion is None:
            return True
        until = suspicion.until
        return until is not None and all(id in until and clocks.after(clock, until[id]) for id, clock in places.items())
