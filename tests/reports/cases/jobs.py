"""Cases of J4 (no job is lost), J5 (none comes from nowhere) and J6 (each is finished exactly once)."""

from typing import Any

from tests.reports.cases.base import W1, W2, W3, W4, case, ended, run_once, told
from tests.reports.story import END_S, Story, Token, crc_of, incarnation, ns, srv_ms

LOST, OPEN_END, DOUBLED = ("J4", "lost"), ("J4", "open end", "possible"), ("J6", "doubled")
UNBURIED, UNFINISHED = ("J4", "dead unburied"), ("J4", "done unfinished")
NOWHERE, OF_NOTHING = ("J5", "from nowhere"), ("J5", "duplicate of nothing")

# --- J4: no job is lost --------------------------------------------------------------------------------------------------


told("enqueued-and-gone", lambda story, job: story.enqueue(job, 2), LOST)


told("gone-unclaimed-after-it-expired", lambda story, job: story.enqueue(job, 2, expires_ms=1_000))


told("gone-unclaimed-an-hour-too-soon", lambda story, job: story.enqueue(job, 2, expires_ms=3_600_000), LOST)


@case(LOST)
def claimed_before_it_expired_and_gone(story: Story, job: str) -> None:
    story.enqueue(job, 2, expires_ms=5_000)
    story.start(story.claim(W1, job, 3), 3.1, took=0.1)


told("claimed-and-gone", lambda story, job: story.start(story.leased(W1, job, 3), 3.1, took=0.1), LOST)


@case(LOST)
def an_enqueue_without_an_answer_created_a_job_that_was_claimed_and_is_gone(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="info")
    story.claim(W1, job, 3)


told("a-refused-finish-finishes-nothing", lambda story, job: ended(story, job, "finish", result="stale"), LOST)


told("an-unanswered-finish-may-have-ended-it", lambda story, job: ended(story, job, "finish", reply="info"), OPEN_END)


told("a-finish-never-completed-may-have-ended-it", lambda story, job: ended(story, job, "finish", reply=None), OPEN_END)


told("an-item-of-unknown-result-may-have-ended-it", lambda story, job: ended(story, job, "finish", result="unknown"), OPEN_END)


def run_again_after_an_end_without_an_answer(story: Story, job: str, f: str) -> Token:
    """worker-1 ends its lease and hears nothing; the lease is reaped, so that it was not over, and worker-3 claims the job."""
    first = story.handled(W1, job, 3)
    story.end(f, first, at=3.1, reply="info", delay_ms=100 if f == "retry" else None)
    story.reap(W3, first, 12.1)
    second = story.claim(W3, job, 12.2)
    story.start(second, 12.21, took=0.1, end="fail")
    return second


def retried_again(story: Story, job: str, f: str, left: str = "") -> None:
    story.end("retry", run_again_after_an_end_without_an_answer(story, job, f), at=12.4, delay_ms=100, left=left)


told("an-unanswered-finish-of-an-older-lease-excuses-no-loss", lambda story, job: retried_again(story, job, "finish"), LOST)
BURIES_NOTHING = "an-unanswered-retry-of-an-older-lease-buries-nothing"
told(BURIES_NOTHING, lambda story, job: retried_again(story, job, "retry", "dead"), UNBURIED)
ONLY_OLDER = "done-though-only-an-older-lease-may-have-finished-it"
told(ONLY_OLDER, lambda story, job: retried_again(story, job, "finish", "done"), UNFINISHED)


@case(LOST)
def an_unanswered_finish_of_a_lease_that_was_reaped_excuses_no_loss(story: Story, job: str) -> None:
    token = story.handled(W1, job, 3)
    story.end("finish", token, at=3.1, reply="info")
    story.reap(W3, token, 12.1)


@case(OPEN_END)
def an_unanswered_finish_of_the_newest_lease_may_have_ended_it(story: Story, job: str) -> None:
    story.end("finish", run_again_after_an_end_without_an_answer(story, job, "retry"), at=12.4, reply="info")


told("an-unanswered-release-takes-no-job-away", lambda story, job: ended(story, job, "release", reply="info"), LOST)


# Had it happened, the job were dead.
told("an-unanswered-bury-takes-no-job-away", lambda story, job: ended(story, job, "bury", handler="ok", reply="info"), LOST)


