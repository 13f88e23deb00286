"""How a server lists a connection of this process, so that others can see whether it is still there."""

from __future__ import annotations

import functools
import socket
from typing import Any

from engine.ops.workers import ClientConnection, read_client
from engine.spared import logger
from engine.wire.drivers.client_errors import message_of
from engine.wire.drivers.dialer import Connection, ask
from engine.wire.drivers.handshake import parse_info

log = logger("ironclaim")

#: The kernel asks a silent connection for a sign of life after so many s, again each so many s, and gives it up after so many
#: times. A server that has lost it answers with a reset. Nothing else would tell who only listens, and no call is made for it.
KEEP_ALIVE_S = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2}


def identify(connection: Connection) -> ClientConnection | None:
    """What the server says of this connection, which has nothing outstanding. None where others could learn nothing from it: the
    user may not ask, or what the server sees is the connection of a proxy, which need not end with this process."""
    client, server = ask(connection, (("CLIENT", "INFO"), ("INFO", "server")))
    for reply in (client, server):
        if isinstance(reply, Exception):
            _tell_off(message_of(reply))
            return None
    try:
        client_id, address = read_client(client.decode(errors="replace"))
    except (KeyError, ValueError) as error:
        _tell_off(f"CLIENT INFO cannot be read: {error!r}")
        return None
    own = own_address(connection._sock)
    keep_alive(connection._sock)
    if address != own:
        _tell_off(f"the server sees {address.rpartition(':')[0]}, not {own.rpartition(':')[0]}: a proxy is in between")
        return None
    return ClientConnection(client_id, address, parse_info(server).get("run_id", ""))


def keep_alive(sock: Any) -> None:
    """Let the kernel find out within five seconds that a silent connection is gone, where it can."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE_S.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def own_address(sock: Any) -> str:
    """The address of a connected socket as a server would list it that sees this very socket."""
    if sock.family == socket.AF_UNIX:
        return f"{sock.getpeername()}:0"
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@functools.cache
def _tell_off(reason: str) -> None:
    """Log why presence is off, once in a process for each reason."""
    log.info("presence is off, a killed worker is noticed by its leases alone: %s", reason)
