"""Cases of J2 (fences rise, tokens are unique), J8 (no job is claimed before it is due) and J16 (payloads stay with their jobs).

A lease whose fence fell is stale as soon as it has it, so that J3 is in the closure of J2.
"""

from tests.reports.cases.base import W1, W3, case, ended, run_once, told
from tests.reports.story import Story, srv_ms

EARLY = ("J8", "early")

# --- J2: fences rise and tokens are unique -------------------------------------------------------------------------------


def third_fence(story: Story, job: str, second: int, third: int) -> None:
    """Two leases are given back, the first one of fence 500, and the third one is finished."""
    story.end("release", story.leased(W1, job, 3, fence=500), at=3.1)
    story.end("release", story.claim(W3, job, 4, fence=second), at=4.1)
    story.run(W1, job, 5, fence=third)


FELL = ("J2", "fence fell")
told("a-fence-below-that-of-the-lease-before", lambda story, job: third_fence(story, job, 499, 501), FELL, ("J3", "stale end"))
# The one in between is smaller than both: it is the only one that fell.
LONG_OVER = "a-fence-below-that-of-a-lease-that-is-long-over"
told(LONG_OVER, lambda story, job: third_fence(story, job, 600, 550), FELL, ("J3", "stale"))


@case(("J2", "equal fences"), ("J3", "stale"))
def two_leases_with_one_fence(story: Story, job: str) -> None:
    """Rule 33: compare the whole token."""
    story.end("release", story.leased(W1, job, 3, fence=500), at=3.1)
    story.run(W3, job, 4, fence=500)


@case(("J2", "token twice"))
def one_token_by_two_claims(story: Story, job: str) -> None:
    first = story.leased(W1, job, 3)
    story.finish(story.claim(W1, job, 3.2, fence=first.fence, nonce=first.nonce), 3.4, start=3.35, took=0.04, effect=3.3)


@case(("J2", "token twice"))
def one_token_to_two_workers(story: Story, job: str) -> None:
    first = story.leased(W1, job, 3)
    story.claim(W3, job, 3.2, fence=first.fence, nonce=first.nonce, result="repeated")
    story.finish(first, 3.4, start=3.35, took=0.04, effect=3.3)


@case()
def one_token_by_a_claim_and_its_repeat(story: Story, job: str) -> None:
    """Rule 4: a repeat returns what the first one returned."""
    first = story.leased(W1, job, 3)
    again = story.claim(W1, job, 3.2, fence=first.fence, nonce=first.nonce, result="repeated")
    story.finish(again, 3.4, start=3.35, took=0.04, effect=3.3)


@case()
def claims_that_overlap_may_be_answered_in_any_order(story: Story, job: str) -> None:
    """The one with the greater fence was still under way when the other was answered: nothing says which came first."""
    story.leased(W1, job, 3, fence=501, took=12)
    story.finish(story.claim(W3, job, 13, fence=500), 13.3, start=13.25, took=0.04, effect=13.2)


# --- J8: no job is claimed before it is due ------------------------------------------------------------------------------


@case(EARLY)
def claimed_before_the_due_time_that_its_claim_states(story: Story, job: str) -> None:
    story.run(W1, job, 3, enqueued=2, told={"due_ms": srv_ms(3.001)})


@case(EARLY)
def claimed_before_the_delay_of_its_enqueue_was_over(story: Story, job: str) -> None:
    """The claim says nothing of a delay."""
    story.enqueue(job, 2, delay_ms=1_001)
    story.run(W1, job, 3, told={"due_ms": 0})


@case(EARLY)
def claimed_before_the_delay_of_its_retry_was_over(story: Story, job: str) -> None:
    ended(story, job, "retry", handler="fail", delay_ms=500, again=3.599)


@case(EARLY)
def claimed_early_by_the_servers_clock_though_late_by_ours(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=1_000)
    story.run(W1, job, 4, srv_us=srv_ms(3) * 1_000 - 1, deadline_ms=srv_ms(12))


@case(("J8", "no server time", "unknown"))
def claimed_without_a_server_time(story: Story, job: str) -> None:
    story.run(W1, job, 3, enqueued=2, srv_us=None)


@case()
def claimed_when_it_was_due_to_the_millisecond(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=1_000)
    first = story.claim(W1, job, 3)
    story.start(first, 3.01, took=0.05, end="fail")
    story.end("retry", first, at=3.1, delay_ms=500)
    story.run(W3, job, 3.6)


