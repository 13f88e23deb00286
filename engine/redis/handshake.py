"""The first commands of every new connection, and the check of their replies. No socket: the connections send
them.

It refuses servers that would lose jobs, sees to it that every script is there (rule 28), and learns the
server's time (rule 3). A user who may not run INFO (`-@dangerous`) is served all the same. What HELLO tells
suffices, but for the eviction policy and the era of the server, which are then unknown."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import redis

from engine.errors import UnsafeServer, logger
from engine.observer import Observer, ServerIdentity
from engine.ops.base import ServerClock
from engine.redis.endpoint import ClusterRoute, Node, Route
from engine.redis.exchange import message_of
from engine.redis.scripts import Script

log = logger("ironclaim")

_VERSION_LEAST = (7, 0)
_SECTIONS = ("server", "memory", "replication")
#: Of the fields of HELLO those that INFO calls otherwise.
_NAMES_IN_INFO = {"version": "redis_version"}


class Handshake:
    """`commands` go out in one piece. `conclude` takes their replies, errors among them, in the same order,
    and returns what is to follow, again in one piece. All scripts are half a megabyte. So only those are sent
    that the server lacks. After a fault many connections are made at once. `replicated`: calls wait for a
    replica, so the era of the server must be known."""

    def __init__(
        self,
        scripts: Iterable[Script],
        clock: ServerClock,
        observer: Observer | None,
        *,
        replicated: bool = False,
        route: Route | None = None,
    ) -> None:
        self._clock = clock
        self._observer = observer
        self._replicated = replicated
        self._route = route
        self._scripts = tuple(scripts)
        # Connections without scripts only wait, and write nothing.
        self._watch = clock.watch if self._scripts else None
        self.commands: tuple[tuple[object, ...], ...] = (
            *(self._watch.commands if self._watch is not None else ()),
            *(("INFO", section) for section in _SECTIONS),
            *([("SCRIPT", "EXISTS", *(script.digest for script in self._scripts))] if self._scripts else []),
            *([("CLUSTER", "MYID")] if isinstance(route, ClusterRoute) else []),
            ("HELLO",),
            ("TIME",),
        )

    def conclude(
        self, replies: Sequence[Any], node: Node | None = None, *, learns: bool = True
    ) -> tuple[tuple[object, ...], ...]:
        """Check the server, and that it is the `node` that was to be reached; the commands that load what it
        lacks. `learns`: its time is the one that calls are bounded by. Raises the first error among the
        replies, UnsafeServer, or redis-py's ConnectionError for another server."""
        seen = list(replies[: len(self._watch.commands)] if self._watch is not None else ())
        replies = replies[len(seen) :]
        sections, hello = replies[: len(_SECTIONS)], replies[-2]
        refusal = next((section for section in sections if is_refused(section)), None)
        # A server that answers INFO need not know HELLO.
        raise_errors(replies[len(_SECTIONS) :] if refusal else [*replies[:-2], replies[-1]])
        info: dict[str, str] = {}
        if refusal is None:
            for section in sections:
                info.update(parse_info(section))
            check_server(info)
        else:
            for needed, what in (
                (self._replicated, 'durability="replica"'),
                (self._route is not None, "sentinel:// and cluster://"),
            ):
                if needed:
                    raise UnsafeServer(f"{what} needs the command INFO, to know the server: {refusal}")
            info = parse_hello(hello)
            check_version(info)
            tell_unknown(str(refusal))
        if node is not None:  # anchor: server-is-the-named-one
            check_node(
                node, info, replies[-3] if isinstance(self._route, ClusterRoute) else info.get("run_id", "")
            )
        if learns:
            seconds, micros = replies[-1]
            self._clock.learn(int(seconds) * 1_000_000 + int(micros), time.monotonic_ns())
        identity = ServerIdentity(info.get("run_id", ""), info.get("master_replid", ""), info.get("role", ""))
        if self._observer is not None:
            self._observer.connected(identity)
        there = replies[len(_SECTIONS)] if self._scripts else ()
        missing = tuple(
            ("SCRIPT", "LOAD", script.text)
            for script, known in zip(self._scripts, there, strict=True)
            if not known
        )
        return missing if self._watch is None else (*missing, *self._watch.greeted(identity, seen))

    def finish(self, commands: Sequence[tuple[object, ...]], replies: Sequence[Any]) -> None:
        """Take the replies to what `conclude` has returned. Raises the first error of a script that could not
        be loaded."""
        loads = sum(words[0] == "SCRIPT" for words in commands)
        raise_errors(replies[:loads])
        if self._watch is not None and loads < len(replies):
            self._watch.concluded(replies[loads])


def is_refused(reply: object) -> bool:
    """Whether the user may not run this command."""
    return isinstance(reply, Exception) and message_of(reply).startswith("NOPERM")


@functools.cache
def tell_unknown(refusal: str) -> None:
    """Log what is not known of a server whose user may not run INFO: once in a process for each user, by the
    server's word."""
    log.warning("%s: the server's eviction policy (it must be noeviction) and its era are unknown", refusal)


def raise_errors(replies: Sequence[Any]) -> None:
    """Raise the first error among the replies."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply


def parse_info(section: bytes) -> dict[str, str]:
    """`key:value` lines of an INFO reply."""
    pairs = (line.split(":", 1) for line in section.decode(errors="replace").splitlines() if ":" in line)
    return dict(pairs)


def parse_hello(reply: object) -> dict[str, str]:
    """The fields of a HELLO reply, a mapping or, in RESP2, names and values by turns; by the names that INFO
    has for them."""
    found = cast("Mapping[Any, Any]", reply) if isinstance(reply, Mapping) else None
    words = cast("Sequence[Any]", reply)
    pairs = zip(words[::2], words[1::2], strict=True) if found is None else found.items()
    texts = {
        name.decode(): value.decode()
        for name, value in pairs
        if isinstance(name, bytes) and isinstance(value, bytes)
    }
    return {_NAMES_IN_INFO.get(name, name): value for name, value in texts.items()}


def check_node(node: Node, info: Mapping[str, str], identity: bytes | str) -> None:
    """Refuse a server that is not the node that was to be reached, or that is no primary (any more). Raises
    redis-py's ConnectionError: nothing was sent, and another one may serve by now."""
    own = identity.decode() if isinstance(identity, bytes) else identity
    if node.identity and own != node.identity:
        raise redis.ConnectionError(
            f"{node.host}:{node.port} is {own}, not {node.identity}, which was named the primary"
        )
    if info.get("role") != "master":
        raise redis.ConnectionError(
            f"{node.host}:{node.port} is no primary: its role is {info.get('role', 'unknown')}"
        )


def check_server(info: dict[str, str]) -> None:
    """Refuse a server that the scripts cannot run on or that may drop keys by itself. Raises UnsafeServer."""
    check_version(info)
    policy = info.get("maxmemory_policy", "")
    if policy != "noeviction":
        raise UnsafeServer(
            f"maxmemory_policy: {policy or 'unknown'} may evict jobs and locks, it must be noeviction"
        )


def check_version(info: dict[str, str]) -> None:
    """Refuse a server that the scripts cannot run on. Raises UnsafeServer."""
    version = info.get("redis_version", "")
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    if numbers < _VERSION_LEAST:
        raise UnsafeServer(f"redis_version: {version or 'unknown'} is too old, the scripts need 7.0 or newer")
