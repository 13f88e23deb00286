"""Channels with how far their subscribers are behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.channel.lags import Lag


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel with its subscribers, those that are furthest behind first; `most` is how far that is, at least 1."""

    name: str
    lags: tuple[Lag, ...]
    most: int


@dataclass(frozen=True, slots=True)
class ChannelList:
    """The channels whose subscribers one look has found; `next` is the cursor of the next look, None at the end."""

    rows: tuple[ChannelRow, ...]
    subscribers: int
    next: int | None


def channel_list(found: Iterable[Lag], cursor: int) -> ChannelList:
    """The subscribers by channel, in the order of their names."""
    known = tuple(found)
    rows: list[ChannelRow] = []
    for name in sorted({lag.channel for lag in known}):
        lags = sorted((lag for lag in known if lag.channel == name), key=lambda lag: (-(lag.messages or 0), lag.subscriber))
        rows.append(ChannelRow(name, tuple(lags), max(1, *(lag.messages or 0 for lag in lags), 1)))
    return ChannelList(tuple(rows), len(known), cursor or None)
