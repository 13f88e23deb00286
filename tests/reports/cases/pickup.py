"""Cases of J22 (no job waits while workers idle): three live workers with two places each, and a bound of a second.

Each case has a part of the time before the faults (2 to 9 s) and after them (42 to 62 s) for itself.
"""

from functools import partial
from typing import Any

from tests.reports.cases.base import SCENARIO_CASES, W1, W3, case
from tests.reports.story import Story, Token

waiting = partial(case, among=SCENARIO_CASES)

#: The live workers of the run, and the places that each of them has.
WORKERS = (W1, W3, "worker-4")
PLACES, BOUND_MS = 2, 1_000

#: In this time the workers write nothing of themselves.
SILENT_S = (58.0, 62.0)


def waits(story: Story, job: str, at: float, for_s: float, *, name: str = "email", claims: int = 1, **more: Any) -> None:
    """A job that is claimed so long after its enqueue."""
    story.enqueue(job, at, **more)
    first = {"class": name, "lane": name, "priority": 5, "claims": claims, "failures": 0, "crashes": 0}
    story.run(W1, job, at + for_s, told=first)


def fill(story: Story, job: str, begin: float, end: float, *places: str) -> None:
    """Let workers have a job in hand for that time, one for each place."""
    for number, worker in enumerate(places):
        other = f"{job}-{number}"
        story.enqueue(other, begin - 0.01)
        finish(story, story.claim(worker, other, begin), begin, end)


def finish(story: Story, token: Token, begin: float, end: float) -> None:
    story.finish(token, end - 0.005, start=begin + 0.002, took=end - begin - 0.01, effect=end - 0.008)


@waiting()
def claimed_within_the_bound(story: Story, job: str) -> None:
    waits(story, job, 2.0, 0.95)


@waiting(("J22", "late pickup"))
def waits_while_all_are_idle(story: Story, job: str) -> None:
    waits(story, job, 2.0, 1.5)


@waiting()
def waits_while_all_are_full(story: Story, job: str) -> None:
    fill(story, job, 4.0, 5.5, *WORKERS * PLACES)
    waits(story, job, 4.1, 1.35)


@waiting(("J22", "late pickup"))
def waits_while_one_worker_has_one_place(story: Story, job: str) -> None:
    fill(story, job, 6.0, 7.5, *(WORKERS * PLACES)[1:])
    waits(story, job, 6.1, 1.3)


@waiting()
def no_worker_was_idle_for_long_enough(story: Story, job: str) -> None:
    fill(story, job, 43.0, 43.2, *WORKERS * PLACES)
    waits(story, job, 42.3, 1.6)


@waiting()
def waits_for_its_delay(story: Story, job: str) -> None:
    waits(story, job, 45.0, 2.5, delay_ms=2_000)


@waiting(("J22", "late pickup"))
def waits_long_after_its_delay(story: Story, job: str) -> None:
    waits(story, job, 45.0, 2.5, delay_ms=1_000)


@waiting()
def waits_for_the_limit_of_its_name(story: Story, job: str) -> None:
    waits(story, job, 48.0, 1.5, name="limited")


@waiting()
def waits_for_another_job(story: Story, job: str) -> None:
    waits(story, job, 48.0, 1.5, needs=["calm-worker-1-1"])


@waiting()
def waits_for_a_certain_worker(story: Story, job: str) -> None:
    waits(story, job, 48.0, 1.5, wants='{"capabilities":["heavy"]}')


@waiting()
def waits_during_a_fault(story: Story, job: str) -> None:
    waits(story, job, 25.5, 4.0)


@waiting()
def nobody_knows_its_first_claim(story: Story, job: str) -> None:
    waits(story, job, 50.0, 3.0, claims=2)


@waiting()
def nobody_knows_when_it_was_enqueued(story: Story, job: str) -> None:
    waits(story, job, 50.0, 3.0, reply=None)


@waiting()
def workers_that_write_nothing_may_not_have_run(story: Story, job: str) -> None:
    waits(story, job, SILENT_S[0] + 0.5, 3.0)
