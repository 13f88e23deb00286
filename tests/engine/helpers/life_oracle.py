"""What becomes of jobs through runs, failures, crashes and lost leases, in plain Python: an oracle beside the scripts (rules 5,
6, 12 and 16). One lane, no limits: who may be claimed, and in which order, is then a matter of a few lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.ops.jobs import Lease


@dataclass
class Life:
    """One job. `place` orders those that wait; `state` is that of a listing."""

    place: tuple[int, int]
    attempts: int
    crashes_max: int
    state: str = "waiting"
    #: When it is due, when its lease ends, or when it ended.
    at_ms: int = 0
    claims: int = 0
    failures: int = 0
    crashes: int = 0
    lease: Lease | None = None
    marked: bool = False


@dataclass
class LifeOracle:
    """All jobs by id."""

    lease_ms: int
    jobs: dict[str, Life] = field(default_factory=dict)
    sequence: int = 0

    def add(self, job: str, *, priority: int, lifo: bool, delay_until_ms: int, attempts: int, crashes_max: int) -> None:
        self.sequence += 1
        place = (-priority, -self.sequence if lifo else self.sequence)
        self.jobs[job] = Life(place, attempts, crashes_max, "delayed" if delay_until_ms else "waiting", delay_until_ms)

    def promote(self, now_ms: int) -> None:
        for life in self.jobs.values():
            if life.state == "delayed" and life.at_ms <= now_ms:
                life.state, life.at_ms = "waiting", 0

    def next_claims(self, limit: int, now_ms: int) -> list[str]:
        """Whom a claim gets, in its order."""
        self.promote(now_ms)
        waiting = sorted((life.place, job) for job, life in self.jobs.items() if life.state == "waiting")
        return [job for _, job in waiting[:limit]]

    def claim(self, job: str, lease: Lease, now_ms: int) -> None:
        life = self.jobs[job]
        life.state, life.at_ms, life.lease, life.marked = "active", now_ms + self.lease_ms, lease, False
        life.claims += 1

    def finish(self, job: str, now_ms: int) -> None:
        self._end(job, "done", now_ms)

    def bury(self, job: str, now_ms: int) -> None:
        self._end(job, "dead", now_ms)

    def retry(self, job: str, delay_ms: int, now_ms: int) -> str:
        """What the retry is told."""
        life = self.jobs[job]
        life.failures += 1
        if life.failures >= life.attempts:
            self._end(job, "dead", now_ms)
            return "buried"
        self._end(job, "delayed", now_ms + delay_ms)
        return "retried"

    def release(self, job: str) -> None:
        self._end(job, "waiting", 0)

    def extend(self, job: str, now_ms: int) -> None:
        self.jobs[job].at_ms = now_ms + self.lease_ms

    def sweep(self, now_ms: int) -> list[tuple[Lease, int]]:
        """The leases that a sweep takes, with the crashes of their jobs. The first crash is free, and after it only a marked
        lease is charged."""
        taken: list[tuple[Lease, int]] = []
        for job, life in self.jobs.items():
            if life.state == "active" and life.at_ms < now_ms and life.lease is not None:
                life.crashes += life.crashes == 0 or life.marked
                taken.append((life.lease, life.crashes))
                buried = life.crashes >= life.crashes_max
                self._end(job, "dead" if buried else "waiting", now_ms if buried else 0)
        return sorted(taken)

    def states(self) -> dict[str, list[tuple[str, int]]]:
        """As a listing has them."""
        found: dict[str, list[tuple[str, int]]] = {}
        for job, life in self.jobs.items():
            found.setdefault(life.state, []).append((job, life.at_ms))
        return {state: sorted(jobs) for state, jobs in found.items()}

    def _end(self, job: str, state: str, at_ms: int) -> None:
        life = self.jobs[job]
        life.state, life.at_ms, life.lease, life.marked = state, at_ms, None, False
