"""T1 to T5 on hand-written histories: what must pass, what breaks a promise, and what a weaker promise allows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from record.history import LoadedFile
from reports.targets.facts import build, collect
from reports.targets.judge import decide, doubtful
from tests.reports.targets.story import AT_LEAST, AT_MOST, Story, good, spec

Decide = Callable[[dict[str, Any], list[LoadedFile]], dict[str, Any]]

KILL = "1-worker-kill"


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Decide:
    return lambda spec, files: decide(build(spark, collect(spec, files)))


def verdicts(decided: dict[str, Any]) -> dict[str, str]:
    """The checks that are not valid."""
    return {check["id"]: check["verdict"] for check in decided["checks"] if check["verdict"] != "valid"}


def proofs(decided: dict[str, Any]) -> dict[str, list[str]]:
    """The examples of the checks that are violated."""
    return {check["id"]: check["examples"] for check in decided["checks"] if check["verdict"] == "violated"}


def found(decided: dict[str, Any]) -> dict[str, int]:
    """What the promise allows, by name."""
    return {finding["name"]: finding["rows"] for finding in decided["findings"]}


PROMISES = [
    (AT_LEAST, (KILL,)),
    *(pytest.param(*one, marks=pytest.mark.slow) for one in ((AT_LEAST, ()), (AT_MOST, ()), (AT_MOST, (KILL,)))),
]


@pytest.mark.parametrize(("promise", "faults"), PROMISES)
def test_a_run_without_loss_keeps_every_promise(judged: Decide, promise: dict[str, Any], faults: tuple[str, ...]) -> None:
    decided = judged(spec(promise, *faults), good(*faults).ended(40))
    assert (decided["verdict"], verdicts(decided), found(decided)) == ("valid", {}, {})
    assert [check["id"] for check in decided["checks"]] == ["T1", "T2", "T3", "T4", "T5", "H0", "H1", "H2"]
    measures = decided["measures"]
    assert (measures["enqueued"], measures["finished"], measures["lost"]) == (7, 7, 0)
    took_ms = [9_000.0] if faults else []
    assert measures["kill"] == {"in_hand": len(faults), "again": len(faults), "lost": 0, "stranded": 0, "again_ms": took_ms}


def all_wrong() -> Story:
    """A kill at 6 s, with four jobs in hand. Job 7 was lost by it, 8 is left behind, 10 ran again after 12.1 s, 5 was finished
    twice through it. Without it job 0 was finished twice, 77 ran unsent, 11 before it was sent, and 12 later than it should."""
    story = good().sent(7, 5).sent(8, 5).sent(10, 5).killed(KILL, 6, 7, 8, 10)
    story.ran(10, 18.1).ran(5, 8, by="worker-3").ran(0, 9, by="worker-3").ran(77, 5)
    return story.ran(11, 8).sent(11, 9).sent(12, 4).ran(12, 17)


@pytest.mark.slow
def test_everything_that_breaks_at_least_once_is_found(judged: Decide) -> None:
    decided = judged(spec(AT_LEAST, KILL), all_wrong().ended(40, 8))
    assert (decided["verdict"], found(decided)) == ("violated", {"doubled": 1})
    cut_off = "started 1 times; cut off by 1-worker-kill"
    assert proofs(decided) == {
        "T1": [f"job 7 was acknowledged, never ran to its end, and is in no key of the server: {cut_off}"],
        "T2": ["job 0 ran to its end 2 times, by worker-2.1, worker-3.1"],
        "T3": ["job 11 ran before it was sent", "job 77 ran, and nobody had sent it"],
        "T4": [
            "job 10 was cut off by 1-worker-kill and started again 12100 ms later",
            "job 12 was first started 12900 ms after it was acknowledged",
        ],
        "T5": [f"job 8 never ran to its end and is still in the server's keys, 33 s after the last fault: {cut_off}"],
    }
    measures = decided["measures"]
    assert [measures[name] for name in ("lost", "doubled", "late", "stranded")] == [1, 2, 2, 1]
    assert measures["kill"] == {"in_hand": 3, "again": 1, "lost": 1, "stranded": 1, "again_ms": [12_100.0]}
    assert measures["recovery"][0]["recovery_ms"] is None


def test_at_most_once_may_lose_by_a_fault_and_be_late_and_nothing_else(judged: Decide) -> None:
    decided = judged(spec(AT_MOST, KILL), all_wrong().sent(13, 20).ended(40, 8))
    assert verdicts(decided) == dict.fromkeys(("T1", "T2", "T3"), "violated")
    assert found(decided) == {"lost": 1, "stranded": 1}
    after_the_fault = ["job 13 was acknowledged, never ran to its end, and is in no key of the server: started 0 times"]
    assert (proofs(decided)["T1"], len(proofs(decided)["T2"]), decided["measures"]["lost"]) == (after_the_fault, 2, 2)


@pytest.mark.parametrize("promise", [AT_MOST, pytest.param(AT_LEAST, marks=pytest.mark.slow)])
def test_without_a_fault_nothing_excuses_a_loss_or_a_second_end(judged: Decide, promise: dict[str, Any]) -> None:
    decided = judged(spec(promise), good().ran(5, 8, by="worker-3").sent(8, 9).ended(40))
    assert verdicts(decided) == {"T1": "violated", "T2": "violated"} and found(decided) == {}


@pytest.mark.slow
def test_a_history_with_holes_proves_no_loss_and_a_fault_that_nobody_saw_no_pass(judged: Decide) -> None:
    files = good().sent(7, 5).killed(KILL, 6, 7, witnessed=False).ended(40)
    cut = [replace(file, rows=file.rows[:3] + file.rows[4:]) if file.path.name == "worker-2.jsonl" else file for file in files]
    decided = judged(spec(AT_LEAST, KILL), cut)
    assert decided["verdict"] == "unknown" and verdicts(decided) == dict.fromkeys(("T1", "H0", "H1"), "unknown")
    assert f"H1 unknown: fault {KILL} was not seen to bite: seen" in decided["reasons"]
    gone = collect(spec(AT_LEAST), [file for file in files if file.path.name != "worker-2.jsonl"])
    assert "worker-2.jsonl was announced and is missing" in gone.holes
    assert collect(spec(AT_LEAST, KILL), good().ended(40)).unseen


@pytest.mark.parametrize(("finished", "after"), [(0, 1), (1, 0)])
def test_a_run_without_load_is_no_pass(finished: int, after: int) -> None:
    results = doubtful(collect(spec(AT_LEAST), good().ended(40)), {"finished": finished, "after": after})
    assert [one.verdict for one in results] == ["valid", "valid", "unknown"]


@pytest.mark.slow
def test_a_run_whose_load_was_never_answered_is_no_pass(judged: Decide) -> None:
    assert verdicts(judged(spec(AT_LEAST), Story().sent(1, 1, kind="info").ended(40))) == {"H2": "unknown"}


def cut_off_and_gone() -> Story:
    """A run whose job 3 was cut off and never started again."""
    story = good()
    story.sent(7, 5).killed(KILL, 6, 7)
    return story


@pytest.mark.slow
def test_what_was_never_acknowledged_may_be_lost_and_may_run(judged: Decide) -> None:
    story = good(KILL).sent(10, 16, kind="info").sent(11, 17, kind="info").ran(11, 17.5)
    decided = judged(spec(AT_LEAST, KILL), story.ended(40))
    assert decided["verdict"] == "valid" and decided["measures"]["unanswered"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("job", "sent_s", "again_s"), [(20, 17.6, 19.0), (0, None, 5.0)], ids=["sent later", "ended before"])
def test_a_fault_excuses_no_second_end_of_other_jobs(judged: Decide, job: int, sent_s: float | None, again_s: float) -> None:
    """The kill is in force from 4.4 s to 5.4 s, and what it cut off is to run again within 12 s; job 0 had ended at 1.7 s."""
    story = good(KILL)
    if sent_s is not None:
        story.sent(job, sent_s).ran(job, sent_s + 0.2)
    assert verdicts(judged(spec(AT_LEAST, KILL), story.ran(job, again_s, by="worker-3").ended(40))) == {"T2": "violated"}


@pytest.mark.slow
@pytest.mark.parametrize(("promise", "broken"), [(AT_MOST, {"T2": "violated"}), (AT_LEAST, {})])
def test_a_repeated_send_is_no_excuse_for_at_most_once(promise: dict[str, Any], broken: dict[str, str], judged: Decide) -> None:
    """Its reply was lost; the producer itself sent the job once."""
    story = good()
    for stage, at_s in (("inject", 7.0), ("witness", 7.5), ("heal", 8.0), ("healed", 8.1)):
        columns = {"fault": "1-cut", "name": "net-reply-lost", "stage": stage, "target": "producer-1", "result": "ok"}
        story.row("harness", at_s, "fault", **columns, detail="seen")
    story.sent(7, 7.2).ran(7, 7.3).ran(7, 8.4, by="worker-3")
    plan = [{"fault": "1-cut", "name": "net-reply-lost", "target": "producer-1"}]
    decided = judged({**spec(promise), "plan": plan}, story.ended(60))
    assert verdicts(decided) == broken and found(decided) == ({} if broken else {"doubled": 1})


def recovered_after(seconds: float) -> list[LoadedFile]:
    return good().sent(7, 5).killed(KILL, 6, 7).ran(7, 6 + seconds).sent(12, 50).ran(12, 50.2).ended(90)


@pytest.mark.slow
def test_recovery_later_than_the_bound_breaks_it(judged: Decide) -> None:
    """The bound is 10 s, and 2 s are allowed for a busy machine."""
    assert judged(spec(AT_LEAST, KILL), recovered_after(11.9))["verdict"] == "valid"
    late = judged(spec(AT_LEAST, KILL), recovered_after(12.1))
    assert late["reasons"] == ["T4 violated: job 7 was cut off by 1-worker-kill and started again 12100 ms later"]
    assert late["measures"]["late"] == 1 and late["measures"]["recovery"][0]["recovery_ms"] == 12_100


@pytest.mark.slow
def test_without_a_bound_late_recovery_is_told(judged: Decide) -> None:
    unbounded = {**AT_LEAST, "recovery_bound_ms": None}
    assert found(judged(spec(unbounded, KILL), recovered_after(29))) == {}
    assert found(judged(spec(unbounded, KILL), recovered_after(31))) == {"late": 1}


@pytest.mark.slow
def test_a_job_that_a_dead_worker_had_only_fetched_is_late_too(judged: Decide) -> None:
    decided = judged(spec(AT_LEAST, KILL), good(KILL).sent(8, 4).ran(8, 17).ended(40))
    assert decided["reasons"] == ["T4 violated: job 8 was first started 12900 ms after it was acknowledged"]


@pytest.mark.slow
def test_what_is_left_behind_breaks_at_least_once_when_the_bound_has_passed(judged: Decide) -> None:
    """The kill is healed at 7 s; by 19 s the bound and the slack are over."""
    decided = judged(spec(AT_LEAST, KILL), cut_off_and_gone().ended(40, 7))
    assert verdicts(decided) == {"T5": "violated"} and decided["measures"]["stranded"] == 1
    assert verdicts(judged(spec(AT_LEAST, KILL), cut_off_and_gone().ended(18, 7))) == {"T5": "unknown"}
    unbounded = {**AT_LEAST, "recovery_bound_ms": None}
    assert verdicts(judged(spec(unbounded, KILL), cut_off_and_gone().ended(40, 7))) == {"T5": "unknown"}


@pytest.mark.slow
def test_a_queue_that_still_works_its_jobs_off_has_left_nothing_behind_yet(judged: Decide) -> None:
    story = cut_off_and_gone().sent(12, 30).ran(12, 38.5)
    assert verdicts(judged(spec(AT_LEAST, KILL), story.ended(40, 7))) == {"T5": "unknown"}


@pytest.mark.slow
def test_at_most_once_may_leave_behind_what_a_fault_has_hit(judged: Decide) -> None:
    decided = judged(spec(AT_MOST, KILL), cut_off_and_gone().ended(40, 7))
    assert decided["verdict"] == "valid" and found(decided) == {"stranded": 1}
    assert decided["measures"]["kill"]["stranded"] == 1


@pytest.mark.slow
def test_what_needs_tokens_is_said_to_be_unknowable_and_never_passed(judged: Decide) -> None:
    decided = judged(spec(AT_LEAST), good().ended(40))
    unknowable = {one["check"] for one in decided["cannot_be_known"]}
    assert {"J1", "J2", "J3"} <= unknowable
    assert unknowable.isdisjoint(check["id"] for check in decided["checks"])
