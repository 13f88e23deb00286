"""The figures of a step, against their definitions, and the rule by which a step meets, misses or proves nothing."""

import random

import pytest

from chaos.capacity.figures import histogram, outcome, percentile, void_reason
from chaos.capacity.search import MET, MISSED, VOID
from chaos.slopes import slope_interval

SHARES = [([], 0.99, 0), ([7], 0.99, 7), (range(1, 101), 0.99, 99), (range(1, 101), 0.5, 50), ([1, 2], 0.99, 2), ([1, 2], 0.5, 1)]


@pytest.mark.parametrize(("values", "share", "found"), SHARES)
def test_a_percentile_is_the_nearest_rank(values: list[float], share: float, found: float) -> None:
    assert percentile(list(values), share) == found


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


OF_DRIVERS = [
    (0.8, 20, 8, None),
    (0.81, 0, 60, "the driver used 0.81 of its core, more than 0.8"),
    (0.1, 21, 60, "the driver was 21 ms late (p99), more than 0.2 of the target: the machine was busy"),
    (0.1, 0, 7, "only 7 samples of the backlog, fewer than 8"),
]


@pytest.mark.parametrize(("cpu_share", "late_p99_ms", "samples", "reason"), OF_DRIVERS)
def test_a_step_is_void_for_its_driver(cpu_share: float, late_p99_ms: float, samples: int, reason: str | None) -> None:
    assert void_reason(cpu_share, late_p99_ms, 100, samples) == reason


OF_STEPS = [
    *((None, 100, 0, 0, MET), (None, 100, -5, 0, MET), (None, 100.1, -5, 0, MISSED), (None, 30, 0.1, 0, MISSED)),
    *((None, 30, -5, 1, MISSED), ("the driver used 0.9 of its core", 30, -5, 0, VOID)),
    ("the driver used 0.9 of its core", 300, 5, 9, VOID),
]


@pytest.mark.parametrize(("void", "p99_ms", "slope_low", "dropped", "found"), OF_STEPS)
def test_what_a_step_must_have_to_meet(void: str | None, p99_ms: float, slope_low: float, dropped: int, found: str) -> None:
    assert outcome(void, p99_ms=p99_ms, target_ms=100, slope_low_per_s=slope_low, dropped=dropped) == found
