"""The keys of Lanes, each with its Redis type and content. No other module spells them.

One queue is one hash slot, so it lives on one node and uses one core of it (rule 27).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LanesKeys:
    """Key names of one queue; `root` is the prefix that the application has set."""

    queue: str
    root: str = "ic"
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"{self.root}:{{{self.queue}}}:")

    def job(self, job: str) -> str:
        """String: the envelope, later its tombstone."""
        return f"{self.prefix}job:{job}"

    def run(self, job: str) -> str:
        """String of fields (`read_run_fields`): fence, nonce, seal (the part of the envelope that ending the
        job needs, in bytes), owner, claims, ended, outcome, renewal, marked, failures, crashes, error, limits
        (those that the lease counts against, with a space before each), errors and e0 to e9 (the number of
        failed runs, and the last ten of them), requeued_ms (older entries of `dead` do not count), unstarted
        (claims that were given back, one after the other, before any handler ran), progress (JSON) and
        progressed (token and counter); from first claim on. Before it, of a job with parents: heir (its claim
        reads what they have left), cause (of a failure callback: why its parent died). While a
        history is kept, of a job that ends: past (time, fence and outcome of its entry)."""
        return f"{self.prefix}run:{job}"

    def held(self, limit: str) -> str:
        """Zset: job id by lease deadline (ms), of the leases that count against a limit (rule 20)."""
        return f"{self.prefix}held:{limit}"

    def rate(self, limit: str) -> str:
        """Zset: `<id>:<fence>` by the time (ms) of the claim, for the length of the limit's window."""
        return f"{self.prefix}rate:{limit}"

    def parked_by(self, limit: str) -> str:
        """Zset: lanes that wait for a slot of this limit, by when they were parked (ms)."""
        return f"{self.prefix}parked:{limit}"

    def unique(self, key: str) -> str:
        """String: the id of the job that has this unique key."""
        return f"{self.prefix}unique:{key}"

    def dedup(self, key: str) -> str:
        """String: the id of the job that opened the window of this dedup key, for as long as it lasts."""
        return f"{self.prefix}dedup:{key}"

    def needs(self, job: str) -> str:
        """Set: ids of the jobs that this one waits for, of those that have not ended (rule 25)."""
        return f"{self.prefix}needs:{job}"

    def feeds(self, job: str) -> str:
        """Set: ids of the jobs that wait for this one, until its end has been handled for them; `>` with the
        sequence of a job that has callbacks."""
        return f"{self.prefix}feeds:{job}"

    def heirs(self, job: str) -> str:
        """Set: ids of the jobs that this one's result is kept for, after its end has been handled for them
        (rule 25)."""
        return f"{self.prefix}heirs:{job}"

    def lacks(self, job: str) -> str:
        """Set: ids of the parents that a dead job lacked when it was buried with one of them, without those
        that have finished since; '' where that leaves none; for 90 days (rule 25)."""
        return f"{self.prefix}lacks:{job}"

    def lost(self, job: str) -> str:
        """Set: ids of the jobs that were buried with this one and are dead still, or lead to others that may
        be; for 90 days after the last of them (rule 25)."""
        return f"{self.prefix}lost:{job}"

    def calls(self, sequence: int) -> str:
        """String: the envelopes of the jobs that the success and the failure of the job with this sequence
        make, the length of the first before them; empty once one was made (rule 25)."""
        return f"{self.prefix}calls:{sequence}"

    def op(self, op_id: str) -> str:
        """String: the record of an admin action that was done, and its reply (rule 7)."""
        return f"{self.prefix}op:{op_id}"

    def schedule(self, name: str) -> str:
        """Hash: a schedule's definition (`version`, `timing` and `policy` as JSON, `job`: an envelope whose
        sequence and time are zero) and its state: `enabled`, `anchor_ms`, `next_ms` (0 where it does not
        tick), `last_ms`, `last_job`, `count`, `missed`, `skipped`, `error`, and `ticked`, the last call that
        moved it: caller, jobs skipped, jobs made (rule 24)."""
        return f"{self.prefix}cron:{name}"

    def result(self, job: str) -> str:
        """String: how the job has ended, as JSON: ok, ended_ms, and fence, took_ms and value, or error; with
        a time to live, and 2^48 ms more while a job that needed this one waits or runs."""
        return f"{self.prefix}result:{job}"

    def waits(self, job: str) -> str:
        """String: the waiters for the end of the job, with spaces between; for 30 s after the last poll."""
        return f"{self.prefix}waits:{job}"

    def wait(self, waiter: str) -> str:
        """Stream: ids of jobs that have ended, for this waiter; for 60 s after its last poll."""
        return f"{self.prefix}wait:{waiter}"

    def ready(self, class_name: str) -> str:
        """Zset: lanes of the class that may be claimed now, by band of 2^49 and virtual time (rule 18)."""
        return f"{self.prefix}ready:{class_name}"

    def lane(self, lane: str) -> str:
        """Zset: job id by priority band and sequence (rule 16)."""
        return f"{self.prefix}lane:{lane}"

    def wake(self, class_name: str) -> str:
        """List: at most one wake-up (rule 22)."""
        return f"{self.prefix}wake:{class_name}"

    def claim(self, incarnation: str) -> str:
        """String: the last claim of an incarnation: its counter, then id and fence (or `corrupt`) of each job
        (rule 4)."""
        return f"{self.prefix}claim:{incarnation}"

    def swept(self, incarnation: str) -> str:
        """String: the last sweep of an incarnation that moved something: its counter, then its reply."""
        return f"{self.prefix}swept:{incarnation}"

    def worker(self, incarnation: str) -> str:
        """String: counter, ttl_ms and lease_ms of a worker's last heartbeat, then JSON about it; only the
        counter once it has ended."""
        return f"{self.prefix}worker:{incarnation}"

    def told(self, incarnation: str) -> str:
        """String: counter of a worker's last report of handler times."""
        return f"{self.prefix}told:{incarnation}"

    def took_by(self, name: str) -> str:
        """Hash: how long the handlers of a name took, `*` for all names beyond the bound: `ok:total_us`,
        `ok:most_us`, and `ok:<bucket>`, the number of runs in that bucket of times; the same with
        `failed:`."""
        return f"{self.prefix}took:{name}"

    def lock(self, name: str) -> str:
        """Hash: token ('' after its release), fence, until_ms, length_ms, renewal, of a user's lock."""
        return f"{self.prefix}lock:{name}"

    @property
    def workers(self) -> str:
        """Zset: incarnation by the time (ms) until which its worker counts as alive."""
        return f"{self.prefix}workers"

    @property
    def connections(self) -> str:
        """Hash: incarnation -> its control connection, by which others see that its worker lives: client id
        and run id of the server (rule 39)."""
        return f"{self.prefix}connections"

    @property
    def took(self) -> str:
        """Zset: names of jobs that `took:<name>` has times of, by the time (ms) of the first report."""
        return f"{self.prefix}took"

    @property
    def leader(self) -> str:
        """String: incarnation of the worker whose sweeps come at once."""
        return f"{self.prefix}leader"

    @property
    def witness(self) -> str:
        """String: time (us) of the last witness call, a write before a WAIT for a replica (rule 8)."""
        return f"{self.prefix}witness"

    @property
    def shards(self) -> str:
        """String: the record of a queue's shards as JSON, in the slot of shard 0
        (engine/queue/sharding.py)."""
        return f"{self.prefix}shards"

    @property
    def transit(self) -> str:
        """Hash: the batch of jobs that is on its way to another shard (lua/shards/shard_take.lua)."""
        return f"{self.prefix}transit"

    @property
    def arrived(self) -> str:
        """Hash: shard -> number of the last batch of jobs that has come from it."""
        return f"{self.prefix}arrived"

    @property
    def queues(self) -> str:
        """Zset: queue by the time (ms) of its last use; of all queues with this prefix, in a slot of its own
        (rule 27)."""
        return f"{self.root}:queues"

    @property
    def active(self) -> str:
        """Zset: job id by lease deadline (ms)."""
        return f"{self.prefix}active"

    @property
    def due(self) -> str:
        """Zset: 10 base-32 digits of the sequence, then the job id; by due_ms."""
        return f"{self.prefix}due"

    @property
    def expiring(self) -> str:
        """Zset: 10 base-32 digits of the sequence, then the job id, of jobs that nobody has started; by the
        time (ms) at which they expire (rule 38)."""
        return f"{self.prefix}expiring"

    @property
    def cron(self) -> str:
        """Zset: name of a schedule by its next tick (ms), +inf for one that does not tick."""
        return f"{self.prefix}cron"

    @property
    def dead(self) -> str:
        """Zset: job id by time of death (ms)."""
        return f"{self.prefix}dead"

    @property
    def done(self) -> str:
        """Zset: job id by time of its finish (ms); bounded by count."""
        return f"{self.prefix}done"

    @property
    def blocked(self) -> str:
        """Zset: job id by the time of its enqueue (ms), of the jobs that wait for others; those are in no
        lane and not due."""
        return f"{self.prefix}blocked"

    @property
    def feeding(self) -> str:
        """Set: ids of the jobs that others wait for: a script that ends one of them adds it to `handing`."""
        return f"{self.prefix}feeding"

    @property
    def handing(self) -> str:
        """Zset: `+` (finished) or `-` (lost) and the id of a job whose children are not all handled yet, by
        the time of its end."""
        return f"{self.prefix}handing"

    @property
    def keeping(self) -> str:
        """Zset: ids of the jobs whose results are kept for others, by the time (ms) of their last check by a
        sweep."""
        return f"{self.prefix}keeping"

    @property
    def classes(self) -> str:
        """Hash: class -> what it requires of a worker, as JSON; '' = nothing. A class is a job's name, or the
        name, @, the routing key and ~ with a digest of the target."""
        return f"{self.prefix}classes"

    @property
    def routed(self) -> str:
        """Hash: name of jobs -> its classes with targets, each with a space before it."""
        return f"{self.prefix}routed"

    @property
    def settings(self) -> str:
        """Hash: `version` of the updates for workers (classes with targets, and these settings); `c:<worker>`
        or `c:*` -> handlers at once; `p:<worker>` -> until_ms (0 = until it is resumed) and length of its
        pause in ms."""
        return f"{self.prefix}settings"

    def news(self, version: int) -> str:
        """List: at most one wake-up, for workers that know this version of the settings and none after it."""
        return f"{self.prefix}news:{version}"

    def control(self, worker: str) -> tuple[str, str]:
        """The two pub/sub channels that a worker reads: what is for all workers of the queue, and what is for
        those of this name (engine/ops/workers.py)."""
        return f"{self.prefix}control", f"{self.prefix}control:{worker}"

    @property
    def seq(self) -> str:
        """String: the last sequence, below 2^48."""
        return f"{self.prefix}seq"

    @property
    def era(self) -> str:
        """List: the servers that the queue was on, the latest first: replication id, `seq` when it came
        there, server time (ms); at most 16."""
        return f"{self.prefix}era"

    @property
    def lasting(self) -> tuple[str, ...]:
        """The keys beside `sweep` and `seq` of which a queue that was ever used has some, whatever jobs it
        holds."""
        named = (
            self.active,
            self.due,
            self.dead,
            self.done,
            self.blocked,
            self.cron,
            self.classes,
            self.parked,
            self.limits,
        )
        return (
            *named,
            self.paused,
            self.retention,
            self.settings,
            self.workers,
            self.stats,
            self.events,
            self.era,
        )

    @property
    def limits(self) -> str:
        """Hash: `n:<name>`, `k:<key>` or `k:*` (every key without its own) -> concurrency, rate, per_ms,
        fixed or sliding."""
        return f"{self.prefix}limits"

    @property
    def parked(self) -> str:
        """Hash: lane -> the limit that it waits for, or `rest`. A lane with jobs is here or among the ready
        ones."""
        return f"{self.prefix}parked"

    @property
    def rest(self) -> str:
        """Zset: `l:<lane>` by the time (ms) when it comes back, `w:<class>` or `w:*` by the time when its
        wake-up is due."""
        return f"{self.prefix}rest"

    @property
    def blocking(self) -> str:
        """Zset: limits with parked lanes, by the time (ms) of their last check by a sweep."""
        return f"{self.prefix}blocking"

    @property
    def paused(self) -> str:
        """Hash: class or `*` -> until_ms (0 = until it is resumed) and length of the pause in ms."""
        return f"{self.prefix}paused"

    @property
    def retention(self) -> str:
        """Hash: the set ones of `done_max`, `done_age_ms`, `dead_max`, `dead_age_ms`."""
        return f"{self.prefix}retention"

    @property
    def events(self) -> str:
        """Stream: events, each with `kind`, `job`, `name` and `detail`; about as many as `events` in `stats`
        allows."""
        return f"{self.prefix}events"

    @property
    def history(self) -> str:
        """Zset: how jobs have ended, by time (ms). A member has these fields with a zero byte between each:
        id, fence of the last lease, outcome, name, key, unique key, worker, numbers (enqueued_ms, due_ms, the
        fence again if a run ended it, else 0, claims, failures, crashes, bytes of the payload), error, and,
        where payloads are kept, serializer and payload."""
        return f"{self.prefix}history"

    @property
    def stats(self) -> str:
        """Hash: counters `finished`, `buried`, `schedules` (versions given), `data_losses` and `lost_era`,
        the entry of `era` that the last of those was counted for; `turn`, the virtual time of the lanes (rule
        18); `waits_ms`, the time until which a caller may wait for the end of a job; `events`, how many
        events are kept, if any; `history`, its setting, if any (lua/admin/set_history.lua);
        `moved`, in a shard that takes no new jobs, what enqueues are told (lua/shards/shard_gate.lua)."""
        return f"{self.prefix}stats"

    @property
    def sweep(self) -> str:
        """Hash: state of the sweeps (ms): `max_lease_ms`, `recent_lease_ms`, `least_lease_ms`,
        `recent_least_ms`, `forgot_ms`, `last_sweep_ms`, `no_reap_before_ms` (rules 10 and 11),
        `rests_from_ms`, `limits_changed_ms`; `beat_ttl_ms`, `last_beat_ms`, `no_orphans_before_ms`; `led_ms`,
        the last sweep of the leader, and `turn_ms`, the last watch slot that a follower was given (rule 13);
        `orphans_until_ms`, `orphans_from` (a score) and `orphans_after` (an id) of the running pass;
        `looked_ms`, the last look at the control connections, and `look_from`, the cursor of the next one;
        `dead_from` (a rank); `test_clock` on queues created for tests."""
        return f"{self.prefix}sweep"
