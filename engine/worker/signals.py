"""What signals mean to a worker: the first SIGTERM or SIGINT asks it to stop, a second one to stop at once, a third ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from engine.worker.machine.events import StopReason

#: They mean the same.
NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(ask: Callable[[StopReason], None]) -> Generator[list[int]]:
    """Ask for a stop at a signal, while this runs in the main thread. Yields the signals that have come so far."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def hear(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        ask("stopped" if len(came) == 1 else "at once")
        if len(came) > 1:
            # Should even that take too long, the next signal ends the process.
            for other in NUMBERS:
                signal.signal(other, signal.SIG_DFL)

    before = {number: signal.signal(number, hear) for number in NUMBERS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
