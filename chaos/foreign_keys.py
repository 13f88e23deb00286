"""Names of the keys of foreign keyspaces, each with its Redis type, content and unit: what the programs before the engine
see, for the harness and tests.

The engine's scripts spell them in `lua/<format>/modules/wire.lua`. The engine's own keys beside them are in
`engine.models.foreign.foreign`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BullKeys:
    """Bull's own keys of one queue. `root` ends with a colon."""

    root: str

    @property
    def id(self) -> str:
        """String: the last number given to a job."""
        return f"{self.root}id"

    def job(self, id: str) -> str:
        """Hash: data and opts (JSON), progress, delay (ms), timestamp (ms since 1970), attempts, attemptsMade, stacktrace (JSON
        array of texts), returnvalue (JSON, or '')."""
        return f"{self.root}{id}"

    def lock(self, id: str) -> str:
        """String with a time to live (ms): the holder of the job; of this engine `<fence>:<nonce>`."""
        return f"{self.root}{id}:lock"

    @property
    def wait(self) -> str:
        """List: ids; put in at the left, LIFO ones at the right, taken from the right."""
        return f"{self.root}wait"

    @property
    def paused(self) -> str:
        """List: the jobs that would be in `wait` if the queue were not paused. Also a channel: `paused` and `resumed`."""
        return f"{self.root}paused"

    @property
    def meta_paused(self) -> str:
        """String `1`: the queue is paused."""
        return f"{self.root}meta-paused"

    @property
    def active(self) -> str:
        """List: ids of jobs that run; put in at the left."""
        return f"{self.root}active"

    @property
    def delayed(self) -> str:
        """Zset: id by due time (ms) times 4096 plus the id's low 12 bits. Also a channel: the score divided by 4096."""
        return f"{self.root}delayed"

    @property
    def completed(self) -> str:
        """Set: ids, without bound."""
        return f"{self.root}completed"

    @property
    def failed(self) -> str:
        """Set: ids, without bound."""
        return f"{self.root}failed"

    @property
    def jobs(self) -> str:
        """Channel: the id of a job that waits from now on."""
        return f"{self.root}jobs"


@dataclass(frozen=True, slots=True)
class BananasKeys:
    """Bananas' keys of one keyspace; `root` is their prefix with its colon. `layout`: `document`; `live` has other lists of the
    default route, and other keys of schedules; `routed` only the latter."""

    root: str = "bananas:"
    layout: str = "document"

    def job(self, id: str) -> str:
        """String: the job as JSON, with times as RFC 3339; to live 24 h once it has completed, 7 days once it is dead."""
        return f"{self.root}job:{id}"

    def waiting(self, route: str, level: str) -> str:
        """List: ids that wait, put in at the left, taken from the right; `level` is high, normal or low."""
        if self.layout == "live" and route == "default":
            return f"{self.root}queue:{level}"
        return f"{self.root}route:{route}:queue:{level}"

    def result(self, id: str) -> str:
        """Hash: status, completed_at (RFC 3339), duration_ms, result (JSON) or error; to live 1 h, of a dead job 24 h."""
        return f"{self.root}result:{id}"

    def notify(self, id: str) -> str:
        """Channel: `ready`, when the result is there."""
        return f"{self.root}result:notify:{id}"

    def cron_lock(self, schedule: str) -> str:
        """String: token of the scheduler that runs a tick; the originals set an expiry of 60 s, the document one of 5 minutes."""
        return f"{self.root}{'cron:lock' if self.layout == 'document' else 'schedule_lock'}:{schedule}"

    def cron_state(self, schedule: str) -> str:
        """Hash: last_run, next_run, last_success (RFC 3339), last_error, run_count."""
        return f"{self.root}{'cron:state' if self.layout == 'document' else 'schedules'}:{schedule}"

    @property
    def processing(self) -> str:
        """List: ids of active jobs, of all routes."""
        return f"{self.root}queue:processing"

    @property
    def dead(self) -> str:
        """List: ids of dead jobs, the last one at the left."""
        return f"{self.root}queue:dead"

    @property
    def scheduled(self) -> str:
        """Zset: id by the unix time in seconds at which it is due; whole in this engine and Go, with fractions in others."""
        return f"{self.root}queue:scheduled"

    @property
    def routes(self) -> str:
        """Set, the engine's: the known routing keys but the default one."""
        return f"{self.root}ironclaim:routes"

    @property
    def seq(self) -> str:
        """String, the engine's: a number that orders delayed jobs of one millisecond, and names jobs that have no id."""
        return f"{self.root}ironclaim:seq"

    @property
    def done(self) -> str:
        """Zset, the engine's: id by the time (ms) at which one of its workers finished it; the last 1,000. The format has no
        such list."""
        return f"{self.root}ironclaim:done"

    @property
    def adopting(self) -> str:
        """Zset, the engine's: id by the time (ms) when it was first seen in `queue:processing` without a lease of the
        engine."""
        return f"{self.root}ironclaim:adopting"

    @property
    def purge(self) -> str:
        """String, the engine's: the position from which a deletion goes on; for an hour."""
        return f"{self.root}ironclaim:purge"


