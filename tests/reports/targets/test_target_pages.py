"""What is printed and shown of runs of job queues: one run, and several side by side."""

import json
from pathlib import Path

import pytest

from bench.peers import drilled
from reports.command import main
from reports.judge import publish
from reports.targets.page import document
from reports.targets.words import render
from reports.verdict import NO_MEASURES
from tests.golden import same
from tests.reports.conftest import steady
from tests.reports.figures import figures_told as figures_told

PROMISE = {"delivery": "at most once", "recovery_bound_ms": None, "defaults": "no <retry>", "source": "its documents"}
KILL = {"in_hand": 4, "again": 1, "lost": 2, "stranded": 1, "again_ms": [161_500.0]}
CALM = {"in_hand": 0, "again": 0, "lost": 0, "stranded": 0, "again_ms": []}


def decided(target: str, *, verdict: str = "valid", kill: dict = KILL, faults: int = 1) -> dict:
    counts = {"enqueued": 500, "unanswered": 1, "finished": 497, "lost": 2, "doubled": 5, "late": 0, "stranded": 1, "exits": 0}
    check = {"id": "T1", "name": "nothing lost", "verdict": verdict, "violations": 0, "declared": 2, "possible": 0}
    check |= {"examples": [], "subjects": [], "evidence": [], "why": "", "not_judged": []}
    line = {"fault": "1-worker-kill", "target": "worker-1", "jobs": 4, "recovery_ms": None, "bound_ms": None}
    fault = {"fault": "1-worker-kill", "target": "worker-1", "witnessed": True, "healed": True, "detail": "seen"}
    plan = [{"fault": "1-worker-kill", "name": "worker-kill", "target": "worker-1"}] * faults
    name = f"20260101-000000-target-seed1-{target}"
    spec = {"id": name, "scenario": "target", "target": target, "seed": 1, "promise": PROMISE, "slack_ms": 1, "plan": plan}
    finding = {"name": "lost", "text": "allowed", "checks": ["T1"], "rows": 2, "examples": ["job 7 <b>"]}
    measures = {**NO_MEASURES, **counts, "recovery": [line], "faults": [fault], "kill": kill, "waited_ms": 30_000}
    unknowable = [{"check": "J2", "why": "there are no fences"}]
    more = {"findings": [finding], "measures": measures, "slo": [], "cannot_be_known": unknowable}
    again = {"again": f"python -m chaos run target {target} --seed 1", "packages": [f"{target}==1.0"]}
    return {"schema": 1, "verdict": verdict, "reasons": [], "checks": [check], **more, "spec": {**spec, **again}}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Three runs: two with faults, one without."""
    found: list[Path] = []
    runs = {"rq": decided("rq"), "huey": decided("huey", verdict="violated"), "calm": decided("rq", kill=CALM, faults=0)}
    for name, verdict in runs.items():
        folder = tmp_path / f"20260101-000000-target-seed1-{name}"
        folder.mkdir()
        (folder / "verdict.json").write_text(json.dumps(verdict))
        found.append(folder)
    return found


def test_the_page_of_a_run_shows_the_same_and_escapes_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    publish(tmp_path / "run", decided("rq"), None, [], print)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<retry>" not in page
    same("reports/target.html", steady(f"{render(decided('rq'))}\n{page}", tmp_path))


def test_a_run_that_could_not_be_judged_has_its_reasons(tmp_path: Path) -> None:
    from reports.verdict import undecided

    broken = undecided("the history is empty", {"scenario": "target", "target": "rq", "id": "x"})
    assert "the history is empty" in document(tmp_path, broken) and "the history is empty" in render(broken)


@pytest.mark.usefixtures("figures_told")
def test_queues_are_compared_and_every_number_leads_to_its_run(folders: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", *map(str, folders)]) == 0
    page = folders[0].parent / "queues.html"
    same("reports/queues.html", steady(f"{capsys.readouterr().out}\n{page.read_text()}", folders[0].parent))
    page.unlink()
    assert main(["targets", str(folders[0])]) == 0 and page.exists()


def test_what_is_no_judged_run_of_a_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["targets", str(tmp_path)]) == 2
    assert "has no verdict.json that can be read: judge it first" in capsys.readouterr().err
    (tmp_path / "verdict.json").write_text(json.dumps({"spec": {"scenario": "bench"}}))
    assert main(["targets", str(tmp_path)]) == 2
    assert "is not a run of a target: its scenario is 'bench'" in capsys.readouterr().err


def test_the_section_of_the_documentation_is_replaced_as_a_whole(folders: list[Path], tmp_path: Path) -> None:
    first, second = drilled.section(folders[:1]), drilled.section(folders[:2])
    assert (
        "| rq | at most once, no bound | 4 | 1 | 2 | 1 | 161.5 (161.5) | 500 | 2 | 5 | 0 | 1 | valid "
        "| `20260101-000000-target-seed1-rq` |\n" in first
    )
    page = "# Beside other queues\n\n## Rates\n\nfast\n"
    once = drilled.with_section(page, first)
    assert (once, drilled.with_section(once, second)) == (page + "\n" + first, page + "\n" + second)
    between = once + "\n## Not measured\n\n- x\n"
    assert drilled.section_of(between).rstrip() == first.rstrip()
    assert drilled.with_section(between, second) == page + "\n" + second + "\n## Not measured\n\n- x\n"
    assert drilled.with_section(page, "") == page, "a page without drills stays as it is"
    with pytest.raises(drilled.NoDrill, match="holds no judged run"):
        drilled.section([tmp_path])
