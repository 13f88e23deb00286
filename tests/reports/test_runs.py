"""Whole runs: a valid one with its measures, and runs that differ from it in one thing that concerns the run, not a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reports.checks import CHECKS
from tests.reports.conftest import Judge
from tests.reports.story import HEALED_S, Story, cast, freeze, healthy, kill, ns, srv_ms, traffic


def check(verdict: dict[str, Any], check_id: str) -> dict[str, Any]:
    """One check's entry."""
    return next(entry for entry in verdict["checks"] if entry["id"] == check_id)


def doubted(verdict: dict[str, Any]) -> set[str]:
    """Ids of the checks that are unknown."""
    return {entry["id"] for entry in verdict["checks"] if entry["verdict"] == "unknown"}


# --- a valid run ---------------------------------------------------------------------------------------------------------


def failed_over(story: Story) -> None:
    """A second era, in which a job is finished again: rules 8 and 32, a finish that a failover lost may be done twice."""
    story.row("worker-1", "connection", 49, server_run_id="r2", replid="era-2", server_role="master")
    story.run("worker-1", "quiet-1", 49.5)


@pytest.fixture(scope="module")
def valid_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = healthy(tmp_path_factory.mktemp("valid") / "run")
    story.enqueue("slow", 11.0, delay_ms=2_000, intended_ns=ns(10.9))
    story.run("worker-1", "slow", 13.0)
    story.enqueue("hopeless", 39.0)
    token = story.claim("worker-1", "hopeless", 39.1)
    story.start(token, 39.11, took=0.1)
    story.end("bury", token, at=39.3)
    story.at_end["dead"].append(("hopeless", srv_ms(39.3)))
    failed_over(story)
    story.row("producer-1", "drop", 40, intended_ns=ns(39.9), count=3, detail="too late to send")
    return story.write()


@pytest.fixture(scope="module")
def valid(valid_run: Path, judged: Judge) -> dict[str, Any]:
    return judged(valid_run)


def test_a_good_run_is_valid_in_every_check(valid: dict[str, Any]) -> None:
    assert [(entry["id"], entry["verdict"], entry["why"]) for entry in valid["checks"]] == [(c.id, "valid", "") for c in CHECKS]
    assert valid["verdict"] == "valid" and valid["reasons"] == []


def test_the_verdict_is_written_with_the_spec(valid: dict[str, Any], valid_run: Path) -> None:
    assert json.loads((valid_run / "verdict.json").read_text()) == valid
    assert valid["schema"] == 1 and valid["spec"] == json.loads((valid_run / "spec.json").read_text())


def test_jobs_are_counted(valid: dict[str, Any]) -> None:
    counted = {
        name: valid["measures"][name] for name in ("enqueued", "finished", "lost", "doubled", "refused_stale", "dead", "dropped")
    }
    assert counted == {"enqueued": 44, "finished": 43, "lost": 0, "doubled": 0, "refused_stale": 1, "dead": 1, "dropped": 3}


def test_latency_counts_from_the_intended_enqueue_and_its_delay(valid: dict[str, Any]) -> None:
    """`slow` was meant for 10.9 s with 2 s delay, and its finish was answered at 13.061 s."""
    phases = {line["phase"]: line for line in valid["measures"]["latency"]}
    assert list(phases) == ["lead-in", "kill", "recover-kill", "recover-freeze", "settle"]
    assert phases["kill"] == {"phase": "kill", "n": 1, "unfinished": 0, "p50_ms": 161.0, "p99_ms": 161.0}
    assert phases["recover-freeze"]["p50_ms"] == 71.0


def test_percentiles_are_exact(valid: dict[str, Any]) -> None:
    """lead-in: three jobs of 71 ms, and k1, killed and run again, of 9,469 ms."""
    lead_in = valid["measures"]["latency"][0]
    assert lead_in["p50_ms"] == 71.0
    assert lead_in["p99_ms"] == pytest.approx(71 + 0.97 * (9_469 - 71), abs=0.01)


def test_an_unfinished_job_has_no_end(valid: dict[str, Any]) -> None:
    """The dead job makes the p99 of its phase infinite, shown as null."""
    settle = next(line for line in valid["measures"]["latency"] if line["phase"] == "settle")
    assert (settle["unfinished"], settle["p50_ms"], settle["p99_ms"]) == (1, 71.0, None)


def test_recovery_counts_from_waitpid_to_the_next_handler_start(valid: dict[str, Any]) -> None:
    expected = {"fault": "1-worker-kill", "target": "worker-2", "jobs": 1, "recovery_ms": 9_200.0, "bound_ms": 11_000}
    assert valid["measures"]["recovery"] == [expected]


