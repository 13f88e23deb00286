"""The first commands of every new connection, and the check of their replies. No socket: the connections send them.

It refuses servers that would lose jobs, sees to it that every script is there (rule 28), and learns the server's time (rule 3).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from engine.errors import UnsafeServer
from engine.observer import Observer, ServerIdentity
from engine.server_clock import ServerClock
from engine.wire.scripts import Script

_VERSION_LEAST = (7, 0)
_SECTIONS = ("server", "memory", "replication")


class Handshake:
    """`commands` go out in one piece; `conclude` takes their replies, errors among them, in the same order, and returns what is
    to follow, again in one piece: all scripts are half a megabyte, so only those are sent that the server lacks. After a fault
    many connections are made at once."""

    def __init__(self, scripts: Iterable[Script], clock: ServerClock, observer: Observer | None) -> None:
        self._clock = clock
        self._observer = observer
        self._scripts = tuple(scripts)
        self.commands: tuple[tuple[object, ...], ...] = (
            *(("INFO", section) for section in _SECTIONS),
            *([("SCRIPT", "EXISTS", *(script.digest for script in self._scripts))] if self._scripts else []),
            ("TIME",),
        )

    def conclude(self, replies: Sequence[Any]) -> tuple[tuple[object, ...], ...]:
        """Check the server and learn its time; the commands that load what it lacks. Raises the first error among the
        replies, or UnsafeServer."""
        raise_errors(replies)
        info: dict[str, str] = {}
        for section in replies[: len(_SECTIONS)]:
            info.update(parse_info(section))
        check_server(info)
        seconds, micros = replies[-1]
        self._clock.learn(int(seconds) * 1_000_000 + int(micros), time.monotonic_ns())
        if self._observer is not None:
            identity = ServerIdentity(info.get("run_id", ""), info.get("master_replid", ""), info.get("role", ""))
            self._observer.connected(identity)
        there = replies[len(_SECTIONS)] if self._scripts else ()
        return tuple(("SCRIPT", "LOAD", script.text) for script, known in zip(self._scripts, there, strict=True) if not known)


def raise_errors(replies: Sequence[Any]) -> None:
    """Raise the first error among the replies."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


def parse_info(section: bytes) -> dict[str, str]:
    """`key:value` lines of an INFO reply."""
    pairs = (line.split(":", 1) for line in section.decode(errors="replace").splitlines() if ":" in line)
    return dict(pairs)


def check_server(info: dict[str, str]) -> None:
    """Refuse a server that the scripts cannot run on or that may drop keys by itself. Raises UnsafeServer."""
    version = info.get("redis_version", "")
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    if numbers < _VERSION_LEAST:
        raise UnsafeServer(f"redis_version: {version or 'unknown'} is too old, the scripts need 7.0 or newer")
    policy = info.get("maxmemory_policy", "")
    if policy != "noeviction":
        raise UnsafeServer(f"maxmemory_policy: {policy or 'unknown'} may evict jobs and locks, it must be noeviction")
