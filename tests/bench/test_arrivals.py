"""The arrivals of a capacity measurement: the same in every process, at the rate, and of the size that is asked for."""

from __future__ import annotations

import json
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from bench.arrivals import Arrivals, payload


def test_the_same_numbers_give_the_same_arrivals_and_another_step_gives_others() -> None:
    first = [arrival.offset_ms for arrival in Arrivals(1, 1, 200, 10)]
    assert first == [arrival.offset_ms for arrival in Arrivals(1, 1, 200, 10)]
    assert first != [arrival.offset_ms for arrival in Arrivals(1, 2, 200, 10)]
    assert first != [arrival.offset_ms for arrival in Arrivals(2, 1, 200, 10)]
    assert Arrivals(1, 3, 200, 10).id_of(7) == "step3-7"


@pytest.mark.parametrize("rate_per_s", [10.0, 500.0])
def test_arrivals_are_a_poisson_process_of_the_rate_within_the_step(rate_per_s: float) -> None:
    arrivals = list(Arrivals(1, 1, rate_per_s, 100))
    assert [arrival.index for arrival in arrivals] == list(range(len(arrivals)))
    assert len(arrivals) == pytest.approx(100 * rate_per_s, rel=0.1)
    offsets = [arrival.offset_ms for arrival in arrivals]
    assert offsets == sorted(offsets) and offsets[0] > 0 and offsets[-1] < 100_000
    gaps = [after - before for before, after in pairwise(offsets)]
    # What tells them from evenly spaced ones: gaps spread as much as they are long.
    assert pstdev(gaps) == pytest.approx(mean(gaps), rel=0.1)


@pytest.mark.parametrize("payload_bytes", [64, 200, 2_048, 100_000])
def test_a_payload_has_its_size_and_says_how_long_its_handler_waits(payload_bytes: int) -> None:
    made = payload(payload_bytes, 20.0)
    assert made["work_ms"] == 20.0
    assert len(json.dumps(made, separators=(",", ":"))) == pytest.approx(payload_bytes, abs=8)
