"""Cases: what happened to one job, and what must be found for it: nothing at all, or the violations that name it.

Nothing is expected for the false alarms of rule 32, and the violation that names it for the hidden losses of rule 33.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.reports.story import Story

Tell = Callable[[Story, str], object]

Cases = dict[str, tuple[Tell, set[tuple[str, ...]]]]

#: Job id -> what happened to it, and the (check, kind, level) of each violation that must be found.
CASES: Cases = {}

#: The same, of checks that only apply to some runs: judged in a run of their own.
SCENARIO_CASES: Cases = {}

W1, W2, W3, W4 = "worker-1", "worker-2", "worker-3", "worker-4"


Expected = tuple[str, str] | tuple[str, str, str]


def told(name: str, tell: Tell, *expected: Expected, among: Cases = CASES) -> None:
    """A case of one line, and what must be found for its job: (check, kind), or (check, kind, level) where it is not violated."""
    among[name] = (tell, {(*found, "violated")[:3] for found in expected})


def case(*expected: Expected, among: Cases = CASES) -> Callable[[Tell], Tell]:
    """A case of several lines; the same must be said of it."""

    def keep(tell: Tell) -> Tell:
        told(tell.__name__.replace("_", "-"), tell, *expected, among=among)
        return tell

    return keep


told_in_scenario = partial(told, among=SCENARIO_CASES)
case_in_scenario = partial(case, among=SCENARIO_CASES)


def ended(story: Story, job: str, call: str, *, handler: str = "", again: float | None = None, **more: Any) -> None:
    """worker-1 has the job in hand at 3 s, its handler returns (ok), raises (fail) or never starts; the call ends its lease.

    `again`: when worker-3 runs the job all the same.
    """
    token = story.handled(W1, job, 3, end=handler) if handler else story.leased(W1, job, 3)
    story.end(call, token, at=3.1, **more)
    if again is not None:
        story.run(W3, job, again)


def run_once(story: Story, job: str, at: float = 3.0, **enqueue: Any) -> None:
    """Enqueued at 2 s as `enqueue` says; worker-1 claims and finishes it, whatever came of that."""
    story.enqueue(job, 2, **enqueue)
    story.run(W1, job, at)
