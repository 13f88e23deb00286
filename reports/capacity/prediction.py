"""The sustainable rate as half of the steps predict it, and whether runs at 0.9 and 1.1 of it confirmed that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.capacity.measurement import Measurement, Step
from reports.simulation.system import quantiles

#: Runs on each side that a prediction needs.
RUNS = 3

P99 = 0.99

#: The two-sided 95 % point of the normal distribution.
NORMAL_95 = 1.96


@dataclass(frozen=True)
class Prediction:
    """The rate at which p99 reaches the target, and between which rates it surely lies: the steps there met and missed by more
    than the uncertainty of their p99. `reason`: why there is none."""

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
            rate = crossing(*bracket, found.target.p99_ms)
            return Prediction(rate, *surely(half, bracket, found.target.p99_ms), workers=workers, steps=len(half))
    return Prediction(reason="half of the steps do not have both a rate that met and a higher one that did not")


def knee(steps: Sequence[Step]) -> tuple[Step, Step] | None:
    """The highest rate that met, and the lowest above it that did not."""
    met = max((step for step in steps if step.meets), key=lambda step: step.rate, default=None)
    if met is None:
        return None
    above = [step for step in steps if not step.meets and step.rate > met.rate]
    return (met, min(above, key=lambda step: step.rate)) if above else None


def surely(steps: Sequence[Step], bracket: tuple[Step, Step], p99_ms: float) -> tuple[float, float]:
    """Between which rates the limit lies: from the fastest step below it that met with its whole interval (0 for none) to the
    slowest above it that so missed, or the fastest of all. Where p99 hardly rises with the rate, they lie far apart."""
    met, missed = bracket
    below = [step.rate for step in steps if step.meets and step.rate <= met.rate and p99_interval(step)[1] <= p99_ms]
    above = [step.rate for step in steps if not step.meets and step.rate >= missed.rate and missed_surely(step, p99_ms)]
    return max(below, default=0.0), min(above, default=max(step.rate for step in steps))


def missed_surely(step: Step, p99_ms: float) -> bool:
    """Whether a step that missed did so by its backlog, by what was dropped, or with the whole interval of its p99."""
    return step.waiting.slope_interval[0] > 0 or step.dropped > 0 or p99_interval(step)[0] > p99_ms


def p99_interval(step: Step) -> tuple[float, float]:
    """The interval of a step's p99, 95 %, by ranks of its latencies. Jobs that are in the system together fare alike: of as many
    as there are at a time one counts."""
    bins = step.latency_ms.histogram
    count = sum(one.count for one in bins)
    if not count:
        return step.latency_ms.p99, step.latency_ms.p99
    independent = max(1.0, count / max(1.0, step.in_system.counted))
    half = NORMAL_95 * math.sqrt(P99 * (1 - P99) / independent)
    low, high = quantiles(bins, np.array([P99 - half, min(1.0, P99 + half)]))
    return min(float(low), step.latency_ms.p99), max(float(high), step.latency_ms.p99)


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
