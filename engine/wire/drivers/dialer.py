"""Opens connections for threads and greenlets: to the server of an endpoint, or to the one that its resolver names, which is
checked by a handshake before anything else is sent to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.server_clock import ServerClock
from engine.wire.drivers.client_errors import FAILURES, is_reply
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.handshake import Handshake
from engine.wire.drivers.resolver import Ask, Resolver
from engine.wire.drivers.routes import Address, Node

#: redis-py's own types leave these methods partly unknown.
Connection = Any


class Dialer:
    """Makes connections, not yet connected: `connect` of redis-py does the rest, handshake included. `patience_ms`: how much
    longer than usual a reply may take. Without a handshake a connection to a fixed address is only authenticated."""

    def __init__(self, endpoint: Endpoint, resolver: Resolver | None, handshake: Handshake | None, patience_ms: int = 0) -> None:
        self.resolver = resolver
        self.endpoint = endpoint
        if handshake is None and resolver is not None:
            handshake = Handshake((), ServerClock(), None, route=endpoint.route)
        self._handshake = handshake
        self._patience_ms = patience_ms

    def node(self, slot: int) -> Node | None:
        """Where a new connection for a slot leads; None: to the fixed address. Raises redis-py's ConnectionError."""
        return None if self.resolver is None else self.resolver.node(slot)

    def make(self, node: Node | None, *, learns: bool = True) -> Connection:
        """A connection to a node, which connects with its own `connect`. Learns the server's time if asked to."""
        settings = self.endpoint.settings(self._patience_ms, node)
        handshake = self._handshake
        if handshake is None:
            return self.endpoint.connection_class(**settings)

        def greet(connection: Connection) -> None:
            connection.on_connect()
            missing = handshake.conclude(ask(connection, handshake.commands), node, learns=learns)
            if missing:
                handshake.finish(missing, ask(connection, missing))

        return self.endpoint.connection_class(**settings, redis_connect_func=greet)


def ask(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
    """Send commands on a new connection and read the replies."""
    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    replies: list[Any] = []
    read_replies(connection, len(commands), replies)
    return replies


def read_replies(connection: Connection, count: int, replies: list[Any]) -> None:
    """Put the next replies of a connection into `replies`, errors that the server sent among them: an answer that stays unread
    would be taken for the next call's. A failure of the connection is raised; what came before it is in the list."""
    while len(replies) < count:
        try:
            replies.append(connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            if not is_reply(error):
                raise
            replies.append(error)


def asker(reach: Callable[[Address], Endpoint]) -> Ask:
    """What asks servers and sentinels, each on a connection that is closed again."""

    def asked(address: Address, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        endpoint = reach(address)
        connection: Connection = endpoint.connection_class(**endpoint.settings())
        try:
            connection.connect()
            return ask(connection, commands)
        finally:
            connection.disconnect()

    return asked