@case(("J4", "not done"), ("J13", "left over"))
def finished_and_still_waiting(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.at_end["waiting"].append((job, 0))


@case()
def finished_when_the_snapshot_at_the_end_begins(story: Story, job: str) -> None:
    """It is in hand in the snapshot, and rightly: it was enqueued just before."""
    token = story.leased(W1, job, END_S - 0.2, enqueued=END_S - 0.3)
    story.finish(token, END_S - 0.001, start=END_S - 0.19, took=0.1, effect=END_S - 0.1)
    story.at_end["active"].append((job, srv_ms(END_S + 8.8)))


@case(("J4", "two states"), ("J13", "left over"))
def in_two_states_at_the_end(story: Story, job: str) -> None:
    story.enqueue(job, 50)
    story.at_end["waiting"].append((job, 0))
    story.at_end["delayed"].append((job, srv_ms(90)))


@case(("J4", "two states", "unknown"))
def moved_while_the_snapshot_at_the_end_was_taken(story: Story, job: str) -> None:
    token = story.leased(W1, job, END_S - 0.001, enqueued=END_S - 0.3, took=0.01)
    story.finish(token, END_S + 0.2, start=END_S + 0.05, took=0.1, effect=END_S + 0.1)
    story.at_end["waiting"].append((job, 0))
    story.at_end["active"].append((job, srv_ms(END_S + 9)))


MEANWHILE = "gone-from-the-snapshot-while-a-claim-moved-it"
told(MEANWHILE, lambda story, job: story.leased(W1, job, END_S + 0.1, enqueued=END_S - 0.3), (*LOST, "unknown"))


@case(LOST)
def listed_though_its_enqueue_was_never_answered_and_gone_at_the_end(story: Story, job: str) -> None:
    """A snapshot that lists it proves that it existed."""
    story.enqueue(job, 40, reply="info")
    story.at_deadline["waiting"].append((job, 0))


@case(UNFINISHED)
def done_and_never_finished(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.at_end["done"].append((job, srv_ms(3)))


REFUSED = "done-though-its-finish-was-refused"
told(REFUSED, lambda story, job: ended(story, job, "finish", result="stale", left="done"), UNFINISHED)


FAILED: Any = {"handler": "fail", "delay_ms": 100, "left": "dead"}
told("dead-and-never-buried", lambda story, job: ended(story, job, "retry", **FAILED), UNBURIED)
told("buried-by-its-last-retry", lambda story, job: ended(story, job, "retry", **FAILED, outcome="buried"))
told("buried-by-a-retry-that-was-never-answered", lambda story, job: ended(story, job, "retry", **FAILED, reply="info"))


def dead_since_its_reap(story: Story, job: str, **reap: Any) -> None:
    """Its handler had started; `reap` is what the reap says."""
    story.reap(W3, story.handled(W1, job, 3), 12.1, left="dead", **reap)


# Rule 12: the first crash is free, whatever the reap says, and a reap that buries says so.
told("dead-since-the-reap-of-its-first-crash", dead_since_its_reap, UNBURIED)
told("dead-since-a-reap-that-says-it-was-only-reaped", lambda story, job: dead_since_its_reap(story, job, crashes=3), UNBURIED)
BURIED: Any = {"crashes": 1, "result": "buried"}
told("buried-by-the-reap-of-its-first-crash", lambda story, job: dead_since_its_reap(story, job, **BURIED), UNBURIED)


@case()
def buried_by_the_reap_of_its_last_crash(story: Story, job: str) -> None:
    """Rule 12: it was marked started before its handler ran; whether that ever ran, the killed worker could not say any more."""
    token = story.leased(W1, job, 3)
    story.mark(token, 3.01)
    story.reap(W3, token, 12.1, crashes=3, result="buried", left="dead")


@case(("J4", "dead unstarted"))
def buried_by_a_reap_though_it_was_never_marked_or_started(story: Story, job: str) -> None:
    token = story.leased(W1, job, 3)
    story.mark(token, 3.01, result="stale")
    story.reap(W3, token, 12.1, crashes=3, result="buried", left="dead")


@case()
def buried_by_a_reap_that_took_no_lease_away(story: Story, job: str) -> None:
    """The retry that was cut off had ended the lease; the reap that finds the job dead names it without a token."""
    story.handled(W1, job, 3)
    story.operation(W3, "reap", 12.1, [{"job": job, "result": "buried"}])
    story.at_end["dead"].append((job, srv_ms(12.1)))


@case()
def enqueued_with_others_of_which_one_was_refused(story: Story, job: str) -> None:
    """A call for many has a result for each."""
    told = {"name": "email", "class": "email", "delay_ms": 0, "crc": crc_of(job)}
    items = [{"job": job, **told, "result": "created"}, {"job": f"refused-with-{job}", **told, "result": "refused"}]
    story.operation("producer-1", "enqueue", 2, items, intended_ns=ns(2))
    story.run(W1, job, 3)


def told_of_the_mate_only(story: Story, job: str, **mate: str) -> None:
    """An enqueue of two jobs whose completion leaves out the one of the case."""
    told = {"name": "email", "class": "email", "delay_ms": 0}
    jobs = [{"job": name, **told, "crc": crc_of(name)} for name in (f"mate-of-{job}", job)]
    call = {"f": "enqueue", "op": f"call-of-{job}", "queue": "q", "first_send_ns": ns(2), "intended_ns": ns(2)}
    story.row("producer-1", "operation", 2, type="invoke", **call, items=jobs)
    answer = {"type": mate["reply"], "done_ns": ns(2.001), "sends": 1, "items": [jobs[0] | {"result": mate["result"]}]}
    story.row("producer-1", "operation", 2.001, **call, **answer)


@case()
def left_out_of_the_completion_of_its_enqueue(story: Story, job: str) -> None:
    """Nothing was said about it: it may be there."""
    told_of_the_mate_only(story, job, reply="ok", result="created")
    story.run(W1, f"mate-of-{job}", 3)
    story.run(W1, job, 3.1)


@case(LOST, ("J13", "stuck waiting"))
def left_out_of_the_completion_of_its_enqueue_and_listed_and_gone(story: Story, job: str) -> None:
    told_of_the_mate_only(story, job, reply="ok", result="refused")
    story.at_deadline["waiting"].append((job, 0))


@case(NOWHERE)
def left_out_of_an_enqueue_that_failed_as_a_whole(story: Story, job: str) -> None:
    told_of_the_mate_only(story, job, reply="fail", result="refused")
    story.run(W1, job, 3)


@case(("J5", "appeared"))
def a_corrupt_job_that_nobody_enqueued(story: Story, job: str) -> None:
    """A claim that finds it corrupt is no claim of it."""
    story.operation(W1, "claim", 3, [{"job": job, "result": "corrupt"}], lease_ms=9_000)
    story.at_end["dead"].append((job, srv_ms(3)))


def orphan(story: Story, job: str, *needs: str) -> None:
    """Dead, and never claimed: it needs these others, and is to be buried with any of them."""
    story.enqueue(job, 2, needs=needs, on_parent_failure="bury")
    story.at_end["dead"].append((job, srv_ms(3.2)))


@case()
def buried_with_a_job_that_was_buried_with_one_that_it_needs(story: Story, job: str) -> None:
    ended(story, f"{job}-2", "bury", handler="fail", left="dead")
    orphan(story, f"{job}-1", "unknown", f"{job}-2")
    orphan(story, job, f"{job}-1")


@case(UNBURIED)
def dead_though_the_job_that_it_needs_has_finished(story: Story, job: str) -> None:
    story.life(W1, f"{job}-1", 3)
    orphan(story, job, f"{job}-1")


def dead_early(story: Story, job: str, claimed: float) -> None:
    """Dead in both snapshots; worker-1 claims at this time the job that it needs, which is buried at 56 s."""
    story.enqueue(job, 40, needs=[f"{job}-1"], on_parent_failure="bury")
    story.left("dead", job, srv_ms(41))
    story.end("bury", story.handled(W1, f"{job}-1", claimed, end="fail"), at=56, left="dead")


told("dead-before-the-job-that-it-needs-was-claimed", lambda story, job: dead_early(story, job, 55), UNBURIED)
DEAD_EARLY = "dead-before-the-burial-of-the-job-that-it-needs-is-known"
told(DEAD_EARLY, lambda story, job: dead_early(story, job, 50), (*UNBURIED, "unknown"))


def skipped(story: Story, job: str, **again: Any) -> None:
    """The job that it needs is done by a drop without an answer; `again`: what its repetition is answered."""
    token = story.handled(W1, f"{job}-1", 3, end="fail")
    story.end("drop", token, at=3.1, outcome="skipped", reply="info", left="done")
    if again:
        story.end("drop", token, at=3.5, outcome="skipped", **again)
    orphan(story, job, f"{job}-1")


told("buried-with-a-job-that-may-have-been-skipped", lambda story, job: skipped(story, job), (*UNBURIED, "unknown"))
told("buried-with-a-job-that-was-skipped", lambda story, job: skipped(story, job, result="repeated"))
told("dead-and-needs-a-job-that-nobody-knows", lambda story, job: orphan(story, job, "unknown"), (*UNBURIED, "unknown"))


# Rule 33: it is in a state, and all the same it never had its run.
told("buried-without-a-handler-start", lambda story, job: ended(story, job, "bury", left="dead"), ("J4", "dead unstarted"))


told("buried-after-its-runs", lambda story, job: ended(story, job, "bury", handler="fail", left="dead"))


@case()
def still_delayed_at_the_end(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=3_600_000)
    story.left("delayed", job, srv_ms(3_602))


@case()
def done_at_the_end_though_its_finish_was_never_answered(story: Story, job: str) -> None:
    story.finish(story.leased(W1, job, 3), 3.1, effect=3.05, reply="info")
    story.at_end["done"].append((job, srv_ms(3.1)))


@case()
def finished_and_done(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.at_end["done"].append((job, srv_ms(2.1)))


told("an-unanswered-enqueue-that-is-nowhere", lambda story, job: story.enqueue(job, 2, reply=None))


told("a-failed-enqueue-that-is-nowhere", lambda story, job: story.enqueue(job, 2, reply="fail"))


# --- J5: no job comes from nowhere ---------------------------------------------------------------------------------------


told("claimed-and-never-enqueued", lambda story, job: story.run(W1, job, 3), NOWHERE)


told("claimed-though-its-enqueue-failed", lambda story, job: run_once(story, job, reply="fail"), NOWHERE)


told("claimed-though-its-enqueue-was-refused", lambda story, job: run_once(story, job, result="refused"), NOWHERE)


told("waiting-and-never-enqueued", lambda story, job: story.left("waiting", job, 0), ("J5", "appeared"), ("J13", "left over"))


told("done-and-never-enqueued", lambda story, job: story.at_end["done"].append((job, 0)), ("J5", "appeared"), UNFINISHED)


@case(("J5", "unclaimed"))
def an_effect_under_a_lease_that_no_claim_handed_out(story: Story, job: str) -> None:
    story.life(W4, job, 38)
    story.effect(Token(job, 5, f"{incarnation(W4)}:4711", W4), 39)


@case(("J5", "unclaimed"))
def a_handler_under_a_lease_that_no_claim_handed_out(story: Story, job: str) -> None:
    story.life(W4, job, 38)
    story.start(Token(job, 5, f"{incarnation(W4)}:4711", W4), 39, took=0.1)


@case(("J5", "unclaimed", "unknown"))
def a_handler_under_a_lease_that_an_unanswered_claim_may_have_handed_out(story: Story, job: str) -> None:
    unseen = story.leased(W2, job, 5, enqueued=2, reply="info")
    story.start(unseen, 5.1, took=0.1)
    story.effect(unseen, 5.2)
    story.run(W3, job, 14.1)


@case()
def a_lease_that_only_its_reap_names_ran_nowhere(story: Story, job: str) -> None:
    story.reap(W1, story.leased(W4, job, 38.1, enqueued=38, reply="fail"), 47.2)
    story.run(W3, job, 47.3)


@case(("J5", "too early"))
def claimed_before_it_was_enqueued(story: Story, job: str) -> None:
    story.run(W1, job, 2)
    story.enqueue(job, 5)


told("claimed-while-its-enqueue-is-under-way", lambda story, job: run_once(story, job, 2.5, took=3))


told("claimed-after-an-enqueue-that-was-never-answered", lambda story, job: run_once(story, job, reply=None))


@case()
def created_then_refused_as_a_duplicate(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.enqueue(job, 5, result="duplicate")


NOBODY_ELSE = "refused-as-a-duplicate-though-nobody-else-enqueued-it"
told(NOBODY_ELSE, lambda story, job: story.enqueue(job, 2, result="duplicate"), OF_NOTHING)


@case(OF_NOTHING)
def refused_as_a_duplicate_before_anybody_else_enqueued_it(story: Story, job: str) -> None:
    story.enqueue(job, 2, result="duplicate")
    story.life(W1, job, 3)


@case()
def refused_as_a_duplicate_of_an_enqueue_without_an_answer(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="info")
    story.enqueue(job, 2.5, result="duplicate")


@case(("J5", "ran by another"))
def claimed_by_one_worker_and_run_by_another(story: Story, job: str) -> None:
    token = story.leased(W1, job, 3)
    story.finish(Token(token.job, token.fence, token.nonce, W3), 3.1, start=3.01, took=0.05, effect=3.05)


@case(("J5", "ran by another"), ("J20", "handled twice"))
def run_by_the_worker_that_claimed_it_and_by_another(story: Story, job: str) -> None:
    token = story.handled(W3, job, 3)
    story.effect(token, 3.05)
    story.start(Token(token.job, token.fence, token.nonce, W1), 3.06, took=0.02)
    story.end("finish", token, at=3.1)


@case()
def a_callback_that_the_end_of_another_job_has_made(story: Story, job: str) -> None:
    """Its row has no enqueue: the script that finished the other job has made it."""
    story.life(W1, job, 2)
    story.run(W3, f"{job}>success:7", 3)


# --- J6: every job is finished exactly once ------------------------------------------------------------------------------


@case(DOUBLED)
def finished_by_two_leases_one_after_the_other(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.run(W3, job, 5)


@case(DOUBLED)
def finished_once_by_answer_and_once_by_repetition(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.finish(story.claim(W3, job, 5), 5.2, start=5.15, took=0.04, effect=5.1, result="repeated")


# `ok`, not `repeated`: the server finished it a second time.
told("one-lease-whose-finish-was-accepted-twice", lambda story, job: story.end("finish", story.life(W1, job, 2), at=3), DOUBLED)


@case(DOUBLED)
def one_lease_whose_finish_was_accepted_twice_in_one_call(story: Story, job: str) -> None:
    token = story.handled(W1, job, 3)
    story.effect(token, 3.05)
    story.end("finish", token, token, at=3.1)


@case(("J6", "run again"))
def finished_and_claimed_again(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    token = story.claim(W3, job, 5)
    story.start(token, 5.01, took=0.05)
    story.end("release", token, at=5.1)


@case()
def finished_while_another_claim_of_it_was_under_way(story: Story, job: str) -> None:
    """Rule 32: the claim was sent before the finish was answered; which came first, nobody knows."""
    first = story.leased(W1, job, 3)
    story.effect(first, 12.05)
    story.claim(W3, job, 12.101, took=0.1)
    story.start(first, 12.05, took=0.04)
    story.end("finish", first, at=12.1, took=0.05)


@case()
def finished_and_the_claim_of_it_repeated(story: Story, job: str) -> None:
    """Rule 4: the answer to the claim that was lost, not another lease."""
    token = story.life(W1, job, 2)
    story.claim(W1, job, 5, fence=token.fence, nonce=token.nonce, result="repeated")


@case(("J6", "created twice"))
def created_by_two_enqueues(story: Story, job: str) -> None:
    """Each was told that its payload is the one of the job."""
    story.enqueue(job, 1)
    story.run(W1, job, 3, enqueued=1.5)


told("finished-without-an-effect", lambda story, job: ended(story, job, "finish", handler="ok"), ("J6", "no effect"))


told("finished-with-two-effects-of-one-lease", lambda story, job: story.effect(story.life(W1, job, 2), 4), ("J6", "two effects"))


TWICE = "one-lease-whose-finish-was-answered-twice"
told(TWICE, lambda story, job: story.end("finish", story.life(W1, job, 2), at=3, result="repeated"))


@case()
def a_repetition_of_a_retry_is_no_finish(story: Story, job: str) -> None:
    story.end("retry", story.handled(W1, job, 3, took=0.01), at=3.1, result="repeated", outcome="retried", delay_ms=100)
    story.run(W3, job, 4)


@case()
def effects_of_leases_that_were_not_accepted(story: Story, job: str) -> None:
    first = story.leased(W1, job, 3)
    story.effect(first, 3.1)
    story.effect(first, 3.2)
    story.run(W3, job, 13)
