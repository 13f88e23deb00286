"""A connection on which a backup asks the server, in pipelines of plain commands."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from engine.errors import EngineError, ServerUnavailable
from engine.queue.settings import QueueSettings
from engine.redis.call import ServerClock
from engine.redis.connections import Connections, packed
from engine.redis.dialer import read_replies
from engine.redis.exchange import FAILURES, is_reply, message_of
from engine.redis.handshake import Handshake, parse_info

#: How long a reply may take beyond what is usual: a large value, or a page of them.
_PATIENCE_MS = 60_000


class ServerConnection:
    """One connection to the server of a queue. What fails on the way is raised as ServerUnavailable: nothing is sent again."""

    def __init__(self, queue: QueueSettings) -> None:
        handshake = Handshake((), ServerClock(), None, route=queue.endpoint.route)
        self._connections = Connections(queue.endpoint, handshake, patience_ms=_PATIENCE_MS)
        try:
            self._connection: Any = self._connections.take(queue.endpoint.slot)
        except FAILURES as error:
            raise ServerUnavailable(f"cannot connect: {message_of(error)}") from error

    def ask(self, *commands: tuple[object, ...]) -> list[Any]:
        """Send commands and return their replies. Raises ServerUnavailable, also for an error that the server answers."""
        replies = self.try_to(*commands)
        for words, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Exception):
                raise ServerUnavailable(f"{words[0]}: the server answered {message_of(reply)}") from reply
        return replies

    def try_to(self, *commands: tuple[object, ...]) -> list[Any]:
        """As `ask`, but errors that the server answers are among the replies."""
        replies: list[Any] = []
        try:
            self._connection.send_packed_command(packed(self._connection, commands), check_health=False)
            read_replies(self._connection, len(commands), replies)
        except FAILURES as error:
            raise _broken(error) from error
        return replies

    def heard(self) -> list[Any]:
        """What has come unasked, as a subscriber hears it."""
        found: list[Any] = []
        try:
            while self._connection.can_read(0):
                found.append(self._connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            raise _broken(error) from error
        return found

    def ping(self) -> list[Any]:
        """What has come up to the answer to a PING, as a subscriber hears it: all that the server had to tell by then."""
        found: list[Any] = []
        try:
            self._connection.send_packed_command(packed(self._connection, (("PING",),)), check_health=False)
            while not found or not _is_pong(found[-1]):
                found.append(self._connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            raise _broken(error) from error
        return found[:-1]

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        return parse_info(self.ask(("INFO", section))[0])

    def __enter__(self) -> ServerConnection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connections.drop(self._connection)


def pages(names: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    """The names in pages of this size."""
    return [names[at : at + size] for at in range(0, len(names), size)]


def _is_pong(said: Any) -> bool:
    return said in (b"PONG", "PONG") or (isinstance(said, list) and said[:1] == [b"pong"])


def _broken(error: Exception) -> EngineError:
    what = "the server answered" if is_reply(error) else "the connection broke"
    return ServerUnavailable(f"{what}: {message_of(error)}; nothing is lost, begin again")
