"""Whole runs that differ from a valid one in something that concerns the run, not a job."""

from pathlib import Path
from typing import Any

import pytest

from reports.checks import CHECKS
from tests.reports.conftest import Checked, Judge
from tests.reports.good_run import GENERAL, cast, freeze, healthy, struck, traffic
from tests.reports.story import HEALED_S, Story, Token

pytestmark = pytest.mark.slow


def check(verdict: dict[str, Any], check_id: str) -> dict[str, Any]:
    """One check's entry."""
    return next(entry for entry in verdict["checks"] if entry["id"] == check_id)


def doubted(verdict: dict[str, Any]) -> set[str]:
    """Ids of the checks that are unknown."""
    return {entry["id"] for entry in verdict["checks"] if entry["verdict"] == "unknown"}


# --- runs that lack something: unknown -----------------------------------------------------------------------------------


def test_a_deleted_history_file_makes_nothing_but_doubt(run: Path, judged: Judge) -> None:
    """Its jobs look lost and its recoveries never happened; but the rows that would say so are gone.

    What rests on the rows that are there is not known either: the others may hide a violation.
    """
    (run / "history" / "worker-1.jsonl").unlink()
    verdict = judged(run)
    assert verdict["verdict"] == "unknown"
    assert "worker-1.jsonl is declared in the manifest and missing" in check(verdict, "H0")["why"]
    assert {"H0", *(check.id for check in GENERAL if check.id.startswith("J"))} <= doubted(verdict)
    assert {check(verdict, one)["why"] for one in ("J1", "J2", "J3", "J8", "J16")} == {"missing rows may hide a violation"}
    assert all(entry["violations"] == 0 for entry in verdict["checks"])
    assert check(verdict, "J4")["why"].startswith("missing rows may explain it: 15 found, the first: ")
    assert check(verdict, "J4")["possible"] > 0 and "calm-worker-1-0" in check(verdict, "J4")["examples"][0]
    assert verdict["measures"]["lost"] is None, "what cannot be told is not 0"


def test_a_violation_that_rests_on_rows_that_are_there_stands_in_spite_of_holes(story: Story, checked: Checked) -> None:
    """Without the producer's file and a sink: false beats unknown, but only where nothing that is missing could explain it."""
    story.run("worker-1", "quiet-1", 30)
    run = story.write()
    for file in ("producer-1.jsonl", "worker-3.sink.jsonl"):
        (run / "history" / file).unlink()
    found = checked(run, "H0", "J1", "J4", "J5", "J6")
    unknown = dict.fromkeys(("H0", "J1", "J4", "J5"), "unknown")
    assert {check: verdict for check, (verdict, _) in found.items()} == {**unknown, "J6": "violated"}
    assert found["J6"][1].startswith("quiet-1 was finished 2 times"), "its effects may be in the lost sink"


def test_a_run_in_which_nothing_succeeded_and_no_snapshot_was_taken_proves_nothing(tmp_path: Path, judged: Judge) -> None:
    story = Story(tmp_path / "run")
    cast(story, sink=False)
    story.enqueue("a", 1, reply="info")
    story.claim("worker-1", "a", 2, reply="info")
    verdict = judged(story.write(snapshots=()))
    assert (doubted(verdict), verdict["verdict"]) == ({check.id for check in GENERAL}, "unknown")
    words = {entry["id"]: entry["why"] for entry in verdict["checks"]}
    assert words["H0"] == "no enqueue ever succeeded; no claim ever succeeded; no finish ever succeeded"
    assert words["J4"] == "no enqueue ever succeeded; there is no snapshot at the end"
    assert words["J6"].endswith("the manifest declares no sink: there is no second witness")
    assert words["J13"] == "there is no snapshot at the deadline"
    assert words["H1"].startswith("fault 1-worker-kill was not injected")


def test_snapshots_that_are_partial_or_early_prove_nothing(story: Story, checked: Checked) -> None:
    story.snapshot("deadline", HEALED_S + 10, {})
    story.row("harness", "final", 52, name="end", state="waiting", count=7, srv_us=1, items=[{"job": "x", "due_ms": 0}])
    found = checked(story.write(snapshots=()), "J4", "J13")
    assert (found["J4"][0], found["J13"][0]) == ("unknown", "unknown")
    assert "taken 10000 ms after the last heal, not 15000 ms" in found["J13"][1]
    assert "lists 1 of 7 jobs in state waiting" in found["J4"][1] and "has no state dead" in found["J4"][1]


