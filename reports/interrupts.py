"""SIGINT and SIGTERM both end the judge: it stops its JVM, removes its scratch files and writes no verdict.

A KeyboardInterrupt at the wrong moment would orphan the JVM, or be swallowed by a finalizer. So signals are only counted inside
`held`, and `check` raises for them before a verdict is written.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Clean-up is interrupted only by this many signals.
PATIENCE = 3


class Interrupts:
    """The SIGINT and SIGTERM signals that this process has received."""

    def __init__(self) -> None:
        self.asked = 0
        self._held = 0

    def install(self) -> None:
        """Install the signal handlers. Call from the main thread only, as Python requires."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def ignore(self) -> None:
        """Ignore signals from now on, because the work is done."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside this block signals are only counted, and do not raise before the `PATIENCE`th; call `check` afterwards."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self.asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.asked += 1
        if (self.asked == 1 and not self._held) or self.asked >= PATIENCE:
            raise KeyboardInterrupt


#: The signals of this process.
INTERRUPTS = Interrupts()


@contextmanager
def blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread, and restore their handlers if the block replaced them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
