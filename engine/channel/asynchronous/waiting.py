"""How tasks wait: for messages, and for the answers of several storages."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from engine.channel.steps import Answers, Round


class AsyncWaiter:
    """A task that rests in a fetch until there may be messages, on the event loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._woken = asyncio.Event()
        self._closed = False

    def wake(self) -> None:
        """Wake the task. Safe from any thread."""
        if threading.get_ident() == self._thread:
            self._woken.set()
        else:
            # In a closed loop no task waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Wake the task for the last time: the channel is closed."""
        self._closed = True
        self.wake()

    async def rest(self, most_ms: int) -> bool:
        """Wait until it is woken, or was since the last rest, for at most this time. Returns False when the
        channel is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_ms / 1000):
                await self._woken.wait()
        self._woken.clear()
        return not self._closed


async def ask_at_once(asked: Round, ask: Callable[[str], Coroutine[Any, Any, Answers]]) -> dict[str, Answers]:
    """Ask several storages at once, each in a task of its own. Returns the answers that came in time."""
    tasks = {id: asyncio.create_task(ask(id)) for id in asked.asks}
    left, until_s = set(tasks.values()), None
    loop = asyncio.get_running_loop()
    try:
        while left:
            grace_s = None if until_s is None else max(0.0, until_s - loop.time())
            done, left = await asyncio.wait(left, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            if (
                until_s is None
                and asked.enough is not None
                and any(asked.enough(task.result()) for task in done)
            ):
                until_s = loop.time() + asked.grace_ms / 1000
    finally:
        for task in left:
            task.cancel()
    return {id: task.result() for id, task in tasks.items() if task not in left}
