"""The keys of Lanes: the one place that writes a colon. Each with its Redis type and what it holds (DESIGN 3.6).

One queue is one hash slot, so it lives on one node and uses one core of it (rule 27).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LanesKeys:
    """Key names of one queue."""

    queue: str
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"ic:{{{self.queue}}}:")

    def job(self, job: str) -> str:
        """String: the envelope, later its tombstone."""
        return f"{self.prefix}job:{job}"

    def run(self, job: str) -> str:
        """Hash: fence, nonce, ended, outcome, renewal, marked, owner, claims, failures, crashes, error; from first claim on."""
        return f"{self.prefix}run:{job}"

    def ready(self, class_name: str) -> str:
        """Zset: lanes of the class that may be claimed now."""
        return f"{self.prefix}ready:{class_name}"

    def lane(self, lane: str) -> str:
        """Zset: job id by priority band and sequence (rule 16)."""
        return f"{self.prefix}lane:{lane}"

    def wake(self, class_name: str) -> str:
        """List: at most one marker (rule 22)."""
        return f"{self.prefix}wake:{class_name}"

    def claim(self, incarnation: str) -> str:
        """String: the last claim of an incarnation: its counter, then id and fence (or `corrupt`) of each job (rule 4)."""
        return f"{self.prefix}claim:{incarnation}"

    def swept(self, incarnation: str) -> str:
        """String: the last sweep of an incarnation that moved something: its counter, then what it told."""
        return f"{self.prefix}swept:{incarnation}"

    @property
    def active(self) -> str:
        """Zset: job id by lease deadline (ms)."""
        return f"{self.prefix}active"

    @property
    def due(self) -> str:
        """Zset: 10 base-32 digits of the sequence, then the job id; by due_ms."""
        return f"{self.prefix}due"

    @property
    def dead(self) -> str:
        """Zset: job id by time of death (ms)."""
        return f"{self.prefix}dead"

    @property
    def done(self) -> str:
        """Zset: job id by time of its finish (ms); bounded by count."""
        return f"{self.prefix}done"

    @property
    def classes(self) -> str:
        """Hash: class -> name and target."""
        return f"{self.prefix}classes"

    @property
    def seq(self) -> str:
        """String: the last sequence, below 2^48."""
        return f"{self.prefix}seq"

    @property
    def stats(self) -> str:
        """Hash: counters `finished`, `buried`."""
        return f"{self.prefix}stats"

    @property
    def sweep(self) -> str:
        """Hash: state of the sweeps (ms): `max_lease_ms`, `recent_lease_ms`, `least_lease_ms`, `recent_least_ms`, `forgot_ms`,
        `last_sweep_ms`, `no_reap_before_ms` (rules 10 and 11); `test_clock` on queues created for tests."""
        return f"{self.prefix}sweep"
