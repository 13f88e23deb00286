"""The control connections of workers, by which others see that they live: a process that was killed has lost its own at once."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration


class ClientConnection(NamedTuple):
    """A connection as its server lists it: client id and address of the client; and the run id of the server, which never gives
    the same id twice."""

    client_id: int
    address: str
    run_id: str


class Connected(NamedTuple):
    """The control connection of a worker."""

    incarnation: str
    client_id: int


@immutable
class ListConnections(Declaration, label="look at connections", patient=False):
    """Which of these clients are connected: asks the server that has the queue's keys, and changes nothing."""

    client_ids: tuple[int, ...]

    def parse(self, raw: Any, decode: object) -> ListedConnections:
        """The raw reply as a value: one line for each client."""
        return ListedConnections(dict(map(read_client, raw.decode(errors="replace").splitlines())))


@immutable
class ListedConnections:
    """The clients that are connected, each with its address."""

    addresses: dict[int, str]


def read_client(line: str) -> tuple[int, str]:
    """Client id and address of a line of CLIENT LIST or CLIENT INFO."""
    fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return int(fields["id"]), fields["addr"]


ConnectionsOperation = ListConnections
ConnectionsReply = ListedConnections
