"""Cross-checks of each step: Little's law, and what limits the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.measurement import Bin, Measurement, Step

#: Little's law must hold within this share: jobs in the system are sampled, and a histogram has bins.
TOLERANCE = 0.15

#: A part that is busier than this share is full.
FULL = 0.8


@dataclass(frozen=True)
class Little:
    """A step: the jobs in the system as counted, and as the rate and the mean latency say."""

    step: Step
    counted: float
    expected: float

    @property
    def off(self) -> float:
        """By what share the two differ."""
        return abs(self.counted - self.expected) / self.expected if self.expected else 0.0

    @property
    def holds(self) -> bool:
        """Whether they agree. A step whose backlog grows has no steady state, to which the law applies."""
        return self.off <= TOLERANCE or not self.steady

    @property
    def steady(self) -> bool:
        """Whether the backlog did not grow within its confidence interval."""
        return self.step.waiting.slope_interval[0] <= 0


def mean_ms(bins: Sequence[Bin]) -> float:
    """The mean of a histogram, each value in the middle of its bin."""
    count = sum(one.count for one in bins)
    return sum((one.lower_ms + one.upper_ms) / 2 * one.count for one in bins) / count if count else 0.0


def little(found: Measurement) -> tuple[Little, ...]:
    """Little's law on every step that has a histogram."""
    steps = [step for step in found.sound if step.latency_ms.histogram]
    return tuple(
        Little(step, step.in_system_mean, step.finished_per_s * mean_ms(step.latency_ms.histogram) / 1_000) for step in steps
    )


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
