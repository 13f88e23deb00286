"""What is known of single jobs by the oracle of mixed_oracle.py: those that go on, and those that have ended."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.engine.helpers.lanes_oracle import Job

#: How long the id of an ended job is known, and how long a call may be sent again before that begins.
KNOWN_MS = 20_000
SENT_MS = 10_000
#: Each call is void after a time that its client reckons: what hangs on it, only the scripts know for sure around it.
BLUR_MS = 2_000
#: Outcomes of which the list of ended jobs knows. Only what has finished is no loss for the jobs that need it.
DONE = ("finished", "skipped")


@dataclass
class Work(Job):
    """A job that has not ended. `state` and `at_ms` are those of a look at it; `waits` are the parents whose end it does not know
    of yet."""

    lifo: bool = False
    attempts: int = 3
    crashes_max: int = 3
    unique: str = ""
    ignores: bool = False
    enqueued_ms: int = 0
    #: Until when a copy of its enqueue may come; 0 for one that a schedule has made.
    void_ms: int = 0
    state: str = "waiting"
    at_ms: int = 0
    fence: int = 0
    claims: int = 0
    failures: int = 0
    crashes: int = 0
    marked: bool = False
    waits: set[str] = field(default_factory=set[str])

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, -self.sequence if self.lifo else self.sequence


class Ended(NamedTuple):
    """What is known of a job that has ended, or `rejected`, of a call that was turned away; `until_ms` is blurred."""

    state: str
    fence: int
    until_ms: int
