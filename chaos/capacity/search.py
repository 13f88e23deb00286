"""Which rate is tried next: a ramp that doubles, then bisection, then one long step. Pure decisions on the steps so far.

It is the search of the OpenMessaging benchmark's rate controller, with steps that may prove nothing. A step that was void is
repeated; a rate whose steps are void again and again is a wall: the search goes on below it, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MET, MISSED, VOID = "met", "missed", "void"

#: A rate with so many void steps is not tried again.
VOIDS_MAX = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """A step that is over."""

    rate_per_s: float
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Next:
    """The step to take now."""

    rate_per_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search. `rate_per_s`: the greatest rate that a long step met, None = none did. `high_per_s`: the smallest rate
    above it that is not met, None = there is none up to the bound. `wall`: that rate was void, and not missed."""

    rate_per_s: float | None
    high_per_s: float | None = None
    wall: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Within what is searched, and how long steps last. `growth`: of the ramp; the bisection ends when the missed rate is
    `resolution` times the met one. `steps_max`: a search that has taken so many ends with what it has; eight doublings, the
    bisection and the long step are fifteen, and some may be void."""

    first_per_s: float
    least_per_s: float
    most_per_s: float
    step_s: float
    last_step_s: float
    growth: float = 2.0
    resolution: float = 1.05
    steps_max: int = 24


def decide(tried: Sequence[Tried], limits: Limits) -> Next | Found:
    """The next step, or the end."""
    voids = Counter((step.rate_per_s, step.seconds) for step in tried if step.outcome == VOID)
    if tried and len(tried) < limits.steps_max and tried[-1].outcome == VOID:
        last = tried[-1]
        if voids[last.rate_per_s, last.seconds] < VOIDS_MAX:
            return Next(last.rate_per_s, last.seconds)
    walls = {rate for (rate, _), times in voids.items() if times >= VOIDS_MAX}
    missed = {step.rate_per_s for step in tried if step.outcome == MISSED}
    high = min(walls | missed, default=None)
    met = [step for step in tried if step.outcome == MET and (high is None or step.rate_per_s < high)]
    low = max((step.rate_per_s for step in met), default=None)
    confirmed = max((step.rate_per_s for step in met if step.seconds >= limits.last_step_s), default=None)
    end = Found(confirmed, high, wall=high in walls)
    if len(tried) >= limits.steps_max:
        return end
    if low is None:
        return _downwards(high, limits) or end
    if high is None and low < limits.most_per_s:
        return Next(round(min(limits.growth * low, limits.most_per_s), 1), limits.step_s)
    if high is not None and high > limits.resolution * low:
        return Next(round((low + high) / 2, 1), limits.step_s)
    return end if confirmed == low else Next(low, limits.last_step_s)


def _downwards(high: float | None, limits: Limits) -> Next | None:
    """The step while no rate is met yet; None when all that can be measured is missed."""
    if high is None:
        return Next(limits.first_per_s, limits.step_s)
    return Next(round(max(high / limits.growth, limits.least_per_s), 1), limits.step_s) if high > limits.least_per_s else None
