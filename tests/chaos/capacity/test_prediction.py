"""The prediction from half of the steps, what verifies it, and the last line."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.capacity.prediction import ABOVE, BELOW, Prediction, Verdict, half, last_line, predict, verdict
from chaos.capacity.search import MET, MISSED, VOID


def step(rate: float, p99: float, *, meets: bool | None = None, void: str | None = None, workers: int = 2) -> dict[str, Any]:
    return {
        "rate": rate,
        "workers": workers,
        "void": void,
        "meets": p99 <= 100 if meets is None else meets,
        "latency_ms": {"p99": p99},
    }


def test_half_is_every_second_sound_step_with_the_workers_in_order_of_the_rate() -> None:
    found = [step(400, 30), step(100, 20), step(200, 21), step(50, 19), step(300, 25, void="late"), step(250, 22, workers=3)]
    assert [one["rate"] for one in half(found, 2)] == [50, 200]
    assert [one["rate"] for one in half(found, 3)] == [250]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        # on a line of the logarithm: 10 at 100, 1000 at 200, so 100 half way
        ([step(100, 10), step(200, 1_000)], Prediction(150, 100, 200)),
        ([step(50, 1), step(100, 10), step(200, 1_000), step(400, 9_000)], Prediction(150, 100, 200)),
        ([step(100, 10), step(200, 100 * 10**3)], Prediction(125, 100, 200)),
        # missed by its backlog, or by drops
        ([step(100, 10), step(200, 40, meets=False)], Prediction(150, 100, 200)),
        # what met above one that missed does not count
        ([step(100, 10), step(200, 1_000), step(300, 20)], Prediction(150, 100, 200)),
        ([step(100, 10), step(200, 20)], None),
        ([step(100, 1_000), step(200, 1_000)], None),
        ([], None),
    ],
)
def test_the_rate_at_which_the_p99_reaches_the_target(steps: list[dict[str, Any]], found: Prediction | None) -> None:
    assert predict(steps, 100) == found


@pytest.mark.parametrize(
    ("outcomes", "met", "missed", "holds"),
    [
        ([(BELOW, MET), (ABOVE, MISSED)] * 3, 3, 3, True),
        ([(BELOW, MET), (ABOVE, MISSED)] * 2, 2, 2, False),
        ([(BELOW, MET), (ABOVE, MISSED)] * 2 + [(BELOW, MET), (ABOVE, MET)], 3, 2, False),
        ([(BELOW, MET), (ABOVE, MISSED)] * 2 + [(BELOW, VOID), (ABOVE, VOID)], 2, 2, False),
        ([(BELOW, MISSED), (ABOVE, MISSED)] * 3, 0, 3, False),
        ([], 0, 0, False),
    ],
)
def test_a_prediction_holds_when_every_run_on_both_sides_agrees(
    outcomes: list[tuple[float, str]], met: int, missed: int, holds: bool
) -> None:
    found = verdict(outcomes, 3)
    assert (found.met_below, found.missed_above, found.holds) == (met, missed, holds)


def test_the_last_line_is_for_programs_too() -> None:
    line = last_line(800.0, Prediction(812.5, 800, 850), Verdict(3, 2, 3))
    assert line == "capacity: rate=812.5 interval=800-850 met_below=3/3 missed_above=2/3"
    assert last_line(800.0, None, Verdict(0, 0, 3)) == "capacity: rate=800 interval=unknown met_below=0/3 missed_above=0/3"
    assert last_line(None, None, Verdict(0, 0, 3)) == "capacity: rate=unknown interval=unknown met_below=0/3 missed_above=0/3"
