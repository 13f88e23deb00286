"""One command over a connection of its own, with a short patience: what faults and their witnesses ask the world with.

No client library, because its handshake would already fail where the probe's one command is what matters.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from chaos.errors import HarnessError
from engine.errors import redacted_url

#: A server on this machine answers within a millisecond; a busy machine needs more.
PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where somebody listens."""

    host: str
    port: int

    def __str__(self) -> str:
        # As urls and Toxiproxy have one of IPv6.
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Silence(OSError):
    """Connected and sent, and nothing came back within the patience."""


def address_of(url: str) -> Address:
    """Host and port of a server's url. Raises HarnessError for one that is not reached over TCP in the clear."""
    parts = urlsplit(url)
    if parts.scheme != "redis" or not parts.hostname:
        raise HarnessError(f"the server's url is {redacted_url(url)!r}: proxies need one that begins with redis://")
    return Address(parts.hostname, parts.port or 6379)


def through(url: str, proxy: Address) -> str:
    """The same url by way of the proxy."""
    parts = urlsplit(url)
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return parts._replace(netloc=f"{user}{proxy}").geturl()


def login_of(url: str) -> dict[str, str]:
    """User and password of a url, as far as it has them."""
    parts = urlsplit(url)
    found = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return {name: text for name, text in found.items() if text}


def greeting_of(url: str) -> tuple[tuple[str, ...], ...]:
    """The commands by which a connection to this url begins: its password, and its database."""
    login, database = login_of(url), urlsplit(url).path.strip("/")
    auth = (("AUTH", *login.values()),) if "password" in login else ()
    return (*auth, *((("SELECT", database),) if database not in ("", "0") else ()))


def spoken(words: tuple[str, ...]) -> bytes:
    """A command as it is sent, whatever is in its words."""
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def ask(address: Address, command: str, patience_s: float = PATIENCE_S, greeting: tuple[tuple[str, ...], ...] = ()) -> str:
    """The first line of the reply to one command of plain words, after those of a greeting.

    Raises Silence when it was sent and nothing came, another OSError when the connection was refused or broke.
    """
    with socket.create_connection((address.host, address.port), timeout=patience_s) as connection:
        connection.sendall(b"".join(map(spoken, greeting)) + command.encode() + b"\r\n")
        try:
            with connection.makefile("rb") as stream:
                # Of a greeting each reply is one line.
                lines = [stream.readline() for _ in range(len(greeting) + 1)]
                line = next((said for said in lines if said.startswith(b"-")), lines[-1])
        except TimeoutError as error:
            raise Silence(f"{address}: no reply to {command.split()[0]} within {patience_s:g} s") from error
    if not line.endswith(b"\r\n"):
        raise ConnectionResetError(f"{address}: closed without a reply to {command.split()[0]}")
    return line.decode(errors="replace").strip()


def pinged(address: Address, patience_s: float = PATIENCE_S, greeting: tuple[tuple[str, ...], ...] = ()) -> bool:
    """Whether a PING is answered as it must be. Raises as `ask` does."""
    return ask(address, "PING", patience_s, greeting) == "+PONG"


def round_trip_ms(address: Address, answered: Callable[[Address], bool] = pinged) -> float:
    """The time that one question takes, on a new connection. Raises ConnectionError for a wrong answer, and as `ask` does."""
    started_ns = time.monotonic_ns()
    if not answered(address):
        raise ConnectionError(f"{address}: it did not answer as it must")
    return (time.monotonic_ns() - started_ns) / 1e6


def refused(address: Address) -> bool:
    """True when nobody listens there."""
    try:
        with socket.create_connection((address.host, address.port), timeout=PATIENCE_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
