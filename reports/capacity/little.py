"""Cross-checks of each step: Little's law, and what limits the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.measurement import Bin, Measurement, Step

#: What the server counts may lie this share beyond what the times of the jobs allow.
TOLERANCE = 0.05

#: A part that is busier than this share is full.
FULL = 0.8


@dataclass(frozen=True)
class Little:
    """A step: the jobs in the system as counted, and as their own times say; both over the same instants, so that the law needs
    no steady state. `by_rate`: the rate times the mean latency, which is as many where the backlog does not grow."""

    step: Step
    by_rate: float

    @property
    def counted(self) -> float:
        """As the server says."""
        return self.step.in_system.counted

    @property
    def off(self) -> float:
        """By what share the count lies outside of what the times allow."""
        low, high = self.step.in_system.certain, self.step.in_system.possible
        beyond = max(low - self.counted, self.counted - high, 0.0)
        return beyond / high if high else float(beyond > 0)

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        return self.off <= TOLERANCE


def mean_ms(bins: Sequence[Bin]) -> float:
    """The mean of a histogram, each value in the middle of its bin."""
    count = sum(one.count for one in bins)
    return sum((one.lower_ms + one.upper_ms) / 2 * one.count for one in bins) / count if count else 0.0


def little(found: Measurement) -> tuple[Little, ...]:
    """Little's law on every step."""
    return tuple(Little(step, step.offered / step.seconds * mean_ms(step.latency_ms.histogram) / 1_000) for step in found.sound)


@dataclass(frozen=True)
class Bottleneck:
    """How busy each part was, the busiest first, and which of them was full."""

    shares: tuple[tuple[str, float], ...]
    rate: float

    @property
    def name(self) -> str:
        """The busiest part."""
        return self.shares[0][0]

    @property
    def words(self) -> str:
        """A sentence."""
        (name, share), *others = self.shares
        listed = ", ".join(f"{other} {busy:.0%}" for other, busy in others)
        doubt = "" if share >= FULL else ", but nothing was full"
        return f"{name}, busy to {share:.0%} at {self.rate:,.0f} jobs/s ({listed}){doubt}"


def bottleneck(found: Measurement) -> Bottleneck:
    """What limits the rate, at the highest rate that says something."""
    step = found.sound[-1]
    shares = {
        "the workers' places": step.utilisation,
        "the workers' processors": step.worker.cpu_share,
        "the server": step.server.cpu_share,
        "the driver": step.driver.cpu_share,
    }
    return Bottleneck(tuple(sorted(shares.items(), key=lambda pair: -pair[1])), step.rate)
