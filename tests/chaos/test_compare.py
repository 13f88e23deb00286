"""The comparison of models: what it asks for, what is left when something fails, and how it ends."""

import argparse
import json
from io import StringIO
from pathlib import Path

import pytest

from chaos.calibration import Calibration
from chaos.campaigns import models
from chaos.campaigns.models import PACE, CostsFailed, one, worst
from chaos.errors import HarnessError
from chaos.interrupts import Interrupts
from chaos.plan import FAULT_NAMES, draw, worker_names
from chaos.progress import Progress
from chaos.scenarios.bench import Jobs
from chaos.spec import RunSpec
from tests.chaos.drills import CARRIED
from tests.given import Patch


@pytest.fixture
def arguments(tmp_path: Path) -> argparse.Namespace:
    return argparse.Namespace(seed=3, models=(), quick=True, runs=tmp_path, keep=20, keep_days=14)


def entry(arguments: argparse.Namespace, folder: Path, left_s: float = 1_000) -> dict:
    return one("lanes", arguments, Interrupts(), Progress(StringIO()), folder, left_s, CARRIED)


def test_every_model_sees_every_fault_within_a_short_lease() -> None:
    spec = RunSpec(id="x", seed=1, lease_ms=models.LEASE_MS, sweep_ms=models.SWEEP_MS, liveness_slack_ms=models.LIVENESS_SLACK_MS)
    assert spec.sweep_ms <= spec.lease_ms / 4
    assert {planned.name for planned in draw(1, workers=worker_names(3), pace=PACE).faults} == set(FAULT_NAMES)


def test_a_drill_and_its_costs_make_an_entry(arguments: argparse.Namespace, tmp_path: Path, monkeypatch: Patch) -> None:
    asked: list[RunSpec] = []

    def drill(scenario: Jobs, arguments: object, interrupts: object, calibration: Calibration) -> tuple[int, Path]:
        assert calibration is CARRIED
        asked.append(scenario.spec)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "verdict.json").write_text('{"verdict": "valid"}')
        return 0, tmp_path / "run"

    monkeypatch.setattr(models, "carry_out", drill)
    monkeypatch.setattr(models, "costs", lambda *_: {"bytes": {}})
    found = entry(arguments, tmp_path)
    assert (asked[0].model, asked[0].scenario, asked[0].seed) == ("lanes", "compare", 3)
    assert (found["run"], found["verdict"], found["costs"], found["trouble"]) == ("run", {"verdict": "valid"}, {"bytes": {}}, [])
    assert worst([found]) == 0


def test_what_fails_is_said_and_the_rest_is_measured(arguments: argparse.Namespace, tmp_path: Path, monkeypatch: Patch) -> None:
    def no_drill(*_: object, **__: object) -> None:
        raise HarnessError("no server")

    def no_costs(*_: object) -> None:
        raise CostsFailed("exit code 1: bang")

    monkeypatch.setattr(models, "carry_out", no_drill)
    monkeypatch.setattr(models, "costs", no_costs)
    found = entry(arguments, tmp_path)
    assert found["trouble"] == ["the drill could not be run: no server", "the costs could not be measured: exit code 1: bang"]
    assert (found["verdict"], found["costs"], worst([found])) == (None, None, 2)
    assert json.loads(json.dumps(found)) == found


def test_without_time_nothing_is_begun(arguments: argparse.Namespace, tmp_path: Path) -> None:
    found = entry(arguments, tmp_path, left_s=models.DRILL_S - 1)
    assert found["trouble"] == ["there was no time for it"] and found["costs"] is None


WORST = [(("valid", "valid"), 0), (("valid", "unknown"), 2), (("unknown", "violated"), 1), (("valid", None), 2)]


@pytest.mark.parametrize(("verdicts", "code"), WORST)
def test_the_worst_verdict_is_the_exit_code(verdicts: tuple[str | None, ...], code: int) -> None:
    assert worst([{"verdict": word and {"verdict": word}, "costs": {}} for word in verdicts]) == code
    assert worst([{"verdict": {"verdict": "valid"}, "costs": None}]) == 2
