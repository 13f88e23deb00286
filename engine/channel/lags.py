"""How far subscribers are behind their channels, for monitoring: found by a scan of the server's keys, some
thousands a call.

DSPS keeps no list of channels or subscribers, so there is nothing else to ask. Neither call changes a key,
nor the life of one: a subscriber that nobody is does not live on because somebody looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.channel import clock
from engine.errors import ScriptFault, logger
from engine.models.dsps import DspsKeys
from engine.ops.admin import ListSubscribers, ReadClocks
from engine.ops.base import Call

#: Keys that one call looks at: some milliseconds of the server.
SCANNED = 5_000


@dataclass(frozen=True, slots=True)
class Subscribers:
    """Pairs of channel and subscriber; `cursor` is where the next call goes on, 0 at the end."""

    found: tuple[tuple[str, str], ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class Lag:
    """A subscriber and how many messages were published since the one that it has acknowledged last, those
    that have expired among them. None: its cursor or the clock of its channel is gone or damaged."""

    channel: str
    subscriber: str
    messages: int | None


def subscribers(cursor: int, channel: str | None = None) -> Call[Subscribers]:
    """The call that looks for subscribers of a channel, or of all."""
    pattern = DspsKeys(channel or "*").cursor("*")
    words = ("SCAN", cursor, "MATCH", pattern, "COUNT", SCANNED)
    return Call(None, (pattern,), words, _subscribers, ListSubscribers(cursor))


def lags(pairs: Iterable[tuple[str, str]]) -> Call[tuple[Lag, ...]]:
    """The call that reads the clocks of these channels and the cursors of these subscribers, of one
    server."""
    known = tuple(pairs)
    channels = tuple(dict.fromkeys(channel for channel, _ in known))
    keys = (
        *(DspsKeys(channel).clock for channel in channels),
        *(DspsKeys(name).cursor(who) for name, who in known),
    )

    def parse(raw: Sequence[bytes | None]) -> tuple[Lag, ...]:
        clocks = dict(zip(channels, map(_clock, raw[: len(channels)]), strict=True))
        cursors = map(_clock, raw[len(channels) :])
        return tuple(
            Lag(name, who, behind(at, clocks[name])) for (name, who), at in zip(known, cursors, strict=True)
        )

    return Call(None, keys, ("MGET", *keys), parse, ReadClocks())


def behind(cursor: int | None, end: int | None) -> int | None:
    """How many messages a cursor is behind its channel; None where one is not known, or the clock went back
    behind the cursor."""
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


# -- Which of several storages are asked: one that failed is left out for a while, and then tried beside
# the others without being waited for. So a server that is away costs one call its patience, and not every
# call. No I/O.

log = logger("ironclaim.channel")

#: For how long one is left out that failed, twice as long each time it fails again.
_ASIDE_MS_MIN = 500
_ASIDE_MS_MAX = 30_000
#: After so many different ones nothing more is said.
_FAULTS_MAX = 100


class Health:
    """The health of the storages of one channel."""

    def __init__(
        self, channel: str, storages: Iterable[str], now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._channel = channel
        self._storages = tuple(storages)
        self._now_ns = now_ns
        #: Those that failed last: until when they are left out, and for how long that was.
        self._aside: dict[str, tuple[int, int]] = {}
        self._faults: set[tuple[str, str]] = set()

    def chosen(self, among: Iterable[str] | None = None) -> list[str]:
        """The storages to ask: all that are not left out, or all when there are no others."""
        now_ns = self._now_ns()
        wanted = [id for id in self._storages if among is None or id in among]
        return [id for id in wanted if id not in self._aside or now_ns >= self._aside[id][0]] or wanted

    def doubtful(self, storages: Iterable[str]) -> bool:
        """Whether one of these failed when it was asked last."""
        return any(id in self._aside for id in storages)

    def answered(self, id: str) -> None:
        """This storage answered: it is left out no longer."""
        if self._aside.pop(id, None) is not None:
            log.info("storage %s of channel %s works again", id, self._channel)

    def failed(self, id: str, why: object) -> None:
        """This storage did not answer: leave it out for a while. Logged once until it answers again."""
        if id not in self._aside:
            log.warning(
                "storage %s of channel %s is left out until it works again: %s", id, self._channel, why
            )
        before_ms = self._aside[id][1] if id in self._aside else _ASIDE_MS_MIN // 2
        aside_ms = min(before_ms * 2, _ASIDE_MS_MAX)
        self._aside[id] = (self._now_ns() + aside_ms * 1_000_000, aside_ms)

    def faulted(self, id: str, why: object) -> None:
        """This storage works and cannot do this one thing, as where a key is damaged. It is not left out,
        because other calls are none the worse for that. Each fault is logged once."""
        fault = (id, str(why))
        if fault not in self._faults and len(self._faults) < _FAULTS_MAX:
            self._faults.add(fault)
            log.warning("storage %s of channel %s: %s", id, self._channel, why)
