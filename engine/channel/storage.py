"""The interface of storages, which hold the messages of a channel: a server, or this process's memory. A
channel may have several.

A **storage** is what a service gives (`RedisStorage`, `MemoryStorage`); one may serve many channels. Opened
for one of them it runs operations, and tells its listeners when something was published. Its clocks are its
own: those of another storage say nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.channel.asynchronous.storage import AsyncOpenRedis, AsyncOpenStorage
from engine.channel.steps import Opening
from engine.channel.synchronous.storage import OpenRedis, OpenStorage
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions, Endpoint

if TYPE_CHECKING:
    import redis
    import redis.asyncio


class Storage(Protocol):
    """Holds messages. Opening one does no I/O, and raises Malformed for settings that cannot be."""

    def open(self, opening: Opening) -> OpenStorage:
        """For `Channel`."""
        ...

    def open_async(self, opening: Opening) -> AsyncOpenStorage:
        """For `AsyncChannel`."""
        ...


# -- Channels on a Redis or Valkey server.


class RedisStorage:
    """A server, or several behind sentinels or in a cluster. `url`, or `client`: a redis.Redis or
    RedisCluster for `Channel`, those of redis.asyncio for `AsyncChannel`. Its address, credentials and TLS
    settings are used for connections of our own. `connect`: times and bounds of those. Each channel that is
    opened on it has connections of its own."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        client: redis.Redis
        | redis.RedisCluster
        | redis.asyncio.Redis
        | redis.asyncio.RedisCluster
        | None = None,
        connect: ConnectOptions | None = None,
    ) -> None:
        self._url = url
        self._client = client
        self._connect = connect

    @property
    def address(self) -> object:
        """Equal for storages that are given in the same words."""
        return self._url if self._client is None else id(self._client)

    def open(self, opening: Opening) -> OpenRedis:
        """For `Channel`. Raises Malformed for a url or client that does not fit."""
        return OpenRedis(Endpoint(self._url, self._client, self._connect), opening)

    def open_async(self, opening: Opening) -> AsyncOpenRedis:
        """For `AsyncChannel`. Raises Malformed for a url or client that does not fit."""
        return AsyncOpenRedis(Endpoint(self._url, self._client, self._connect, asynchronous=True), opening)
