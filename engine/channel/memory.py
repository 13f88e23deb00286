"""MemoryStorage: channels in the memory of one process, with the operations and the replies of those on a server.

For tests, for services of one process, and as one of several storages. Threads may share it. What has expired leaves it as others
come, so it holds what is alive and little more; nothing survives the process.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import overload

from engine.channel.asynchronous.storage import Listener
from engine.channel.memory_state import MemoryState
from engine.channel.steps import Ask
from engine.channel.storage import Opening
from engine.errors import EngineError
from engine.ops.base import Operation
from engine.ops.channels import (
    Acknowledge,
    AcknowledgeReply,
    AskOld,
    Fetch,
    FetchReply,
    OldReply,
    Publish,
    PublishReply,
    Subscribe,
    SubscribeReply,
    Unsubscribe,
    UnsubscribeReply,
)
from engine.redis.exchange import DEADLINE_MS, Sent


class MemoryStorage:
    """Channels in memory. `now_ns`: a clock that never goes back; lives are counted by it, and `not_after_ms`."""

    def __init__(self, *, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._state = MemoryState()
        self._listeners: dict[str, dict[object, Listener]] = {}

    @overload
    def apply(self, channel: str, operation: Publish) -> PublishReply: ...
    @overload
    def apply(self, channel: str, operation: Subscribe) -> SubscribeReply: ...
    @overload
    def apply(self, channel: str, operation: Unsubscribe) -> UnsubscribeReply: ...
    @overload
    def apply(self, channel: str, operation: Fetch) -> FetchReply: ...
    @overload
    def apply(self, channel: str, operation: Acknowledge) -> AcknowledgeReply: ...
    @overload
    def apply(self, channel: str, operation: AskOld) -> OldReply: ...
    @overload
    def apply(self, channel: str, operation: Operation) -> object: ...
    def apply(self, channel: str, operation: Operation) -> object:
        """Carry out an operation, all of it at one instant."""
        with self._lock:
            reply = self._state.apply(channel, operation, self._now_us())
            listeners = list(self._listeners.get(channel, {}).values()) if isinstance(operation, Publish) else []
        for listener in listeners:
            listener()
        return reply

    def listen(self, channel: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each publish on a channel, from the thread that publishes, until what this returns is called."""
        me = object()
        with self._lock:
            self._listeners.setdefault(channel, {})[me] = listener

        def stop() -> None:
            with self._lock:
                listeners = self._listeners.get(channel, {})
                listeners.pop(me, None)
                if not listeners:
                    self._listeners.pop(channel, None)

        return stop

    def open(self, opening: Opening) -> OpenMemory:
        """For `Channel`."""
        return OpenMemory(self, opening.channel)

    def open_async(self, opening: Opening) -> AsyncOpenMemory:
        """For `AsyncChannel`."""
        return AsyncOpenMemory(self, opening.channel)

    def now_ms(self) -> int:
        """This storage's time, that `not_after_ms` is compared with."""
        return self._now_us() // 1000

    def held(self) -> int:
        """How many values are in memory, alive or not: two for each message, one for each channel and each subscriber."""
        return len(self._state)

    def _now_us(self) -> int:
        return self._now_ns() // 1000


class OpenMemory:
    """One channel in memory, as a channel object uses it."""

    live = True

    def __init__(self, storage: MemoryStorage, channel: str) -> None:
        self._storage = storage
        self._channel = channel
        self._stops: dict[Listener, Callable[[], None]] = {}

    def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Carry out an operation."""
        first_send_ns = time.monotonic_ns()
        operation = ask(self._storage.now_ms() + DEADLINE_MS) if callable(ask) else ask
        reply: object = self._storage.apply(self._channel, operation)
        return Sent(reply, first_send_ns, time.monotonic_ns(), True)

    def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Carry out several, one after the other."""
        return [self.send(ask) for ask in asks]

    def listen(self, listener: Listener) -> None:
        """Call the listener after each publish."""
        if listener not in self._stops:
            self._stops[listener] = self._storage.listen(self._channel, listener)

    def unlisten(self, listener: Listener) -> None:
        """Stop calling the listener."""
        stop = self._stops.pop(listener, None)
        if stop is not None:
            stop()

    def close(self) -> None:
        """Stop calling listeners."""
        for listener in list(self._stops):
            self.unlisten(listener)


class AsyncOpenMemory:
    """One channel in memory, for asyncio. No call takes long, but each gives other tasks a turn, as one to a server does."""

    live = True

    def __init__(self, storage: MemoryStorage, channel: str) -> None:
        self._open = OpenMemory(storage, channel)
        self.listen = self._open.listen
        self.unlisten = self._open.unlisten

    async def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Carry out an operation."""
        await asyncio.sleep(0)
        return self._open.send(ask)

    async def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Carry out several, one after the other."""
        await asyncio.sleep(0)
        return self._open.send_many(asks)

    async def close(self) -> None:
        """Stop calling listeners."""
        self._open.close()
