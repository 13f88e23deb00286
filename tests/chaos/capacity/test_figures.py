"""The figures of a step, against their definitions, and the rule by which a step meets, misses or proves nothing."""

import random

import pytest

from chaos.capacity.figures import histogram
from chaos.slopes import slope_interval


def test_a_histogram_holds_every_value_in_a_bucket_of_five_per_cent() -> None:
    randomness = random.Random(1)
    values = [0.0, 0.01, *(randomness.lognormvariate(3, 1) for _ in range(2_000))]
    buckets = histogram(values)
    assert sum(count for _, _, count in buckets) == len(values)
    for lower, upper, count in buckets[1:]:
        assert upper == pytest.approx(1.05 * lower, rel=1e-3)
        assert count == pytest.approx(sum(lower <= value < upper for value in values), abs=1)


def backlog(slope: float, *, noise: float, memory: float, seed: int, samples: int = 60) -> list[tuple[float, float]]:
    """Four samples a second of a backlog that remembers what it was by so much."""
    randomness, found, off = random.Random(seed), list[tuple[float, float]](), 0.0
    for at in range(samples):
        off = memory * off + randomness.gauss(0, noise)
        found.append((100 + at / 4, 20 + slope * at / 4 + off))
    return found


def test_the_slope_of_a_straight_line_is_exact() -> None:
    slope, (low, high) = slope_interval([(float(at), 3.0 + 2 * at) for at in range(10)])
    assert slope == pytest.approx(2) and low == pytest.approx(2) == pytest.approx(high)
    assert slope_interval([(float(at), 0.0) for at in range(10)]) == (0.0, (0.0, 0.0))


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_a_steady_backlog_is_hardly_ever_taken_for_a_growing_one(memory: float) -> None:
    lows = [slope_interval(backlog(0, noise=3, memory=memory, seed=seed))[1][0] for seed in range(200)]
    assert sum(low > 0 for low in lows) <= 16


def test_a_backlog_that_grows_is_seen_to_grow() -> None:
    lows = [slope_interval(backlog(20, noise=3, memory=0.5, seed=seed))[1][0] for seed in range(200)]
    assert all(low > 0 for low in lows)