@case()
def claimed_again_at_once_after_a_release(story: Story, job: str) -> None:
    """Its retry was longer ago than its delay; a release asks for none."""
    ended(story, job, "retry", handler="fail", delay_ms=500)
    story.end("release", story.claim(W3, job, 3.6), at=3.61)
    story.run(W1, job, 3.62)


@case()
def claimed_after_a_retry_that_was_never_answered(story: Story, job: str) -> None:
    """It may not have happened: the lease ran out instead."""
    first = story.handled(W1, job, 3)
    story.end("retry", first, at=3.1, delay_ms=60_000, reply="info")
    story.reap(W3, first, 12.1)
    story.run(W3, job, 12.2)


@case()
def claimed_after_a_retry_whose_answer_is_a_repeat(story: Story, job: str) -> None:
    """The repeat came two seconds after the retry that put the job back: the delay counts from that one."""
    story.end("retry", story.handled(W1, job, 3), at=5, delay_ms=500, result="repeated")
    story.run(W3, job, 5.2)


@case()
def claimed_though_its_last_retry_buried_it_before_it_was_requeued(story: Story, job: str) -> None:
    """A delay counts for a job that was put back, not for one that was buried."""
    ended(story, job, "retry", handler="fail", delay_ms=60_000, outcome="buried", again=5)


# --- J16: payloads stay with their jobs ----------------------------------------------------------------------------------


@case(("J16", "handled changed"))
def handled_with_the_payload_of_another(story: Story, job: str) -> None:
    """Rule 33: payloads that were swapped."""
    token = story.handled(W1, job, 3)
    story.effect(token, 3.05, crc=4711)
    story.end("finish", token, at=3.1)


CHANGED = ("J16", "claimed changed"), ("J16", "handled changed")
told("claimed-and-handled-with-another-payload", lambda story, job: run_once(story, job, crc=4711), *CHANGED)


@case(("J16", "claimed changed"))
def claimed_with_another_payload_the_second_time(story: Story, job: str) -> None:
    ended(story, job, "release")
    story.run(W3, job, 4, told={"crc": 2**32 - 1})


@case(*CHANGED)
def run_with_a_payload_between_the_two_that_it_was_enqueued_with(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="info", crc=1)
    story.enqueue(job, 2.5, crc=2**32 - 1)
    story.run(W1, job, 3)


@case()
def run_with_either_of_the_payloads_that_it_was_enqueued_with(story: Story, job: str) -> None:
    story.enqueue(job, 2, reply="info", crc=1)
    story.run(W1, job, 3, enqueued=2.5)


@case(("J16", "unsummed", "unknown"))
def handled_without_a_sum_of_its_payload(story: Story, job: str) -> None:
    story.run(W1, job, 3, enqueued=2, told={"crc": None})


@case(("J16", "corrupt", "possible"))
def found_corrupt_by_a_claim(story: Story, job: str) -> None:
    """Rule 17: buried inside the claim. Nobody can start it, and nobody else has to say who buried it."""
    story.enqueue(job, 2)
    story.operation(W1, "claim", 3, [{"job": job, "result": "corrupt"}], lease_ms=9_000)
    story.at_end["dead"].append((job, srv_ms(3)))


@case(("J16", "corrupt", "possible"))
def found_corrupt_by_a_promote(story: Story, job: str) -> None:
    story.enqueue(job, 2, delay_ms=1_000)
    story.operation(W1, "promote", 3, [{"job": job, "result": "corrupt"}])
    story.at_end["dead"].append((job, srv_ms(3)))


@case(("J16", "corrupt", "possible"))
def found_corrupt_by_a_reap(story: Story, job: str) -> None:
    token = story.leased(W1, job, 3)
    story.operation(W3, "reap", 12.1, [{"job": job, "result": "corrupt"}])
    story.at_end["dead"].append((job, srv_ms(12.1)))
    story.end("finish", token, at=12.2, result="stale")


@case(("J16", "handled changed"))
def handled_with_a_payload_that_was_refused(story: Story, job: str) -> None:
    story.enqueue(job, 2)
    story.enqueue(job, 2.5, result="duplicate", crc=4711)
    token = story.claim(W1, job, 3)
    story.effect(token, 3.05, crc=4711)
    story.start(token, 3.05, took=0.04)
    story.end("finish", token, at=3.1)


@case()
def enqueued_again_with_another_payload_and_refused(story: Story, job: str) -> None:
    story.life(W1, job, 2)
    story.enqueue(job, 5, result="duplicate", crc=4711)


@case()
def a_failed_enqueue_with_another_payload(story: Story, job: str) -> None:
    story.enqueue(job, 1, reply="fail", crc=4711)
    story.life(W1, job, 2)
