"""Connections to one Redis or Valkey server, each made fit for the engine by a handshake before its first call.

The client's own retries are off: redis-py re-sends EVALSHA by default, and re-sending is the engine's decision (DESIGN 3.1).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType]
from redis.retry import Retry

from engine.client_errors import FAILURES, is_reply
from engine.errand import Errand
from engine.errors import Malformed
from engine.handshake import Handshake

Pack = Callable[[tuple[object, ...]], bytes]
_pack: Pack | None
try:
    # What redis-py uses as well where it is installed, without the way through its layers.
    from hiredis import pack_command  # pyright: ignore[reportUnknownVariableType]

    _pack = cast("Pack", pack_command)
except ImportError:
    _pack = None

#: redis-py's own types leave these methods partly unknown.
Connection = Any

#: An idle connection that waited longer than this is checked before use: a server that closed it meanwhile is noticed
#: without sending anything.
CHECK_IDLE_NS = 1_000_000_000


class Connections:
    """A pool of handshaken connections, last in first out, safe from threads and greenlets and across a fork."""

    def __init__(self, url: str, handshake: Handshake, *, timeout_ms: int) -> None:
        self._settings = connection_settings(url, timeout_ms)
        self._class: Connection = self._settings.pop("connection_class", redis.Connection)
        self._handshake = handshake
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, int]] = []
        self._pid = os.getpid()

    def take_idle(self) -> Connection | None:
        """A connection that was used a moment ago, so that nobody needs to wait for it, or None."""
        with self._lock:
            if not self._idle or self._pid != os.getpid() or time.monotonic_ns() - self._idle[-1][1] > CHECK_IDLE_NS:
                return None
            return self._idle.pop()[0]

    def take(self) -> Connection:
        """A connection that is ready to send. Raises redis-py's errors, or UnsafeServer."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked child must not write into its parent's sockets.
                self._idle, self._pid = [], os.getpid()
            connection, idle_since_ns = self._idle.pop() if self._idle else (None, 0)
        if connection is None:
            connection = self._class(**self._settings, redis_connect_func=self._greet)
            connection.connect()
        elif time.monotonic_ns() - idle_since_ns > CHECK_IDLE_NS and _has_news(connection):
            connection.disconnect()
            connection.connect()
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        with self._lock:
            self._idle.append((connection, time.monotonic_ns()))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.disconnect()

    def _greet(self, connection: Connection) -> None:
        connection.on_connect()
        connection.send_packed_command(connection.pack_commands(self._handshake.commands), check_health=False)
        replies: list[Any] = []
        read_replies(connection, len(self._handshake.commands), replies)
        self._handshake.conclude(replies)


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


def packed(connection: Connection, errands: Sequence[Errand]) -> list[bytes]:
    """The bytes of calls that go out together. Many are one piece, and so one write."""
    if _pack is not None:
        return [b"".join([_pack(errand.call.words()) for errand in errands])]
    return [b"".join(chunk for errand in errands for chunk in connection.pack_command(*errand.call.words()))]


def connection_settings(
    url: object, timeout_ms: int, *, parse: Callable[[str], Any] = parse_url, plain: Any = redis.Connection, retry: Any = Retry
) -> dict[str, Any]:
    """Arguments for a redis-py connection from a url. Raises Malformed for a url that redis-py does not know. `parse`, `plain`
    and `retry` are redis-py's parts for one of its two clients."""
    bound = "a url redis://host:port/db, rediss:// or unix:// with options that redis-py knows"
    # redis-py takes a database that is no number for database 0.
    if not isinstance(url, str) or not (url.startswith("unix://") or re.fullmatch(r"rediss?://[^/?#]*/?\d*(\?.*)?", url)):
        raise Malformed("url", url, bound)
    try:
        settings = dict(cast("dict[str, Any]", parse(url)))
        known = {name: value for name, value in settings.items() if name != "connection_class"}
        settings.get("connection_class", plain)(**known)
    except (ValueError, TypeError) as error:
        raise Malformed("url", url, f"{bound} ({error})") from error
    settings.update(
        protocol=2,
        retry=retry(NoBackoff(), 0),
        socket_timeout=timeout_ms / 1000,
        socket_connect_timeout=timeout_ms / 1000,
        health_check_interval=0,
        decode_responses=False,
    )
    # Only TCP connections know keep-alive and Nagle.
    if not url.startswith("unix://"):
        settings["socket_keepalive"] = True
    return settings


def _has_news(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except (redis.RedisError, OSError):
        return True
