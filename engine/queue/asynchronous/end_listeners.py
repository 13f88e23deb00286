"""Listens for the ends of jobs under asyncio: one task and one connection, however many tasks wait."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Generator

from engine.errors import EngineError
from engine.ops.looks import AwaitEnds, EndedJobs
from engine.queue.asynchronous.calls import AsyncBlockingCalls
from engine.queue.results import FIRST_ENTRY
from engine.redis.async_connections import OfEachLoop
from engine.redis.call import BLOCK_MS


class AsyncEndListener:
    """One task that waits for the end of a job. `token`: what a look registers it under. `model_ms`: at most
    so long it may rest, because its model may tell nothing of an end."""

    def __init__(self, token: str, model_ms: int) -> None:
        self.token = token
        self._model_ms = model_ms
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Wake the task: its job may have ended."""
        self._told.set()

    async def rest(self, most_ms: int) -> None:
        """Wait until the job may have ended, for at most this time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(most_ms, self._model_ms) / 1000):
                await self._told.wait()
        self._told.clear()


class AsyncEndListeners:
    """All tasks that wait for ends of jobs of one queue; those of each event loop apart."""

    def __init__(self, blocking: AsyncBlockingCalls) -> None:
        self._of_loops = OfEachLoop(lambda: _Listening(blocking))

    def listening_for(self, job: str) -> contextlib.AbstractContextManager[AsyncEndListener]:
        """A listener for the end of this job, from before the first look on, so that no end is missed in
        between."""
        return self._of_loops.here().listening_for(job)

    async def close(self) -> None:
        """End the listening of the running loop."""
        await self._of_loops.here().close()


class _Listening:
    """The tasks of one event loop that wait. Its own task ends within `BLOCK_MS` of the last wait."""

    def __init__(self, blocking: AsyncBlockingCalls) -> None:
        self._model_ms = blocking.model.result_poll_ms
        self._by_job: dict[str, set[AsyncEndListener]] = {}
        self._task: asyncio.Task[None] | None = None
        self._blocking = blocking
        self._token = ""

    @contextlib.contextmanager
    def listening_for(self, job: str) -> Generator[AsyncEndListener]:
        if self._task is None or self._task.done():
            # State of an earlier task is dropped; a new stream begins at its first entry.
            self._by_job, self._token = {}, secrets.token_hex(8)
            self._task = asyncio.get_running_loop().create_task(self._listen(self._token, self._by_job))
        by_job, listener = self._by_job, AsyncEndListener(self._token, self._model_ms)
        by_job.setdefault(job, set()).add(listener)
        try:
            yield listener
        finally:
            by_job[job].discard(listener)
            if not by_job[job]:
                del by_job[job]

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._blocking.close()

    async def _listen(self, token: str, by_job: dict[str, set[AsyncEndListener]]) -> None:
        after = FIRST_ENTRY
        while True:
            try:
                ended: EndedJobs = await self._blocking.run(AwaitEnds(token, after, BLOCK_MS))
                after, told = ended.after, ended.jobs
            except EngineError:
                # The server fails: the tasks that wait poll, and get the error themselves.
                told = tuple(by_job)
            for job in told:
                for listener in by_job.get(job, ()):
                    listener.tell()
            if not by_job:
                return


def check_may_wait(call: str, of: object, instead: str) -> None:
    """A coroutine may wait anywhere."""
