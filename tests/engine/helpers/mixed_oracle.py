"""All that a queue promises about its jobs at once, in plain Python: an oracle beside the scripts. What lanes, limits and pauses
allow is lanes_oracle's, on which this builds; here are the lives of jobs, those that wait for others, unique and dedup keys, what
is done by hand, and how long the ids of ended jobs are known (rules 3 to 7, 12, 16, 18 to 20, 23, 25 and 26).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.ops.jobs import Lease
from tests.engine.helpers.lanes_oracle import Job, Oracle

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


@dataclass
class MixedOracle(Oracle):
    """`works` are the jobs that have not ended, the same as in `jobs`. `feeds` are the children of a job that are not told of its
    end, `handing` the ended ones with children to be told, by when."""

    works: dict[str, Work] = field(default_factory=dict[str, Work])
    ended_jobs: dict[str, Ended] = field(default_factory=dict[str, Ended])
    done: dict[str, int] = field(default_factory=dict[str, int])
    skipped: set[str] = field(default_factory=set[str])
    uniques: dict[str, str] = field(default_factory=dict[str, str])
    dedups: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    feeds: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    feeding: set[str] = field(default_factory=set[str])
    handing: dict[str, int] = field(default_factory=dict[str, int])
    finished: int = 0
    buried: int = 0

    # -- looks

    def known(self, job: str, now_ms: int) -> tuple[str, int, int]:
        """State, last fence, and time of the state."""
        if work := self.works.get(job):
            return work.state, work.fence, work.at_ms if work.state in ("active", "delayed", "dead") else 0
        ended = self.ended_jobs.get(job)
        if ended and ended.until_ms > now_ms and ended.state != "rejected":
            return ended.state, ended.fence, self.done.get(job, 0) if ended.state in DONE else 0
        return ("skipped" if job in self.skipped else "finished", 0, self.done[job]) if job in self.done else ("gone", 0, 0)

    def blurred(self, job: str, now_ms: int) -> bool:
        """Whether nobody but the scripts can tell if the id is still known."""
        ended = self.ended_jobs.get(job)
        return job not in self.works and ended is not None and abs(ended.until_ms - now_ms) <= BLUR_MS

    def remembers(self, lease: Lease, outcome: str, now_ms: int) -> bool:
        """Whether a late copy of the end of this lease must hear how it has ended: it is the last one of its job."""
        if work := self.works.get(lease.job):
            return work.fence == lease.fence and work.lease is None and outcome != ""
        ended = self.ended_jobs.get(lease.job)
        if ended is None or ended.until_ms <= now_ms or self.blurred(lease.job, now_ms):
            return False
        return (ended.fence, ended.state) == (lease.fence, outcome)

    def states(self) -> dict[str, list[tuple[str, int]]]:
        """As a snapshot has them."""
        found: dict[str, list[tuple[str, int]]] = {"done": sorted(self.done.items())} if self.done else {}
        for job, work in self.works.items():
            found.setdefault(work.state, []).append((job, 0 if work.state == "waiting" else work.at_ms))
        return {state: sorted(jobs) for state, jobs in found.items()}

    def waits(self, job: Work, now_ms: int) -> bool:
        return job.state == "waiting"

    def fate(self, job: str, now_ms: int) -> str:
        """What a job is to those that need it: open, done, lost, or '' for one of which nothing is known."""
        if work := self.works.get(job):
            return "lost" if work.state == "dead" else "open"
        ended = self.ended_jobs.get(job)
        if ended and ended.until_ms > now_ms and ended.state != "rejected":
            return "done" if ended.state == "finished" else "lost"
        return ("lost" if job in self.skipped else "done") if job in self.done else ""

    def holder(self, job: str, unique: str, now_ms: int, dedup: str = "") -> str:
        """The job that keeps this one out; '' = none."""
        first = self.uniques.get(unique, job) if unique else job
        if first != job:
            return first
        # The window of a job keeps its own id out as well, once nothing else is left of it.
        return self.dedups[dedup][0] if dedup in self.dedups and self.dedups[dedup][1] > now_ms else ""

    # -- what comes

    def enqueue(
        self, job: str, work: Work, now_ms: int, needs: tuple[str, ...] = (), dedup: str = "", dedup_ms: int = 0
    ) -> tuple[str, str, str]:
        """What an enqueue is told: result, then of a duplicate the state of the job that was there, and its id, or that of the
        parent that nobody knows. `work.due_ms` is when it is due."""
        state, _, _ = self.known(job, now_ms)
        ended = self.ended_jobs.get(job)
        if job in self.works or (ended and ended.until_ms > now_ms and ended.state != "rejected"):
            # Who was told so must be told so by a late copy as well.
            if ended:
                self.ended_jobs[job] = ended._replace(until_ms=max(ended.until_ms, now_ms + SENT_MS + KNOWN_MS))
            return "duplicate", state, job
        fates = {parent: self.fate(parent, now_ms) for parent in needs}
        unknown = [parent for parent in needs if not fates[parent]]
        first = unknown[0] if unknown else self.holder(job, work.unique, now_ms, dedup)
        if first:
            self.ended_jobs[job] = Ended("rejected", 0, now_ms + SENT_MS + KNOWN_MS)
            return ("orphan", "", first) if unknown else ("duplicate", self._state_of(first, now_ms), first)
        work.waits = {parent for parent, fate in fates.items() if fate == "open" or (fate == "lost" and not work.ignores)}
        for parent in work.waits:
            self.feeding.add(parent)
            self.feeds.setdefault(parent, set()).add(job)
            if fates[parent] == "lost":
                self.handing[f"-{parent}"] = now_ms
        if dedup:
            self.dedups[dedup] = job, now_ms + dedup_ms
        self.create(job, work, now_ms)
        work.void_ms = now_ms + SENT_MS
        if work.waits:
            work.state, work.at_ms = "blocked", now_ms
        elif work.due_ms:
            work.state, work.at_ms = "delayed", work.due_ms
        return "created", "", job

    def create(self, job: str, work: Work, now_ms: int) -> None:
        self.sequence += 1
        work.sequence, work.enqueued_ms = self.sequence, now_ms
        self.works[job] = self.jobs[job] = work
        self.ended_jobs.pop(job, None)
        if work.unique:
            self.uniques[work.unique] = job

    # -- what goes on

    def promote(self, now_ms: int) -> None:
        for work in self.works.values():
            if work.state == "delayed" and work.at_ms <= now_ms:
                work.state, work.at_ms = "waiting", 0

    def lease(self, job: str, lease: Lease, classes: tuple[str, ...], now_ms: int, lease_ms: int) -> Work:
        """Lease a job that a claim was given. Asserts that it may be, and that it is its turn."""
        self.claimed(job, lease, classes, now_ms)
        work = self.works[job]
        assert lease.fence == max(work.fence + 1, now_ms)
        work.state, work.at_ms, work.marked, work.fence = "active", now_ms + lease_ms, False, lease.fence
        work.claims += 1
        return work

    def end(self, job: str, outcome: str, now_ms: int, until_ms: int) -> None:
        """End a job for good; `until_ms` is until when it is known at least."""
        work = self.works.pop(job)
        self.ended(job)
        self.ended_jobs[job] = Ended(outcome, work.fence, until_ms)
        self._free(job, work)
        if outcome in DONE:
            self.done[job] = now_ms
            (self.skipped.add if outcome == "skipped" else self.skipped.discard)(job)
            self.finished += outcome == "finished"
        if job in self.feeding:
            self.handing[("+" if outcome == "finished" else "-") + job] = now_ms

    def end_lease(self, job: str, outcome: str, now_ms: int, *, tell: bool = True) -> None:
        """What its worker says. `tell`: also to those that need it."""
        self.end(job, outcome, now_ms, max(self.works[job].void_ms, now_ms) + KNOWN_MS)
        if tell:
            self.hand_over(now_ms)

    def end_by_hand(self, job: str, outcome: str, now_ms: int) -> None:
        self.end(job, outcome, now_ms, now_ms + SENT_MS + KNOWN_MS)

    def bury(self, job: str, now_ms: int) -> None:
        work = self.works[job]
        self.put_back(job, "dead", now_ms)
        self.buried += 1
        self._free(job, work)
        if job in self.feeding:
            self.handing[f"-{job}"] = now_ms

    def retry(self, job: str, delay_ms: int, now_ms: int) -> str:
        """What a failure is told."""
        work = self.works[job]
        work.failures += 1
        if work.failures >= work.attempts:
            self.bury(job, now_ms)
            return "buried"
        self.put_back(job, "delayed", now_ms + delay_ms)
        return "retried"

    def put_back(self, job: str, state: str = "waiting", at_ms: int = 0, *, unstarted: bool = False) -> None:
        """Out of hand, into another state."""
        work = self.works[job]
        self.ended(job, due_ms=work.due_ms, unstarted=unstarted)
        work.state, work.at_ms, work.marked = state, at_ms, False

    def sweep(self, now_ms: int) -> list[tuple[Lease, int]]:
        """The leases that a sweep takes, with the crashes of their jobs (rule 12)."""
        taken: list[tuple[Lease, int]] = []
        for job, work in self.works.items():
            if work.state == "active" and work.at_ms < now_ms and work.lease is not None:
                work.crashes += work.crashes == 0 or work.marked
                taken.append((work.lease, work.crashes))
                self.bury(job, now_ms) if work.crashes >= work.crashes_max else self.put_back(job)
        return sorted(taken)

    def requeue(self, job: str, now_ms: int) -> str:
        """The job that has its unique key; '' where it waits again."""
        work = self.works[job]
        if holder := self.holder(job, work.unique, now_ms):
            return holder
        work.state, work.at_ms, work.failures, work.crashes = "waiting", 0, 0, 0
        if work.unique:
            self.uniques[work.unique] = job
        return ""

    def hand_over(self, now_ms: int) -> None:
        """Tell children of the ends of their parents, those that are to be told by now: of a burial among them the next call
        tells."""
        for member, _ in sorted(self.handing.items(), key=lambda item: (item[1], item[0])):
            parent, before = member[1:], "done" if member[0] == "+" else "lost"
            now, new = self.fate(parent, now_ms) or before, self.works.get(parent)
            for job in sorted(self.feeds.get(parent, ())):
                child = self.works.get(job)
                fate = before if new and child and child.sequence < new.sequence else now
                if fate == "open":
                    continue
                self.feeds[parent].discard(job)
                if child is None or child.state != "blocked" or parent not in child.waits:
                    continue
                if fate == "lost" and not child.ignores:
                    child.waits.clear()
                    self.bury(job, now_ms)
                    continue
                child.waits.discard(parent)
                if not child.waits:
                    late = child.due_ms > now_ms
                    child.state, child.at_ms = ("delayed", child.due_ms) if late else ("waiting", 0)
            if now != "open":
                self.feeding.discard(parent)
            del self.handing[member]

    def _free(self, job: str, work: Work) -> None:
        if self.uniques.get(work.unique) == job:
            del self.uniques[work.unique]

    def _state_of(self, job: str, now_ms: int) -> str:
        """As an enqueue tells it, which does not look into `done`."""
        state, _, _ = self.known(job, now_ms)
        ended = self.ended_jobs.get(job)
        told = ended and ended.until_ms > now_ms and ended.state != "rejected"
        return state if job in self.works or told else "gone"
