"""The queues and channels that requests name: each is opened once, and closed when the application ends."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from starlette.requests import Request

from engine import models
from engine.channel.asynchronous.channel import AsyncChannel
from engine.errors import EngineError, ServerUnavailable, counted
from engine.http.answers import RETRY_AFTER_S, Problem
from engine.http.settings import HttpSettings
from engine.ops.admin import ReadShards
from engine.ops.base import Call
from engine.queue import admin
from engine.queue.admin import QueueInfo
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.sharding import number_of_shards, read_record
from engine.redis.async_driver import AsyncDriver
from engine.redis.endpoint import Endpoint

#: Queues, and channels, that are open at once. The one that was asked for longest ago makes room: whoever
#: still uses it goes on, with new connections.
QUEUES_MAX = 256
#: What only reads looks again after so long whether a queue was divided meanwhile.
LOOK_AGAIN_S = 1.0

T = TypeVar("T")


#: The name that the keyspace of Bananas has as a queue here; it is not on its wire.
BANANAS = "bananas"


class Opened:
    """What is open, by name: `request.app.state.opened`."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._channel_spec = None if settings.channels is None else settings.channels.spec
        self._queues: OrderedDict[str, AsyncQueue] = OrderedDict()
        self._looked_s: dict[str, float] = {}
        self._channels: OrderedDict[str, AsyncChannel] = OrderedDict()
        self._bananas: AsyncQueue | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._driver = AsyncDriver(Endpoint(settings.url, asynchronous=True), ())

    def queue(self, name: str) -> AsyncQueue:
        """The queue of this name; whole, unless `meet` has found that it has shards. Raises Malformed."""
        found = self._queues.get(name)
        if found is None:
            found = self._made(name)
            self._keep(self._queues, name, found)
        self._queues.move_to_end(name)
        return found

    async def meet(self, name: str, *, changes: bool) -> None:
        """Open the queue of this name with as many shards as it has on its server. A whole one may be divided
        later: a request that `changes` something asks each time, and any other one now and then. One with
        shards is always asked, so that it makes no record of them where there is none any more. Raises
        Malformed, ServerUnavailable."""
        known, now_s = self._queues.get(name), time.monotonic()
        found = self._made(name) if known is None else known
        if found.model.name != "lanes":
            shards = None
        elif (
            known is None
            or changes
            or known.shards is not None
            or now_s - self._looked_s.get(name, 0.0) >= LOOK_AGAIN_S
        ):
            if known is not None:
                # At once, so that requests that come together look once.
                self._looked_s[name] = now_s
            try:
                async with found.driver.permits:
                    text: str = await found.driver.run(found.model.call(ReadShards()))
            except EngineError as error:
                if changes or known is None or isinstance(error, ServerUnavailable):
                    raise
                # What is asked for tells of it.
                return
            shards = number_of_shards(read_record(text).layouts[-1].shards) if text else None
        else:
            return
        if shards != found.shards:
            if known is None:
                await found.close()
            found = self._made(name, shards)
        now = self._queues.get(name)
        if now is None:
            self._looked_s[name] = now_s
            self._keep(self._queues, name, found)
        elif found is known:
            pass
        elif now is not known:
            # Another request was faster.
            await found.close()
        else:
            self._queues[name] = found
            self._close_soon(now)

    async def is_outdated(self, queue: AsyncQueue) -> bool:
        """Whether a queue has another number of shards by now than it was opened with."""
        if self._queues.get(queue.name) is queue:
            # Of a server that is away tells who reads the queue.
            with suppress(EngineError):
                await self.meet(queue.name, changes=False)
        return self._queues.get(queue.name, queue) is not queue

    def channel(self, name: str) -> AsyncChannel:
        """The channel of this name. Raises Malformed."""
        found = self._channels.get(name)
        if found is None:
            found = AsyncChannel(name, self._channel_spec, url=self._settings.url)
            self._keep(self._channels, name, found)
        self._channels.move_to_end(name)
        return found

    def bananas(self) -> AsyncQueue:
        """The keyspace of Bananas."""
        if self._bananas is None:
            settings = self._settings
            own = isinstance(settings.spec, models.Bananas)
            spec, prefix = (settings.spec, settings.prefix) if own else (models.Bananas(), None)
            self._bananas = AsyncQueue(BANANAS, spec, url=settings.url, prefix=prefix)
        return self._bananas

    async def queues(self, limit: int) -> list[QueueInfo]:
        """The queues of the server, last used first. Raises ServerUnavailable."""
        settings = self._settings
        return await self.run(admin.listing(settings.spec, settings.prefix, limit))

    async def run(self, call: Call[T]) -> T:
        """Run a call that belongs to no queue. Raises ServerUnavailable."""
        async with self._driver.permits:
            return await self._driver.run(call)

    async def close(self) -> None:
        """Close all of them."""
        opened: list[AsyncQueue | AsyncChannel] = [*self._queues.values(), *self._channels.values()]
        if self._bananas is not None:
            opened.append(self._bananas)
        for each in opened:
            await each.close()
        await asyncio.gather(*self._closing)
        await self._driver.close()

    def _made(self, name: str, shards: int | None = None) -> AsyncQueue:
        settings = self._settings
        return AsyncQueue(name, settings.spec, url=settings.url, prefix=settings.prefix, shards=shards)

    def _keep(self, opened: OrderedDict[str, Any], name: str, made: AsyncQueue | AsyncChannel) -> None:
        if len(opened) >= QUEUES_MAX:
            _, oldest = opened.popitem(last=False)
            self._looked_s.pop(oldest.name, None)
            self._close_soon(oldest)
        opened[name] = made

    def _close_soon(self, opened: AsyncQueue | AsyncChannel) -> None:
        task = asyncio.get_running_loop().create_task(opened.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def queue_of(request: Request) -> AsyncQueue:
    """The queue that the path of a request names. Raises Malformed."""
    return request.app.state.opened.queue(request.path_params["queue"])


# -- Requests that wait for something: how many there may be, and what ends a wait early.


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
    def one_more(self) -> Generator[None]:
        """One request that waits. Raises Problem where as many wait as may, and when the application ends."""
        if self._ending.is_set() or self._count >= self._most:
            full = f"As many wait as may: {counted(self._most, 'request')}."
            what = "The server ends." if self._ending.is_set() else full
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
    """What a request waits for; ends early when its client goes away or the application ends. Raises
    Problem."""
    waits: Waits = request.app.state.waits
    task = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(waits.ending.wait())]
    try:
        with waits.one_more():
            await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Problem(503, "The wait has ended early.", headers={"Retry-After": str(RETRY_AFTER_S)})
    finally:
        started = (task, *others)
        for one in started:
            one.cancel()
        await asyncio.gather(*started, return_exceptions=True)
        # The traceback of what a task raised leads to this frame: memory would be held until the collector of
        # cycles comes by.
        del task, others, started


async def _gone(request: Request) -> None:
    """Return when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
