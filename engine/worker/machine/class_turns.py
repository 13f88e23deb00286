"""Which of a worker's classes its next claim and its next wait are about: at most 15 a call, group by group (rules 18 and 22)."""

from __future__ import annotations

from collections.abc import Sequence

#: Blocking on 1,000 lists costs the server 0.4 ms: at most 16, and one of them is that of the news.
CLASSES_PER_CALL_MAX = 15


class ClassTurns:
    """The groups of one worker's classes, and whose turn it is."""

    def __init__(self, classes: Sequence[str]) -> None:
        step = CLASSES_PER_CALL_MAX
        self._groups = [tuple(classes[at : at + step]) for at in range(0, len(classes), step)] or [()]
        self._at = 0
        self._found_empty = 0

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self._groups)

    def current(self) -> tuple[str, ...]:
        """The classes of the next call."""
        return self._groups[self._at]

    def claimed(self, *, more: bool) -> bool:
        """A claim was answered; `more`: it left work behind, as far as one can tell. True while a group may have work for us."""
        self._found_empty = 0 if more else self._found_empty + 1
        self._at = (self._at + 1) % self.groups
        return self._found_empty < self.groups

    def waited(self, *, marker: bool) -> None:
        """A wait ended. The group that it found a marker of is claimed next."""
        if marker:
            self._found_empty = 0
        else:
            self._at = (self._at + 1) % self.groups
