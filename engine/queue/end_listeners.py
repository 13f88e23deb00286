"""Who listens for the ends of jobs under asyncio: one task and one connection, however many tasks wait."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Generator
from typing import TYPE_CHECKING

from engine.errors import EngineError
from engine.operations import Hear, Heard
from engine.queue.listening import BLOCK_MS, AsyncListening

if TYPE_CHECKING:
    from engine.queue.asynchronous.queue import AsyncQueue

#: The entry that a stream begins with.
FIRST_ENTRY = "0-1"


class Ear:
    """One task's share of the listening."""

    def __init__(self, token: str) -> None:
        #: To register under.
        self.token = token
        self.rung = asyncio.Event()

    async def hear(self, most_ms: int) -> None:
        """Until the job may have ended; at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_ms / 1000):
                await self.rung.wait()
        self.rung.clear()


class Ears:
    """The listening of one queue, on the event loop that runs. It ends within `BLOCK_MS` of the last wait."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._by_job: dict[str, set[Ear]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._listening = AsyncListening(queue)
        self._token = ""

    @contextlib.contextmanager
    def listening_for(self, job: str) -> Generator[Ear]:
        """From before the first look on, so that nothing is told in between."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._loop is not loop:
            # Whatever an earlier task or loop has left is of no use; a fresh stream begins at its first entry.
            self._loop, self._by_job, self._token = loop, {}, secrets.token_hex(8)
            self._task = loop.create_task(self._listen(self._token, self._by_job))
        by_job, ear = self._by_job, Ear(self._token)
        by_job.setdefault(job, set()).add(ear)
        try:
            yield ear
        finally:
            by_job[job].discard(ear)
            if not by_job[job]:
                del by_job[job]

    async def close(self) -> None:
        """End the listening."""
        task, self._task = self._task, None
        if task is not None and self._loop is asyncio.get_running_loop():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._listening.close()

    async def _listen(self, token: str, by_job: dict[str, set[Ear]]) -> None:
        after = FIRST_ENTRY
        while True:
            try:
                heard: Heard = await self._listening.run(Hear(token, after, BLOCK_MS))
                after, told = heard.after, heard.jobs
            except EngineError:
                # The server is away, or something is wrong with it: those who wait look, and meet it themselves.
                told = tuple(by_job)
            for job in told:
                for ear in by_job.get(job, ()):
                    ear.rung.set()
            if not by_job:
                return
