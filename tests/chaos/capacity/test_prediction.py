"""The prediction, taken from the plan; what verifies it, and the last line."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from chaos.capacity.prediction import ABOVE, BELOW, Prediction, Verdict, last_line, of_plan, predicted, verdict
from chaos.capacity.search import MET, MISSED, VOID
from chaos.interrupts import Interrupts
from reports.capacity.prediction import Prediction as Predicted


def test_the_prediction_is_that_of_the_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"prediction": asdict(Predicted(812.5, 800, 850, workers=2, steps=7))}))
    assert of_plan(plan) == Prediction(812.5, 800, 850)
    plan.write_text(json.dumps({"prediction": asdict(Predicted(reason="half of the steps do not have both"))}))
    assert of_plan(plan) is None


def test_a_measurement_that_reports_refuses_predicts_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "measurement.json").write_text('{"schema": 2}')
    assert predicted(tmp_path, Interrupts()) is None
    assert "measurement.json.made is missing" in (tmp_path / "logs" / "prediction.log").read_text()


OUTCOMES = [
    *(([(BELOW, MET), (ABOVE, MISSED)] * 3, 3, 3, True), ([(BELOW, MET), (ABOVE, MISSED)] * 2, 2, 2, False)),
    ([(BELOW, MET), (ABOVE, MISSED)] * 2 + [(BELOW, MET), (ABOVE, MET)], 3, 2, False),
    ([(BELOW, MET), (ABOVE, MISSED)] * 2 + [(BELOW, VOID), (ABOVE, VOID)], 2, 2, False),
    *(([(BELOW, MISSED), (ABOVE, MISSED)] * 3, 0, 3, False), ([], 0, 0, False)),
]


@pytest.mark.parametrize(("outcomes", "met", "missed", "holds"), OUTCOMES)
def test_a_prediction_holds_when_every_run_agrees(outcomes: list[tuple[float, str]], met: int, missed: int, holds: bool) -> None:
    found = verdict(outcomes, 3)
    assert (found.met_below, found.missed_above, found.holds) == (met, missed, holds)


DOUBTED = [(910, 1_090, False), (900, 1_100, False), (890, 1_010, True), (990, 1_110, True)]


@pytest.mark.parametrize(("low", "high", "doubtful"), DOUBTED)
def test_an_interval_that_reaches_where_it_is_verified_is_told(low: float, high: float, doubtful: bool) -> None:
    words = Prediction(1_000, low, high).words()
    assert words.startswith(f"predicted from half of the steps: 1000.0 jobs/s, surely {low:.1f} to {high:.1f}")
    assert ("either may come out otherwise" in words) == doubtful


def test_the_last_line_is_for_programs_too() -> None:
    line = last_line(800.0, Prediction(812.5, 800, 850), Verdict(3, 2, 3))
    assert line == "capacity: rate=812.5 interval=800.0-850.0 met_below=3/3 missed_above=2/3"
    assert last_line(800.0, None, Verdict(0, 0, 3)) == "capacity: rate=800.0 interval=unknown met_below=0/3 missed_above=0/3"
    assert last_line(None, None, Verdict(0, 0, 3)) == "capacity: rate=unknown interval=unknown met_below=0/3 missed_above=0/3"
