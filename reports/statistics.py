"""Differences of two sides: whether chance alone made them (Mann-Whitney, Holm), how large they are, and how large noise is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb, exp

import numpy as np

# How large is the difference, and how large a difference does no change at all make: bootstrap interval and
# noise floor.
#
# Repetitions are the unit, never jobs: jobs of one run share its machine, its faults and its seed.


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


#: The share of comparisons without any difference in which some metric may be claimed to differ.
LEVEL = 0.05

#: So many repetitions a side are enough for any number of metrics.
REPETITIONS_MAX = 20


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """The exact two-sided p-value of the Mann-Whitney U test (Wilcoxon's rank sum), ties included.

    It is the share of all ways to deal the values to two sides of these sizes in which the rank sum of the first side is at least
    as far from its mean as it is here. Equal values share their mean rank. Both sides need a value.
    """
    ranks = doubled_ranks([*a, *b])
    ways = arrangements(ranks, len(a))
    mean = len(a) * (len(ranks) + 1)
    distance = np.abs(np.arange(len(ways)) - mean)
    return float(ways[distance >= abs(sum(ranks[: len(a)]) - mean)].sum() / ways.sum())


def doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, from 1; equal values share their mean rank, which doubled is a whole number."""
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered, start=1)))}
    last = {value: place for place, value in enumerate(ordered, start=1)}
    return [first[value] + last[value] for value in values]


def arrangements(ranks: Sequence[int], size: int) -> np.ndarray:
    """For each sum, in how many ways `size` of the ranks add up to it."""
    ways = np.zeros((size + 1, sum(ranks) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    return ways[size]


def smallest_p(size_a: int, size_b: int) -> float:
    """The smallest p-value that the test can give: all values of one side lie above all of the other."""
    return min(1.0, 2 / comb(size_a + size_b, size_a))


def repetitions_needed(metrics: int) -> int:
    """How many repetitions a side can show a difference of one of so many metrics at `LEVEL`."""
    return next(size for size in range(1, REPETITIONS_MAX) if smallest_p(size, size) * metrics <= LEVEL)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value corrected for all of them by Holm's method, in the same order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    least = 0.0
    for place, index in enumerate(order):
        least = max(least, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = least
    return corrected