def test_faults_are_listed_with_their_witness(valid: dict[str, Any]) -> None:
    kill_line, freeze_line = valid["measures"]["faults"]
    assert (kill_line["fault"], kill_line["target"], kill_line["detail"]) == ("1-worker-kill", "worker-2", "witness seen")
    assert all(line["witnessed"] and line["healed"] for line in (kill_line, freeze_line))


def test_rates_and_send_lag(valid: dict[str, Any]) -> None:
    """44 jobs and 3 that were not sent, between 1.0 s and 42.5 s; `slow` was sent 100 ms late."""
    measures = valid["measures"]
    assert measures["rates"]["offered_per_s"] == pytest.approx(47 / 41.5, abs=0.01)
    assert measures["rates"]["finished_per_s"] == pytest.approx(43 / 41.571, abs=0.01)
    assert measures["send_lag"]["p50_ms"] == 0.0
    assert measures["send_lag"]["p99_ms"] == pytest.approx(57.0, abs=0.5)
    assert measures["recorder_share"] is not None


def test_tables_are_written(valid: dict[str, Any], valid_run: Path, spark: SparkSession) -> None:
    """ops: one row per job of an operation, invocations only where there is no completion."""
    operations = spark.read.parquet(str(valid_run / "tables" / "ops.parquet")).where("job = 'k1' and kind = 'operation'")
    found = sorted((row["f"], row["type"]) for row in operations.collect())
    answered = [("claim", "ok"), ("claim", "ok"), ("enqueue", "ok"), ("finish", "ok"), ("handle", "invoke"), ("handle", "ok")]
    assert found == [*answered, ("reap", "ok")]


# --- runs that lack something: unknown -----------------------------------------------------------------------------------


def test_a_deleted_history_file_makes_nothing_but_doubt(tmp_path: Path, judged: Judge) -> None:
    """Its jobs look lost and its recoveries never happened; but the rows that would say so are gone."""
    run = healthy(tmp_path / "run").write()
    (run / "history" / "worker-1.jsonl").unlink()
    verdict = judged(run)
    assert verdict["verdict"] == "unknown"
    assert "worker-1.jsonl is declared in the manifest and missing" in check(verdict, "H0")["why"]
    assert {"H0", "J4", "J13"} <= doubted(verdict)
    assert all(entry["violations"] == 0 for entry in verdict["checks"])
    assert check(verdict, "J4")["possible"] > 0 and "calm-worker-1-0" in check(verdict, "J4")["examples"][0]
    assert verdict["measures"]["lost"] is None, "what cannot be told is not 0"


def test_a_violation_that_rests_on_rows_that_are_there_stands_in_spite_of_holes(tmp_path: Path, judged: Judge) -> None:
    """Without the producer's file and a sink: false beats unknown, but only where nothing that is missing could explain it."""
    story = healthy(tmp_path / "run")
    story.run("worker-1", "quiet-1", 30)
    run = story.write()
    for file in ("producer-1.jsonl", "worker-3.sink.jsonl"):
        (run / "history" / file).unlink()
    verdict = judged(run)
    assert verdict["verdict"] == "violated"
    assert [entry["id"] for entry in verdict["checks"] if entry["verdict"] == "violated"] == ["J6"]
    assert "quiet-1 was finished 2 times" in verdict["reasons"][0] and verdict["reasons"][0].startswith("J6 violated")
    assert check(verdict, "J6")["violations"] == 1 and check(verdict, "J6")["possible"] == 13, (
        "its effects may be in the lost sink"
    )
    assert doubted(verdict) == {"H0", "J4", "J5"}


def test_a_run_in_which_nothing_succeeded_and_no_snapshot_was_taken_proves_nothing(tmp_path: Path, judged: Judge) -> None:
    story = Story(tmp_path / "run")
    cast(story, sink=False)
    story.enqueue("a", 1, reply="info")
    story.claim("worker-1", "a", 2, reply="info")
    verdict = judged(story.write(snapshots=()))
    assert doubted(verdict) == {check.id for check in CHECKS}
    assert verdict["verdict"] == "unknown"
    words = {entry["id"]: entry["why"] for entry in verdict["checks"]}
    assert words["H0"] == "no enqueue ever succeeded; no claim ever succeeded; no finish ever succeeded"
    assert words["J4"] == "no enqueue ever succeeded; there is no snapshot at the end"
    assert words["J6"].endswith("the manifest declares no sink: there is no second witness")
    assert words["J13"] == "there is no snapshot at the deadline"
    assert words["H1"].startswith("fault 1-worker-kill was not injected")


