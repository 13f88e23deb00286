"""Requests that wait for something: how many there may be, and what ends a wait early."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.requests import Request

from engine.http.problems import RETRY_AFTER_S, Problem

T = TypeVar("T")


class Waits:
    """The requests of an application that wait: at most `most`, long polls and readers of events together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._ending = asyncio.Event()

    @property
    def count(self) -> int:
        """How many wait."""
        return self._count

    @property
    def ending(self) -> asyncio.Event:
        """Set when the application ends, and nobody should wait any more."""
        return self._ending

    def end(self) -> None:
        """Let nobody wait any more."""
        self._ending.set()

    @contextmanager
    def place(self) -> Generator[None]:
        """A place for one request. Raises Problem where all are taken, and when the application ends."""
        if self._ending.is_set() or self._count >= self._most:
            what = "The server ends." if self._ending.is_set() else f"{self._most} requests wait already."
            raise Problem(503, what, headers={"Retry-After": str(RETRY_AFTER_S)})
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


def waiting_ms(request: Request, wanted_ms: int) -> int:
    """How long a request waits: not at all where it asks for the headers alone."""
    return 0 if request.method == "HEAD" else wanted_ms


async def wait_for(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What a request waits for; ends early when its client goes away or the application ends. Raises Problem."""
    waits: Waits = request.app.state.waits
    task = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(waits.ending.wait())]
    try:
        with waits.place():
            await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Problem(503, "The wait has ended early.", headers={"Retry-After": str(RETRY_AFTER_S)})
    finally:
        started = (task, *others)
        for one in started:
            one.cancel()
        await asyncio.gather(*started, return_exceptions=True)
        # The traceback of what a task raised leads to this frame: memory would be held until the collector of cycles comes by.
        del task, others, started


async def _gone(request: Request) -> None:
    """Return when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
