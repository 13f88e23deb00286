"""An asyncio event loop in a thread of its own, for handlers that are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from engine.spared import logger
from engine.worker.contexts import RunContexts

log = logger("ironclaim.worker")

#: Coroutines that are cut off at the end get this long to clean up.
CLEAN_UP_S = 1.0

Start = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """Starts with the first coroutine. One that blocks holds up the others of this loop, and nothing else of the worker. Each
    begins in a context of its own, not in that of the handler that started it."""

    def __init__(self, name: str, contexts: RunContexts) -> None:
        self._name = name
        self._contexts = contexts
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def run(self, start: Start) -> None:
        """Run a coroutine on the loop, beside the others. Safe from any thread; does not wait."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._turn, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
        self._loop.call_soon_threadsafe(self._create, start)

    def canceller(self) -> Callable[[], None]:
        """A function that cancels the coroutine which calls this. Safe from any thread; once the coroutine has ended it does
        nothing."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):
                # RuntimeError: the loop is closed.
                loop.call_soon_threadsafe(task.cancel)

        return cancel

    def close(self) -> None:
        """Cancel what still runs, and end the loop."""
        with self._lock:
            loop, thread, self._closing = self._loop, self._thread, True
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2 * CLEAN_UP_S)

    def _create(self, start: Start) -> None:
        begun = False

        async def begin() -> None:
            nonlocal begun
            begun = True
            await start()

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not begun and not self._closing:
                # A handler has cancelled all tasks of the loop: without its beginning the run would have no end.
                self._create(start)

        task = asyncio.get_running_loop().create_task(begin(), context=self._contexts.new())
        # The loop itself holds its tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(done)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closing:
            try:
                loop.run_forever()
            except BaseException:
                # SystemExit in a task that a handler started goes through the loop; the other handlers must not end with it.
                log.exception("the loop of the coroutine handlers goes on after")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            loop.run_until_complete(asyncio.wait(self._tasks, timeout=CLEAN_UP_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
