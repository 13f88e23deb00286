"""Looks at all lanes of a queue, a part a call: what is known while a round goes on, and after it."""

from __future__ import annotations

from engine.ops.looks import Counts, ObstaclesPart
from engine.queue.why import Obstacles, obstacles_of

#: Parts of a round: with more lanes, names and reasons are of the first ones.
_PARTS_MAX = 200


class LanesRound:
    """Numbers of lanes that come in parts: the sum of a whole round, and of the parts so far while there was none."""

    def __init__(self) -> None:
        self.cursor = ""
        self._so_far = 0
        self._whole: int | None = None

    def add(self, counts: Counts) -> None:
        """The answer to the call with `cursor`."""
        self._so_far += counts.waiting
        self.cursor = counts.cursor
        if not counts.cursor:
            self._whole, self._so_far = self._so_far, 0

    @property
    def least(self) -> bool:
        """Whether there are lanes that were never counted."""
        return self._whole is None

    @property
    def waiting(self) -> int:
        """The waiting jobs as far as they are known."""
        return self._so_far if self._whole is None else self._whole


class ObstaclesRound:
    """What holds jobs back, in parts."""

    def __init__(self) -> None:
        self._parts: list[ObstaclesPart] = []
        self.whole: Obstacles | None = None

    @property
    def cursor(self) -> str:
        """Where the next part begins."""
        return self._parts[-1].cursor if self._parts else ""

    def add(self, part: ObstaclesPart) -> None:
        """The answer to the call with `cursor`."""
        self._parts.append(part)
        known = obstacles_of(self._parts)
        if not part.cursor or len(self._parts) >= _PARTS_MAX:
            self.whole, self._parts = known, []
        elif self.whole is None or self.whole.cut:
            # Until the first round has ended the parts so far are better than nothing.
            self.whole = known
