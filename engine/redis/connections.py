"""Connections to one Redis or Valkey server, each made fit for the engine by a handshake before its first
call.

The client's own retries are off: redis-py re-sends EVALSHA by default, and re-sending is the engine's
decision (`engine.redis.exchange`)."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis
from redis.exceptions import AskError

from engine.redis.dialer import Connection, dialer_of
from engine.redis.endpoint import Endpoint
from engine.redis.handshake import Handshake
from engine.redis.routes import Address, Node

Pack = Callable[[tuple[object, ...]], bytes]
_pack: Pack | None
try:
    # What redis-py uses as well where it is installed, without the way through its layers.
    from hiredis import pack_command  # pyright: ignore[reportUnknownVariableType]

    _pack = cast("Pack", pack_command)
except ImportError:
    _pack = None

#: Connections to one node that nobody uses, each with the instant since when (monotonic ns).
Idle = list[tuple[Connection, int]]


class Connections:
    """A pool of handshaken connections, last in first out, safe from threads and greenlets and across a fork:
    a child neither uses nor closes its parent's connections, and makes its own.

    `patience_ms`: how much longer than usual a reply may take. With a bound on the connections, a caller
    waits for a permit. Where the server is found by a resolver, a connection is for one node, and is closed
    when the node is no longer named.
    """

    def __init__(self, endpoint: Endpoint, handshake: Handshake, *, patience_ms: int) -> None:
        self._dialer = dialer_of(endpoint, handshake, patience_ms)
        self._resolver = self._dialer.resolver
        self._slot = endpoint.slot
        self._most = endpoint.options.connections_max
        self._permit_wait_s = endpoint.options.connect_timeout_ms / 1000
        self._check_ns = endpoint.options.idle_check_ms * 1_000_000
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        """Begin without connections: at first, and in a forked child, where another thread may have held the
        lock for ever."""
        self._lock = threading.Lock()
        self._idle: dict[Address | None, Idle] = {None: []}
        # All that are open, and whether they are to be broken.
        self._open: weakref.WeakKeyDictionary[Connection, Node | None] = weakref.WeakKeyDictionary()
        self._broken = False
        self._permits = threading.BoundedSemaphore(self._most) if self._most else None
        self._pid = os.getpid()

    def take_idle(self, slot: int) -> Connection | None:
        """A connection for calls of a slot that was used a moment ago and needs no check, or None."""
        node = None
        if self._pid != os.getpid() or (
            self._resolver is not None and (node := self._resolver.known(slot)) is None
        ):
            return None
        if self._permits is not None and not self._permits.acquire(blocking=False):
            return None
        with self._lock:
            idle = self._idle.get(None if node is None else node.address)
            if idle and time.monotonic_ns() - idle[-1][1] <= self._check_ns:
                return idle.pop()[0]
        self._give_permit_back()
        return None

    def take(self, slot: int) -> Connection:
        """A connection that is ready to send calls of a slot. Raises redis-py's errors, or UnsafeServer."""
        resolver = self._resolver
        known = None if resolver is None else resolver.known(slot)
        if resolver is None or (known is not None and self._idle.get(known.address)):
            return self.take_at(known, slot)
        # First: the sentinels are listened to for those that have joined.
        resolver.join(self)
        return self.take_at(self._dialer.node(slot), slot)

    def take_at(self, node: Node | None, slot: int) -> Connection:
        """A connection to a node, for calls of a slot. Raises as `take` does."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        if self._permits is not None and not self._permits.acquire(timeout=self._permit_wait_s):
            raise redis.ConnectionError(f"all {self._most} connections are in use")
        try:
            with self._lock:
                idle = self._idle.get(address_of(node))
                connection, idle_since_ns = idle.pop() if idle else (None, 0)
            if (
                connection is not None
                and time.monotonic_ns() - idle_since_ns > self._check_ns
                and _is_readable(connection)
            ):
                connection.disconnect()
                connection = None
            if connection is None:
                connection = self._connected(node, slot)
            if self._broken:
                connection.disconnect()
                raise redis.ConnectionError("the connections are broken")
        except BaseException as error:
            self._give_permit_back()
            self.note_error(error)
            raise
        return connection

    def _connected(self, node: Node | None, slot: int) -> Connection:
        """A new connection. Calls are bounded by the time of the server that has the queue's keys."""
        connection = self._dialer.make(node, learns=slot == self._slot)
        with self._lock:
            self._open[connection] = node
        connection.connect()
        if node is not None and self._resolver is not None and self._resolver.replaced(node):
            # While it was being made, so `leave` may have missed it.
            connection.disconnect()
            raise redis.ConnectionError(f"{node.host}:{node.port} is not the primary any more")
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        with self._lock:
            address = None if self._resolver is None else address_of(self._open.get(connection))
            self._idle.setdefault(address, []).append((connection, time.monotonic_ns()))
        if self._permits is not None:
            self._permits.release()

    def drop(self, connection: Connection) -> None:
        """Close a connection that was taken and on which a reply may still come."""
        connection.disconnect()
        self._give_permit_back()

    def retire(self, connection: Connection) -> None:
        """Close a connection that lacks a script, and the idle ones, which most likely lack it too: a call
        would meet one after the other. The next one is a new one, whose handshake loads the scripts."""
        self.drop(connection)
        self._close_idle()

    def note_error(self, error: BaseException) -> None:
        """Take an error that ended a call or a connection: another server may have to be found."""
        if self._resolver is not None and isinstance(error, (redis.RedisError, OSError)):
            self._resolver.note_error(error)

    def note_errors(self, replies: Sequence[Any]) -> None:
        """Take the errors among replies. Where the address is fixed nothing is looked at."""
        if self._resolver is not None:
            for reply in replies:
                if isinstance(reply, Exception):
                    self.note_error(reply)

    def asked_node(self, error: AskError) -> Node | None:
        """The node that an ASK has named; None where the address is fixed."""
        return None if self._resolver is None else self._resolver.at(Address.of(error))

    def close(self) -> None:
        """Close the idle connections."""
        self._close_idle()
        if self._resolver is not None:
            self._resolver.part(self)

    def _close_idle(self) -> None:
        with self._lock:
            idle = self._idle
            self._idle = {None: []}
        for connection, _ in itertools.chain.from_iterable(idle.values()):
            connection.disconnect()

    def break_all(self) -> None:
        """Break the connections, also those on which somebody waits for a reply, who gets an error. No other
        one is taken."""
        self._broken = True
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            break_off(connection)

    def leave(self) -> None:
        """Close the connections to servers that are no longer named, also those on which somebody waits for a
        reply."""
        resolver = self._resolver
        if resolver is None:
            return
        with self._lock:
            left = [
                connection
                for connection, node in self._open.items()
                if node is not None and not resolver.serves(node)
            ]
            for node in (self._open[connection] for connection in left):
                self._idle.pop(address_of(node), None)
        for connection in left:
            break_off(connection)

    def _give_permit_back(self) -> None:
        if self._permits is not None:
            self._permits.release()


_POOLS: weakref.WeakSet[Connections] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for pool in list(_POOLS):
        pool._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


def break_off(connection: Connection) -> None:
    """End a connection that another thread may use: closing it from here would leave the one who reads
    without a socket, so it ends as if the server had closed it."""
    sock = connection._sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def address_of(node: Node | None) -> Address | None:
    """Where a node listens; None for the fixed address."""
    return None if node is None else node.address


def packed(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[bytes]:
    """The bytes of commands that go out together. Many are one piece, and so one write."""
    if _pack is not None:
        return [b"".join(map(_pack, commands))]
    return [b"".join(chunk for words in commands for chunk in connection.pack_command(*words))]


def _is_readable(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except (redis.RedisError, OSError):
        return True
