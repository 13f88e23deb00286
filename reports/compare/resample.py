"""How large is the difference, and how large a difference does no change at all make: bootstrap interval and noise floor.

Repetitions are the unit, never jobs: jobs of one run share its machine, its faults and its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, exp

import numpy as np

#: Resamples of a bootstrap interval.
RESAMPLES = 10_000

#: The share of resamples inside of the interval, and of splits inside of the noise floor.
CONFIDENCE = 0.95

#: With more splits than this, so many are drawn.
SPLITS_MAX = 10_000


def ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """The median of B as a multiple of that of A. All values must be above 0."""
    return float(np.median(b) / np.median(a))


def interval(a: Sequence[float], b: Sequence[float], seed: int) -> tuple[float, float]:
    """The bootstrap interval (percentile method) of `ratio`. The same seed draws the same repetitions for every metric."""
    draw = np.random.default_rng(seed)
    medians_a, medians_b = (
        np.median(np.asarray(side)[draw.integers(len(side), size=(RESAMPLES, len(side)))], axis=1) for side in (a, b)
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians_b / medians_a, [tail, 1 - tail])
    return float(low), float(high)


def noise_floor(values: Sequence[float], seed: int) -> float:
    """The factor, at least 1, up to which two halves of the same side differ: of all splits, `CONFIDENCE` lie within.

    Rounded outwards, so that with few repetitions it is the largest factor of any split. Needs two repetitions.
    """
    data = np.asarray(values, dtype=float)
    orders = splits(len(data), seed)
    half, rest = (np.median(data[places], axis=1) for places in np.split(orders, [len(data) // 2], axis=1))
    return exp(float(np.quantile(np.abs(np.log(rest / half)), CONFIDENCE, method="higher")))


def splits(count: int, seed: int) -> np.ndarray:
    """One row per split into two halves: the places of all values, those of the first half in front."""
    size = count // 2
    if comb(count, size) > SPLITS_MAX:
        return np.random.default_rng(seed).random((SPLITS_MAX, count)).argsort(axis=1)
    places = range(count)
    return np.array([[*half, *(place for place in places if place not in half)] for half in combinations(places, size)])
