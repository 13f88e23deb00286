# Generated from clients/python/ironclaim_client/asynchronous/client.py by "make generate"; do not edit.
"""The way to one server: its queues and its channels."""

from __future__ import annotations

from types import TracebackType

import httpx

from ironclaim_client.retrying import Retries
from ironclaim_client.synchronous.channel import Channel
from ironclaim_client.synchronous.queue import Queue
from ironclaim_client.synchronous.transport import Transport


class Client:
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
        http: httpx.Client | None = None,
    ) -> None:
        self._transport = Transport(url, token, retries or Retries(), http)

    def queue(self, name: str) -> Queue:
        """A queue by its name; nothing is asked."""
        return Queue(self._transport, name)

    def channel(self, name: str) -> Channel:
        """A channel by its name; nothing is asked."""
        return Channel(self._transport, name)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