def test_snapshots_that_are_partial_or_early_prove_nothing(tmp_path: Path, judged: Judge) -> None:
    story = healthy(tmp_path / "run")
    story.snapshot("deadline", HEALED_S + 10, {})
    story.row("harness", "final", 52, name="end", state="waiting", count=7, srv_us=1, items=[{"job": "x", "due_ms": 0}])
    verdict = judged(story.write(snapshots=()))
    assert doubted(verdict) == {"J4", "J13"}
    assert "taken 10000 ms after the last heal, not 15000 ms" in check(verdict, "J13")["why"]
    assert "lists 1 of 7 jobs in state waiting" in check(verdict, "J4")["why"]
    assert "has no state dead" in check(verdict, "J4")["why"]


def test_a_fault_that_did_not_bite_makes_the_run_unknown(tmp_path: Path, judged: Judge) -> None:
    """The mutant whose faults do nothing."""
    story = Story(tmp_path / "run")
    cast(story)
    kill(story, witness="missing")
    freeze(story)
    traffic(story, ("worker-1", "worker-2", "worker-3", "worker-4"))
    verdict = judged(story.write())
    assert doubted(verdict) == {"H1"} and verdict["verdict"] == "unknown"
    assert check(verdict, "H1")["why"] == "fault 1-worker-kill was not seen to bite: witness seen"
    assert check(verdict, "H1")["violations"] == 0, "H1 fails to unknown, never to violated"
    assert [line["witnessed"] for line in verdict["measures"]["faults"]] == [False, True]


def test_a_check_that_crashes_is_unknown_and_takes_no_other_with_it(
    tmp_path: Path, judged: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import functions as F

    from reports import findings
    from reports.checks.base import Check, Flag

    def overflow(run: object) -> dict[Any, list[Flag]]:
        return {"jobs": [Flag("never", F.length("job").cast("bigint") + F.lit(2**63 - 1) > 0, F.lit(""), absence=False)]}

    def stumble(run: object) -> list[str]:
        raise ValueError("stumbled")

    crashing = (Check("X1", "overflows", lambda run: [], overflow), Check("X2", "stumbles", stumble))
    story = healthy(tmp_path / "run")
    story.run("worker-1", "quiet-1", 30)
    monkeypatch.setattr(findings.examine, "__kwdefaults__", None, raising=False)
    monkeypatch.setattr(findings.examine, "__defaults__", ((*CHECKS, *crashing),))
    verdict = judged(story.write())
    assert doubted(verdict) == {"X1", "X2"}
    assert check(verdict, "X1")["why"].startswith("the check crashed: ") and "OVERFLOW" in check(verdict, "X1")["why"]
    assert check(verdict, "X2")["why"] == "the check crashed: ValueError: stumbled"
    assert verdict["verdict"] == "violated" and check(verdict, "J6")["violations"] == 1


# --- workers and kills ---------------------------------------------------------------------------------------------------


def silent(worker: str, jobs: int) -> Callable[[Story], None]:
    """After the last heal that worker claims nothing, the others that many jobs each."""
    others = [name for name in ("worker-1", "worker-3", "worker-4") if name != worker]
    return lambda story: traffic(story, others, jobs)


@pytest.mark.parametrize(
    ("tell", "verdict", "words"),
    [
        (silent("worker-4", 15), "violated", "worker-4 claimed none of the 30 jobs claimed after the last heal"),
        (silent("worker-4", 5), "unknown", "worker-4 claimed none of the 10 jobs claimed after the last heal"),
    ],
    ids=["with work for all", "with little work"],
)
def test_a_worker_that_never_claims_again(
    tmp_path: Path, judged: Judge, tell: Callable[[Story], None], verdict: str, words: str
) -> None:
    """Rule 33, and rule 32 when there is too little work to tell."""
    story = Story(tmp_path / "run")
    cast(story)
    kill(story)
    freeze(story)
    tell(story)
    decided = judged(story.write())
    assert (decided["verdict"], check(decided, "J13")["why"]) == (verdict, words)


def test_a_kill_with_nothing_in_hand_proves_nothing(tmp_path: Path, judged: Judge) -> None:
    story = Story(tmp_path / "run")
    cast(story)
    story.life("worker-2", "before", 9)
    for stage, at in (("inject", 10.0), ("witness", 10.01), ("heal", 20.0), ("healed", 21.0)):
        story.fault("1-worker-kill", "worker-2", stage, at)
    story.left_open.add("worker-2")
    freeze(story)
    traffic(story, ("worker-1", "worker-3"), 20)
    decided = judged(story.write())
    assert decided["verdict"] == "unknown" and doubted(decided) == {"J13"}
    assert check(decided, "J13")["why"] == "1-worker-kill hit no job in hand: it proves nothing"
    assert decided["measures"]["recovery"][0]["jobs"] == 0
