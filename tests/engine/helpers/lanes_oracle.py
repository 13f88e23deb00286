"""What lanes, limits and pauses allow, in plain Python: an oracle beside the scripts (rules 7, 18 to 20).

It knows nothing of parked or resting lanes: it says what may be claimed now, from definitions, leases and the claims so far.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.engine.ops import Lease, Limit


@dataclass
class Job:
    """One job: where it waits, until when, and what its lease counts against."""

    name: str
    key: str
    priority: int
    sequence: int
    due_ms: int = 0
    lease: Lease | None = None

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, self.sequence


@dataclass
class Oracle:
    """`held` and `claims`: by limit id, the jobs that hold a slot, and the times and leases that a window counts."""

    jobs: dict[str, Job] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    pauses: dict[str, int] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)
    claims: dict[str, list[tuple[int, Lease]]] = field(default_factory=dict)
    sequence: int = 0

    def add(self, job: str, name: str, key: str, priority: int, due_ms: int) -> None:
        self.sequence += 1
        self.jobs[job] = Job(name, key, priority, self.sequence, due_ms)

    def limits_of(self, job: Job) -> dict[str, Limit]:
        """The limits that a claim of the job counts against, by id."""
        found = {f"n:{job.name}": self.limits.get(f"n:{job.name}")}
        if job.key:
            found[f"k:{job.key}"] = self.limits.get(f"k:{job.key}", self.limits.get("k:*"))
        return {limit_id: limit for limit_id, limit in found.items() if limit is not None}

    def room(self, limit_id: str, limit: Limit, now_ms: int) -> int:
        """How many more leases a limit allows."""
        slots = limit.concurrency - len(self.held.get(limit_id, ())) if limit.concurrency else 1_000_000
        if not limit.rate:
            return slots
        start_ms = now_ms - now_ms % limit.per_ms if limit.window == "fixed" else now_ms - limit.per_ms + 1
        return min(slots, limit.rate - sum(ms >= start_ms for ms, _ in self.claims.get(limit_id, ())))

    def paused(self, name: str, now_ms: int) -> bool:
        return any(until_ms == 0 or until_ms > now_ms for until_ms in (self.pauses.get(who, 1) for who in ("*", name)))

    def waits(self, job: Any, now_ms: int) -> bool:
        return job.lease is None and job.due_ms <= now_ms

    def claimable(self, classes: tuple[str, ...], now_ms: int) -> dict[str, Job]:
        """The jobs that a claim of one job may lease now, whatever their turn."""
        return {
            name: job
            for name, job in self.jobs.items()
            if self.waits(job, now_ms)
            and job.name in classes
            and not self.paused(job.name, now_ms)
            and all(self.room(limit_id, limit, now_ms) > 0 for limit_id, limit in self.limits_of(job).items())
        }

    def claimed(self, name: str, lease: Lease, classes: tuple[str, ...], now_ms: int) -> None:
        """Lease a job. Asserts that this is allowed, and that it is the first of its lane and of the best band."""
        may = self.claimable(classes, now_ms)
        assert name in may, (name, "must not be claimed now")
        job = self.jobs[name]
        before = [other for other, it in may.items() if (it.name, it.key) == (job.name, job.key) and it.place < job.place]
        assert not before, (name, "overtakes", before)
        better = [other for other, it in may.items() if it.priority > job.priority]
        assert not better, (name, "has a lower band than", better)
        for limit_id, limit in self.limits_of(job).items():
            if limit.concurrency:
                self.held.setdefault(limit_id, set()).add(name)
            if limit.rate:
                self.claims.setdefault(limit_id, []).append((now_ms, lease))
        job.lease = lease

    def ended(self, name: str, *, due_ms: int | None = None, unstarted: bool = False) -> None:
        """End a lease: the job is over, or waits again from `due_ms` on."""
        job = self.jobs[name]
        for held in self.held.values():
            held.discard(name)
        if unstarted:
            for limit_id, entries in self.claims.items():
                self.claims[limit_id] = [entry for entry in entries if entry[1] != job.lease]
        job.lease = None
        if due_ms is None:
            del self.jobs[name]
        else:
            job.due_ms = due_ms
