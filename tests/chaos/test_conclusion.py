"""What a drill ends with: the judge's verdict, unless the harness itself failed."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from chaos import command, runs
from chaos.drill import Drill
from chaos.plan import draw, worker_names
from chaos.progress import Progress
from chaos.spec import RunSpec


def conclude(folder: Path, *, errors: list[str], loaded: bool = True) -> tuple[int, list[str]]:
    """Exit code and printed lines of a drill that ended like this."""
    spec = RunSpec(id=runs.run_id("bench", 1, "", 0.0), seed=1)
    stream = StringIO()
    progress = Progress(stream)
    drill = Drill(spec, draw(1, workers=worker_names(3)), runs.create(folder, spec.id), progress, errors=errors, loaded=loaded)
    code = command.conclude(drill, progress)
    return code, stream.getvalue().splitlines()


def judge_says(monkeypatch: pytest.MonkeyPatch, code: int, complaint: str = "") -> None:
    monkeypatch.setattr(command, "judge", lambda run: (code, complaint))


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_verdict_of_a_sound_drill_is_the_judges(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_says(monkeypatch, code)
    exit_code, lines = conclude(tmp_path, errors=[])
    assert exit_code == code
    assert not any("harness" in line for line in lines)


def test_a_drill_that_failed_is_never_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_says(monkeypatch, 0)
    exit_code, lines = conclude(tmp_path, errors=["interrupted by SIGINT"])
    assert exit_code == 2
    assert lines[0] == "harness: interrupted by SIGINT"
    assert lines[-1] == "verdict: unknown"


def test_a_violation_counts_also_in_a_drill_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_says(monkeypatch, 1)
    exit_code, lines = conclude(tmp_path, errors=["interrupted by SIGINT"])
    assert exit_code == 1
    assert "verdict: unknown" not in lines


def test_a_judge_without_a_verdict_is_unknown_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_says(monkeypatch, 2, "the judge gave no usable verdict")
    exit_code, lines = conclude(tmp_path, errors=[])
    assert exit_code == 2
    assert lines[-2:] == ["harness: the judge gave no usable verdict", "verdict: unknown"]


def test_without_load_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_says(monkeypatch, 0)
    exit_code, lines = conclude(tmp_path, errors=["worker-1: exit code 2"], loaded=False)
    assert exit_code == 2
    assert lines == ["harness: worker-1: exit code 2", "nothing to judge: no load was sent", "verdict: unknown"]
