"""Cases of J14 (unique keys keep others out). Each has a key of its own, which is called as the case."""

from tests.reports.cases.base import W1, W3
from tests.reports.cases.base import case_in_scenario as case
from tests.reports.story import Story, Token


def held(story: Story, job: str) -> Token:
    """A job that has the key of the case, in hand of a worker from 42.0 s on."""
    story.enqueue(f"{job}-holder", 41.9, unique=job)
    return story.claim(W3, f"{job}-holder", 42.0)


@case()
def job_that_a_key_keeps_out(story: Story, job: str) -> None:
    story.enqueue(job, 42.1, unique=job, result="duplicate", holder=held(story, job).job)


@case(("J14", "key taken twice"))
def key_of_a_job_that_a_sweep_has_given_back(story: Story, job: str) -> None:
    story.reap(W1, held(story, job), 51.1)
    story.enqueue(job, 51.2, unique=job)


@case(("J14", "key taken twice"))
def key_of_a_job_whose_late_finish_was_refused(story: Story, job: str) -> None:
    late = held(story, job)
    story.reap(W1, late, 51.1)
    again = story.claim(W1, late.job, 51.2)
    story.end("finish", late, at=51.3, result="stale")
    story.enqueue(job, 51.4, unique=job)
    story.end("finish", again, at=51.5)


@case(("J14", "key taken twice"))
def key_of_a_job_that_its_worker_has_given_back(story: Story, job: str) -> None:
    token = held(story, job)
    story.end("retry", token, at=42.1, delay_ms=0)
    story.end("release", story.claim(W1, token.job, 42.2), at=42.3)
    story.enqueue(job, 42.4, unique=job)


@case()
def key_of_a_job_that_a_sweep_has_buried(story: Story, job: str) -> None:
    story.reap(W1, held(story, job), 51.1, crashes=3, result="buried")
    story.enqueue(job, 51.2, unique=job)


@case()
def key_of_a_job_whose_finish_was_not_answered(story: Story, job: str) -> None:
    story.end("finish", held(story, job), at=42.1, reply=None)
    story.enqueue(job, 42.2, unique=job)