@dataclass(frozen=True, slots=True)
class BridgeKeys:
    """BridgeMQ's keys of one keyspace; all times are ms since 1970 unless noted otherwise."""

    root: str

    def data(self, job: str) -> str:
        """String, JSON: the job. Written at once with its status; its `attempts` change with each failed run; never deleted."""
        return f"{self.root}jobs:data:{job}"

    def status(self, job: str) -> str:
        """String: waiting, active, completed, failed, delayed, cron or dead."""
        return f"{self.root}jobs:status:{job}"

    def result(self, job: str) -> str:
        """String, JSON, for 86,400 s: success, data or error, completedAt (ms), processingTime (ms)."""
        return f"{self.root}jobs:result:{job}"

    def lock(self, job: str) -> str:
        """String: the worker that runs the job; for as long as its lease (foreign clients: 30 s)."""
        return f"{self.root}jobs:lock:{job}"

    def progress(self, job: str) -> str:
        """String, JSON: percent, message, updatedAt (ms)."""
        return f"{self.root}jobs:progress:{job}"

    @property
    def waiting(self) -> str:
        """List of ids, claimed from the head; priorities from 7 on enter there, others at the end."""
        return f"{self.root}jobs:waiting"

    @property
    def active(self) -> str:
        """Set of ids."""
        return f"{self.root}jobs:active"

    @property
    def delayed(self) -> str:
        """Zset: id by the time (ms) when it is due."""
        return f"{self.root}jobs:delayed"

    @property
    def cron(self) -> str:
        """Zset: entry by its next tick (ms)."""
        return f"{self.root}jobs:cron"

    @property
    def dead(self) -> str:
        """List of ids, the last one first."""
        return f"{self.root}jobs:deadletter"

    @property
    def paused(self) -> str:
        """Set of types of jobs."""
        return f"{self.root}queues:paused"

    def running(self, kind: str) -> str:
        """String: how many jobs of a type are active."""
        return f"{self.root}ratelimit:concurrent:{kind}"

    def minute(self, kind: str) -> str:
        """String, for 60 s from the first: claims of limited jobs of a type."""
        return f"{self.root}ratelimit:minute:{kind}"

    @property
    def workers(self) -> str:
        """Set of the names of registered workers."""
        return f"{self.root}workers:active"

    def worker(self, name: str) -> str:
        """String, JSON: serverId, stack, region, capabilities, lastSeen (ms), pid, hostname."""
        return f"{self.root}workers:{name}"

    def heartbeat(self, name: str) -> str:
        """String: time (ms) of the last heartbeat; expires after three intervals of heartbeats (30 s)."""
        return f"{self.root}workers:heartbeat:{name}"

    @property
    def scheduler(self) -> str:
        """String, for as long as a heartbeat counts: incarnation of the leader."""
        return f"{self.root}scheduler:lock"


@dataclass(frozen=True, slots=True)
class MosquitoKeys:
    """Mosquito's keys of one queue. `prefix` is its own, behind a global prefix if there is one: `app:mosquito`."""

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
