"""What a run on channels is, for `spec.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bench.models import DSPS
from chaos import catalogue, topologies
from chaos.errors import HarnessError
from chaos.spec import SpecFile, check_bounds

BOUNDS: dict[str, tuple[int, int]] = {"seed": (0, 2**53 - 1), "publishers": (1, 8), "load_bound_s": (60, 100_000)}

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
