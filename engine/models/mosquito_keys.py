"""The keys of a Mosquito keyspace, each with its type and unit in either layout. No other Python module spells them.

`lua/mosquito/modules/wire.lua` has the same names; the engine's own keys are in `engine.models.foreign_keys`.
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
        """Ids of runs that may start. live: list, pushed left, taken right. document: zset by arrival (ms; within one ms by
        fractions)."""
        return f"{self.prefix}:waiting:{self.queue}"

    @property
    def pending(self) -> str:
        """Ids of active runs. live: list. document: zset by the time of the claim (ms)."""
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
        """Zset: name of a queue by its last enqueue (s), of all queues with this prefix; runners read only listed queues."""
        return f"{self.prefix}:queues"

    @property
    def pause(self) -> str:
        """String: no job of the queue is claimed while it exists; it has a time to live if the pause has an end."""
        return f"{self.prefix}:queue:{self.queue}:pause"

    @property
    def overseers(self) -> str:
        """Zset: overseer by its last heartbeat (s)."""
        return f"{self.prefix}:overseers"

    @property
    def football(self) -> str:
        """String: id of the coordinator (v2), for 10 s."""
        return f"{self.prefix}:coordinator:football"

    @property
    def leadership(self) -> str:
        """String: id of the coordinator (HEAD), for 30 s, renewed."""
        return f"{self.prefix}:coordinator:leadership_lock"

    def run(self, job: str) -> str:
        """Hash: parameters as texts, then enqueue_time (ms), type, retry_count, and of HEAD started_at (ms), finished_at (ms),
        overseer_id; `ironclaim` holds options of this engine. Kept for a short time after a success, for a day after death."""
        return f"{self.prefix}:job_run:{job}"

    def executor_count(self, worker: str = "") -> str:
        """Hash: count, how many handlers each worker (or this one) runs at once."""
        return f"{self.prefix}:executor_count{worker and ':' + worker}"

    def concurrency_limits(self, worker: str = "") -> str:
        """Hash: queue -> how many of its jobs each worker (or this one) runs at once."""
        return f"{self.prefix}:concurrency_limits{worker and ':' + worker}"

    def rate_limit(self, key: str) -> str:
        """Hash: window_start (s), run_count."""
        return f"{self.prefix}:rate_limit:{key}"

    def unique_job(self, text: str) -> str:
        """String: id of the run of which others with the same parameters are duplicates, while the key exists."""
        return f"{self.prefix}:unique_job:{text}"

    def metadata(self, name: str) -> str:
        """Hash: metadata that all jobs of one name share; its fields are the application's."""
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
