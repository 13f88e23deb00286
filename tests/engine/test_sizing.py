"""The formula of the capacity plan, against arithmetic by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sizing import worker_rate_per_s, workers_needed


def test_a_worker_does_what_its_handlers_or_its_processor_do() -> None:
    assert worker_rate_per_s(20, 5) == 250
    # 4 ms of processor a job are 250 a second as well; more are fewer.
    assert worker_rate_per_s(20, 5, 2_000) == 250 and worker_rate_per_s(20, 5, 8_000) == 125


@pytest.mark.parametrize(
    ("rate_per_s", "workers"), [(0, 0), (1, 1), (250, 1), (250.000001, 2), (251, 2), (0.1 * 3 / 0.3 * 250, 1)]
)
def test_workers_are_rounded_up_and_errors_of_rounding_are_not(rate_per_s: float, workers: int) -> None:
    assert workers_needed(rate_per_s, 250) == workers


@given(rate_per_s=st.floats(0, 1e6), each_per_s=st.floats(0.01, 1e6))
def test_they_are_enough_and_one_fewer_is_not(rate_per_s: float, each_per_s: float) -> None:
    workers = workers_needed(rate_per_s, each_per_s)
    assert workers * each_per_s >= rate_per_s * (1 - 1e-6) - 1e-6 * each_per_s
    assert workers == 0 or (workers - 1) * each_per_s < rate_per_s
