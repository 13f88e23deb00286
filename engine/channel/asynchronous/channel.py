"""A durable channel: publish with ids of your own, any number of subscribers each with a cursor, messages
that come again until they are acknowledged (docs/guides/channels.md)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import redis.asyncio

from engine import validate
from engine.channel import contents
from engine.channel.asynchronous.storage import AsyncOpenStorage
from engine.channel.settings import (
    MESSAGES_MAX,
    ChannelSettings,
    Storage,
    check_id,
    message_ids,
    new_messages,
    parts_of,
)
from engine.channel.steps import (
    Answers,
    AsyncWaiter,
    Rest,
    Round,
    Send,
    SendMany,
    Steps,
    async_ask_at_once,
    waiting,
)
from engine.errors import EngineError
from engine.models import Dsps
from engine.observer import Observer
from engine.ops.channels import Acknowledged, Fetched, NewMessage, Published, Subscribed
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions
from engine.validate import Milliseconds

T = TypeVar("T")


class AsyncChannel(ChannelSettings):
    """A named channel on a Redis or Valkey server, in the format of DSPS, for the tasks of one event loop at
    a time. It connects on first use, and creates nothing before the first `publish` or `subscribe`. At most
    16 calls run at once, each on a connection of its own; fetches that wait are none.

    `model`: `models.Dsps()`, whose rules say how long messages are kept. `url` or `client` says where the
    server is. A url is redis://, rediss:// or unix://, with user and password. Of a redis.asyncio.Redis,
    address, credentials and TLS settings are used for connections of our own. `connect`: times and bounds of
    those. `storages` instead of these: up to ten by ids of your own, RedisStorage or MemoryStorage. Messages
    are written to all and read from all. One that works is enough. `lua` replaces the folder of scripts
    and `observer` is told of every call; services need neither. Raises Malformed for what does not fit.
    """

    def __init__(
        self,
        name: str,
        model: Dsps | None = None,
        *,
        url: str = DEFAULT_URL,
        client: redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
        connect: ConnectOptions | None = None,
        storages: Mapping[str, Storage] | None = None,
        lua: Path | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(
            name,
            model,
            url=url,
            client=client,
            connect=connect,
            storages=storages,
            lua=lua,
            observer=observer,
        )
        self._open: dict[str, AsyncOpenStorage] = {
            id: storage.open_async(self._opening) for id, storage in self.storages.items()
        }
        self._waiters: set[AsyncWaiter] = set()

    async def publish(self, id: str, content: object, *, intended_ns: int | None = None) -> Published:
        """Publish a message: every subscriber gets it until it acknowledges it, or for `expire_ms`. It is
        there once, however often it is sent. An `id` (1 to 63 of 0-9 a-z _ -) that the channel knows is a
        duplicate, for as long as the message lives.

        `content` is any JSON value, or RawJson, which travels as it is spelled; at most 512 KiB.
        `intended_ns` (monotonic) is only told to the observer. Raises Malformed before any I/O,
        ServerUnavailable when nothing was applied, and OutcomeUnknown when that cannot be said: then simply
        publish it again.
        """
        message = NewMessage(check_id("id", id), contents.written(content))
        return await self._carry_out(self._plan.publish(message, validate.intended_ns(intended_ns)))

    async def publish_many(
        self, messages: Iterable[tuple[str, object]], *, intended_ns: int | None = None
    ) -> list[Published]:
        """Publish many messages, pairs of id and content, in this order; what came of each. At most 100,000,
        all with different ids. Up to 1,000 or 1 MiB are published in one piece; between several, messages of
        others may come.

        Raises Malformed that names the bad message by its index, before any I/O. Raises as `publish` does;
        when only some pieces failed, PartlyPublished, whose `results` tells them apart.
        """
        return await self._carry_out(
            self._plan.publish_many(parts_of(new_messages(messages)), validate.intended_ns(intended_ns))
        )

    async def subscribe(self, subscriber: str) -> Subscribed:
        """Create a subscriber, whose first message is the next one that is published. One that is there stays
        as it is. It lives as long as it fetches or acknowledges within `expire_ms`. Raises as `publish`
        does."""
        return await self._carry_out(self._plan.subscribe(check_id("subscriber", subscriber)))

    async def unsubscribe(self, subscriber: str) -> bool:
        """Delete a subscriber; False when there was none. Raises as `publish` does."""
        return await self._carry_out(self._plan.unsubscribe(check_id("subscriber", subscriber)))

    async def fetch(self, subscriber: str, *, max_messages: int = 64, wait_ms: Milliseconds = 0) -> Fetched:
        """The next messages of a subscriber, those after what it has acknowledged, in order; at most
        `max_messages` (0 to 1,000) and about 1 MiB. They come again until their receipt is acknowledged.

        With `wait_ms` it waits for messages where there are none, at most 30 s, and returns within
        milliseconds of a publish. When the channel is closed meanwhile, at once. Messages that expired unread
        are skipped, and counted in `lost`.

        Raises Malformed, ChannelNotFound, SubscriptionNotFound, ServerUnavailable, OutcomeUnknown.
        """
        known = check_id("subscriber", subscriber)
        most = validate.integer("max_messages", max_messages, 0, MESSAGES_MAX)
        wait = validate.duration_ms("wait_ms", wait_ms, 0, validate.DURATION_MS_MAX) if most else 0
        steps = waiting(
            lambda waited_ms: self._plan.fetch(known, most, waited_ms),
            wait,
            self.ttl_s,
            has_more=lambda found: found.more_messages,
        )
        if not wait:
            return await self._carry_out(steps)
        with self._listening() as waiter:
            return await self._carry_out(steps, waiter)

    async def acknowledge(self, subscriber: str, receipt: str) -> Acknowledged:
        """Acknowledge the messages of a fetch by its receipt, and all before them: they do not come again. A
        receipt that was acknowledged before is `stale` and changes nothing.

        Raises Malformed for a receipt that is damaged, or of another channel or subscriber; otherwise as
        `fetch` does.
        """
        return await self._carry_out(self._plan.acknowledge(check_id("subscriber", subscriber), receipt))

    async def are_old(self, subscriber: str, ids: Sequence[str]) -> dict[str, bool]:
        """Whether the subscriber will not be given these messages (any more), because it has acknowledged
        them or came later: by id. False for a message that is not known (any more). Changes nothing. Raises
        as `fetch` does."""
        return await self._carry_out(self._plan.are_old(check_id("subscriber", subscriber), message_ids(ids)))

    async def close(self) -> None:
        """Close the idle connections, and wake all waiting `fetch` calls: they return without messages."""
        for waiter in tuple(self._waiters):
            waiter.close()
        for storage in self._open.values():
            await storage.close()

    @contextmanager
    def _listening(self) -> Generator[AsyncWaiter]:
        """A waiter that is woken by publications from before the first poll on, so that none is missed in
        between."""
        waiter = AsyncWaiter()
        self._waiters.add(waiter)
        try:
            for storage in self._open.values():
                storage.listen(waiter.wake)
            yield waiter
        finally:
            self._waiters.discard(waiter)
            for storage in self._open.values():
                storage.unlisten(waiter.wake)

    async def _carry_out(self, steps: Steps[T], waiter: AsyncWaiter | None = None) -> T:
        answer: Any = None
        try:
            while True:
                match steps.send(answer):
                    case Send(id, operation, intended_ns):
                        answer = await self._open[id].send(operation, intended_ns)
                    case SendMany(id, operations, intended_ns):
                        answer = await self._open[id].send_many(operations, intended_ns)
                    case Round() as asked:
                        answer = await async_ask_at_once(asked, partial(self._ask_all, asked))
                    case Rest(most_ms, deaf_ms):
                        all_live = all(storage.live for storage in self._open.values())
                        answer = waiter is not None and await waiter.rest(most_ms if all_live else deaf_ms)
        except StopIteration as end:
            return end.value

    async def _ask_all(self, asked: Round, id: str) -> Answers:
        asks = asked.asks[id]
        try:
            if len(asks) == 1:
                return [await self._open[id].send(asks[0], asked.intended_ns)]
            return await self._open[id].send_many(asks, asked.intended_ns)
        except EngineError as error:
            return [error] * len(asks)

    async def __aenter__(self) -> AsyncChannel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
