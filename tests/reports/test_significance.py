"""The exact test and what corrects it, against published tables and against plain enumeration."""

from itertools import combinations
from math import comb
from statistics import median

import pytest

from reports import statistics
from reports.statistics import LEVEL, holm, interval, mann_whitney, noise_floor, ratio, repetitions_needed, smallest_p

#: Sizes of the sides -> the largest U that is significant at 5 %, two-sided (Mann and Whitney's table as textbooks print it).
CRITICAL_U = {
    (4, 4): 0, (4, 5): 1, (5, 5): 2, (5, 8): 6, (6, 6): 5, (7, 7): 8, (8, 8): 13, (9, 9): 17, (10, 10): 23,
    (10, 15): 39, (15, 15): 64, (20, 20): 127,
}  # fmt: skip


def with_u(size_a: int, size_b: int, u: int) -> tuple[list[float], list[float]]:
    """Two sides whose U is this: from all of A below all of B, values of A are moved above values of B, one place per step."""
    places = list(range(size_a))
    for index in reversed(range(size_a)):
        step = min(u, size_b)
        places[index] += step
        u -= step
    return [float(place) for place in places], [float(place) for place in range(size_a + size_b) if place not in places]


@pytest.mark.parametrize(("sizes", "u"), CRITICAL_U.items())
def test_critical_values_are_those_of_the_published_table(sizes: tuple[int, int], u: int) -> None:
    assert mann_whitney(*with_u(*sizes, u)) <= LEVEL < mann_whitney(*with_u(*sizes, u + 1))


def test_the_smallest_p_is_that_of_sides_that_do_not_overlap() -> None:
    """Three repetitions of each can never reach 5 %."""
    assert smallest_p(3, 3) == mann_whitney([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert smallest_p(4, 4) == mann_whitney([5, 6, 7, 8], [1, 2, 3, 4]) == pytest.approx(2 / 70)
    assert [repetitions_needed(metrics) for metrics in (1, 6, 7, 23, 24)] == [4, 5, 6, 6, 7]


SAMPLES = [([1, 2, 2], [2, 3, 3, 4]), ([1, 1, 1, 1], [1, 1, 1]), ([1, 1, 5, 9], [1, 5, 5, 7, 9]), ([3.5], [1.0, 2.0, 9.0])]


@pytest.mark.parametrize(("a", "b"), SAMPLES)
def test_ties_are_dealt_out_like_everything_else(a: list[float], b: list[float]) -> None:
    pooled = sorted([*a, *b])
    ranks = [sum(place for place, other in enumerate(pooled, 1) if other == one) / pooled.count(one) for one in [*a, *b]]
    mean = len(a) * (len(ranks) + 1) / 2
    distance = abs(sum(ranks[: len(a)]) - mean)
    far = sum(abs(sum(dealt) - mean) >= distance - 1e-9 for dealt in combinations(ranks, len(a)))
    assert mann_whitney(a, b) == pytest.approx(far / comb(len(ranks), len(a)))
    assert mann_whitney(a, b) == pytest.approx(mann_whitney(b, a))


def test_holm_corrects_the_smallest_most_and_keeps_the_order() -> None:
    """The example of Holm's step-down: 0.005, 0.01, 0.03, 0.04 become 0.02, 0.03, 0.06, 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert (holm([0.9, 0.8]), holm([])) == ([1.0, 1.0], [])


def test_the_interval_holds_the_ratio_and_is_the_same_for_the_same_seed() -> None:
    a, b = [10.0, 10.2, 9.9, 10.1, 10.3], [12.0, 12.1, 11.8, 12.3, 12.2]
    low, high = interval(a, b, 1)
    assert low < ratio(a, b) < high and ratio(a, b) == pytest.approx(1.198, abs=1e-3)
    assert interval(a, b, 1) == (low, high) and 11.8 / 10.3 <= low < 1.19 and 1.2 < high <= 12.3 / 9.9


def test_the_noise_floor_is_the_largest_split_of_few_and_shrinks_with_many() -> None:
    assert noise_floor([10.0, 10.0, 10.0, 10.0], 1) == 1.0
    assert [len(statistics.splits(count, 1)) for count in (2, 3, 15, 16)] == [2, 3, 6_435, 10_000]
    # The halves of 1, 2, 4, 8 that lie furthest apart: 1.5 and 6.
    assert noise_floor([4.0, 1.0, 8.0, 2.0], 1) == pytest.approx(4.0)
    # Ten splits of five, of which 95 % are all but the half of one: the largest counts.
    values = [1.0, 1.3, 1.5, 1.8, 2.2]
    factors = [median(set(values) - set(half)) / median(half) for half in combinations(values, 2)]
    assert noise_floor(values, 1) == pytest.approx(max(max(factor, 1 / factor) for factor in factors))
    few, many = [1.0, 1.1] * 2, [1.0, 1.1, 1.05, 1.02, 1.08] * 4
    assert 1 < noise_floor(many, 1) < noise_floor(few, 1)
