"""Cases of J7: attempts, waits and counters."""

from typing import Any

from tests.reports.cases.base import W1, W3, case, told
from tests.reports.story import Story, Token

#: What an enqueue says of its retries, and a claim repeats.
POLICY: dict[str, Any] = {"attempts": 2, "backoff": "exponential", "backoff_least_ms": 200}


def runs(story: Story, job: str, *counters: tuple[int, int], delays_ms: Any = (300, 500), ended: Any = (), **policy: Any) -> None:
    """A job whose runs fail, one after the other, each with these counts of failed runs and crashes in its claim."""
    story.enqueue(job, 2, **(POLICY | policy))
    at = 3.0
    for number, (failures, crashes) in enumerate(counters):
        counted = {"claims": number + 1, "failures": failures, "crashes": crashes}
        token = story.claim(W1, job, at, told=POLICY | policy | counted)
        story.start(token, at + 0.01, took=0.05, end="fail")
        story.end("retry", token, at=at + 0.1, delay_ms=delays_ms[number], **dict(ended))
        at += 1.0


def then_finished(story: Story, job: str, at: float, claims: int, failures: int, crashes: int = 0, **policy: Any) -> None:
    """Its last run, which returns."""
    story.run(W3, job, at, told={"claims": claims, "failures": failures, "crashes": crashes, **POLICY, **policy})


def first(story: Story, job: str) -> Token:
    """Its first claim, before anything counts."""
    story.enqueue(job, 2, **POLICY)
    return story.claim(W1, job, 3, told=POLICY | {"claims": 1, "failures": 0, "crashes": 0})


def failed_once(story: Story, job: str, *counted: int, delay_ms: int = 300, **ended: Any) -> None:
    """A run that fails, and one that returns, whose claim has these counts."""
    runs(story, job, (0, 0), delays_ms=(delay_ms,), ended=ended)
    then_finished(story, job, 4.0, *counted)


told("failed-once-and-finished", lambda story, job: failed_once(story, job, 2, 1))


@case(("J7", "run too often"))
def claimed_after_its_last_attempt(story: Story, job: str) -> None:
    runs(story, job, (0, 0), (1, 0))
    then_finished(story, job, 5.0, 3, 2)


def buried(story: Story, token: Token, at: float) -> None:
    """By the retry after a run that failed."""
    story.start(token, at + 0.01, took=0.05, end="fail")
    story.end("retry", token, at=at + 0.1, outcome="buried", delay_ms=300)
    story.at_end["dead"].append((token.job, 0))


TOO_SOON = ("J7", "buried too soon")
told("buried-by-a-failed-run-with-attempts-left", lambda story, job: buried(story, first(story, job), 3.0), TOO_SOON)


@case()
def buried_by_its_last_failed_run(story: Story, job: str) -> None:
    runs(story, job, (0, 0))
    buried(story, story.claim(W1, job, 4, told=POLICY | {"claims": 2, "failures": 1, "crashes": 0}), 4.0)


@case(("J7", "attempts changed"))
def claimed_with_more_attempts_than_it_was_enqueued_with(story: Story, job: str) -> None:
    story.enqueue(job, 2, **POLICY)
    then_finished(story, job, 3.0, 1, 0, attempts=3)


MISCOUNTED = ("J7", "failures miscounted")
told("a-failed-run-that-is-not-counted", lambda story, job: failed_once(story, job, 2, 0), MISCOUNTED)
told("an-uncharged-retry-that-is-not-counted", lambda story, job: failed_once(story, job, 2, 0, charge=0))
told("an-uncharged-retry-that-is-counted", lambda story, job: failed_once(story, job, 2, 1, charge=0), MISCOUNTED)


@case(MISCOUNTED)
def a_release_that_is_counted_as_a_failed_run(story: Story, job: str) -> None:
    story.end("release", first(story, job), at=3.1)
    then_finished(story, job, 4.0, 2, 1)


told("counters-after-claims-that-nobody-saw", lambda story, job: failed_once(story, job, 4, 1, 2))


def crashed(story: Story, job: str, counted: int) -> None:
    """Once, which the claim of its last run has so often."""
    token = first(story, job)
    story.start(token, 3.01)
    story.reap(W3, token, 12.1)
    then_finished(story, job, 12.2, 2, 0, counted)


told("a-crash-that-is-not-counted", lambda story, job: crashed(story, job, 0), ("J7", "crashes miscounted"))
told("a-crash-that-is-counted", lambda story, job: crashed(story, job, 1))
SHORT = ("J7", "back-off too short")
told("a-first-wait-shorter-than-its-back-off", lambda story, job: failed_once(story, job, 2, 1, delay_ms=199), SHORT)


def failed_twice(story: Story, job: str, second_ms: int) -> None:
    """With these waits between its runs."""
    runs(story, job, (0, 0), (1, 0), delays_ms=(200, second_ms), attempts=9)
    then_finished(story, job, 5.0, 3, 2, attempts=9)


told("a-second-wait-that-has-not-grown", lambda story, job: failed_twice(story, job, 399), SHORT)
told("waits-that-grow-as-its-back-off-says", lambda story, job: failed_twice(story, job, 400))
