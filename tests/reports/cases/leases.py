"""Cases of J1 (no two workers hold a job at once) and J3 (no stale call is accepted)."""

from typing import Any

from tests.reports.cases.base import W1, W2, W3, case, ended, told
from tests.reports.story import Story, Token, srv_ms

OVERLAP, EARLY_REAP = ("J1", "overlap"), ("J1", "early reap")
STALE_END, AFTER_END = ("J3", "stale end"), ("J3", "call after end")

# --- J1: no two workers hold a job at once -------------------------------------------------------------------------------


def run_besides(story: Story, job: str, at: float, **claim: Any) -> None:
    """worker-1 claims the job at 3 s, and worker-3 runs it at this time."""
    story.leased(W1, job, 3, **claim)
    story.run(W3, job, at)


def run_besides_extended(story: Story, job: str, at: float, **extend: Any) -> None:
    """The same, and worker-1 extends its lease at 6 s."""
    story.extend(story.leased(W1, job, 3), 6, **extend)
    story.run(W3, job, at)


def run_after_reap(story: Story, job: str, reaped: float, at: float, *, of: str = W1, lost: bool = False) -> None:
    """A worker has the job in hand at 3 s; worker-3 reaps that lease, and runs the job."""
    story.reap(W3, story.leased(of, job, 3), reaped, lost=lost)
    story.run(W3, job, at)


told("second-claim-while-first-is-held", lambda story, job: run_besides(story, job, 5), OVERLAP)
told("second-claim-inside-an-extended-lease", lambda story, job: run_besides_extended(story, job, 12.5), OVERLAP)


@case(OVERLAP, OVERLAP)
def third_claim_while_the_first_is_held_and_the_second_is_over(story: Story, job: str) -> None:
    story.leased(W1, job, 3)
    story.end("release", story.claim(W3, job, 4), at=5)
    story.run(W1, job, 6)


REFUSED = "a-refused-extend-prolongs-nothing-but-the-lease-goes-on"
told(REFUSED, lambda story, job: run_besides_extended(story, job, 11.9, result="stale"), OVERLAP)
told("an-unanswered-extend-prolongs-nothing", lambda story, job: run_besides_extended(story, job, 12.1, reply=None))
told("second-claim-after-the-lease-ended", lambda story, job: run_besides(story, job, 12.001))


@case(OVERLAP)
def second_claim_though_the_end_of_the_first_lease_was_refused(story: Story, job: str) -> None:
    ended(story, job, "finish", handler="ok", result="stale", again=3.2)


@case(OVERLAP)
def second_claim_though_the_end_of_the_first_lease_failed(story: Story, job: str) -> None:
    """It failed: no copy of it was or will be applied."""
    ended(story, job, "finish", handler="ok", reply="fail", again=3.2)


@case(EARLY_REAP)
def second_claim_after_the_reap_though_the_lease_had_time_left(story: Story, job: str) -> None:
    """By more than what the clocks may be apart, which is 50 ms."""
    run_after_reap(story, job, 11.9485, 11.96)


@case(EARLY_REAP)
def reaped_while_an_extend_prolonged_its_lease(story: Story, job: str) -> None:
    first = story.leased(W1, job, 3)
    story.extend(first, 6)
    story.reap(W3, first, 13)
    story.run(W3, job, 13.1)


@case()
def reaped_after_the_lease_and_its_extend_that_was_refused(story: Story, job: str) -> None:
    first = story.leased(W1, job, 3)
    story.extend(first, 6, result="stale")
    story.reap(W3, first, 12.1)
    story.run(W3, job, 12.2)


told("reaped-at-the-very-end-of-its-lease", lambda story, job: run_after_reap(story, job, 11.949, 12.1))


@case()
def reaped_early_because_the_connection_of_a_killed_worker_was_gone(story: Story, job: str) -> None:
    story.reap(W1, story.handled(W2, job, 9.95, enqueued=9.9, took=None), 11, lost=True)
    story.run(W1, job, 11.1)


@case(EARLY_REAP)
def reaped_early_because_the_connection_of_a_worker_was_gone_that_lived_on(story: Story, job: str) -> None:
    run_after_reap(story, job, 5, 5.01, lost=True)


@case(EARLY_REAP)
def reaped_early_because_a_connection_was_gone_long_before_the_kill_of_its_worker(story: Story, job: str) -> None:
    run_after_reap(story, job, 5, 5.01, of=W2, lost=True)


