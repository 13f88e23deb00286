"""The one real connection of the simulator: commands out in one piece, replies back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from engine.testing.server import LOOPBACK

_TIMEOUT_S = 20.0


class Wire:
    """A blocking connection to the embedded server. Errors that the server sends come back as values."""

    def __init__(self, port: int) -> None:
        self._connection: Any = redis.Connection(host=LOOPBACK, port=port, socket_timeout=_TIMEOUT_S, protocol=2)
        self._connection.connect()
        self._ear: Any = redis.Connection(host=LOOPBACK, port=port, socket_timeout=_TIMEOUT_S, protocol=2)
        self._ear.connect()
        self._ear.send_command("PSUBSCRIBE", "*", check_health=False)
        self._ear.read_response()

    def published(self) -> list[tuple[str, bytes]]:
        """Channel and text of what was published since the last look, before the last reply."""
        self._ear.send_command("PING", check_health=False)
        found: list[tuple[str, bytes]] = []
        while (said := self._ear.read_response())[0] == b"pmessage":
            found.append((said[2].decode(), said[3]))
        return found

    def ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The replies of commands that go out together."""
        pack, read = self._connection.pack_command, self._connection.read_response
        packed = b"".join(chunk for command in commands for chunk in pack(*command))
        self._connection.send_packed_command([packed], check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(read(disconnect_on_error=False))
            except redis.ResponseError as error:
                replies.append(error)
        return replies

    def do(self, *command: Any) -> Any:
        """One reply. Raises the server's error."""
        (reply,) = self.ask([command])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()
        self._ear.disconnect()
