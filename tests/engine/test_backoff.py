"""How long a job waits between two runs: fixed, or growing with jitter, and where it stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import validate
from engine.ops.jobs import Options
from engine.outcomes import DELAY_MS_MAX, backoff_delay_ms
from tests.engine.helpers.machine import holding


def grown(backoff_ms: int, failures: int, draw: float) -> int:
    return backoff_delay_ms(Options(backoff="exponential", backoff_ms=backoff_ms), failures, lambda: draw)


def test_a_fixed_wait_is_what_the_job_says_and_draws_nothing() -> None:
    def never() -> float:
        raise AssertionError("no jitter here")

    assert [backoff_delay_ms(Options(backoff_ms=1234), failures, never) for failures in (0, 1, 9)] == [1234, 1234, 1234]


def test_a_growing_wait_doubles_with_each_failed_run() -> None:
    # The greatest jitter is all of the wait, less than one ms.
    assert [grown(1000, failures, 1.0) for failures in range(5)] == [1000, 2000, 4000, 8000, 16_000]


def test_jitter_is_from_half_to_full() -> None:
    assert [grown(1000, 1, draw) for draw in (0.0, 0.5, 0.999999)] == [1000, 1500, 1999]


def test_it_stops_at_an_hour_unless_the_job_starts_beyond() -> None:
    assert grown(1000, 11, 1.0) == 2_048_000 and grown(1000, 12, 1.0) == DELAY_MS_MAX == 3_600_000
    assert grown(5_000_000, 0, 1.0) == grown(5_000_000, 7, 1.0) == 5_000_000


@given(st.integers(0, validate.BACKOFF_MS_MAX), st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_it_is_bounded_for_every_job(backoff_ms: int, failures: int, draw: float) -> None:
    most_ms = max(backoff_ms, DELAY_MS_MAX)
    assert backoff_ms // 2 <= grown(backoff_ms, failures, draw) <= most_ms


@pytest.mark.parametrize(("failures", "delay"), [(0, 750), (2, 3000)])
def test_a_worker_uses_the_failures_of_the_job_and_its_own_draw(failures: int, delay: int) -> None:
    machine, (job,) = holding("a", backoff_ms=1000, backoff="exponential", failures=failures, concurrency=1)
    machine.draws = [0.5]
    machine.handler_ends(job, "boom")
    assert machine.work.failures[0].delay_ms == delay
