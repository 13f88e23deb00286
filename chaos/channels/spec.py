"""What a run on channels is, for `spec.json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.channels.workload import ChannelWorkload, PlannedChannel
from bench.models import DSPS
from chaos import catalogue, topologies
from chaos.errors import HarnessError
from chaos.spec import SpecFile, check_bounds
from engine.models.dsps import CLOCK_MAX, clock_ahead
from record.options import SEEDS

BOUNDS: dict[str, tuple[int, int]] = {"seed": SEEDS, "publishers": (1, 8), "load_bound_s": (60, 100_000)}

#: Times the rates of the plan: less shows nothing, more is more than two cores do.
RATE = (0.1, 20.0)


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel of the run. `group`: those that are measured together; `slow`: subscribers that are late by plan."""

    name: str
    group: str
    subscribers: tuple[str, ...]
    slow: tuple[str, ...]
    fan_out: int
    expire_ms: int
    #: Where its clock stands before anything is published; None = nowhere.
    preset_clock: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelSpec(SpecFile):
    """One run. Times end in their unit; `mutant` is empty for the clean engine."""

    id: str
    seed: int
    mutant: str = ""
    #: What the mutant does, and the verdict that one check must make of it; empty for the clean engine.
    planted: dict[str, str] = field(default_factory=dict)
    scenario: str = "channels"
    topology: str = topologies.AOF
    durability: str = ""
    model: str = DSPS
    #: Times the rates that the load has by itself.
    rate: float = 1.0
    #: Locust processes that publish, each a part of the load.
    publishers: int = 2
    #: Processes with subscribers of their own, and Locust processes with users that are subscribers.
    subscribers: int = 2
    consumers: int = 1
    channels: tuple[Channel, ...] = ()
    #: Processes that nobody told to stop end by themselves after this: far longer than the run.
    load_bound_s: int = 900
    #: What was seen of the machine before the load (see chaos/calibration.py); empty = nothing.
    calibration: dict[str, Any] = field(default_factory=dict)
    plan: tuple[dict[str, Any], ...] = ()
    #: How long the parts of the plan last that no condition ends (see chaos/plan.py).
    pace: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git_commit: str = ""
    machine: dict[str, Any] = field(default_factory=dict)
    started_utc: str = ""

    def __post_init__(self) -> None:
        topologies.check(self.topology, self.durability)
        check_bounds(self, BOUNDS)
        low, high = RATE
        if not low <= self.rate <= high:
            raise HarnessError(f"rate is {self.rate!r}: it must be a number from {low} to {high}")

    def derived(self) -> dict[str, Any]:
        loss = catalogue.declared_loss(self.topology, self.durability)
        return {"durability": topologies.meant(self.topology, self.durability), "loss": loss}


@dataclass(frozen=True, slots=True)
class Crossings:
    """When clocks are to wrap, in ms after the start of the load: the first, and the last."""

    first_ms: int = 3_000
    last_ms: int = 84_000


def preset_channels(workload: ChannelWorkload, crossings: Crossings) -> tuple[Channel, ...]:
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
    return clock_ahead(CLOCK_MAX, 1 - max(2, workload.new_messages(at_ms)[name]))
