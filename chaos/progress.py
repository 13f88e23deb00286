"""Live progress: one line that is redrawn on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TextIO

TERMINAL_PERIOD_S = 0.5
PLAIN_PERIOD_S = 5.0

#: Rates are averages over this long.
RATE_WINDOW_S = 5.0

CLEAR_LINE = "\r\x1b[K"


class Drawn(Protocol):
    """What a line shows. `created` and `finished` are totals so far."""

    @property
    def phase(self) -> str: ...

    @property
    def created(self) -> int: ...

    @property
    def finished(self) -> int: ...

    def words(self, created_per_s: float, finished_per_s: float) -> str:
        """The line after time and phase."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """A run of jobs; `fault` is empty when none is in force."""

    phase: str
    created: int
    finished: int
    waiting: int
    delayed: int
    active: int
    workers_alive: int
    workers: int
    fault: str = ""

    def words(self, created_per_s: float, finished_per_s: float) -> str:
        return (
            f"offered {created_per_s:5.1f}/s  finished {finished_per_s:5.1f}/s  "
            f"backlog {self.waiting} (+{self.delayed} delayed, {self.active} active)  "
            f"workers {self.workers_alive}/{self.workers}  fault: {self.fault or 'none'}"
        )


def terminal_columns() -> int:
    """Width of the terminal, which may change at any time."""
    return shutil.get_terminal_size().columns


class Progress:
    """Draws states on a stream; other lines go through `say`, so that they do not collide with the redrawn one."""

    def __init__(
        self, stream: TextIO, *, clock_s: Callable[[], float] = time.monotonic, columns: Callable[[], int] = terminal_columns
    ) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._clock_s = clock_s
        self._columns = columns
        self._started_s = clock_s()
        self._drawn_s = float("-inf")
        self._drawn_phase = ""
        self._totals: deque[tuple[float, int, int]] = deque()

    def due(self, phase: str) -> bool:
        """True when it is time to draw: the period has passed or the phase is new."""
        period_s = TERMINAL_PERIOD_S if self._terminal else PLAIN_PERIOD_S
        return phase != self._drawn_phase or self._clock_s() - self._drawn_s >= period_s

    def draw(self, state: Drawn) -> None:
        """Draw the state."""
        now_s = self._clock_s()
        self._drawn_s, self._drawn_phase = now_s, state.phase
        self._totals.append((now_s, state.created, state.finished))
        while len(self._totals) > 2 and self._totals[1][0] <= now_s - RATE_WINDOW_S:
            self._totals.popleft()
        line = self._line(state, now_s)
        # A line that wraps could not be redrawn.
        self._stream.write(f"{CLEAR_LINE}{line[: self._columns() - 1]}" if self._terminal else f"{line}\n")
        self._stream.flush()

    def say(self, line: str) -> None:
        """Print one line that stays."""
        self._stream.write(f"{CLEAR_LINE if self._terminal else ''}{line}\n")
        self._stream.flush()

    def _line(self, state: Drawn, now_s: float) -> str:
        then_s, created, finished = self._totals[0]
        span_s = now_s - then_s
        offered = (state.created - created) / span_s if span_s else 0.0
        done = (state.finished - finished) / span_s if span_s else 0.0
        return f"[{now_s - self._started_s:5.1f} s] {state.phase:<24} {state.words(offered, done)}"