def test_a_fault_that_did_not_bite_makes_the_run_unknown(tmp_path: Path, judged: Judge) -> None:
    """The mutant whose faults do nothing."""
    story = struck(tmp_path / "run", witness="missing")
    traffic(story, ("worker-1", "worker-2", "worker-3", "worker-4"))
    verdict = judged(story.write())
    assert doubted(verdict) == {"H1", "H2"} and verdict["verdict"] == "unknown"
    assert check(verdict, "H1")["why"] == "fault 1-worker-kill was not seen to bite: witness seen"
    assert check(verdict, "H2")["why"] == "1-worker-kill: no job in hand ran elsewhere"
    assert check(verdict, "H1")["violations"] == 0, "H1 fails to unknown, never to violated"
    assert [line["witnessed"] for line in verdict["measures"]["faults"]] == [False, True]


def test_a_check_that_crashes_is_unknown_and_no_other_is(tmp_path: Path, judged: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
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
    named = [check for check in CHECKS if check.id in ("J4", "J6")]
    monkeypatch.setattr(findings.examine, "__defaults__", ((*named, *crashing),))
    verdict = judged(story.write())
    assert doubted(verdict) == {"X1", "X2"}
    assert check(verdict, "X1")["why"].startswith("the check crashed: ") and "OVERFLOW" in check(verdict, "X1")["why"]
    assert check(verdict, "X2")["why"] == "the check crashed: ValueError: stumbled"
    assert verdict["verdict"] == "violated" and check(verdict, "J6")["violations"] == 1


# --- workers and kills ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "verdict"), [(15, "violated"), (5, "unknown")], ids=["with work for all", "with little work"])
def test_a_worker_that_never_claims_again(tmp_path: Path, checked: Checked, jobs: int, verdict: str) -> None:
    """Rule 33, and rule 32 when there is too little work to tell."""
    story = struck(tmp_path / "run")
    # After the last heal the others claim that many jobs each.
    traffic(story, ["worker-1", "worker-3"], jobs)
    said = f"worker-4 claimed none of the {2 * jobs} claims after the last heal"
    assert checked(story.write(), "J13")["J13"] == (verdict, said)


def test_a_kill_with_nothing_in_hand_proves_nothing(tmp_path: Path, checked: Checked) -> None:
    story = Story(tmp_path / "run")
    cast(story)
    story.life("worker-2", "before", 9)
    story.stages("1-worker-kill", "worker-2", 10.0, 10.01, 20.0, 21.0)
    story.left_open.add("worker-2")
    freeze(story)
    traffic(story, ("worker-1", "worker-3"), 20)
    found = checked(story.write(), "H2", "J13")
    assert found == {"H2": ("unknown", "1-worker-kill proves nothing: no job in hand ran elsewhere"), "J13": ("valid", "")}


def test_rows_of_a_killed_process_that_others_prove_are_holes(story: Story, checked: Checked) -> None:
    """Nothing that rests on absent rows is proven: one job looks lost, one was finished without an effect."""
    story.start(story.leased("worker-2", "gone", 9.6, enqueued=9.5), 9.61)
    story.end("finish", story.handled("worker-2", "no-effect", 9.51, enqueued=9.5, took=0.01), at=9.54)
    story.fault("1-worker-kill", "worker-2", "witness", 10.01, held=[Token("k2", 5, "0:1", "worker-2")])
    found = checked(story.write(), "H0", "J4", "J6")
    assert {verdict for verdict, _ in found.values()} == {"unknown"}
    assert found["H0"][1].startswith("2 found, the first: 1-worker-kill left 2 jobs in hand, and the history of worker-2 lacks")
    assert found["J4"][1].startswith("missing rows may explain it: gone ")
    assert found["J6"][1].startswith("missing rows may explain it: no-effect ")


def test_an_effect_that_a_killed_process_must_have_had_is_a_hole(story: Story, checked: Checked) -> None:
    story.start(story.leased("worker-2", "no-effect", 9.51, enqueued=9.5), 9.52, took=0.01)
    words = "no-effect was handled by worker-2, which was killed later, and its sink lacks the effect"
    assert checked(story.write(), "H0")["H0"] == ("unknown", words)


def test_handlers_that_a_kill_cut_off_must_have_started(run: Path, checked: Checked) -> None:
    file = run / "history" / "worker-2.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    words = "1-worker-kill cut handlers off, and the history of worker-2 shows no start of one"
    assert checked(run, "H0")["H0"] == ("unknown", words)
