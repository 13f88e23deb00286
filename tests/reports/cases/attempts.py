"""Cases of J7: attempts, waits and counters."""

from typing import Any

from tests.reports.cases.base import W1, W3, case
from tests.reports.story import Story

#: What an enqueue says of its retries, and a claim repeats.
POLICY: dict[str, Any] = {"attempts": 2, "backoff": "exponential", "backoff_least_ms": 200}


def runs(story: Story, job: str, *counters: tuple[int, int], delays_ms: tuple[int, ...] = (300, 500), **policy: Any) -> None:
    """A job whose runs fail, one after the other, each with these counts of failed runs and crashes in its claim."""
    story.enqueue(job, 2, **(POLICY | policy))
    at = 3.0
    for number, (failures, crashes) in enumerate(counters):
        counted = {"claims": number + 1, "failures": failures, "crashes": crashes}
        token = story.claim(W1, job, at, told=POLICY | policy | counted)
        story.start(token, at + 0.01, took=0.05, end="fail")
        story.end("retry", token, at=at + 0.1, delay_ms=delays_ms[number])
        at += 1.0


def then_finished(story: Story, job: str, at: float, **told: Any) -> None:
    """Its last run, which returns."""
    story.run(W3, job, at, told=told)


@case()
def failed_once_and_finished(story: Story, job: str) -> None:
    runs(story, job, (0, 0))
    then_finished(story, job, 4.0, claims=2, failures=1, crashes=0, **POLICY)


@case(("J7", "run too often"))
def claimed_after_its_last_attempt(story: Story, job: str) -> None:
    runs(story, job, (0, 0), (1, 0))
    then_finished(story, job, 5.0, claims=3, failures=2, crashes=0, **POLICY)


@case(("J7", "buried too soon"))
def buried_by_a_failed_run_with_attempts_left(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    token = story.claim(W1, job, 3, told=POLICY | {"claims": 1, "failures": 0, "crashes": 0})
    story.start(token, 3.01, took=0.05, end="fail")
    story.end("retry", token, at=3.1, outcome="buried", delay_ms=300)
    story.at_end["dead"].append((job, 0))


@case()
def buried_by_its_last_failed_run(story: Story, job: str) -> None:
    runs(story, job, (0, 0))
    token = story.claim(W1, job, 4, told=POLICY | {"claims": 2, "failures": 1, "crashes": 0})
    story.start(token, 4.01, took=0.05, end="fail")
    story.end("retry", token, at=4.1, outcome="buried", delay_ms=300)
    story.at_end["dead"].append((job, 0))


@case(("J7", "attempts changed"))
def claimed_with_more_attempts_than_it_was_enqueued_with(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    then_finished(story, job, 3.0, claims=1, failures=0, crashes=0, **(POLICY | {"attempts": 3}))


@case(("J7", "failures miscounted"))
def a_failed_run_that_is_not_counted(story: Story, job: str) -> None:
    runs(story, job, (0, 0))
    then_finished(story, job, 4.0, claims=2, failures=0, crashes=0, **POLICY)


@case(("J7", "failures miscounted"))
def a_release_that_is_counted_as_a_failed_run(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    story.end("release", story.claim(W1, job, 3, told=POLICY | {"claims": 1, "failures": 0, "crashes": 0}), at=3.1)
    then_finished(story, job, 4.0, claims=2, failures=1, crashes=0, **POLICY)


@case()
def counters_after_claims_that_nobody_saw(story: Story, job: str) -> None:
    runs(story, job, (0, 0))
    then_finished(story, job, 4.0, claims=4, failures=1, crashes=2, **POLICY)


@case(("J7", "crashes miscounted"))
def a_crash_that_is_not_counted(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    token = story.claim(W1, job, 3, told=POLICY | {"claims": 1, "failures": 0, "crashes": 0})
    story.start(token, 3.01)
    story.reap(W3, token, 12.1, crashes=1)
    then_finished(story, job, 12.2, claims=2, failures=0, crashes=0, **POLICY)


@case()
def a_crash_that_is_counted(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    token = story.claim(W1, job, 3, told=POLICY | {"claims": 1, "failures": 0, "crashes": 0})
    story.start(token, 3.01)
    story.reap(W3, token, 12.1, crashes=1)
    then_finished(story, job, 12.2, claims=2, failures=0, crashes=1, **POLICY)


@case(("J7", "back-off too short"))
def a_first_wait_shorter_than_its_back_off(story: Story, job: str) -> None:
    runs(story, job, (0, 0), delays_ms=(199,))
    then_finished(story, job, 4.0, claims=2, failures=1, crashes=0, **POLICY)


@case(("J7", "back-off too short"))
def a_second_wait_that_has_not_grown(story: Story, job: str) -> None:
    runs(story, job, (0, 0), (1, 0), delays_ms=(200, 399), attempts=9)
    then_finished(story, job, 5.0, claims=3, failures=2, crashes=0, **(POLICY | {"attempts": 9}))


@case()
def waits_that_grow_as_its_back_off_says(story: Story, job: str) -> None:
    runs(story, job, (0, 0), (1, 0), delays_ms=(200, 400), attempts=9)
    then_finished(story, job, 5.0, claims=3, failures=2, crashes=0, **(POLICY | {"attempts": 9}))
