"""The two faces of the Python client behind one blocking face, so that a test can run over both."""

import asyncio
from itertools import islice
from typing import Any, Protocol, Self

from ironclaim_client import AsyncClient, Client, Message, Retries
from tests.engine.helpers.both import Blocking


class Face(Protocol):
    """A client, whose queues and channels have methods that block."""

    def queue(self, name: str) -> Any: ...
    def channel(self, name: str) -> Any: ...
    def take(self, channel: str, count: int, **options: Any) -> list[Message]:
        """So many messages of a subscription, whose loop then ends: those of the last poll are not acknowledged."""
        ...


class Connect(Protocol):
    """Connects a client to a url."""

    def __call__(self, url: str, token: str | None = ..., **retries: int) -> Face: ...


class SyncFace(Client):
    """The face for threads, as it is."""

    def __init__(self, url: str, token: str | None, retries: Retries) -> None:
        super().__init__(url, token=token, retries=retries)

    def take(self, channel: str, count: int, **options: Any) -> list[Message]:
        with self.channel(channel).subscription(**options) as messages:
            return list(islice(messages, count))


class AsyncFace:
    """The face for asyncio, on an event loop of its own."""

    def __init__(self, url: str, token: str | None, retries: Retries) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(url, token=token, retries=retries)

    def queue(self, name: str) -> Any:
        return Blocking(self._client.queue(name), self._runner)

    def channel(self, name: str) -> Any:
        return Blocking(self._client.channel(name), self._runner)

    def take(self, channel: str, count: int, **options: Any) -> list[Message]:
        return self._runner.run(self._take(channel, count, options))

    async def _take(self, channel: str, count: int, options: dict[str, Any]) -> list[Message]:
        taken: list[Message] = []
        async with self._client.channel(channel).subscription(**options) as messages:
            async for message in messages:
                taken.append(message)
                if len(taken) == count:
                    break
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()
