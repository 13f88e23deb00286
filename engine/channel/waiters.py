"""Those who rest in a fetch until a bell rings: a thread or greenlet, or a task."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Waiter:
    """One thread or greenlet."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._closed = False

    def ring(self) -> None:
        """Wake it. From any thread."""
        self._rung.set()

    def close(self) -> None:
        """Wake it for the last time."""
        self._closed = True
        self._rung.set()

    def rest(self, most_ms: int) -> bool:
        """Until it is rung, or was since the last rest was over. False when it is closed."""
        self._rung.wait(most_ms / 1000)
        self._rung.clear()
        return not self._closed


class AsyncWaiter:
    """One task of the loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = asyncio.Event()
        self._closed = False

    def ring(self) -> None:
        """Wake it. From any thread."""
        if threading.get_ident() == self._thread:
            self._rung.set()
        else:
            # A loop that is closed has nobody who waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._rung.set)

    def close(self) -> None:
        """Wake it for the last time."""
        self._closed = True
        self.ring()

    async def rest(self, most_ms: int) -> bool:
        """Until it is rung, or was since the last rest was over. False when it is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_ms / 1000):
                await self._rung.wait()
        self._rung.clear()
        return not self._closed
