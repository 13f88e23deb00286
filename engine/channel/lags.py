"""How far subscribers are behind their channels, for monitoring: found by a scan of the server's keys, some thousands a call.

DSPS keeps no list of channels or subscribers, so there is nothing else to ask. Neither call changes a key, nor the life of one: a
subscriber that nobody is does not live on because somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.channel import clock
from engine.errors import ScriptFault
from engine.models.dsps import DspsKeys
from engine.ops.admin import ListSubscribers, ReadClocks
from engine.redis.call import Call

#: Keys that one call looks at: some milliseconds of the server.
SCANNED = 5_000


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Pairs of channel and subscriber; `cursor` is where the next call goes on, 0 at the end."""

    found: tuple[tuple[str, str], ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class Lag:
    """A subscriber and how many messages were published since the one that it has acknowledged last, those that have expired
    among them. None: its cursor or the clock of its channel is gone or damaged."""

    channel: str
    subscriber: str
    messages: int | None


def subscribers(cursor: int, channel: str | None = None) -> Call[Subscribers]:
    """The call that looks for subscribers of a channel, or of all."""
    pattern = DspsKeys(channel or "*").cursor("*")
    words = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
    return Call(None, (pattern,), words, _subscribers, ListSubscribers(cursor))


def lags(pairs: Iterable[tuple[str, str]]) -> Call[tuple[Lag, ...]]:
    """The call that reads the clocks of these channels and the cursors of these subscribers, of one server."""
    known = tuple(pairs)
    channels = tuple(dict.fromkeys(channel for channel, _ in known))
    keys = (*(DspsKeys(channel).clock for channel in channels), *(DspsKeys(name).cursor(who) for name, who in known))

    def parse(raw: Sequence[bytes | None]) -> tuple[Lag, ...]:
        clocks = dict(zip(channels, map(_clock, raw[: len(channels)]), strict=True))
        cursors = map(_clock, raw[len(channels) :])
        return tuple(Lag(name, who, behind(at, clocks[name])) for (name, who), at in zip(known, cursors, strict=True))

    return Call(None, keys, ("MGET", *keys), parse, ReadClocks())


def behind(cursor: int | None, end: int | None) -> int | None:
    """How many messages a cursor is behind its channel; None where one is not known, or the clock went back behind the cursor."""
    if cursor is None or end is None or clock.after(cursor, end):
        return None
    return clock.distance(cursor, end)


def _subscribers(raw: tuple[bytes, Sequence[bytes]]) -> Subscribers:
    cursor, keys = raw
    found: list[tuple[str, str]] = []
    for key in keys:
        # The name of a subscriber holds no dot, that of a channel may.
        channel, mark, subscriber = key.decode(errors="replace").removeprefix("c.{").rpartition("}.r.")
        if mark:
            found.append((channel, subscriber))
    return Subscribers(tuple(sorted(set(found))), int(cursor))


def _clock(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else clock.parse(raw)
    except ScriptFault:
        return None
