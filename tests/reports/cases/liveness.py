"""Cases of J13: jobs that are stuck after the last heal, and jobs in hand at a kill. Workers and kills: see test_runs."""

from typing import Any

from tests.reports.cases.base import W1, W2, W3, W4, case, ended, told
from tests.reports.story import DEADLINE_S, END_S, HEALED_S, Story, srv_ms

# --- J13: nothing is stuck (jobs; workers and kills are in test_liveness) ------------------------------------------------


def listed_and_run(story: Story, job: str, state: str, due_ms: int, *, after_s: float, by: str = W3) -> None:
    """The snapshot at the deadline lists the job in this state, and a worker runs it so long after that."""
    story.at_deadline[state].append((job, due_ms))
    story.run(by, job, DEADLINE_S + after_s)


@case(("J13", "stuck waiting"))
def waiting_since_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 30)
    listed_and_run(story, job, "waiting", 0, after_s=2, by=W1)


@case(("J13", "stuck waiting"), ("J13", "left over"))
def waiting_since_it_was_given_back_before_the_last_heal(story: Story, job: str) -> None:
    story.end("release", story.leased(W1, job, 3), at=3.5)
    story.left("waiting", job, 0)


@case(("J13", "overdue"), ("J13", "left over"))
def overdue_since_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=srv_ms(HEALED_S - 1) - srv_ms(2))
    story.left("delayed", job, srv_ms(HEALED_S - 1))


@case(("J13", "stuck active"), ("J13", "left over"))
def active_long_after_its_lease_ended(story: Story, job: str) -> None:
    story.leased(W1, job, 30, enqueued=2)
    story.left("active", job, srv_ms(39))


@case(("J13", "stuck active"), ("J13", "left over"))
def active_for_ever_under_a_lease_that_is_renewed(story: Story, job: str) -> None:
    """A handler that never ends: the lease is alive at every look, and the job never done."""
    token = story.handled(W1, job, 35, enqueued=30, took=None)
    for at in range(38, int(END_S), 3):
        story.extend(token, at)
    story.at_deadline["active"].append((job, srv_ms(59)))
    story.at_end["active"].append((job, srv_ms(74)))


@case()
def active_under_a_claim_whose_reply_never_came(story: Story, job: str) -> None:
    """Released before the last heal with a delay that ends after it; who holds it now, no row says."""
    story.end("retry", story.handled(W1, job, 35, enqueued=30, took=0.1, end="fail"), at=35.2, delay_ms=400)
    story.claim(W1, job, 43, reply="info")
    listed_and_run(story, job, "active", srv_ms(52), after_s=2)


@case()
def active_because_it_was_claimed_after_the_last_heal(story: Story, job: str) -> None:
    token = story.leased(W1, job, HEALED_S + 6.5, enqueued=30)
    story.start(token, HEALED_S + 6.51, took=9)
    story.at_deadline["active"].append((job, srv_ms(HEALED_S + 15.5)))
    story.finish(token, DEADLINE_S + 0.04, effect=DEADLINE_S + 0.03)


@case(("J13", "stuck waiting"), ("J13", "left over"))
def waiting_though_its_enqueue_was_never_answered(story: Story, job: str) -> None:
    """It was created all the same: the snapshots list it. No copy of it was applied later than 10 s after its first send."""
    story.enqueue(job, 20, reply="info")
    story.left("waiting", job, 0)


@case()
def waiting_because_its_unanswered_enqueue_may_have_been_applied_after_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, HEALED_S - 9, reply="info")
    listed_and_run(story, job, "waiting", 0, after_s=0.01, by=W1)


@case(("J13", "left over"))
def enqueued_after_the_last_heal_and_never_run(story: Story, job: str) -> None:
    """It is not late at the deadline, but for ever."""
    story.enqueue(job, HEALED_S + 1)
    story.left("waiting", job, 0)


@case(("J13", "left over"))
def claimed_and_given_back_for_ever(story: Story, job: str) -> None:
    story.enqueue(job, HEALED_S + 1)
    for at in range(int(HEALED_S) + 2, int(END_S)):
        story.end("release", story.claim(W1, job, at), at=at + 0.5)
    story.at_end["waiting"].append((job, 0))


def delayed_for_an_hour(story: Story, job: str, delay_ms: int, handler: str = "fail", **more: Any) -> None:
    """As the snapshots say, after a retry with this delay."""
    ended(story, job, "retry", handler=handler, delay_ms=delay_ms, **more)
    story.left("delayed", job, srv_ms(3_603.1))


BY_RETRY, HOUR_MS = "delayed-at-the-end-by-the-long-delay-of-a-retry", 3_600_000
told(BY_RETRY, lambda story, job: delayed_for_an_hour(story, job, HOUR_MS))
told(f"{BY_RETRY}-without-an-answer", lambda story, job: delayed_for_an_hour(story, job, HOUR_MS, "ok", reply="info"))
LONGER = "delayed-at-the-end-for-longer-than-its-retry-asked-for"
told(LONGER, lambda story, job: delayed_for_an_hour(story, job, 100), ("J13", "left over"))


