"""The way to one server: its queues and its channels."""

from __future__ import annotations

from types import TracebackType

import httpx

from ironclaim_client.asynchronous.channel import AsyncChannel
from ironclaim_client.asynchronous.queue import AsyncQueue
from ironclaim_client.asynchronous.transport import AsyncTransport
from ironclaim_client.retrying import Retries


class AsyncClient:
    """A server that `ironclaim serve` runs, or a service with its application mounted; connects on first use.

    `url` is its address, with the path where the application is mounted. `token` is sent as `Authorization:
    Bearer`: a token of the job API, or the JWT of a channel. `retries` says how long calls are tried; `http`
    is a client of your own. Raises InvalidArgument.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        retries: Retries | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._transport = AsyncTransport(url, token, retries or Retries(), http)

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name; nothing is asked."""
        return AsyncQueue(self._transport, name)

    def channel(self, name: str) -> AsyncChannel:
        """A channel by its name; nothing is asked."""
        return AsyncChannel(self._transport, name)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
