"""Cases of J9 (lanes keep their order) and J10 (no lane starves).

A case has a lane of its own; the job that it names is the one that went too soon, or that starved.
"""

from typing import Any

from tests.reports.cases.base import W1, W2, W3, case, told
from tests.reports.story import Story


def first(story: Story, job: str, enqueued: float, claimed: float, *, lane: str, priority: int = 5, **more: Any) -> None:
    """The first run of a job: enqueued and claimed at these times."""
    story.enqueue(job, enqueued, priority=priority, delay_ms=more.pop("delay_ms", 0))
    worker = more.pop("worker", W1 if priority == 5 else W3)
    told = {"class": lane.partition("/")[0], "lane": lane, "priority": priority, "claims": 1, "failures": 0, "crashes": 0}
    story.run(worker, job, claimed, told=told | more)


@case()
def claimed_by_priority_and_by_age(story: Story, job: str) -> None:
    first(story, f"{job}-low", 2.0, 3.6, lane=job, priority=1)
    first(story, job, 2.1, 3.2, lane=job)
    first(story, f"{job}-younger", 2.2, 3.4, lane=job)
    first(story, f"{job}-high", 2.3, 3.0, lane=job, priority=9)


def passed(story: Story, job: str, priority: int, delay_ms: int = 0, **more: Any) -> None:
    """Claimed before an older one of this priority and this delay."""
    first(story, f"{job}-older", 2.0, 3.2, lane=job, priority=priority, delay_ms=delay_ms)
    first(story, job, 2.1, 3.0, lane=job, **more)


LOWER, LATER = ("J9", "lower priority first"), ("J9", "later job first")
told("a-lower-priority-is-claimed-first", lambda story, job: passed(story, job, 6), LOWER)
told("a-lower-priority-is-claimed-first-as-if-it-went-in-front", lambda story, job: passed(story, job, 6, lifo=1), LOWER)
told("a-lower-priority-is-claimed-while-the-higher-is-delayed", lambda story, job: passed(story, job, 6, 1_000))
told("a-later-job-of-the-same-priority-is-claimed-first", lambda story, job: passed(story, job, 5), LATER)
told("a-later-job-that-goes-in-front-is-claimed-first", lambda story, job: passed(story, job, 5, lifo=1))


@case()
def claimed_first_by_a_worker_of_its_priority_alone(story: Story, job: str) -> None:
    story.row(W2, "configuration", 1.0, config='{"priorities": [5]}')
    passed(story, job, 6, worker=W2)


@case()
def a_lower_priority_is_claimed_before_the_enqueue_of_the_higher_is_answered(story: Story, job: str) -> None:
    first(story, job, 2.0, 3.0, lane=job)
    first(story, f"{job}-high", 2.9999, 3.2, lane=job, priority=6)


@case()
def a_lower_priority_of_another_lane_is_claimed_first(story: Story, job: str) -> None:
    first(story, f"{job}-high", 2.0, 3.2, lane=f"{job}/a", priority=6)
    first(story, job, 2.1, 3.0, lane=f"{job}/b")


@case()
def jobs_that_were_enqueued_at_once_are_claimed_in_any_order(story: Story, job: str) -> None:
    first(story, f"{job}-older", 2.0, 3.2, lane=job)
    first(story, job, 2.0009, 3.0, lane=job)


@case()
def a_later_job_is_claimed_while_nobody_knows_when_the_older_was(story: Story, job: str) -> None:
    """The claim that is known is its second one."""
    story.enqueue(f"{job}-older", 2.0)
    story.run(W3, f"{job}-older", 3.2, told={"class": job, "lane": job, "priority": 5, "claims": 2, "failures": 0, "crashes": 1})
    first(story, job, 2.1, 3.0, lane=job)


def others(story: Story, job: str, count: int, by: str = W1, **more: Any) -> None:
    """First in its lane, while so many jobs of another lane of the class are claimed one after the other, from 3 s on."""
    first(story, job, 1.9, 3.5, lane=f"{job}/own", worker=by)
    for number in range(count):
        first(story, f"{job}-{number}", 2.0 + number / 1_000, 3.0 + number / 1_000, lane=f"{job}/other", **more)


STARVED = ("J10", "lane starved")
told("first-in-its-lane-while-another-is-served-all-the-time", lambda story, job: others(story, job, 101), STARVED)
told("first-in-its-lane-while-another-has-a-few-turns", lambda story, job: others(story, job, 100))
told("first-in-its-lane-while-a-higher-priority-is-served", lambda story, job: others(story, job, 101, priority=7))
told("first-in-its-lane-while-another-is-served-by-a-choosy-worker", lambda story, job: others(story, job, 101, worker=W2))
told("first-in-its-lane-until-a-choosy-worker-takes-it", lambda story, job: others(story, job, 101, W2), STARVED)


@case()
def second_in_its_lane_until_a_choosy_worker_takes_the_first(story: Story, job: str) -> None:
    """100 are claimed while the first one waits, and 50 while it does."""
    first(story, f"{job}-first", 1.8, 3.0995, lane=f"{job}/own", worker=W2)
    others(story, job, 150)
