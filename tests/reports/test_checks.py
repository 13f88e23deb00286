"""Every check on small hand-written histories that must pass and that must fail: one job each, all judged in one run.

Each case is a function that tells what happened to one job, and the violations that must be found for it: none at all for the
false alarms of rule 32, and the one that names it for the hidden losses of rule 33. Nothing else may be found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.reports.conftest import Judge
from tests.reports.story import DEADLINE_S, HEALED_S, Story, healthy, srv_ms

Tell = Callable[[Story, str], None]
CASES: dict[str, tuple[Tell, set[tuple[str, ...]]]] = {}

W1, W2, W3, W4 = "worker-1", "worker-2", "worker-3", "worker-4"


def case(*expected: tuple[str, str] | tuple[str, str, str]) -> Callable[[Tell], Tell]:
    """A case and what must be found for its job: (check, kind), or (check, kind, level) where the level is not violated."""

    def keep(tell: Tell) -> Tell:
        CASES[tell.__name__.replace("_", "-")] = (tell, {(*found, "violated")[:3] for found in expected})
        return tell

    return keep


# --- J1: no two workers hold a job at once -------------------------------------------------------------------------------


@case(("J1", "overlap"))
def second_claim_while_first_is_held(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.claim(W1, job, 3)
    story.run(W3, job, 5)


@case(("J1", "overlap"))
def second_claim_inside_an_extended_lease(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.extend(first, 6)
    story.run(W3, job, 12.5)


@case(("J1", "overlap"), ("J1", "overlap"))
def third_claim_while_the_first_is_held_and_the_second_is_over(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.claim(W1, job, 3)
    second = story.claim(W3, job, 4)
    story.end("release", second, at=5)
    story.run(W1, job, 6)


@case(("J1", "overlap"))
def a_refused_extend_prolongs_nothing_but_the_lease_goes_on(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.extend(first, 6, result="stale")
    story.run(W3, job, 11.9)


@case()
def an_unanswered_extend_prolongs_nothing(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.extend(first, 6, reply=None)
    story.run(W3, job, 12.1)


@case()
def second_claim_after_the_lease_ended(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.claim(W1, job, 3)
    story.run(W3, job, 12.001)


@case()
def second_claim_after_the_reap_though_the_lease_had_time_left(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.reap(W3, first, 5)
    story.run(W3, job, 5.01)


@case()
def second_claim_after_a_release_that_was_not_answered(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.end("release", first, at=4, reply=None)
    story.run(W3, job, 4.5)


@case()
def a_lease_that_ends_before_its_claim_is_answered_is_never_held(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.claim(W1, job, 3, took=12)
    story.run(W3, job, 14.99)


@case()
def a_claim_answered_by_a_later_call_has_only_the_rest_of_its_lease(story: Story, job: str) -> None:
    """Rule 4: the claim of second 3 was never answered; sent again as another call, it is repeated with a second left."""
    story.enqueue(job, 2)
    unseen = story.claim(W1, job, 3, reply="info")
    late = story.claim(W1, job, 11, fence=unseen.fence, nonce=unseen.nonce, deadline_ms=srv_ms(12), srv_us=srv_ms(11) * 1_000)
    story.start(late, 11.01)
    story.run(W3, job, 12.2)


# --- J3: no stale finish is accepted -------------------------------------------------------------------------------------


@case(("J3", "stale"), ("J6", "doubled"))
def the_zombies_finish_is_accepted(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    zombie = story.claim(W3, job, 3)
    story.start(zombie, 3.01, took=10.5)
    story.reap(W1, zombie, 12.5)
    story.run(W1, job, 12.6)
    story.effect(zombie, 13.6)
    story.end("finish", zombie, at=13.7)


@case(("J3", "stale"))
def the_zombies_finish_is_accepted_and_the_owners_refused(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    zombie = story.claim(W3, job, 3)
    story.effect(zombie, 13.1)
    owner = story.claim(W1, job, 13)
    story.end("finish", zombie, at=13.2)
    story.end("finish", owner, at=13.5, result="stale")


@case(("J3", "stale"))
def equal_fences_with_different_nonces_are_two_leases(story: Story, job: str) -> None:
    """Rule 33: the fence alone does not tell the zombie from the owner."""
    story.enqueue(job, 2)
    zombie = story.claim(W3, job, 3, fence=77)
    owner = story.claim(W1, job, 13, fence=77)
    story.effect(zombie, 13.3)
    story.end("finish", zombie, at=13.5)
    story.end("finish", owner, at=13.6, result="stale")


@case(("J3", "stale"))
def one_stale_token_accepted_inside_a_batch(story: Story, job: str) -> None:
    """Rule 33: a batch has a result per job; here one of two must have been refused."""
    story.enqueue(job, 2)
    stale = story.claim(W3, job, 3)
    other = "batch-mate-of-" + job
    story.enqueue(other, 2)
    owner = story.claim(W1, job, 13)
    good = story.claim(W3, other, 13.05)
    story.effect(stale, 13.1)
    story.effect(good, 13.1)
    story.end("finish", stale, good, at=13.2)
    story.end("finish", owner, at=13.5, result="stale")


@case()
def the_zombies_finish_is_refused(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    zombie = story.claim(W3, job, 3)
    story.start(zombie, 3.01, took=10.5)
    story.reap(W1, zombie, 12.5)
    story.run(W1, job, 12.6)
    story.effect(zombie, 13.6)
    story.end("finish", zombie, at=13.7, result="stale")


@case()
def accepted_finish_after_the_deadline_but_before_the_reap(story: Story, job: str) -> None:
    """Rules 11 and 32: a lease ends when it is reaped."""
    story.enqueue(job, 2)
    late = story.claim(W3, job, 3)
    story.effect(late, 15)
    story.end("finish", late, at=15.1)


@case()
def a_finish_sent_before_the_newer_claim_was_answered_is_not_definitely_stale(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W3, job, 3)
    story.effect(first, 12.9)
    owner = story.claim(W1, job, 12.99, took=0.1)
    story.end("finish", first, at=13.05)
    story.end("finish", owner, at=13.5, result="stale")


@case()
def reaped_late_and_run_elsewhere(story: Story, job: str) -> None:
    """Rule 32: the reap comes seconds after the lease ended, the next claim later still."""
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.reap(W3, first, 17)
    story.run(W3, job, 18)


@case()
def gaps_between_the_fences_of_attempts(story: Story, job: str) -> None:
    """Rule 32: releases and unanswered claims leave gaps."""
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3, fence=10)
    story.end("release", first, at=3.1)
    story.claim(W3, job, 3.2, reply=None)
    second = story.claim(W1, job, 13, fence=500)
    story.start(second, 13.01, took=0.1)
    story.end("retry", second, at=13.2, delay_ms=1_000)
    story.run(W3, job, 14.4, fence=9_000)


# --- J4: no job is lost --------------------------------------------------------------------------------------------------


@case(("J4", "lost"))
def enqueued_and_gone(story: Story, job: str) -> None:
    story.enqueue(job, 2)


@case(("J4", "lost"))
def claimed_and_gone(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.start(story.claim(W1, job, 3), 3.1, took=0.1)


@case(("J4", "lost"))
def an_enqueue_without_an_answer_created_a_job_that_was_claimed_and_is_gone(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="info")
    story.claim(W1, job, 3)


@case(("J4", "lost"))
def a_refused_finish_finishes_nothing(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("finish", story.claim(W1, job, 3), at=3.1, result="stale")


@case(("J4", "open end", "possible"))
def an_unanswered_finish_may_have_ended_it(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("finish", story.claim(W1, job, 3), at=3.1, reply="info")


@case(("J4", "open end", "possible"))
def a_finish_never_completed_may_have_ended_it(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("finish", story.claim(W1, job, 3), at=3.1, reply=None)


@case(("J4", "open end", "possible"))
def an_item_of_unknown_result_may_have_ended_it(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("finish", story.claim(W1, job, 3), at=3.1, result="unknown")


@case(("J4", "not done"))
def finished_and_still_waiting(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.at_end["waiting"].append((job, 0))


@case(("J4", "two states"))
def in_two_states_at_the_end(story: Story, job: str) -> None:
    story.enqueue(job, 50)
    story.at_end["waiting"].append((job, 0))
    story.at_end["delayed"].append((job, srv_ms(90)))


@case(("J4", "dead unstarted"))
def buried_without_a_handler_start(story: Story, job: str) -> None:
    """Rule 33: it is in a state, and all the same it never had its run."""
    story.enqueue(job, 2)
    story.end("bury", story.claim(W1, job, 3), at=3.1)
    story.at_end["dead"].append((job, srv_ms(3.1)))


@case()
def buried_after_its_runs(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    token = story.claim(W1, job, 3)
    story.start(token, 3.01, took=0.05)
    story.end("bury", token, at=3.1)
    story.at_end["dead"].append((job, srv_ms(3.1)))


@case()
def still_delayed_at_the_end(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=3_600_000)
    story.at_deadline["delayed"].append((job, srv_ms(3_602)))
    story.at_end["delayed"].append((job, srv_ms(3_602)))


@case()
def done_at_the_end_though_its_finish_was_never_answered(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    token = story.claim(W1, job, 3)
    story.effect(token, 3.05)
    story.end("finish", token, at=3.1, reply="info")
    story.at_end["done"].append((job, srv_ms(3.1)))


@case()
def finished_and_done(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.at_end["done"].append((job, srv_ms(2.1)))


@case()
def an_unanswered_enqueue_that_is_nowhere(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply=None)


@case()
def a_failed_enqueue_that_is_nowhere(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="fail")


# --- J5: no job comes from nowhere ---------------------------------------------------------------------------------------


@case(("J5", "from nowhere"))
def claimed_and_never_enqueued(story: Story, job: str) -> None:
    story.run(W1, job, 3)


@case(("J5", "from nowhere"))
def claimed_though_its_enqueue_failed(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="fail")
    story.run(W1, job, 3)


@case(("J5", "from nowhere"))
def claimed_though_its_enqueue_was_refused(story: Story, job: str) -> None:
    story.enqueue(job, 2, result="refused")
    story.run(W1, job, 3)


@case(("J5", "too early"))
def claimed_before_it_was_enqueued(story: Story, job: str) -> None:
    story.run(W1, job, 2)
    story.enqueue(job, 5)


@case()
def claimed_while_its_enqueue_is_under_way(story: Story, job: str) -> None:
    story.enqueue(job, 2, took=3)
    story.run(W1, job, 2.5)


@case()
def claimed_after_an_enqueue_that_was_never_answered(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply=None)
    story.run(W1, job, 3)


@case()
def created_then_refused_as_a_duplicate(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.enqueue(job, 5, result="duplicate")


# --- J6: every job is finished exactly once ------------------------------------------------------------------------------


@case(("J6", "doubled"))
def finished_by_two_leases_one_after_the_other(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.run(W3, job, 5)


@case(("J6", "doubled"))
def finished_once_by_answer_and_once_by_repetition(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    token = story.claim(W3, job, 5)
    story.effect(token, 5.1)
    story.end("finish", token, at=5.2, result="repeated")


@case(("J6", "no effect"))
def finished_without_an_effect(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("finish", story.claim(W1, job, 3), at=3.1)


@case(("J6", "two effects"))
def finished_with_two_effects_of_one_lease(story: Story, job: str) -> None:
    story.effect(story.life(W1, job, 2), 4)


@case()
def one_lease_whose_finish_was_answered_twice(story: Story, job: str) -> None:
    token = story.life(W1, job, 2)
    story.end("finish", token, at=3, result="repeated")


@case()
def a_repetition_of_a_retry_is_no_finish(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    token = story.claim(W1, job, 3)
    story.start(token, 3.01, took=0.01)
    story.end("retry", token, at=3.1, result="repeated", outcome="retried", delay_ms=100)
    story.run(W3, job, 4)


@case()
def effects_of_leases_that_were_not_accepted(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    first = story.claim(W1, job, 3)
    story.effect(first, 3.1)
    story.effect(first, 3.2)
    story.run(W3, job, 13)


# --- J13: nothing is stuck (jobs; workers and kills are in test_liveness) ------------------------------------------------


@case(("J13", "stuck waiting"))
def waiting_since_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 30)
    story.at_deadline["waiting"].append((job, 0))
    story.run(W1, job, DEADLINE_S + 2)


@case(("J13", "stuck waiting"))
def waiting_since_it_was_given_back_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.end("release", story.claim(W1, job, 3), at=3.5)
    story.at_deadline["waiting"].append((job, 0))
    story.at_end["waiting"].append((job, 0))


@case(("J13", "overdue"))
def overdue_since_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=1_000)
    story.at_deadline["delayed"].append((job, srv_ms(3)))
    story.at_end["delayed"].append((job, srv_ms(3)))


@case(("J13", "stuck active"))
def active_long_after_its_lease_ended(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.claim(W1, job, 30)
    story.at_deadline["active"].append((job, srv_ms(39)))
    story.at_end["active"].append((job, srv_ms(39)))


@case()
def waiting_since_a_retry_after_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 30)
    token = story.claim(W1, job, 50)
    story.start(token, 50.01, took=0.1)
    story.end("retry", token, at=50.2, delay_ms=500)
    story.at_deadline["waiting"].append((job, 0))
    story.run(W3, job, DEADLINE_S + 0.1)


@case()
def waiting_because_it_was_enqueued_after_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, HEALED_S + 15.4)
    story.at_deadline["waiting"].append((job, 0))
    story.run(W1, job, DEADLINE_S + 0.01)


@case()
def delayed_and_not_due_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 30, delay_ms=21_000)
    story.at_deadline["delayed"].append((job, srv_ms(51)))
    story.run(W1, job, DEADLINE_S + 0.2)


@case()
def active_with_a_lease_that_just_ended(story: Story, job: str) -> None:
    story.enqueue(job, 40)
    story.claim(W1, job, 42)
    story.at_deadline["active"].append((job, srv_ms(51)))
    story.run(W3, job, DEADLINE_S + 0.4)


# --- J13: jobs in hand of worker-2, which is killed between 10.000 and 10.010 s, bound 11 s -------------------------------


@case(("J13", "late recovery"))
def in_hand_and_run_elsewhere_too_late(story: Story, job: str) -> None:
    story.enqueue(job, 9)
    story.claim(W2, job, 9.5)
    story.run(W1, job, 21.1)


@case(("J13", "no recovery"))
def in_hand_and_never_run_again(story: Story, job: str) -> None:
    story.enqueue(job, 9)
    story.claim(W2, job, 9.5)
    story.at_end["waiting"].append((job, 0))


@case(("J13", "no recovery"))
def in_hand_by_a_claim_whose_reply_never_came(story: Story, job: str) -> None:
    """Only the reap knows that the killed worker had it."""
    story.enqueue(job, 9)
    unseen = story.claim(W2, job, 9.5, reply=None)
    story.reap(W1, unseen, 18.6)
    story.at_end["waiting"].append((job, 0))


@case()
def in_hand_by_a_claim_whose_reply_never_came_and_run_elsewhere(story: Story, job: str) -> None:
    story.enqueue(job, 9)
    unseen = story.claim(W2, job, 9.5, reply=None)
    story.reap(W1, unseen, 18.6)
    story.run(W3, job, 18.7)


@case()
def ended_by_a_call_that_the_killed_worker_saw_no_answer_of(story: Story, job: str) -> None:
    """Rule 37: it was sent, and the job never ran again, so it had happened."""
    story.enqueue(job, 9)
    token = story.claim(W2, job, 9.5)
    story.effect(token, 9.6)
    story.end("finish", token, at=9.99, reply=None)
    story.at_end["done"].append((job, srv_ms(9.995)))


@case()
def lost_by_the_worker_before_it_was_killed(story: Story, job: str) -> None:
    story.enqueue(job, 0.1)
    token = story.claim(W2, job, 0.2)
    story.reap(W1, token, 9.3)
    story.run(W1, job, 9.4)


@case()
def ended_by_the_worker_before_it_was_killed(story: Story, job: str) -> None:
    story.life(W2, job, 9)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, judged: Judge, spark: SparkSession) -> dict[str, list[tuple[str, str, str]]]:
    """Violations by job, of one run in which all cases happened."""
    story = healthy(tmp_path_factory.mktemp("checks") / "run")
    for job, (tell, _) in CASES.items():
        tell(story, job)
    run = story.write()
    verdict = judged(run)
    assert verdict["verdict"] == "violated"
    by_job: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for row in spark.read.parquet(str(run / "tables" / "violations.parquet")).collect():
        by_job[row["subject"]].append((row["check"], row["kind"], row["level"]))
    return by_job


@pytest.mark.parametrize("job", CASES)
def test_a_job_is_found_for_what_happened_to_it_and_for_nothing_else(job: str, found: dict[str, Any]) -> None:
    assert set(found.get(job, [])) == CASES[job][1]


def test_no_job_is_found_that_no_case_is_about(found: dict[str, Any]) -> None:
    assert set(found) == {job for job, (_, expected) in CASES.items() if expected}


def test_a_job_with_two_overlaps_is_found_twice(found: dict[str, Any]) -> None:
    assert len(found["third-claim-while-the-first-is-held-and-the-second-is-over"]) == 2


def test_every_check_of_jobs_has_cases_that_pass_and_that_fail() -> None:
    failing = {check for _, expected in CASES.values() for check, *_ in expected}
    assert failing == {"J1", "J3", "J4", "J5", "J6", "J13"}
    assert sum(not expected for _, expected in CASES.values()) >= len(CASES) // 3