@case(EARLY_REAP)
def reaped_early_by_a_plain_sweep_from_a_killed_worker(story: Story, job: str) -> None:
    story.reap(W1, story.handled(W2, job, 9.95, enqueued=9.9, took=None), 11)
    story.run(W1, job, 11.1)


@case()
def second_claim_after_a_release_that_was_not_answered(story: Story, job: str) -> None:
    story.end("release", story.leased(W1, job, 3), at=4, reply=None)
    story.run(W3, job, 4.5)


NEVER_HELD = "a-lease-that-ends-before-its-claim-is-answered-is-never-held"
told(NEVER_HELD, lambda story, job: run_besides(story, job, 14.99, took=12))


@case()
def a_claim_answered_by_a_later_call_has_only_the_rest_of_its_lease(story: Story, job: str) -> None:
    """Rule 4: the claim of second 3 was never answered; sent again as another call, it is repeated with a second left."""
    unseen = story.leased(W1, job, 3, reply="info")
    late = story.claim(W1, job, 11, fence=unseen.fence, nonce=unseen.nonce, deadline_ms=srv_ms(12), srv_us=srv_ms(11) * 1_000)
    story.start(late, 11.01)
    story.run(W3, job, 12.2)


# --- J3: no stale finish is accepted -------------------------------------------------------------------------------------


def taken_over(story: Story, job: str, *, end: str = "ok") -> Token:
    """A job of worker-3 whose lease ends before its handler does; worker-1 claims it at 13.0 s and finishes it at 13.5 s.

    `end`: the zombie's handler returns (`ok`) or raises (`fail`). Returns the zombie.
    """
    zombie = story.handled(W3, job, 3, took=10, end=end)
    story.reap(W1, zombie, 12.5)
    story.finish(story.claim(W1, job, 13), 13.5, start=13.01, took=0.44, effect=13.45)
    return zombie


def zombies_finish(story: Story, job: str, **finish: Any) -> None:
    """Its lease was reaped and worker-1 has run the job, when worker-3 finishes it."""
    zombie = story.handled(W3, job, 3, took=10.5)
    story.reap(W1, zombie, 12.5)
    story.run(W1, job, 12.6)
    story.finish(zombie, 13.7, effect=13.6, **finish)


told("the-zombies-finish-is-accepted", zombies_finish, ("J3", "stale"), ("J6", "doubled"))
told("the-zombies-finish-is-refused", lambda story, job: zombies_finish(story, job, result="stale"))


@case(("J3", "stale"))
def the_zombies_finish_is_accepted_and_the_owners_refused(story: Story, job: str) -> None:
    zombie = story.leased(W3, job, 3)
    story.effect(zombie, 13.1)
    owner = story.claim(W1, job, 13)
    story.start(zombie, 13.15, took=0.04)
    story.end("finish", zombie, at=13.2)
    story.end("finish", owner, at=13.5, result="stale")


@case(("J3", "stale"), ("J2", "equal fences"))
def equal_fences_with_different_nonces_are_two_leases(story: Story, job: str) -> None:
    """Rule 33: the fence alone does not tell the zombie from the owner."""
    zombie, owner = story.leased(W3, job, 3, fence=77), story.claim(W1, job, 13, fence=77)
    story.finish(zombie, 13.5, start=13.45, took=0.04, effect=13.3)
    story.end("finish", owner, at=13.6, result="stale")


@case(("J3", "stale"))
def one_stale_token_accepted_inside_a_batch(story: Story, job: str) -> None:
    """Rule 33: a batch has a result per job; here one of two must have been refused."""
    stale, other = story.leased(W3, job, 3), "batch-mate-of-" + job
    story.enqueue(other, 2)
    owner, good = story.claim(W1, job, 13), story.claim(W3, other, 13.05)
    story.effect(stale, 13.1)
    story.effect(good, 13.1)
    story.start(stale, 13.15, took=0.04)
    story.start(good, 13.15, took=0.04)
    story.end("finish", stale, good, at=13.2)
    story.end("finish", owner, at=13.5, result="stale")


@case(STALE_END)
def the_zombies_retry_is_accepted(story: Story, job: str) -> None:
    story.end("retry", taken_over(story, job, end="fail"), at=13.2, delay_ms=100)


told("the-zombies-bury-is-accepted", lambda story, job: story.end("bury", taken_over(story, job, end="fail"), at=13.2), STALE_END)


told("the-zombies-release-is-accepted", lambda story, job: story.end("release", taken_over(story, job), at=13.2), STALE_END)


