"""Ctrl-C and its relatives, noted where they arrive and acted on at the next tick, so that faults are healed first."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from chaos.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Catches the signals inside its `with` block. Main thread only."""

    def __init__(self) -> None:
        self._caught = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in SIGNALS:
            # Under nohup a hang-up is ignored, and stays so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise Interrupted if a signal came."""
        if self._caught:
            raise Interrupted(f"interrupted by {self._caught}")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._caught = signal.Signals(number).name
