"""Where clocks stand before the load: so many messages before the end of the circle that one after the other crosses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bench.channels.workload import ChannelWorkload, PlannedChannel
from chaos.channels.spec import Channel
from engine.channel.clock import CLOCK_MAX, ahead


@dataclass(frozen=True, slots=True)
class Crossings:
    """When clocks are to wrap, in ms after the start of the load: the first, and the last."""

    first_ms: int = 3_000
    last_ms: int = 84_000


def channels(workload: ChannelWorkload, crossings: Crossings) -> tuple[Channel, ...]:
    """The channels of the load, each but those whose messages live a moment with a clock that wraps in mid-load.

    Those of many subscribers cross where a third and two thirds of the time are over, and in the middle; the others one after the
    other. A clock is preset so that it has wrapped when what is planned until that instant is published.
    """
    wrapping = [channel for channel in workload.channels if not _is_short(channel)]
    when_ms = dict(zip((channel.name for channel in _in_turn(wrapping)), _instants(len(wrapping), crossings), strict=True))
    return tuple(
        Channel(
            name=channel.name,
            group=channel.group,
            subscribers=channel.names,
            slow=channel.slow,
            fan_out=channel.fan_out,
            expire_ms=channel.expire_ms,
            preset_clock=_preset(workload, channel.name, when_ms.get(channel.name)),
        )
        for channel in workload.channels
    )


def _is_short(channel: PlannedChannel) -> bool:
    """A channel whose life is so short that its clock may expire: what comes then begins again at 1."""
    return channel.expire_ms < 60_000


def _in_turn(wrapping: Iterable[PlannedChannel]) -> list[PlannedChannel]:
    """The order of the crossings: those with many subscribers are spread among those with one."""
    found = list(wrapping)
    many = [channel for channel in found if channel.fan_out > 1]
    ordered = [channel for channel in found if channel.fan_out == 1]
    for number, channel in enumerate(many, start=1):
        ordered.insert(number * len(found) // (len(many) + 1), channel)
    return ordered


def _instants(count: int, crossings: Crossings) -> list[float]:
    span_ms = crossings.last_ms - crossings.first_ms
    return [crossings.first_ms + span_ms * number / max(1, count - 1) for number in range(count)]


def _preset(workload: ChannelWorkload, name: str, at_ms: float | None) -> int | None:
    """The clock from which it is the smallest one, so the first after the largest, once the messages until then are published; at
    least two of them, since a crossing has two sides."""
    if at_ms is None:
        return None
    return ahead(CLOCK_MAX, 1 - max(2, workload.new_messages(at_ms)[name]))
