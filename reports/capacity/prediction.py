"""The sustainable rate as half of the steps predict it, and whether runs at 0.9 and 1.1 of it confirmed that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.measurement import Measurement, Step

#: Runs on each side that a prediction needs.
RUNS = 3


@dataclass(frozen=True)
class Prediction:
    """The rate at which p99 reaches the target, and between which rates it surely lies. `reason`: why there is none."""

    rate: float = 0.0
    low: float = 0.0
    high: float = 0.0
    workers: int = 0
    steps: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Confirmed:
    """What the runs below and above the prediction did."""

    met_below: int
    below: int
    missed_above: int
    above: int

    @property
    def words(self) -> str:
        """Whether the prediction may be used."""
        if not self.below or not self.above:
            return "The prediction was not verified: do not rely on it."
        shown = f"met {self.met_below} of {self.below} times below it, and missed {self.missed_above} of {self.above} times above"
        if self.holds:
            return f"The prediction holds: the target was {shown}."
        return f"The prediction is not to be used: the target was {shown}; {RUNS} of {RUNS} are needed on each side."

    @property
    def holds(self) -> bool:
        """Whether all runs did as predicted, and there were enough of them."""
        return self.met_below == self.below >= RUNS and self.missed_above == self.above >= RUNS


def predict(found: Measurement) -> Prediction:
    """From every second step by rate, of the most workers for which a step met and a faster one did not. Those with the longest
    step come first: their limit was confirmed by it, and the prediction is verified with so many."""
    longest: dict[int, float] = {}
    for step in found.sound:
        longest[step.workers] = max(step.seconds, longest.get(step.workers, 0.0))
    for workers in sorted(longest, key=lambda count: (longest[count], count), reverse=True):
        half = [step for step in found.sound if step.workers == workers][::-2]
        if bracket := knee(half):
            met, missed = bracket
            return Prediction(crossing(met, missed, found.target.p99_ms), met.rate, missed.rate, workers=workers, steps=len(half))
    return Prediction(reason="half of the steps do not have both a rate that met and a higher one that did not")


def knee(steps: Sequence[Step]) -> tuple[Step, Step] | None:
    """The highest rate that met, and the lowest above it that did not."""
    met = max((step for step in steps if step.meets), key=lambda step: step.rate, default=None)
    if met is None:
        return None
    above = [step for step in steps if not step.meets and step.rate > met.rate]
    return (met, min(above, key=lambda step: step.rate)) if above else None


def crossing(met: Step, missed: Step, p99_ms: float) -> float:
    """The rate between two steps at which p99, a straight line on a logarithmic axis, reaches the target. In the middle when the
    faster one missed by its backlog alone."""
    low, high = met.latency_ms.p99, missed.latency_ms.p99
    if not 0 < low < p99_ms < high:
        return (met.rate + missed.rate) / 2
    share = math.log(p99_ms / low) / math.log(high / low)
    return met.rate + share * (missed.rate - met.rate)


def confirmed(found: Measurement) -> Confirmed:
    """The runs that verified."""
    below = [one.meets for one in found.verify if one.times < 1]
    above = [not one.meets for one in found.verify if one.times > 1]
    return Confirmed(sum(below), len(below), sum(above), len(above))
