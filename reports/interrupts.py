"""SIGINT and SIGTERM end a judge alike: with its JVM and scratch files gone, and without a verdict.

A KeyboardInterrupt may come at a time when it would leave a JVM without an owner, or inside a finalizer that swallows it. So the
signal is kept while `held`, and asked for again by `check` before a verdict is written.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: Cleaning up is not interrupted before the signal has come this often.
PATIENCE = 3


class Interrupts:
    """What has been asked of this process by signal."""

    def __init__(self) -> None:
        self.asked = 0
        self._held = 0

    def install(self) -> None:
        """Take over the signals. Only the main thread may."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def ignore(self) -> None:
        """The work is done: signals change nothing any more."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep signals for later."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def check(self) -> None:
        """Raises KeyboardInterrupt when a signal has come."""
        if self.asked:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.asked += 1
        if (self.asked == 1 and not self._held) or self.asked >= PATIENCE:
            raise KeyboardInterrupt


#: Those of this process.
INTERRUPTS = Interrupts()


@contextmanager
def blocked() -> Iterator[None]:
    """Let no signal through to this thread, and put back the handlers of SIGINT and SIGTERM that the block replaced."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
