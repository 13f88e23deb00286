"""Channels on a Redis or Valkey server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.call import Call
from engine.channel.storage import Ask, Opening, Ring
from engine.drivers.async_bell import AsyncBell
from engine.drivers.async_driver import AsyncDriver
from engine.drivers.bell import Bell
from engine.drivers.driver import SyncDriver
from engine.drivers.endpoint import DEFAULT_URL, ConnectOptions, Endpoint
from engine.drivers.errand import Sent
from engine.errors import EngineError
from engine.models.dsps import DspsModel

if TYPE_CHECKING:
    import redis
    import redis.asyncio


class RedisStorage:
    """A server: `url`, or `client` (a redis.Redis for `Channel`, a redis.asyncio.Redis for `AsyncChannel`), whose address,
    credentials and TLS settings are used for connections of our own. `connect`: times and bounds of those. Each channel that is
    opened on it has connections of its own."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        client: redis.Redis | redis.asyncio.Redis | None = None,
        connect: ConnectOptions | None = None,
    ) -> None:
        self._url = url
        self._client = client
        self._connect = connect

    @property
    def place(self) -> object:
        """Equal for storages that are given in the same words."""
        return self._url if self._client is None else id(self._client)

    def open(self, opening: Opening) -> OpenRedis:
        """For `Channel`. Raises Malformed for a url or client that does not fit."""
        return OpenRedis(Endpoint(self._url, self._client, self._connect), opening)

    def open_async(self, opening: Opening) -> AsyncOpenRedis:
        """For `AsyncChannel`. Raises Malformed for a url or client that does not fit."""
        return AsyncOpenRedis(Endpoint(self._url, self._client, self._connect, asynchronous=True), opening)


class OpenRedis:
    """One channel there."""

    def __init__(self, endpoint: Endpoint, opening: Opening) -> None:
        self.url = endpoint.url
        self._model = DspsModel(opening.channel, lua=opening.lua)
        self._driver = SyncDriver(endpoint, self._model.scripts.values(), observer=opening.observer)
        self._bell = Bell(endpoint, self._model.keys.bell)

    @property
    def live(self) -> bool:
        """Whether every message that is published from now on rings."""
        return self._bell.live

    def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation."""
        if not callable(ask):
            return self._driver.send(self._model.call(ask), intended_ns)
        self._driver.server_now_ms()
        sent = self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
        if sent.came_late:
            sent = self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
        return sent

    def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Run several, in one piece."""
        self._driver.server_now_ms()
        outcomes = self._driver.send_many(self._calls(asks), intended_ns)
        late = late_of(outcomes)
        if late:
            again = self._driver.send_many(self._calls([asks[at] for at in late]), intended_ns)
            for at, outcome in zip(late, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    def listen(self, ring: Ring) -> None:
        """Ring this one from now on."""
        self._bell.listen(ring)

    def unlisten(self, ring: Ring) -> None:
        """Ring it no more."""
        self._bell.unlisten(ring)

    def close(self) -> None:
        """Close the idle connections."""
        self._bell.close()
        self._driver.close()

    def _calls(self, asks: Sequence[Ask]) -> list[Call[Any]]:
        return calls_of(self._model, asks, self._driver.not_after_ms())


class AsyncOpenRedis:
    """The same under asyncio."""

    def __init__(self, endpoint: Endpoint, opening: Opening) -> None:
        self.url = endpoint.url
        self._model = DspsModel(opening.channel, lua=opening.lua)
        self._driver = AsyncDriver(endpoint, self._model.scripts.values(), observer=opening.observer)
        self._bell = AsyncBell(endpoint, self._model.keys.bell)

    @property
    def live(self) -> bool:
        """Whether every message that is published from now on rings."""
        return self._bell.live

    async def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation."""
        async with self._driver.turns:
            if not callable(ask):
                return await self._driver.send(self._model.call(ask), intended_ns)
            await self._driver.server_now_ms()
            sent = await self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
            if sent.came_late:
                sent = await self._driver.send(self._model.call(ask(self._driver.not_after_ms())), intended_ns)
            return sent

    async def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Run several, in one piece."""
        async with self._driver.turns:
            await self._driver.server_now_ms()
            outcomes = await self._driver.send_many(self._calls(asks), intended_ns)
            late = late_of(outcomes)
            if late:
                again = await self._driver.send_many(self._calls([asks[at] for at in late]), intended_ns)
                for at, outcome in zip(late, again, strict=True):
                    outcomes[at] = outcome
            return outcomes

    def listen(self, ring: Ring) -> None:
        """Ring this one from now on."""
        self._bell.listen(ring)

    def unlisten(self, ring: Ring) -> None:
        """Ring it no more."""
        self._bell.unlisten(ring)

    async def close(self) -> None:
        """Close the idle connections."""
        await self._bell.close()
        await self._driver.close()

    def _calls(self, asks: Sequence[Ask]) -> list[Call[Any]]:
        return calls_of(self._model, asks, self._driver.not_after_ms())


def calls_of(model: DspsModel, asks: Sequence[Ask], not_after_ms: int) -> list[Call[Any]]:
    """The calls of these, as of now."""
    return [model.call(ask(not_after_ms) if callable(ask) else ask) for ask in asks]


def late_of(outcomes: Sequence[Sent | EngineError]) -> list[int]:
    """Which were refused as late, with no copy unanswered."""
    return [at for at, outcome in enumerate(outcomes) if isinstance(outcome, Sent) and outcome.came_late]
