"""The runs with the original Bull, judged: each is valid but for what Bull is known not to protect."""

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chaos.interop.crew import MixedDrill, on_node
from chaos.interop.scenarios import FINDINGS, MAY_SHOW, NODE, SCENARIOS, find
from chaos.scenarios.interop import of_mixture
from record.history import load_file
from tests.chaos.drills import recorded
from tests.chaos.judged import TIMEOUT, Verdict, drilled
from tests.reports.conftest import verdict_of

pytestmark = [pytest.mark.nightly, TIMEOUT]


def run(name: str, folder: Path) -> MixedDrill:
    """Carry out a mixture, as the command does."""
    drill = recorded(of_mixture(find(name), 1), folder)
    assert isinstance(drill, MixedDrill) and drill.errors == []
    return drill


def rows(drill: MixedDrill, proc: str) -> list[dict]:
    return list(load_file(drill.folder.history / f"{proc}.jsonl").rows)


def jobs_of(drill: MixedDrill, f: str, *, node: bool) -> set[str]:
    """Jobs that the processes of one side have done this to, with an answer."""
    found: set[str] = set()
    for path in drill.folder.history.glob("*.jsonl"):
        for row in load_file(path).rows:
            if row["f"] == f and row["type"] == "ok" and on_node(row["proc"]) == node:
                found |= {item["job"] for item in row["items"] if item.get("result") in ("ok", "created", None)}
    return found


def run_in_time(name: str, folder: Path, spark: SparkSession) -> tuple[MixedDrill, Verdict]:
    """A run and its verdict. A side that wakes up late does so every time, and then so does the machine."""
    return drilled(partial(run, name), lambda drill: drill.folder.path, folder, spark)


@pytest.mark.parametrize(("name", "sent_by_node"), [("node-to-engine", True), ("engine-to-node", False)])
def test_one_side_sends_and_the_other_works(tmp_path: Path, spark: SparkSession, name: str, sent_by_node: bool) -> None:
    drill, verdict = run_in_time(name, tmp_path, spark)
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    sent, done = jobs_of(drill, "enqueue", node=sent_by_node), jobs_of(drill, "finish", node=not sent_by_node)
    assert len(sent) > 200 and done < sent
    assert not jobs_of(drill, "enqueue", node=not sent_by_node) and not jobs_of(drill, "finish", node=sent_by_node)
    assert verdict["measures"]["delayed"]["n"] >= 50
    # Failures were tried again, and some jobs used up their attempts.
    assert jobs_of(drill, "retry", node=not sent_by_node)
    assert verdict["measures"]["dead"] > 0 and verdict["measures"]["lost"] == 0


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[MixedDrill, Verdict]:
    return run_in_time("mixed", tmp_path_factory.mktemp("runs"), spark)


def test_both_sides_work_while_workers_of_both_are_killed(mixed: tuple[MixedDrill, Verdict]) -> None:
    drill, verdict = mixed
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert {line["fault"] for line in verdict["measures"]["recovery"]} == {"1-worker-kill", "2-worker-kill"}
    for line in verdict["measures"]["recovery"]:
        assert line["jobs"] > 0 and line["recovery_ms"] is not None
    for node in (True, False):
        assert jobs_of(drill, "enqueue", node=node) and jobs_of(drill, "finish", node=node)


@pytest.mark.parametrize("began", ["enqueue", "retry"])
def test_jobs_that_began_or_failed_on_one_side_ended_on_the_other(mixed: tuple[MixedDrill, Verdict], began: str) -> None:
    drill, _ = mixed
    for node in (True, False):
        assert jobs_of(drill, began, node=node) & jobs_of(drill, "finish", node=not node)


def test_what_the_spec_declares_is_about_jobs_that_bull_had_in_hand(mixed: tuple[MixedDrill, Verdict]) -> None:
    drill, verdict = mixed
    spec = json.loads((drill.folder.path / "spec.json").read_text())
    assert {finding["name"] for finding in spec["findings"]} == set(MAY_SHOW)
    assert all(finding["procs"] == [NODE] for finding in spec["findings"])
    assert [finding["name"] for finding in verdict["findings"]] == [finding["name"] for finding in FINDINGS]


def test_names_say_which_side_a_process_is_of() -> None:
    for scenario in SCENARIOS:
        names = [*scenario.producers, *scenario.workers]
        assert len(set(names)) == len(names)
        for fault in scenario.faults:
            assert fault.replacement == "" or on_node(fault.target) == on_node(fault.replacement)


def test_a_zombie_of_bull_is_a_finding_and_nothing_else(tmp_path: Path, spark: SparkSession) -> None:
    """Frozen for longer than its locks last, and then it ends what others have run since: declared, and told apart."""
    drill, verdict = run_in_time("zombie", tmp_path, spark)
    assert (verdict["verdict"], verdict["reasons"]) == ("valid", [])
    assert {finding["name"]: finding["rows"] for finding in verdict["findings"]}["unfenced ends"] > 0
    assert next(check["declared"] for check in verdict["checks"] if check["id"] == "J3") > 0
    assert not any(check["violations"] for check in verdict["checks"])
    # Without the declaration the same history is a violation.
    spec = json.loads((drill.folder.path / "spec.json").read_text())
    (drill.folder.path / "spec.json").write_text(json.dumps({**spec, "findings": []}))
    assert verdict_of(drill.folder.path, spark)["verdict"] == "violated"
