"""The keys of a Mosquito keyspace: the one place in Python that writes them, each with its type and unit in either layout.

`lua/mosquito/modules/wire.lua` names the same ones; those of the engine are in `engine.models.foreign_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MosquitoKeys:
    """Key names of one queue. `prefix` is Mosquito's own, behind a global prefix if there is one: `app:mosquito`."""

    queue: str
    prefix: str = "mosquito"

    @property
    def waiting(self) -> str:
        """Ids of runs that may start. live: list, pushed left, taken right. document: zset by arrival (ms, those of one ms by
        fractions of it)."""
        return f"{self.prefix}:waiting:{self.queue}"

    @property
    def pending(self) -> str:
        """Ids of runs in hand. live: list. document: zset by the time of the claim (ms)."""
        return f"{self.prefix}:pending:{self.queue}"

    @property
    def dead(self) -> str:
        """Ids of runs that have failed for good. live: list. document: zset by the time of death (ms)."""
        return f"{self.prefix}:dead:{self.queue}"

    @property
    def scheduled(self) -> str:
        """Zset: id of a run by the time when it is due (ms)."""
        return f"{self.prefix}:scheduled:{self.queue}"

    @property
    def queues(self) -> str:
        """Zset: name of a queue by its last enqueue (s), of all queues with this prefix; runners look at those."""
        return f"{self.prefix}:queues"

    @property
    def pause(self) -> str:
        """String: while it is there nothing of the queue is claimed; with a time to live where the pause has an end."""
        return f"{self.prefix}:queue:{self.queue}:pause"

    @property
    def overseers(self) -> str:
        """Zset: overseer by its last heartbeat (s)."""
        return f"{self.prefix}:overseers"

    @property
    def football(self) -> str:
        """String: who coordinates (v2), for 10 s."""
        return f"{self.prefix}:coordinator:football"

    @property
    def leadership(self) -> str:
        """String: who coordinates (HEAD), for 30 s, renewed."""
        return f"{self.prefix}:coordinator:leadership_lock"

    def run(self, job: str) -> str:
        """Hash: parameters as texts, then enqueue_time (ms), type, retry_count, and of HEAD started_at (ms), finished_at (ms),
        overseer_id; `ironclaim` holds options of ours. Lives on for a moment after a success, for a day after death."""
        return f"{self.prefix}:job_run:{job}"

    def executor_count(self, worker: str = "") -> str:
        """Hash: count, how many handlers every worker, or this one, runs at once."""
        return f"{self.prefix}:executor_count{worker and ':' + worker}"

    def concurrency_limits(self, worker: str = "") -> str:
        """Hash: queue -> how many of its jobs every worker, or this one, runs at once."""
        return f"{self.prefix}:concurrency_limits{worker and ':' + worker}"

    def rate_limit(self, key: str) -> str:
        """Hash: window_start (s), run_count."""
        return f"{self.prefix}:rate_limit:{key}"

    def unique_job(self, text: str) -> str:
        """String: id of the run that keeps others with the same parameters out, while it lives."""
        return f"{self.prefix}:unique_job:{text}"

    def metadata(self, name: str) -> str:
        """Hash: what jobs of one name share, as their programs have it."""
        return f"{self.prefix}:job_metadata:{name}"

    def periodic_job(self, class_name: str) -> str:
        """Hash: last_executed_at (s), pending_run_id; for three intervals."""
        return f"{self.prefix}:periodic_jobs:{class_name}"

    def duration(self, name: str) -> str:
        """List: how long the last 100 runs took (ms); for 30 days."""
        return f"{self.prefix}:job:{name}:duration"

    def overseer(self, overseer: str) -> str:
        """Hash: heartbeat (s), executors (ids with commas between); for an hour."""
        return f"{self.prefix}:overseer:{overseer}"

    def executor(self, executor: str) -> str:
        """Hash: heartbeat (s), current_job, current_job_queue; for an hour."""
        return f"{self.prefix}:executor:{executor}"

    @staticmethod
    def channel(queue: str) -> str:
        """Channel: events of a queue as JSON. It has no global prefix."""
        return f"mosquito:queue:{queue}"
