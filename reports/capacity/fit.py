"""The Universal Scalability Law (Gunther) over worker processes, or why it does not describe what was measured.

X(N) = rate_of_one * N / (1 + contention (N - 1) + coherence N (N - 1)). N / X(N) is linear in three unknowns that are not below
0, so the fit is an exact least-squares problem: rows are divided by N / X(N), which makes the errors relative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from reports.capacity.measurement import Measurement

#: With fewer worker counts than this, three unknowns fit nearly anything.
COUNTS_LEAST = 4

#: The greatest relative residual of a fit that is used.
RESIDUAL_MAX = 0.05

#: A curve is saturated when its last points lie within this share of one level, and a straight rise to that level describes it
#: better than the law, by this factor.
PLATEAU = 0.03
BETTER = 0.7

#: Resamples of the bootstrap, and the share of them inside of the interval.
RESAMPLES = 2_000
CONFIDENCE = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """Worker processes, and the sustainable rate of so many: between the highest rate that met and the lowest that did not."""

    workers: int
    met: float
    missed: float

    @property
    def middle(self) -> float:
        """The estimate."""
        return (self.met + self.missed) / 2


@dataclass(frozen=True)
class Law:
    """A fit. The intervals are of the bootstrap over residuals and over where in its bracket each point lies."""

    rate_of_one: float
    contention: float
    coherence: float
    residual: float
    rate_of_one_interval: Interval
    contention_interval: Interval
    coherence_interval: Interval
    #: Lower and upper rate by worker count, from 1.
    band: tuple[Interval, ...]

    def rate(self, workers: float) -> float:
        """The sustainable rate of so many workers."""
        return self.rate_of_one * workers * self.efficiency(workers)

    def efficiency(self, workers: float) -> float:
        """What each of so many workers does, as a share of what one does alone."""
        return 1 / (1 + self.contention * (workers - 1) + self.coherence * workers * (workers - 1))

    @property
    def peak(self) -> float:
        """The worker count beyond which more workers do less; infinite without coherence."""
        return ((1 - self.contention) / self.coherence) ** 0.5 if self.coherence and self.contention < 1 else np.inf


@dataclass(frozen=True)
class Refused:
    """Why there is no fit."""

    reason: str


def points(found: Measurement) -> tuple[Point, ...]:
    """The sustainable rate of each worker count whose limit was found: some rate met, and a higher one did not."""
    made: list[Point] = []
    for workers in sorted({step.workers for step in found.sound}):
        steps = [step for step in found.sound if step.workers == workers]
        met = max((step.finished_per_s for step in steps if step.meets), default=0.0)
        missed = min((step.rate for step in steps if not step.meets and step.rate > met), default=0.0)
        if met and missed:
            made.append(Point(workers, met, missed))
    return tuple(made)


def fit(measured: Sequence[Point], seed: int = 1) -> Law | Refused:
    """The law over these points, or its refusal."""
    if len(measured) < COUNTS_LEAST:
        counts = ", ".join(str(one.workers) for one in measured) or "none"
        return Refused(f"the limit was found for {len(measured)} worker counts ({counts}); a fit needs at least {COUNTS_LEAST}")
    workers = np.array([one.workers for one in measured], dtype=float)
    rates = np.array([one.middle for one in measured])
    found = solve(workers, rates[None, :])[0]
    residuals = rates / curve(found, workers) - 1
    residual = float(np.abs(residuals).max())
    if level := plateau(workers, rates, residual):
        return Refused(
            f"the curve is saturated: from {level[1]} workers on it stays at {level[0]:,.0f} jobs/s, so something other than the "
            "workers is full (see the bottleneck), and a law of workers says nothing about it"
        )
    if residual > RESIDUAL_MAX:
        worst = int(np.abs(residuals).argmax())
        return Refused(
            f"the residual is {residual:.1%} at {measured[worst].workers} workers; above {RESIDUAL_MAX:.0%} the law is not used"
        )
    draws = resampled(measured, found, residuals, seed)
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    bounds = np.quantile(draws, tails, axis=0)
    along = np.arange(1, int(workers.max()) * 2 + 1)
    band = np.quantile(np.array([curve(draw, along) for draw in draws]), tails, axis=0)
    one, contention, coherence = ((float(low), float(high)) for low, high in bounds.T)
    values = (float(value) for value in found)
    return Law(next(values), next(values), next(values), residual, one, contention, coherence, tuple(map(tuple, band.T.tolist())))


def curve(found: np.ndarray, workers: np.ndarray) -> np.ndarray:
    """The rates of the law with these three values."""
    one, contention, coherence = found
    return one * workers / (1 + contention * (workers - 1) + coherence * workers * (workers - 1))


def solve(workers: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """For each row of rates the three values of the law with the least squared relative error, none below 0.

    Each set of unknowns that are not 0 is solved for; the best feasible solution is that of the problem with bounds.
    """
    weight = rates / workers
    columns = np.stack([np.ones_like(workers), workers - 1, workers * (workers - 1)], axis=1)
    rows = weight[:, :, None] * columns
    best, least = np.zeros((len(rates), 3)), np.full(len(rates), np.inf)
    for others in (places for count in range(3) for places in combinations((1, 2), count)):
        active = [0, *others]
        part = rows[:, :, active]
        normal = np.swapaxes(part, 1, 2) @ part
        found = np.linalg.solve(normal, part.sum(axis=1)[:, :, None])[:, :, 0]
        errors = ((np.einsum("rpk,rk->rp", part, found) - 1) ** 2).sum(axis=1)
        better = (found >= 0).all(axis=1) & (errors < least)
        full = np.zeros((len(rates), 3))
        full[:, active] = found
        best[better], least[better] = full[better], errors[better]
    return np.stack([1 / best[:, 0], best[:, 1] / best[:, 0], best[:, 2] / best[:, 0]], axis=1)


def resampled(measured: Sequence[Point], found: np.ndarray, residuals: np.ndarray, seed: int) -> np.ndarray:
    """The three values of each resample. Residuals are widened by the unknowns that the fit has used up."""
    draw = np.random.default_rng(seed)
    size = (RESAMPLES, len(measured))
    workers = np.array([one.workers for one in measured], dtype=float)
    half = np.array([(one.missed - one.met) / 2 / one.middle for one in measured])
    spread = residuals * (len(measured) / (len(measured) - 3)) ** 0.5
    noise = spread[draw.integers(len(measured), size=size)] + half * draw.uniform(-1, 1, size=size)
    return solve(workers, curve(found, workers) * (1 + noise))


def plateau(workers: np.ndarray, rates: np.ndarray, residual: float) -> tuple[float, int] | None:
    """The level of a saturated curve and the first worker count on it; None for a curve that is not."""
    for first in range(1, len(workers) - 1):
        level = float(rates[first:].mean())
        flat = np.abs(rates[first:] / level - 1).max() <= PLATEAU
        rise = float((rates[:first] / workers[:first]).mean())
        error = float(np.abs(rates / np.minimum(rise * workers, level) - 1).max())
        if flat and rise * workers[first] > level * (1 - PLATEAU) and error < BETTER * residual and error <= RESIDUAL_MAX:
            return level, int(workers[first])
    return None
