"""The scalability law: planted values are found, and what is not such a law is refused with the reason."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from reports.capacity.fit import Law, Point, Refused, fit


def planted(rates: Callable[[float], float], counts: Sequence[int], *, noise: float = 0.0, seed: int = 1) -> list[Point]:
    """Points of this curve, each in a bracket of 0.2 %."""
    draw = np.random.default_rng(seed)
    middles = [rates(count) * (1 + noise * draw.standard_normal()) for count in counts]
    return [Point(count, middle * 0.999, middle * 1.001) for count, middle in zip(counts, middles, strict=True)]


def law(one: float, contention: float, coherence: float) -> Callable[[float], float]:
    """The law with these values."""
    return lambda count: one * count / (1 + contention * (count - 1) + coherence * count * (count - 1))


@pytest.mark.parametrize("values", [(240, 0.05, 0.004), (900, 0.2, 0.01), (50, 0.0, 0.02), (100, 0.1, 0.0), (300, 0.0, 0.0)])
@pytest.mark.parametrize("counts", [(1, 2, 3, 4), (1, 2, 4, 8, 16)])
def test_planted_values_are_found_within_one_percent(values: tuple[float, float, float], counts: tuple[int, ...]) -> None:
    got = fit(planted(law(*values), counts))
    assert isinstance(got, Law)
    assert (got.rate_of_one, got.contention, got.coherence) == pytest.approx(values, rel=0.01, abs=1e-9)
    assert got.residual < 1e-6
    for one, (low, high) in zip(values, (got.rate_of_one_interval, got.contention_interval, got.coherence_interval), strict=True):
        assert low - 1e-9 <= one <= high + 1e-9


@pytest.mark.slow
def test_the_intervals_hold_the_truth_as_often_as_they_say() -> None:
    truth, held = (240.0, 0.05, 0.004), 0
    for seed in range(40):
        found = fit(planted(law(*truth), (1, 2, 3, 4, 6, 8, 12, 16), noise=0.01, seed=seed))
        assert isinstance(found, Law)
        held += found.rate_of_one_interval[0] <= truth[0] <= found.rate_of_one_interval[1]
    assert held >= 32


@pytest.mark.parametrize("level", [480, 500, 640, 700, 940])
@pytest.mark.parametrize("counts", [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6), (1, 2, 4, 8)])
def test_a_saturated_curve_is_refused(level: float, counts: tuple[int, ...]) -> None:
    found = fit(planted(lambda count: min(240 * count, level), counts))
    if sum(240 * count >= level for count in counts) < 2:
        # One point alone shows no level.
        assert isinstance(found, Law) or "residual" in found.reason
        return
    assert isinstance(found, Refused) and "saturated" in found.reason and "residual" not in found.reason


def test_noise_does_not_hide_a_saturated_curve() -> None:
    for seed in range(20):
        assert isinstance(fit(planted(lambda count: min(240 * count, 640), (1, 2, 3, 4, 6, 8), noise=0.01, seed=seed)), Refused)


def test_a_curve_of_another_shape_is_refused_by_its_residual() -> None:
    rates = {1.0: 200.0, 2.0: 260.0, 3.0: 700.0, 4.0: 720.0, 5.0: 1_100.0}
    found = fit(planted(rates.__getitem__, (1, 2, 3, 4, 5)))
    assert isinstance(found, Refused) and "residual is" in found.reason and "5%" in found.reason


def test_three_worker_counts_are_too_few() -> None:
    found = fit(planted(law(240, 0.05, 0.004), (1, 2, 3)))
    assert found == Refused("the limit was found for 3 worker counts (1, 2, 3); a fit needs at least 4")


def test_beyond_the_peak_more_workers_do_less() -> None:
    found = fit(planted(law(240, 0.05, 0.01), (1, 2, 4, 8, 12)))
    assert isinstance(found, Law)
    assert found.peak == pytest.approx((0.95 / 0.01) ** 0.5, rel=0.02) and found.rate(10) > found.rate(14)
