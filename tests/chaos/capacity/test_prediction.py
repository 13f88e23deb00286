"""The prediction, taken from the plan; what verifies it, and the last line."""

import json
from dataclasses import asdict
from pathlib import Path

from chaos.capacity.prediction import Prediction, of_plan, predicted
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
