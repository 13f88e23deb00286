"""Connections to one Redis or Valkey server, each made fit for the engine by a handshake before its first call.

The client's own retries are off: redis-py re-sends EVALSHA by default, and re-sending is the engine's decision (DESIGN 3.1).
The handshake refuses servers that would lose jobs, loads every script (rule 28), and learns the server's time (rule 3).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType]
from redis.retry import Retry

from engine.errors import Malformed, UnsafeServer
from engine.observer import Observer, ServerIdentity
from engine.scripts import Script
from engine.server_clock import ServerClock

#: redis-py's own types leave these methods partly unknown.
Connection = Any

#: An idle connection that waited longer than this is checked before use: a server that closed it meanwhile is noticed
#: without sending anything.
_CHECK_IDLE_NS = 1_000_000_000
_VERSION_LEAST = (7, 0)


class Connections:
    """A pool of handshaken connections, last in first out, safe from threads and greenlets and across a fork."""

    def __init__(
        self,
        url: str,
        scripts: Iterable[Script],
        *,
        clock: ServerClock,
        observer: Observer | None,
        timeout_ms: int,
    ) -> None:
        self._settings = connection_settings(url, timeout_ms)
        self._class: Connection = self._settings.pop("connection_class", redis.Connection)
        self._scripts = tuple(scripts)
        self._clock = clock
        self._observer = observer
        self._lock = threading.Lock()
        self._idle: list[tuple[Connection, int]] = []
        self._pid = os.getpid()

    def take(self) -> Connection:
        """A connection that is ready to send. Raises redis-py's errors, or UnsafeServer."""
        with self._lock:
            if self._pid != os.getpid():
                # A forked child must not write into its parent's sockets.
                self._idle, self._pid = [], os.getpid()
            connection, idle_since_ns = self._idle.pop() if self._idle else (None, 0)
        if connection is None:
            connection = self._class(**self._settings, redis_connect_func=self._handshake)
        elif time.monotonic_ns() - idle_since_ns > _CHECK_IDLE_NS and _has_news(connection):
            connection.disconnect()
        connection.connect()
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection whose last reply has been read, or one that has been disconnected."""
        with self._lock:
            self._idle.append((connection, time.monotonic_ns()))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.disconnect()

    def _handshake(self, connection: Connection) -> None:
        connection.on_connect()
        commands: list[tuple[object, ...]] = [("INFO", "server"), ("INFO", "memory"), ("INFO", "replication")]
        commands += [("SCRIPT", "LOAD", script.text) for script in self._scripts]
        commands.append(("TIME",))
        connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        errors: list[redis.ResponseError] = []
        for _ in commands:
            try:
                replies.append(connection.read_response())
            except redis.ResponseError as error:
                # Read on: an answer that stays unread would be taken for the next call's.
                errors.append(error)
        if errors:
            raise errors[0]
        info: dict[str, str] = {}
        for section in replies[:3]:
            info.update(parse_info(section))
        check_server(info)
        seconds, micros = replies[-1]
        self._clock.learn(int(seconds) * 1_000_000 + int(micros), time.monotonic_ns())
        if self._observer is not None:
            identity = ServerIdentity(info.get("run_id", ""), info.get("master_replid", ""), info.get("role", ""))
            self._observer.connected(identity)


def connection_settings(url: object, timeout_ms: int) -> dict[str, Any]:
    """Arguments for a redis-py connection from a url. Raises Malformed for a url that redis-py does not know."""
    bound = "a url redis://host:port/db, rediss:// or unix:// with options that redis-py knows"
    # redis-py takes a database that is no number for database 0.
    if not isinstance(url, str) or not (url.startswith("unix://") or re.fullmatch(r"rediss?://[^/?#]*/?\d*(\?.*)?", url)):
        raise Malformed("url", url, bound)
    try:
        settings = dict(cast("dict[str, Any]", parse_url(url)))
        known = {name: value for name, value in settings.items() if name != "connection_class"}
        settings.get("connection_class", redis.Connection)(**known)
    except (ValueError, TypeError) as error:
        raise Malformed("url", url, f"{bound} ({error})") from error
    settings.update(
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout_ms / 1000,
        socket_connect_timeout=timeout_ms / 1000,
        health_check_interval=0,
        decode_responses=False,
    )
    # Only TCP connections know keep-alive and Nagle.
    if not url.startswith("unix://"):
        settings["socket_keepalive"] = True
    return settings


def parse_info(section: bytes) -> dict[str, str]:
    """`key:value` lines of an INFO reply."""
    pairs = (line.split(":", 1) for line in section.decode(errors="replace").splitlines() if ":" in line)
    return {key: value for key, value in pairs}


def check_server(info: dict[str, str]) -> None:
    """Refuse a server that the scripts cannot run on or that may drop keys by itself. Raises UnsafeServer."""
    version = info.get("redis_version", "")
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    if numbers < _VERSION_LEAST:
        raise UnsafeServer(f"redis_version: {version or 'unknown'} is too old, the scripts need 7.0 or newer")
    policy = info.get("maxmemory_policy", "")
    if policy != "noeviction":
        raise UnsafeServer(f"maxmemory_policy: {policy or 'unknown'} may evict jobs and locks, it must be noeviction")


def _has_news(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        return bool(connection.can_read(0))
    except (redis.RedisError, OSError):
        return True
