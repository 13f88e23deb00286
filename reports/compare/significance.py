"""Could chance alone have made this difference: the exact Mann-Whitney test, and Holm's correction for several metrics."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

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
