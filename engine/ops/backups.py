"""The restore of a backup of a queue: the calls that write its keys into an empty one, and that open it."""

from __future__ import annotations

from typing import Any, Literal, get_args

from engine.ops.base import Operation, immutable, one_of, server_us

LoadResult = Literal["ok", "opening", "other", "busy", "unreadable"]
_LOADED = get_args(LoadResult)


@immutable
class LoadRestore(Operation, script="restore_load"):
    """Begin to restore a backup, or write some of its keys. `items`: the name of a key without the queue's prefix, the time (ms)
    when it expires (0 = never), and its value as DUMP gives it (b"" = there is no such key). (backup, owner) is the identity."""

    phase: Literal["begin", "load"]
    backup: str
    owner: str
    probe: bytes = b""
    items: tuple[tuple[bytes, int, bytes], ...] = ()

    def parse(self, raw: Any, decode: object) -> RestoreLoaded:
        """The raw reply as a value."""
        return RestoreLoaded(server_us(raw), one_of(raw[1], _LOADED), raw[2].decode())


@immutable
class RestoreLoaded:
    """`opening`: all is there but for the last call; `other`: another process has begun since; `busy`: the queue is not empty,
    `why` names a key; `unreadable`: this server does not read the values, by its words."""

    srv_us: int
    result: LoadResult
    why: str


@immutable
class EndRestore(Operation, script="restore_end"):
    """Give back up to `limit` of the jobs that were leased when the backup was made, and open the queue when none is left."""

    backup: str
    owner: str
    replid: str
    limit: int
    sequence: int
    sweep_value: bytes
    seq_value: bytes

    def parse(self, raw: Any, decode: object) -> RestoreEnded:
        """The raw reply as a value."""
        return RestoreEnded(server_us(raw), one_of(raw[1], ("ok", "more", "other")), int(raw[2]))


@immutable
class RestoreEnded:
    """`more`: call again; `given_back`: jobs of all calls so far."""

    srv_us: int
    result: Literal["ok", "more", "other"]
    given_back: int
