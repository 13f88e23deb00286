"""Channels on a Redis or Valkey server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.channel.asynchronous.redis_storage import AsyncOpenRedis
from engine.channel.storage import Opening
from engine.channel.synchronous.redis_storage import OpenRedis
from engine.redis.endpoint import DEFAULT_URL, ConnectOptions, Endpoint

if TYPE_CHECKING:
    import redis
    import redis.asyncio


class RedisStorage:
    """A server, or several behind sentinels or in a cluster: `url`, or `client` (a redis.Redis or RedisCluster for `Channel`,
    those of redis.asyncio for `AsyncChannel`), whose address, credentials and TLS settings are used for connections of our own.
    `connect`: times and bounds of those. Each channel that is opened on it has connections of its own."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        client: redis.Redis | redis.RedisCluster | redis.asyncio.Redis | redis.asyncio.RedisCluster | None = None,
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
