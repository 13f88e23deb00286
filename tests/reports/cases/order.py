"""Cases of J9 (lanes keep their order) and J10 (no lane starves).

A case has a lane of its own; the job that it names is the one that went too soon, or that starved.
"""

from tests.reports.cases.base import W1, W3, case
from tests.reports.story import Story


def first(story: Story, job: str, enqueued: float, claimed: float, *, lane: str, priority: int = 5, delay_ms: int = 0) -> None:
    """The first run of a job: enqueued and claimed at these times."""
    story.enqueue(job, enqueued, priority=priority, delay_ms=delay_ms)
    told = {"class": lane.partition("/")[0], "lane": lane, "priority": priority, "claims": 1, "failures": 0, "crashes": 0}
    story.run(W1 if priority == 5 else W3, job, claimed, told=told)


@case()
def claimed_by_priority_and_by_age(story: Story, job: str) -> None:
    first(story, f"{job}-low", 2.0, 3.6, lane=job, priority=1)
    first(story, job, 2.1, 3.2, lane=job)
    first(story, f"{job}-younger", 2.2, 3.4, lane=job)
    first(story, f"{job}-high", 2.3, 3.0, lane=job, priority=9)


@case(("J9", "lower priority first"))
def a_lower_priority_is_claimed_first(story: Story, job: str) -> None:
    first(story, f"{job}-high", 2.0, 3.2, lane=job, priority=6)
    first(story, job, 2.1, 3.0, lane=job)


@case()
def a_lower_priority_is_claimed_before_the_enqueue_of_the_higher_is_answered(story: Story, job: str) -> None:
    first(story, job, 2.0, 3.0, lane=job)
    first(story, f"{job}-high", 2.9999, 3.2, lane=job, priority=6)


@case()
def a_lower_priority_of_another_lane_is_claimed_first(story: Story, job: str) -> None:
    first(story, f"{job}-high", 2.0, 3.2, lane=f"{job}/a", priority=6)
    first(story, job, 2.1, 3.0, lane=f"{job}/b")


@case()
def a_lower_priority_is_claimed_while_the_higher_is_delayed(story: Story, job: str) -> None:
    first(story, f"{job}-high", 2.0, 3.2, lane=job, priority=6, delay_ms=1_000)
    first(story, job, 2.1, 3.0, lane=job)


@case(("J9", "later job first"))
def a_later_job_of_the_same_priority_is_claimed_first(story: Story, job: str) -> None:
    first(story, f"{job}-older", 2.0, 3.2, lane=job)
    first(story, job, 2.1, 3.0, lane=job)


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


def others(story: Story, job: str, count: int, *, priority: int = 5) -> None:
    """Jobs of another lane of the class, claimed one after the other from 3 s on."""
    for number in range(count):
        first(story, f"{job}-{number}", 2.0 + number / 1_000, 3.0 + number / 1_000, lane=f"{job}/other", priority=priority)


@case(("J10", "lane starved"))
def first_in_its_lane_while_another_is_served_all_the_time(story: Story, job: str) -> None:
    first(story, job, 1.9, 3.5, lane=f"{job}/own")
    others(story, job, 101)


@case()
def first_in_its_lane_while_another_has_a_few_turns(story: Story, job: str) -> None:
    first(story, job, 1.9, 3.5, lane=f"{job}/own")
    others(story, job, 100)


@case()
def first_in_its_lane_while_a_higher_priority_is_served(story: Story, job: str) -> None:
    first(story, job, 1.9, 3.5, lane=f"{job}/own")
    others(story, job, 101, priority=7)
