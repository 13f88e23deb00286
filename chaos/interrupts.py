"""Ctrl-C and its relatives, noted where they arrive and acted on at the next check, so that faults are healed first.

The command line installs this before it imports anything that takes time, so this imports next to nothing itself.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from chaos.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Catches the signals inside its `with` block. Main thread only."""

    def __init__(self) -> None:
        self._caught = ""
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            # Under nohup a hang-up is ignored, and stays so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Let signals do what they did before, where nobody checks: Ctrl-C raises KeyboardInterrupt, also in a process that was
        started in the background, which ignored it."""
        for number, handler in self._before.items():
            ignored = number == signal.SIGINT and handler == signal.SIG_IGN
            signal.signal(number, signal.default_int_handler if ignored else handler)
        try:
            yield
        finally:
            for number in self._before:
                signal.signal(number, self._note)

    def check(self) -> None:
        """Raise Interrupted if a signal came that was not taken."""
        if self._caught:
            raise Interrupted(f"interrupted by {self._caught}")

    def take(self) -> str:
        """What to say about the signal that came, empty when none did. It is dealt with then: `check` forgets it."""
        caught, self._caught = self._caught, ""
        return f"interrupted by {caught}" if caught else ""

    def ignore(self) -> None:
        """From now on, and after the block too, signals do nothing: all that is left is to exit."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        self._before.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Nothing is raised here: an exception out of a handler would come wherever the main thread happens to be, inside of
        # `Popen.wait` too, between taking its lock and the line that would give it back.
        self._caught = signal.Signals(number).name
