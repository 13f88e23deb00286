"""What a drill ends with: the judge's verdict, unless the harness itself failed."""

import sys
from io import StringIO
from pathlib import Path

import pytest

from chaos import cli, judge, progress, runs
from chaos import run as one_run
from chaos.drill import Drill
from chaos.interrupts import Interrupts
from chaos.plan import draw, worker_names
from chaos.processes import ROOT
from chaos.spec import RunSpec
from tests.chaos.drills import CARRIED
from tests.given import Output, Patch


def conclude(folder: Path, *, errors: list[str], loaded: bool = True) -> tuple[int, list[str]]:
    """Exit code and printed lines of a drill that ended like this."""
    spec, stream = RunSpec(id=runs.run_id("bench", 1, "", 0.0), seed=1), StringIO()
    place, plan = runs.create(folder, spec.id), draw(1, workers=worker_names(3))
    spec.write(place.path / "spec.json", harness_errors=errors)
    drill = Drill(spec, plan, place, progress.Progress(stream), Interrupts(), errors=errors, loaded=loaded)
    return one_run.judged(drill), stream.getvalue().splitlines()


def judge_says(monkeypatch: Patch, code: int, complaint: str = "") -> None:
    monkeypatch.setattr(one_run, "judge", lambda run, interrupts, started: (code, complaint))


INTERRUPTED = "interrupted by SIGINT"
JUDGING = "judging what there is of the drill with Spark, which takes some twenty seconds; Ctrl-C ends it at once"
UNUSABLE = "the judge gave no usable verdict"


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_the_verdict_of_a_sound_drill_is_the_judges(code: int, tmp_path: Path, monkeypatch: Patch) -> None:
    judge_says(monkeypatch, code)
    exit_code, lines = conclude(tmp_path, errors=[])
    assert exit_code == code and not any("harness" in line for line in lines)


@pytest.mark.parametrize(("code", "exit_code"), [(0, 2), (1, 1), (2, 2), (3, 2)])
def test_a_failed_drill_is_never_valid_a_violation_counts(code: int, exit_code: int, tmp_path: Path, monkeypatch: Patch) -> None:
    """What it left is announced as that."""
    judge_says(monkeypatch, code)
    found, lines = conclude(tmp_path, errors=[INTERRUPTED])
    assert found == exit_code and lines[:2] == [f"harness: {INTERRUPTED}", JUDGING]
    assert ("verdict: unknown" in lines) == (lines[-1] == "verdict: unknown") == (code in (0, 3))


def test_a_judge_without_a_verdict_is_unknown_and_says_why(tmp_path: Path, monkeypatch: Patch) -> None:
    judge_says(monkeypatch, 2, UNUSABLE)
    exit_code, lines = conclude(tmp_path, errors=[])
    assert (exit_code, lines[-2:]) == (2, [f"harness: {UNUSABLE}", "verdict: unknown"])


def test_without_load_nothing_is_judged(tmp_path: Path, monkeypatch: Patch) -> None:
    judge_says(monkeypatch, 0)
    found = conclude(tmp_path, errors=["worker-1: exit code 2"], loaded=False)
    assert found == (2, ["harness: worker-1: exit code 2", "nothing to judge: no load was sent", "verdict: unknown"])


#: Judges as `reports` does: with errors of the harness the verdict is unknown.
HONEST_JUDGE = """
import json, pathlib, sys
run = pathlib.Path(sys.argv[1])
verdict = "unknown" if json.loads((run / "spec.json").read_text())["harness_errors"] else "valid"
(run / "verdict.json").write_text(json.dumps({"verdict": verdict}))
print(f"verdict: {verdict}", flush=True)
sys.exit({"valid": 0, "unknown": 2}[verdict])
"""


@pytest.mark.parametrize(("errors", "verdict", "code"), [([], "valid", 0), (["interrupted by SIGINT"], "unknown", 2)])
def test_one_verdict_line(errors: list[str], verdict: str, code: int, tmp_path: Path, monkeypatch: Patch, capfd: Output) -> None:
    monkeypatch.setattr(judge, "judge_command", lambda run: [sys.executable, "-c", HONEST_JUDGE, str(run)])
    exit_code, lines = conclude(tmp_path, errors=errors)
    said = [*lines, *capfd.readouterr().out.splitlines()]
    assert exit_code == code
    assert [line for line in said if line.startswith("verdict")] == [f"verdict: {verdict}"]


@pytest.fixture
def undrilled(monkeypatch: Patch) -> None:
    """A run is calibrated and carried out in no time, and nothing happens in it."""
    monkeypatch.setattr(Drill, "run", lambda drill: None)
    monkeypatch.setattr(one_run, "calibrated", lambda *_: CARRIED)


@pytest.mark.usefixtures("undrilled")
def test_two_runs_of_one_second_have_two_ids(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(one_run.time, "time", lambda: 1_769_860_800.0)
    for _ in range(2):
        assert cli.main(["run", "bench", "--runs", str(tmp_path)], Interrupts()) == 2
    names = {"20260131-120000-bench-seed1", "20260131-120000-bench-seed1-2"}
    assert {path.parent.name for path in tmp_path.glob("2*/spec.json")} == names
    assert all(f'"id": "{name}"' in (tmp_path / name / "spec.json").read_text() for name in names)


OBJECTIVES = [
    *(((), "bench/slo.toml"), (("--slo", "my.toml"), "my.toml"), (("--lease-ms", "8000"), "")),
    pytest.param(("--lease-ms", "8000", "--slo", "my.toml"), "my.toml", marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("undrilled")
@pytest.mark.parametrize(("options", "objectives"), OBJECTIVES)
def test_a_run_keeps_its_objectives(options: tuple[str, ...], objectives: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """Those of the tree hold for the default lease."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text("[errors]\ndead = 0.1\n")
    cli.main(["run", "bench", "--runs", "runs", *options], Interrupts())
    copy = tmp_path / "runs" / "latest" / "slo.toml"
    assert copy.exists() == bool(objectives)
    if objectives:
        assert copy.read_text() == (ROOT / objectives if "/" in objectives else tmp_path / objectives).read_text()
