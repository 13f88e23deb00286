"""What a drill ends with: the judge's verdict, unless the harness itself failed."""

import sys
from io import StringIO
from pathlib import Path
from pprint import pformat

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
from tests.golden import same


def conclude(folder: Path, *, errors: list[str], loaded: bool = True) -> tuple[int, list[str]]:
    """Exit code and printed lines of a drill that ended like this."""
    spec, stream = RunSpec(id=runs.run_id("bench", 1, "", 0.0), seed=1), StringIO()
    place, plan = runs.create(folder, spec.id), draw(1, workers=worker_names(3))
    spec.write(place.path / "spec.json", harness_errors=errors)
    drill = Drill(spec, plan, place, progress.Progress(stream), Interrupts(), errors=errors, loaded=loaded)
    return one_run.judged(drill), stream.getvalue().splitlines()


#: How drills ended, and what the judge said of them: exit code and lines stand in a text.
ENDED: dict[str, list[tuple[list[str], int, str, bool]]] = {
    "the verdict of a sound drill is the judge's": [([], code, "", True) for code in range(4)],
    "a failed drill is never valid, a violation counts": [(["interrupted by SIGINT"], code, "", True) for code in range(4)],
    "a judge without a verdict is unknown and says why": [([], 2, "the judge gave no usable verdict", True)],
    "without load nothing is judged": [(["worker-1: exit code 2"], 0, "", False)],
}


def test_what_is_said_of_a_drill_that_ended(tmp_path: Path, monkeypatch: Patch) -> None:
    told: list[str] = []
    for rule, several in ENDED.items():
        for errors, code, complaint, loaded in several:
            monkeypatch.setattr(one_run, "judge", lambda run, interrupts, started: (code, complaint))  # noqa: B023
            found = conclude(tmp_path, errors=errors, loaded=loaded)
            told.append(f"{rule}, judge {code}: {pformat(found, 0, 130)}\n")
    same("chaos/conclusions.txt", "".join(told))


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
