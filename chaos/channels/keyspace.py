"""What stands in the keys of channels, read and preset as it is: not by the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import redis
from redis.exceptions import RedisClusterException

from chaos import rows
from chaos.channels.spec import Channel
from chaos.topology.base import client_of
from engine.models.dsps import clock_after, read_clock
from record.history import HistoryFile

#: Beyond what an unread message lives, keys live for this long.
MARGIN_MS = 15_000


@dataclass(frozen=True, slots=True)
class Look:
    """The clock of each channel and the cursors of its subscribers, at one instant; None = not there."""

    srv_us: int
    clocks: dict[str, int | None]
    cursors: dict[str, dict[str, int | None]]

    def behind(self) -> list[tuple[str, str]]:
        """(channel, subscriber) of those that have not read everything. Who is not there any more reads nothing."""
        return [
            (channel, subscriber)
            for channel, clock in self.clocks.items()
            for subscriber, cursor in self.cursors[channel].items()
            if clock is not None and cursor is not None and cursor != clock
        ]


class Keyspace:
    """The keys of the channels of a run."""

    def __init__(self, url: str, channels: Iterable[Channel], timeout_s: float = 2.0) -> None:
        self._client: Any = client_of(url, timeout_s)
        self.channels = tuple(channels)

    def close(self) -> None:
        self._client.close()

    def preset(self) -> None:
        """Set the clocks that are to begin elsewhere, as a channel's that had no reader so far. Raises redis.RedisError."""
        for channel in self.channels:
            if channel.preset_clock is not None:
                ttl_s = -(-(channel.expire_ms + MARGIN_MS) // 1_000)
                self._client.set(clock_key(channel.name), str(channel.preset_clock), ex=ttl_s)

    def clocks(self) -> dict[str, int | None]:
        """The clock of each channel. Raises redis.RedisError."""
        return self.look(cursors=False).clocks

    def look(self, *, cursors: bool = True) -> Look:
        """Everything at one instant; in a cluster each channel at one, as each has a slot of its own. Raises redis.RedisError."""
        if isinstance(self._client, redis.RedisCluster):
            try:
                looks = [self._look((channel,), cursors=cursors) for channel in self.channels]
            except RedisClusterException as error:
                raise redis.ConnectionError(str(error)) from error
            clocks = {name: clock for look in looks for name, clock in look.clocks.items()}
            return Look(looks[-1].srv_us, clocks, {name: found for look in looks for name, found in look.cursors.items()})
        return self._look(self.channels, cursors=cursors)

    def _look(self, channels: tuple[Channel, ...], *, cursors: bool) -> Look:
        wanted = [(channel, clock_key(channel.name)) for channel in channels]
        places = [(channel.name, one) for channel in channels for one in channel.subscribers] if cursors else []
        keys = [key for _, key in wanted] + [cursor_key(channel, one) for channel, one in places]
        us, values = self._read(keys)
        clocks = {channel.name: number(value) for (channel, _), value in zip(wanted, values, strict=False)}
        found: dict[str, dict[str, int | None]] = {channel.name: {} for channel in channels}
        for (channel, one), value in zip(places, values[len(wanted) :], strict=True):
            found[channel][one] = number(value)
        return Look(us, clocks, found)

    def _read(self, keys: list[str]) -> tuple[int, list[Any]]:
        """The server's time in us, and what keys hold, at one instant."""
        if isinstance(self._client, redis.RedisCluster):
            # One command is atomic by itself, and all nodes have the clock of this machine.
            return time.time_ns() // 1_000, list(self._client.mget(keys))
        with self._client.pipeline(transaction=True) as pipe:
            pipe.time()
            pipe.mget(keys)
            (seconds, us), values = cast("tuple[Any, list[Any]]", pipe.execute())
        return int(seconds) * 1_000_000 + int(us), values

    def end(self, harness: HistoryFile, t_ns: int) -> None:
        """Write the final rows: clock and cursors of each channel."""
        look = self.look()
        for channel, clock in look.clocks.items():
            cursors = look.cursors[channel].items()
            items = [{"subscriber": one, **({} if cursor is None else {"cursor": cursor})} for one, cursor in cursors]
            row = rows.body("final", name="end", channel=channel, clock=clock, srv_us=look.srv_us, items=items)
            harness.append([row], t_ns=t_ns)


def number(value: str | None) -> int | None:
    """A clock as it is stored."""
    return None if value is None else read_clock(value)


def clock_key(channel: str) -> str:
    return f"c.{{{channel}}}.clock"


def cursor_key(channel: str, subscriber: str) -> str:
    return f"c.{{{channel}}}.r.{subscriber}"


def gone_back(before: Mapping[str, int | None], now: Mapping[str, int | None]) -> list[str]:
    """Channels whose clock is behind where it was before, or gone."""
    return [channel for channel, clock in before.items() if clock is not None and is_behind(now.get(channel), clock)]


def is_behind(now: int | None, before: int) -> bool:
    return now is None or clock_after(before, now)
