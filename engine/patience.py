"""How long an answer is waited for under asyncio: of a server of Redis, or of a receiver of webhooks."""

from __future__ import annotations

import asyncio
from typing import Any

#: How often a time that is over is prolonged, and by which part of it each time.
_LOOKS, _PART = 4, 40


class Patience:
    """The time within which an answer must come, else TimeoutError.

    A loop that stood still, because a handler blocked it or the process was stopped, hears of an answer that
    has long been there and of the end of the time at once; the task that waits would read it a few turns
    later. So a time that is over is prolonged by some more turns."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._bound = asyncio.timeout(None)

    async def __aenter__(self) -> Patience:
        await self._bound.__aenter__()
        self._wait(_LOOKS)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._timer.cancel()
        await self._bound.__aexit__(*failure)

    def renew(self) -> None:
        """Begin it anew: the next answer has its own time."""
        self._timer.cancel()
        self._bound.reschedule(None)
        self._wait(_LOOKS)

    def _wait(self, looks: int, part: int = 1) -> None:
        loop = asyncio.get_running_loop()
        if looks < 0:
            self._bound.reschedule(loop.time())
        else:
            self._timer = loop.call_later(self._timeout_s / part, self._wait, looks - 1, _PART)
