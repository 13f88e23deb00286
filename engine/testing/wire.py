"""Three commands spoken over a plain socket, so that starting a server needs no client library."""

from __future__ import annotations

import socket

from engine.testing.ports import LOOPBACK

#: Upper bound of one exchange with a server on this machine.
EXCHANGE_TIMEOUT_S = 5.0

#: The same while a server is being waited for: whoever listens there may not be a server.
PROBE_TIMEOUT_S = 0.5


class NoAnswer(OSError):
    """The server closed the connection or sent something that is not a reply."""


def ask(port: int, command: str, timeout_s: float = EXCHANGE_TIMEOUT_S) -> str:
    """Send one command of plain words to 127.0.0.1:`port`; the reply as text (of a simple or a bulk string).

    Raises OSError when the server cannot be reached or does not answer in time, and NoAnswer with the text of an error reply.
    """
    with socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection, connection.makefile("rb") as stream:
        connection.sendall(command.encode() + b"\r\n")
        head = stream.readline()
        if head[:1] == b"+":
            return head[1:].strip().decode()
        if head[:1] == b"$":
            return stream.read(int(head[1:])).decode()
        raise NoAnswer(f"{command}: {head.strip().decode(errors='replace') or 'connection closed'}")


def process_id(port: int, timeout_s: float = EXCHANGE_TIMEOUT_S) -> int:
    """The process id that the server at 127.0.0.1:`port` reports. Raises OSError as `ask` does."""
    for line in ask(port, "INFO server", timeout_s).splitlines():
        name, _, value = line.partition(":")
        if name == "process_id":
            return int(value)
    raise NoAnswer("INFO server: no process_id")