# It would start a handler for a job that another worker has finished.
told("the-zombies-mark-is-accepted", lambda story, job: story.mark(taken_over(story, job), 13.2), STALE_END)


told("the-zombies-extend-is-accepted", lambda story, job: story.extend(taken_over(story, job), 13.2), ("J3", "stale extend"))


@case(("J3", "stale"))
def a_finish_is_accepted_after_the_reap(story: Story, job: str) -> None:
    """Nobody claimed the job in between: the lease is over all the same."""
    token = story.handled(W3, job, 3, took=10)
    story.reap(W1, token, 12.5)
    story.finish(token, 13.1, effect=13.01)


@case(("J3", "stale extend"))
def an_extend_is_accepted_after_the_reap(story: Story, job: str) -> None:
    token = story.leased(W3, job, 3)
    story.reap(W1, token, 12.5)
    story.extend(token, 13)
    story.end("finish", token, at=13.1, result="stale")
    story.run(W1, job, 23)


@case(("J3", "finish after end"))
def a_finish_is_accepted_after_the_release_of_its_lease(story: Story, job: str) -> None:
    token = story.handled(W1, job, 3)
    story.effect(token, 3.05)
    story.end("release", token, at=3.1)
    story.end("finish", token, at=3.2)


@case(AFTER_END, ("J20", "given up though done"))
def a_retry_is_accepted_after_the_finish_of_its_lease(story: Story, job: str) -> None:
    story.end("retry", story.life(W1, job, 2), at=3, delay_ms=100)


told("an-extend-is-accepted-after-the-finish-of-its-lease", lambda story, job: story.extend(story.life(W1, job, 2), 3), AFTER_END)


@case(AFTER_END)
def a_mark_is_accepted_after_the_release_of_its_lease(story: Story, job: str) -> None:
    token = story.leased(W1, job, 3)
    story.end("release", token, at=3.1)
    story.mark(token, 3.2)
    story.run(W3, job, 4)


# Both were sent before the finish was answered; the extend was the first to be applied.
told("calls-that-crossed-the-finish-of-their-lease", lambda story, job: story.extend(story.life(W1, job, 2), 2.0695))


@case()
def the_zombies_other_calls_are_refused_or_repeated(story: Story, job: str) -> None:
    zombie = taken_over(story, job)
    story.extend(zombie, 13.2, result="stale")
    story.end("retry", zombie, at=13.3, result="repeated", delay_ms=100)
    story.end("bury", zombie, at=13.4, result="stale")
    story.mark(zombie, 13.5, result="stale")


@case()
def a_retry_sent_as_the_newer_claim_was_answered_is_not_definitely_stale(story: Story, job: str) -> None:
    first = story.leased(W3, job, 3)
    story.start(first, 3.1, took=9, end="fail")
    story.extend(first, 4)
    owner = story.claim(W1, job, 13.01, took=0.1)
    story.end("retry", first, at=13.11, delay_ms=0)
    story.finish(owner, 13.5, start=13.45, took=0.04, effect=13.3)


@case()
def accepted_finish_after_the_deadline_but_before_the_reap(story: Story, job: str) -> None:
    """Rules 11 and 32: a lease ends when it is reaped."""
    story.finish(story.leased(W3, job, 3), 15.1, start=15.05, took=0.04, effect=15)


@case()
def a_finish_sent_as_the_newer_claim_was_answered_is_not_definitely_stale(story: Story, job: str) -> None:
    first = story.leased(W3, job, 3)
    story.effect(first, 12.9)
    owner = story.claim(W1, job, 12.99, took=0.1)
    story.start(first, 13, took=0.04)
    story.end("finish", first, at=13.09)
    story.end("finish", owner, at=13.5, result="stale")


# Rule 32: the reap comes seconds after the lease ended, the next claim later still.
told("reaped-late-and-run-elsewhere", lambda story, job: run_after_reap(story, job, 17, 18))


@case()
def gaps_between_the_fences_of_attempts(story: Story, job: str) -> None:
    """Rule 32: releases and unanswered claims leave gaps."""
    story.end("release", story.leased(W1, job, 3, fence=10), at=3.1)
    story.claim(W3, job, 3.2, reply=None)
    second = story.claim(W1, job, 13, fence=500)
    story.start(second, 13.01, took=0.1, end="fail")
    story.end("retry", second, at=13.2, delay_ms=1_000)
    story.run(W3, job, 14.4, fence=9_000)
