"""Opens connections under asyncio: as `dialer` does. Resolvers ask in threads of their own, so no event loop waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import redis

from engine.server_clock import ServerClock
from engine.wire.drivers.client_errors import is_reply
from engine.wire.drivers.dialer import Connection
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.finding import resolver_of
from engine.wire.drivers.handshake import Handshake
from engine.wire.drivers.routes import Node


class AsyncDialer:
    """Makes connections, not yet connected, whose reads wait without end: who uses them bounds each exchange as a whole, within
    `timeout_s`. Without a handshake a connection to a fixed address is only authenticated."""

    def __init__(self, endpoint: Endpoint, handshake: Handshake | None = None, patience_ms: int = 0) -> None:
        self.endpoint = endpoint
        self.resolver = resolver_of(endpoint)
        self.timeout_s: float = endpoint.settings(patience_ms)["socket_timeout"]
        if handshake is None and self.resolver is not None:
            handshake = Handshake((), ServerClock(), None, route=endpoint.route)
        self._handshake = handshake

    async def node(self, slot: int) -> Node | None:
        """Where a new connection for a slot leads; None: to the fixed address. Raises ConnectionError or TimeoutError."""
        resolver = self.resolver
        if resolver is None:
            return None
        if (fresh := resolver.fresh(slot)) is not None:
            return fresh
        async with asyncio.timeout(2 * self.timeout_s):
            await asyncio.wrap_future(resolver.find())
        return resolver.found(slot)

    def make(self, node: Node | None, *, learns: bool = True) -> Connection:
        """A connection to a node, which connects with its own `connect`. Learns the server's time if asked to."""
        # None, not left out: redis-py 8 has a default, and sends in a task then, whose cancellation Python 3.11 may lose.
        settings = {**self.endpoint.settings(node=node), "socket_timeout": None}
        handshake = self._handshake
        if handshake is None:
            return self.endpoint.connection_class(**settings)

        async def greet(connection: Connection) -> None:
            await connection.on_connect()
            missing = handshake.conclude(await self._ask(connection, handshake.commands), node, learns=learns)
            if missing:
                handshake.finish(missing, await self._ask(connection, missing))

        return self.endpoint.connection_class(**settings, redis_connect_func=greet)

    async def read(self, connection: Connection, count: int, replies: list[Any], patience: asyncio.Timeout) -> None:
        """Put the next replies of a connection into `replies`, errors that the server sent among them. A failure of the
        connection is raised, also TimeoutError for a reply that does not come in time; what came before it is in the list."""
        while len(replies) < count:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except (redis.RedisError, OSError) as error:
                if not is_reply(error):
                    raise
                replies.append(error)
            # The next reply has its own time.
            patience.reschedule(asyncio.get_running_loop().time() + self.timeout_s)

    async def _ask(self, connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send commands on a new connection and read the replies."""
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        async with asyncio.timeout(self.timeout_s) as patience:
            await self.read(connection, len(commands), replies, patience)
        return replies
