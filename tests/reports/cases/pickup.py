"""Cases of J22 (no job waits while workers idle): three live workers with two places each, and a bound of a second.

Each case has a part of the time before the faults (2 to 9 s) and after them (42 to 62 s) for itself.
"""

from typing import Any

from tests.reports.cases.base import W1, W3
from tests.reports.cases.base import case_in_scenario as case
from tests.reports.cases.base import told_in_scenario as told
from tests.reports.story import Story, Token

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


told("claimed-within-the-bound", lambda story, job: waits(story, job, 2.0, 0.95))


told("waits-while-all-are-idle", lambda story, job: waits(story, job, 2.0, 1.5), ("J22", "late pickup"))


@case()
def waits_while_all_are_full(story: Story, job: str) -> None:
    fill(story, job, 4.0, 5.5, *WORKERS * PLACES)
    waits(story, job, 4.1, 1.35)


@case(("J22", "late pickup"))
def waits_while_one_worker_has_one_place(story: Story, job: str) -> None:
    fill(story, job, 6.0, 7.5, *(WORKERS * PLACES)[1:])
    waits(story, job, 6.1, 1.3)


@case()
def no_worker_was_idle_for_long_enough(story: Story, job: str) -> None:
    fill(story, job, 43.0, 43.2, *WORKERS * PLACES)
    waits(story, job, 42.3, 1.6)


told("waits-for-its-delay", lambda story, job: waits(story, job, 45.0, 2.5, delay_ms=2_000))


told("waits-long-after-its-delay", lambda story, job: waits(story, job, 45.0, 2.5, delay_ms=1_000), ("J22", "late pickup"))


told("waits-for-the-limit-of-its-name", lambda story, job: waits(story, job, 48.0, 1.5, name="limited"))


told("waits-for-another-job", lambda story, job: waits(story, job, 48.0, 1.5, needs=["calm-worker-1-1"]))


told("waits-for-a-certain-worker", lambda story, job: waits(story, job, 48.0, 1.5, wants='{"capabilities":["heavy"]}'))


told("waits-during-a-fault", lambda story, job: waits(story, job, 25.5, 4.0))


told("nobody-knows-its-first-claim", lambda story, job: waits(story, job, 50.0, 3.0, claims=2))


told("nobody-knows-when-it-was-enqueued", lambda story, job: waits(story, job, 50.0, 3.0, reply=None))


told("workers-that-write-nothing-may-not-have-run", lambda story, job: waits(story, job, SILENT_S[0] + 0.5, 3.0))
