"""A queue and the oracle of mixed_oracle.py side by side, and what must hold of both after each step."""

from typing import Any

from tests.engine.helpers import lanes_state, mixed_oracle, mixed_state, mixed_work
from tests.engine.helpers.schedules_oracle import SchedulesOracle
from tests.engine.using import Desk, Lease

NAMES = ("mail", "sms", "push")
LATE_MS = 5_000


class Side:
    """A queue on a desk, and the oracle beside it. `ids` are all that jobs ever had, in their order."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.oracle, self.schedules = desk, mixed_oracle.MixedOracle(), SchedulesOracle(LATE_MS)
        self.ids: list[str] = []
        #: Leases that have ended, and how ('' = taken away): a late copy of an end hears that, and changes nothing.
        self.over: list[tuple[Lease, str]] = []
        self.asked, self.told = set[str](), set[str]()
        self.counter = self.told_ms = 0
        desk.begin().sweep()

    @property
    def now_ms(self) -> int:
        return self.desk.now_ms

    def known(self, pick: int) -> str:
        """An id of which everybody knows what it is by now; '' where there is none."""
        ids = [job for job in self.ids if not self.oracle.blurred(job, self.now_ms)]
        return ids[-1 - pick % len(ids)] if ids else ""

    def leases(self, *picks: int) -> list[Lease]:
        leases = [work.lease for work in self.oracle.works.values() if work.lease is not None]
        return [leases[place] for place in dict.fromkeys(pick % len(leases) for pick in picks)] if leases else []

    def work(self, name: str, options: dict[str, Any]) -> mixed_work.Work:
        work = mixed_work.Work(name, options.get("key", ""), options.get("priority", 5), 0)
        work.lifo, work.unique = options.get("lifo", False), options.get("unique", "")
        work.attempts, work.crashes_max = options.get("attempts", 3), options.get("crashes_max", 3)
        work.ignores = options.get("on_parent_failure") == "ignore"
        work.due_ms = self.now_ms + options["delay_ms"] if "delay_ms" in options else 0
        return work

    def check(self) -> None:
        mixed_state.compare(self.desk, self.oracle, self.schedules, set(self.ids))
        told = {name for name in NAMES if self.oracle.claimable((name,), self.now_ms)}
        if self.now_ms == self.told_ms:
            # Rule 22: what a call has made claimable, or a claim has left, is told.
            gained = {name for name in told if name not in self.told or name in self.asked}
            assert gained <= set(lanes_state.markers(self.desk)), (gained, "has work that nobody is told of")
        self.told, self.told_ms, self.asked = told, self.now_ms, set()
