"""Cases of J11 (rates hold). Each has a limit of its own: of a name that is called as the case, 3 claims in 1,000 ms."""

from typing import Any

from tests.reports.cases.base import W1, W3
from tests.reports.cases.base import case_in_scenario as case
from tests.reports.cases.base import told_in_scenario as told
from tests.reports.story import Story, Token, srv_ms

EXCEEDED = ("J11", "rate exceeded")

#: The limit of a case, and of those whose windows are fixed.
RATE = {"rate": 3, "per_ms": 1_000}
FIXED = {**RATE, "window": "fixed"}


def claimed(story: Story, job: str, number: int, at: float, **more: Any) -> Token:
    """A claim of a job of the name of the case."""
    one = f"{job}-{number}"
    story.enqueue(one, at - 0.3)
    return story.claim(W1, one, at, told={"class": job, "lane": job, "claims": 1}, **more)


def ran(story: Story, job: str, *times: float) -> None:
    """Jobs that are claimed at these times, handled and finished."""
    for number, at in enumerate(times):
        finished(story, claimed(story, job, number, at), at)


def finished(story: Story, token: Token, at: float) -> None:
    """The rest of a job that went well."""
    story.start(token, at + 0.002, took=0.01)
    story.effect(token, at + 0.012, result_crc=7)
    story.end("finish", token, at=at + 0.02, result_crc=7)


told("as-many-claims-as-the-rate-allows", lambda story, job: ran(story, job, 45.0, 45.2, 45.4, 46.0, 46.2, 46.4))


told("one-claim-too-many", lambda story, job: ran(story, job, 45.0, 45.2, 45.4, 45.99), EXCEEDED)


told("one-claim-too-many-in-a-window-that-slides", lambda story, job: ran(story, job, 45.8, 45.9, 45.95, 46.5), EXCEEDED)


told("fixed-windows-that-are-both-full-at-their-border", lambda story, job: ran(story, job, 45.8, 45.9, 45.95, 46.0, 46.05, 46.1))


told("fixed-window-with-one-claim-too-many", lambda story, job: ran(story, job, 45.0, 45.2, 45.4, 45.9), EXCEEDED)


@case()
def a_claim_that_is_delivered_again_counts_once(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2)
    token = claimed(story, job, 9, 45.4)
    for at in (45.5, 45.6):
        told = {"class": job, "lane": job, "claims": 1}
        story.claim(W1, token.job, at, fence=token.fence, nonce=token.nonce, told=told, result="repeated")
    finished(story, token, 45.7)


@case()
def a_claim_whose_own_time_nobody_knows(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2, 45.4)
    finished(story, claimed(story, job, 9, 45.9, result="repeated"), 45.91)


@case()
def a_lease_that_is_given_back_unstarted(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2)
    story.end("release", claimed(story, job, 8, 45.3), at=45.35)
    finished(story, claimed(story, job, 9, 45.4), 45.4)


@case(EXCEEDED)
def a_lease_that_is_retried_keeps_its_place(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2)
    token = claimed(story, job, 8, 45.3)
    story.start(token, 45.31, took=0.01, end="fail")
    story.end("retry", token, at=45.35, delay_ms=0)
    finished(story, story.claim(W3, token.job, 45.4, told={"class": job, "lane": job, "claims": 2}), 45.4)


@case()
def a_slow_answer_leaves_open_when_the_claim_was(story: Story, job: str) -> None:
    finished(story, claimed(story, job, 9, 44.5, took=1.0), 45.6)
    ran(story, job, 45.0, 45.2, 45.4)


@case()
def the_clock_of_the_server_goes_back(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2, 45.4)
    finished(story, claimed(story, job, 9, 47.0, srv_us=srv_ms(45.6) * 1_000), 47.0)


@case()
def jobs_of_another_name(story: Story, job: str) -> None:
    ran(story, job, 45.0, 45.2, 45.4)
    ran(story, f"{job}-other", 45.5, 45.6)
