"""Runs the application on a socket: with bounds for slow clients, and on loopback alone where nobody is asked
who it is."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.errors import Malformed
from engine.http.application import application, end_waits
from engine.http.settings import HttpSettings
from engine.http.shield import HEADERS_BYTES_MAX, PATH_BYTES_MAX, QUERY_BYTES_MAX

#: The request line and all headers have to be there after so long, and what is sent has to be taken.
HEADERS_S = 10.0
SENT_S = 30.0
#: Connections beyond those whose requests may wait.
_OTHER_CONNECTIONS = 1_000
_GRACE_S = 10


class BoundedProtocol(H11Protocol):
    """A connection that is closed when its client sends its headers, or takes its answer, too slowly."""

    _headers_due: asyncio.TimerHandle | None = None
    _taken_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._headers_due = self.loop.call_later(HEADERS_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Wait no longer once a request is there."""
        super().data_received(data)
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._headers_due = _cancelled(self._headers_due)
        elif self._headers_due is None:
            self._headers_due = self.loop.call_later(HEADERS_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what was sent."""
        super().pause_writing()
        self._taken_due = self._taken_due or self.loop.call_later(SENT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Wait no longer."""
        super().resume_writing()
        self._taken_due = _cancelled(self._taken_due)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._headers_due, self._taken_due = _cancelled(self._headers_due), _cancelled(self._taken_due)
        super().connection_lost(exc)


class EndingServer(uvicorn.Server):
    """A server whose waiting requests are answered when it is stopped, instead of holding it up."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop."""
        end_waits(cast("Starlette", self.config.app))
        await super().shutdown(sockets)


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def check_bind(host: str, settings: HttpSettings) -> None:
    """Raise Malformed for an address that others reach, where nobody is asked who it is."""
    if not settings.asks_who and not _is_loopback(host):
        raise Malformed(
            "host",
            host,
            "a loopback address, such as 127.0.0.1, where there is neither a token nor an auth hook",
        )


def check_port(host: str, port: int) -> None:
    """Raise OSError, which names the address, where nobody can listen at it; Malformed for a number that is
    no port. uvicorn would say the first in six lines, and the second in thirty."""
    if not 0 <= port <= 65_535:
        raise Malformed("port", port, "a whole number from 0 to 65535; 0: any free one")
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
                one.bind(address)
                one.listen()
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None


def server(
    settings: HttpSettings, *, host: str = "127.0.0.1", port: int = 8080, **more: Any
) -> uvicorn.Server:
    """The server of an application with these settings. Raises Malformed."""
    check_bind(host, settings)
    config = uvicorn.Config(
        application(settings),
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        # Who asks is who is connected: a header could say anything.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        h11_max_incomplete_event_size=HEADERS_BYTES_MAX + PATH_BYTES_MAX + QUERY_BYTES_MAX,
        limit_concurrency=settings.waiting_max + _OTHER_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE_S,
        **more,
    )
    return EndingServer(config)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