@case(("J13", "left over"))
def waiting_at_the_end_though_a_later_lease_made_the_delay_of_its_retry_history(story: Story, job: str) -> None:
    """The retry had no answer; the lease was reaped, so that it did not happen."""
    token = story.leased(W1, job, HEALED_S - 13, enqueued=HEALED_S - 14)
    story.start(token, HEALED_S - 12.9, took=0.05)
    story.end("retry", token, at=HEALED_S - 12.8, delay_ms=3_600_000, reply="info")
    story.reap(W4, token, HEALED_S - 3)
    story.end("release", story.claim(W4, job, HEALED_S + 1), at=HEALED_S + 1.1)
    story.at_end["waiting"].append((job, 0))


@case()
def waiting_at_the_end_because_it_was_enqueued_just_before(story: Story, job: str) -> None:
    story.enqueue(job, END_S - 14)
    story.at_end["waiting"].append((job, 0))


@case()
def waiting_since_a_retry_after_the_last_heal(story: Story, job: str) -> None:
    story.end("retry", story.handled(W1, job, 35, enqueued=30, took=0.1, end="fail"), at=35.2, delay_ms=16_000)
    listed_and_run(story, job, "waiting", 0, after_s=2)


@case()
def waiting_because_it_was_given_back_after_the_last_heal(story: Story, job: str) -> None:
    token = story.leased(W1, job, 35, enqueued=30)
    for at in (38, 41, 44, 47, 50):
        story.extend(token, at)
    story.end("release", token, at=51.4)
    listed_and_run(story, job, "waiting", 0, after_s=2)


@case()
def waiting_because_it_was_enqueued_at_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, HEALED_S - 0.001)
    listed_and_run(story, job, "waiting", 0, after_s=2, by=W1)


@case()
def delayed_and_not_due_before_the_last_heal(story: Story, job: str) -> None:
    story.enqueue(job, 30, delay_ms=21_000)
    listed_and_run(story, job, "delayed", srv_ms(51), after_s=0.2, by=W1)


@case()
def active_with_a_lease_that_just_ended(story: Story, job: str) -> None:
    story.leased(W1, job, 42, enqueued=40)
    listed_and_run(story, job, "active", srv_ms(51), after_s=0.4)


# --- J13: jobs in hand of worker-2, which is killed between 10.000 and 10.010 s, bound 11 s -------------------------------


@case(("J13", "late recovery"))
def in_hand_and_run_elsewhere_too_late(story: Story, job: str) -> None:
    story.leased(W2, job, 9.5, enqueued=9)
    story.run(W1, job, 21.1)


@case(("J13", "no recovery"), ("J13", "left over"))
def in_hand_and_never_run_again(story: Story, job: str) -> None:
    story.leased(W2, job, 9.5, enqueued=9)
    story.at_end["waiting"].append((job, 0))


@case(("J13", "no recovery"), ("J13", "left over"))
def in_hand_by_a_claim_whose_reply_never_came(story: Story, job: str) -> None:
    """Only the reap knows that the killed worker had it."""
    story.reap(W1, story.leased(W2, job, 9.5, enqueued=9, reply=None), 18.6)
    story.at_end["waiting"].append((job, 0))


@case()
def in_hand_and_buried_by_the_reap_as_poison(story: Story, job: str) -> None:
    """Rule 12: its last crash. It never runs again, and that is right."""
    story.reap(W3, story.handled(W1, job, 0.2, enqueued=0.1, took=None), 9.3)
    second = story.claim(W2, job, 9.5)
    story.start(second, 9.51)
    story.reap(W1, second, 18.6, crashes=2, result="buried")
    story.left("dead", job, srv_ms(18.6))


@case(("J4", "dead unburied"))
def in_hand_and_dead_since_the_reap_of_its_first_crash(story: Story, job: str) -> None:
    story.reap(W1, story.handled(W2, job, 9.5, enqueued=9, took=None), 18.6, left="dead")


@case()
def in_hand_by_a_claim_whose_reply_never_came_and_run_elsewhere(story: Story, job: str) -> None:
    story.reap(W1, story.leased(W2, job, 9.5, enqueued=9, reply=None), 18.6)
    story.run(W3, job, 18.7)


@case()
def ended_by_a_call_that_the_killed_worker_saw_no_answer_of(story: Story, job: str) -> None:
    """Rule 37: it was sent, and the job never ran again, so it had happened."""
    story.finish(story.leased(W2, job, 9.5, enqueued=9), 9.99, effect=9.6, reply=None)
    story.at_end["done"].append((job, srv_ms(9.995)))


@case(("J13", "no recovery"), ("J13", "left over"))
def not_ended_by_a_call_of_the_killed_worker_that_left_its_lease_to_be_reaped(story: Story, job: str) -> None:
    token = story.handled(W2, job, 9.5, enqueued=9, took=None)
    story.end("finish", token, at=9.99, reply=None)
    story.reap(W1, token, 18.6)
    story.at_end["waiting"].append((job, 0))


@case()
def lost_by_the_worker_before_it_was_killed(story: Story, job: str) -> None:
    story.reap(W1, story.leased(W2, job, 0.2, enqueued=0.1), 9.3)
    story.run(W1, job, 9.4)


@case(("J13", "left over"))
def lost_by_the_worker_before_it_was_killed_and_not_run_since(story: Story, job: str) -> None:
    """Wrong if it stays so, but not for the kill: the other rules of J13 are about it."""
    story.enqueue(job, 0.1)
    story.reap(W1, story.claim(W2, job, 0.2), 9.3)
    story.at_end["waiting"].append((job, 0))


told("ended-by-the-worker-before-it-was-killed", lambda story, job: story.life(W2, job, 9))
