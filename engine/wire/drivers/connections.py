"""Connections to one Redis or Valkey server, each made fit for the engine by a handshake before its first call.

The client's own retries are off: redis-py re-sends EVALSHA by default, and re-sending is the engine's decision
(`engine.wire.drivers.delivery`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis

from engine.wire.drivers.client_errors import FAILURES, is_reply
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.handshake import Handshake, raise_errors

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


class Connections:
    """A pool of handshaken connections, last in first out, safe from threads and greenlets and across a fork: a child neither
    uses nor closes its parent's connections, and makes its own.

    `patience_ms`: how much longer than usual a reply may take. With a bound on the connections, a caller waits for its turn.
    """

    def __init__(self, endpoint: Endpoint, handshake: Handshake, *, patience_ms: int = 0) -> None:
        self._settings = endpoint.settings(patience_ms)
        self._class: Connection = endpoint.connection_class
        self._handshake = handshake
        self._most = endpoint.options.connections_max
        self._turn_s = endpoint.options.connect_timeout_ms / 1000
        self._check_ns = endpoint.options.idle_check_ms * 1_000_000
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        """Begin without connections: at first, and in a forked child, where another thread may have held the lock for ever."""
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, int]] = []
        # All that are open, and whether they are to be broken.
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._broken = False
        self._turns = threading.BoundedSemaphore(self._most) if self._most else None
        self._pid = os.getpid()

    def take_idle(self) -> Connection | None:
        """A connection that was used a moment ago and needs no check, or None."""
        if self._turns is not None and not self._turns.acquire(blocking=False):
            return None
        with self._lock:
            if self._idle and self._pid == os.getpid() and time.monotonic_ns() - self._idle[-1][1] <= self._check_ns:
                return self._idle.pop()[0]
        self._turn_over()
        return None

    def take(self) -> Connection:
        """A connection that is ready to send. Raises redis-py's errors, or UnsafeServer."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        if self._turns is not None and not self._turns.acquire(timeout=self._turn_s):
            raise redis.ConnectionError(f"all {self._most} connections are in use")
        try:
            with self._lock:
                connection, idle_since_ns = self._idle.pop() if self._idle else (None, 0)
            if connection is None:
                connection = self._class(**self._settings, redis_connect_func=self._greet)
                with self._lock:
                    self._open.add(connection)
                connection.connect()
            elif time.monotonic_ns() - idle_since_ns > self._check_ns and _has_news(connection):
                connection.disconnect()
                connection.connect()
            if self._broken:
                connection.disconnect()
                raise redis.ConnectionError("the connections are broken")
        except BaseException:
            self._turn_over()
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        with self._lock:
            self._idle.append((connection, time.monotonic_ns()))
        self._turn_over()

    def drop(self, connection: Connection) -> None:
        """Close a connection that was taken and on which a reply may still come."""
        connection.disconnect()
        self._turn_over()

    def retire(self, connection: Connection) -> None:
        """Close a connection that lacks a script, and the idle ones, which most likely lack it too: a call would meet one after
        the other. The next one is a new one, whose handshake loads the scripts."""
        self.drop(connection)
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.disconnect()

    def break_all(self) -> None:
        """Break the connections, also those on which somebody waits for a reply, who gets an error. No other one is taken."""
        self._broken = True
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            # Closing it from here would leave the one who reads without a socket; so it ends as if the server had closed it.
            sock = connection._sock
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _turn_over(self) -> None:
        if self._turns is not None:
            self._turns.release()

    def _greet(self, connection: Connection) -> None:
        connection.on_connect()
        missing = self._handshake.conclude(_ask(connection, self._handshake.commands))
        if missing:
            raise_errors(_ask(connection, missing))


_POOLS: weakref.WeakSet[Connections] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for pool in list(_POOLS):
        pool._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


def _ask(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
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


def packed(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[bytes]:
    """The bytes of commands that go out together. Many are one piece, and so one write."""
    if _pack is not None:
        return [b"".join([_pack(words) for words in commands])]
    return [b"".join(chunk for words in commands for chunk in connection.pack_command(*words))]


def _has_news(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except (redis.RedisError, OSError):
        return True
