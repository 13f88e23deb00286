"""How many jobs a worker leases ahead of its free handlers. Pure code, a part of the state machine."""

from __future__ import annotations

from collections.abc import Iterable

from engine.worker.machine.events import MS

#: What is taken ahead fills this time.
FILL_MS = 50
#: What more than that was taken, because handlers have become slower since, goes back when it has waited this
#: long.
WAIT_MS_MAX = 4 * FILL_MS
#: Weight of the newest run in the mean.
_NEWEST = 1 / 8


class Prefetch:
    """How many jobs a worker takes ahead of its handlers: what they work off in 50 ms, by their measured time
    (rule 21).

    More would wait behind one slow handler while other workers idle; fewer would leave handlers idle during a
    round trip. The number starts at 1, at most doubles with each run that has ended, and shrinks at once.
    """

    def __init__(self, places: int, most: int) -> None:
        self._places = places
        self._most = most
        self._mean_ns = 0.0
        self._grown = 1

    def ended(self, took_ns: int) -> None:
        """Count a run that took this long, in ns."""
        self._mean_ns += (took_ns - self._mean_ns) * (_NEWEST if self._mean_ns else 1)
        grown = min(2 * self._grown, self._most)
        if not self._mean_ns or grown * self._mean_ns > self._places * FILL_MS * MS:
            grown = min(grown, self._fill(self._places))
        self._grown = grown or 1

    def ahead(self, running_since_ns: Iterable[int], now_ns: int, places: int | None = None) -> int:
        """Jobs to have leased beyond those that run. `running_since_ns`: when the handlers that run were
        started, oldest first. `places`: of so many handlers, where not all may run these jobs.

        A handler that takes longer than usual frees no place soon, also one whose time nobody knows yet.
        """
        turning = self._places if places is None else places
        for since_ns in running_since_ns:
            if now_ns - since_ns <= FILL_MS * MS + self._mean_ns:
                break
            turning -= 1
        return min(self._most, self._grown, self._fill(turning))

    def _fill(self, handlers: int) -> int:
        """Jobs that so many handlers finish in the time to fill; 1 before anything was measured."""
        if not self._mean_ns:
            return min(1, handlers)
        return int(handlers * FILL_MS * MS / self._mean_ns)
