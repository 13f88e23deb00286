"""The engine's operations and their replies, as plain values, the same for every model.

A model maps an operation to a call; an observer reads the operation and the reply. Times that end in `_ms` are server time
since 1970 or lengths; `srv_us` is the server's time of the reply in microseconds. This module needs the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from engine.class_names import class_of
from engine.operations_workers import RegistryOperation, WorkersOperation, WorkersReply

#: How the wait between two runs grows with the failed runs n: not at all, by 2^(n-1), by n, by n squared, or as a list says.
Backoff = Literal["fixed", "exponential", "linear", "geometric", "custom"]
#: What becomes of a job when one that it needs is lost: buried as well, or it goes on (rule 25).
ParentFailure = Literal["bury", "ignore"]
#: How a job ends that is neither finished nor dead.
DropOutcome = Literal["discarded", "skipped", "rerouted"]
#: What the rate of a limit counts in (rule 20).
Window = Literal["fixed", "sliding"]
#: What becomes of ticks that nobody saw in time: none runs, the last one runs for all, or all of them run.
Missed = Literal["skip", "once", "all"]
#: Whether a schedule makes a job while the one that it made before has not ended.
Overlap = Literal["allow", "skip"]


class Lease(NamedTuple):
    """The right to run and end one job: its id and the token (fence, nonce) of one claim (rule 6)."""

    job: str
    fence: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Options:
    """What a job carries beside its payload. `lifo` puts it before its equals; `headers` travel untouched.

    `attempts` bounds the runs whose handler failed, `crashes_max` the leases that ended in a crash (rules 6 and 12). `serializer`
    names what wrote the payload, '' = JSON. `key` is the tenant or limit key that makes the job's lane; `unique` and `dedup` are
    the keys of rule 23, '' = none.

    `backoff_max_ms` 0 and `jitter` None are those of the kind of back-off; `backoff_delays_ms` belongs to the custom one. `needs`
    are ids of parents (rule 25). `run_at_ms` is when the job is due instead of a delay, `timestamp_ms` what its producer calls
    its time; 0 = none. `skip_on` and `reroute_on` name classes of exceptions, the latter each with its target.
    """

    priority: int = 5
    lifo: bool = False
    delay_ms: int = 0
    attempts: int = 3
    backoff_ms: int = 1000
    timeout_ms: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    serializer: str = ""
    run_at_ms: int = 0
    timestamp_ms: int = 0
    backoff: Backoff = "fixed"
    crashes_max: int = 3
    key: str = ""
    unique: str = ""
    dedup: str = ""
    dedup_ms: int = 0
    backoff_max_ms: int = 0
    backoff_delays_ms: tuple[int, ...] = ()
    jitter: float | None = None
    needs: tuple[str, ...] = ()
    on_parent_failure: ParentFailure = "bury"
    skip_on: tuple[str, ...] = ()
    reroute_on: tuple[tuple[str, str], ...] = ()
    #: The routing key, '' = the default one, and the target as JSON, '' = any worker (engine/routing.py).
    route: str = ""
    target: str = ""
    result_ttl_ms: int = 3_600_000
    error_ttl_ms: int = 86_400_000
    #: Places that one claim takes in the window of a rate.
    cost: int = 1

    @property
    def wait_ms(self) -> int:
        """As the scripts read it: the delay, or below 0 the server time at which the job is due."""
        return self.delay_ms or -self.run_at_ms


class Enqueue(NamedTuple):
    """Create one job. (job, nonce) is the identity; after `not_after_ms` the call is void (rule 3). Its class is its name
    with what it wants of a worker, its lane that class and its key (rule 18)."""

    job: str
    name: str
    payload: bytes
    nonce: bytes
    not_after_ms: int
    options: Options

    @property
    def class_name(self) -> str:
        """The class: jobs that the same workers may claim."""
        options = self.options
        return class_of(self.name, options.route, options.target) if options.route or options.target else self.name

    @property
    def lane(self) -> str:
        """The lane: jobs of a class that share a key."""
        return f"{self.class_name}/{self.options.key}" if self.options.key else self.class_name


@dataclass(frozen=True, slots=True)
class EnqueueMany:
    """Create jobs in one piece and in this order. Their ids differ; nonce and `not_after_ms` are the same in all."""

    jobs: tuple[Enqueue, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Lease up to `limit` jobs of these classes, at most 16. At most `crashed_max` of them have a crash behind them: a worker
    runs one of those at a time, and the others may be run elsewhere (rule 12). With `priorities` only
    jobs with one from the first to the second. (incarnation, counter) is the identity (rule 4).
    """

    incarnation: str
    counter: int
    limit: int
    lease_ms: int
    not_after_ms: int
    owner: str
    sleep_max_ms: int
    classes: tuple[str, ...]
    crashed_max: int = 1000
    priorities: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """What a handler returned: JSON, how long it is kept, and how long the handler took. `item` is the place of its lease in the
    call."""

    item: int
    data: bytes
    ttl_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End leases as finished, and claim the next jobs in the same call when `claim` is given. `values`: what those handlers
    returned that returned something."""

    leases: tuple[Lease, ...]
    claim: Claim | None = None
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed run: the lease, why, how long the job waits before the next run, the stack trace for the error history, and
    whether it uses up an attempt."""

    lease: Lease
    error: str
    delay_ms: int = 0
    trace: str = ""
    charge: bool = True


@dataclass(frozen=True, slots=True)
class Retry:
    """End leases of failed runs: each job waits for its back-off, or is buried when its attempts are used up."""

    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Bury:
    """End leases of jobs that must not run again by themselves."""

    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """End leases for good without a finish, each with its outcome: `discarded`, `skipped` or `rerouted`."""

    leases: tuple[Lease, ...]
    outcomes: tuple[DropOutcome, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Give leases back, uncharged."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """Renew leases. `renewal` counts the worker's renewals: one that was applied is not applied again (rule 9)."""

    leases: tuple[Lease, ...]
    renewal: int
    lease_ms: int
    not_after_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    """Say that the handler of a job with a crash behind it is about to run: only then is the next crash charged (rule 12)."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class NoteProgress:
    """Note how far a running job has come: `body` are the fields of a JSON object and its closing brace. `count` counts what the
    worker has noted: an older copy changes nothing (rule 7)."""

    lease: Lease
    count: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Read how far a job has come."""

    job: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make due jobs claimable. (incarnation, counter) is the identity; reaps and promotions count together."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int


@dataclass(frozen=True, slots=True)
class Reap:
    """Take expired leases away; jobs that have crashed too often are buried. (incarnation, counter) is the identity. `orphans`:
    instead of expired ones those of workers that have stopped beating."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int
    done_max: int
    orphans: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until one of the classes, at most 15, may have work, or something is new to workers that know this version of the
    news (None: it is not waited for); at most `block_ms`."""

    block_ms: int
    classes: tuple[str, ...]
    version: int | None = None


@dataclass(frozen=True, slots=True)
class News:
    """Ask what is new to a worker that knows this version: classes with targets, and what is set for the worker."""

    version: int
    worker: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Claim nothing of a class (`*`: of the queue) until it is resumed, or for `length_ms`. `op_id` is the identity (rule 7)."""

    op_id: str
    not_after_ms: int
    class_name: str
    length_ms: int


@dataclass(frozen=True, slots=True)
class Resume:
    """End a pause. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    class_name: str


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `concurrency` jobs in hand at once, and at most `rate` claims in `per_ms`; 0 = no such bound. A fixed window begins
    at a multiple of its length, a sliding one is every stretch of that length."""

    concurrency: int = 0
    rate: int = 0
    per_ms: int = 0
    window: Window = "sliding"


@dataclass(frozen=True, slots=True)
class SetLimit:
    """Define a limit (None: remove it) for a name (`n:<name>`), for a key (`k:<key>`) or for every key without its own (`k:*`).
    `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    target: str
    limit: Limit | None


#: What is done to a job by hand: `run_now` ends its delay, `requeue` its death; the others end the job.
Deed = Literal["cancel", "remove", "discard", "requeue", "run_now"]


@dataclass(frozen=True, slots=True)
class Alter:
    """Do something to those of the jobs that are in this `state`; the state of another one is told, and it is left alone. `op_id`
    is the identity (rule 7)."""

    op_id: str
    not_after_ms: int
    deed: Deed
    jobs: tuple[str, ...]
    state: str


@dataclass(frozen=True, slots=True)
class Era:
    """Where the deletion of many jobs began: what came later than this sequence, or ended after this time, stays."""

    sequence: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Clean:
    """Remove at most `most` jobs of a state that are older than so long, of one page of at most `limit` behind `offset` others.
    `era`: None = it begins now. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    state: str
    older_than_ms: int
    era: Era | None
    offset: int
    limit: int
    most: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Begin or end the deletion of a queue. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    phase: Literal["begin", "end"]
    force: bool


@dataclass(frozen=True, slots=True)
class SetRetention:
    """Bounds of what is kept of ended jobs, by their field. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    bounds: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SetEvents:
    """Keep about so many events of the queue from now on; 0: none. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    keep: int


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """At most `limit` events after entry `after`; `block_ms`: wait so long for the first one, 0 = not at all. `$`: no event, only
    the entry that is the last one now."""

    after: str
    limit: int
    block_ms: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """What is known of these jobs; `whole`: with envelopes and run fields, else their states alone."""

    jobs: tuple[str, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the jobs in a state: their ids, or with `names` how many of them each name has."""

    state: str
    offset: int
    limit: int
    newest_first: bool = False
    names: bool = False


@dataclass(frozen=True, slots=True)
class SetWorker:
    """Set how many handlers a worker runs at once (`c:<worker>`, `c:*` for every worker without its own), or pause it for so many
    ms (`p:<worker>`, 0 = until it is resumed); None removes that. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    field: str
    value: int | None


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule ticks: by a cron expression in an IANA zone, every `every_ms`, or every so many `months`; not before
    `start_ms`, from which intervals count (0 = from when it was put)."""

    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    months: int = 0
    start_ms: int = 0


@dataclass(frozen=True, slots=True)
class TickPolicy:
    """What a schedule does about ticks that were seen more than `late_ms` after their time, and about a job of its own that has
    not ended."""

    missed: Missed = "once"
    late_ms: int = 60_000
    overlap: Overlap = "allow"


@dataclass(frozen=True, slots=True)
class PutSchedule:
    """Define a schedule. One that is there with the same definition stays as it is; with the same timing it keeps its next
    tick and its anchor. `job` is what each tick enqueues, its id and nonce aside; `enabled` None: as it is, a new one is.
    `op_id` is the identity (rule 7)."""

    op_id: str
    not_after_ms: int
    schedule: str
    timing: Timing
    policy: TickPolicy
    job: Enqueue
    next_ms: int
    anchor_ms: int
    enabled: bool | None


@dataclass(frozen=True, slots=True)
class EnableSchedule:
    """Let a schedule tick from `next_ms` on (0: not any more), if this version of it is there. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    schedule: str
    version: int
    next_ms: int


@dataclass(frozen=True, slots=True)
class RemoveSchedule:
    """Forget a schedule; jobs that it has made stay. `op_id` is the identity."""

    op_id: str
    not_after_ms: int
    schedule: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Make the jobs of a schedule's due ticks and move it on to `next_ms`, if it still waits for `expected_ms` in this version:
    these two make that no tick fires twice (rule 24). `missed` ticks are passed by. With an `error` it can never tick and is
    disabled. (incarnation, counter) tells another copy from another scheduler."""

    incarnation: str
    counter: int
    schedule: str
    version: str
    expected_ms: int
    ticks_ms: tuple[int, ...]
    next_ms: int
    missed: int
    overlap: Overlap
    error: str = ""


@dataclass(frozen=True, slots=True)
class ListSchedules:
    """One page of the schedules, by next tick, or the one of this name."""

    schedule: str = ""
    offset: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Count:
    """Count the jobs in each state; with classes, of the waiting ones only those in them."""

    classes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """Look what became of a job. With a `token`, one that has not ended is waited for: its end is told to that token's stream."""

    job: str
    token: str = ""


@dataclass(frozen=True, slots=True)
class Hear:
    """Block until something is told to a token's stream after entry `after`; at most `block_ms`."""

    token: str
    after: str
    block_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of every state."""

    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class MakeTestQueue:
    """Allow `now_ms` on a queue that has never held a job."""


Operation = (
    Enqueue
    | EnqueueMany
    | Claim
    | Finish
    | Retry
    | Bury
    | Drop
    | Release
    | Extend
    | Mark
    | NoteProgress
    | ReadProgress
    | Promote
    | Reap
    | Wait
    | News
    | Pause
    | Resume
    | SetLimit
    | SetWorker
    | PutSchedule
    | EnableSchedule
    | RemoveSchedule
    | Tick
    | ListSchedules
    | Alter
    | Clean
    | Forget
    | SetRetention
    | SetEvents
    | ReadEvents
    | Inspect
    | Page
    | Count
    | Look
    | Hear
    | Listing
    | MakeTestQueue
    | WorkersOperation
    | RegistryOperation
)

EnqueueResult = Literal["created", "repeated", "duplicate", "refused", "orphan"]
ClaimResult = Literal["leased", "empty", "repeated", "void", "stale"]
EndResult = Literal["ok", "repeated", "stale", "cancelled", "void"]
MarkResult = Literal["ok", "repeated", "stale"]
SeenState = Literal["pending", "finished", "discarded", "rejected", "dead", "kept", "gone"]
AdministeredResult = Literal["done", "repeated", "refused"]
TickResult = Literal["ticked", "repeated", "moved"]


class Enqueued(NamedTuple):
    """`created`, or `repeated` for another copy of the same call. `duplicate`: the id was there already, or the job `holder` has
    the unique key or opened the window of the dedup key; `state` and `fence` say what became of that job (`gone`: nothing is
    left of it). `refused`: the call came too late and was not applied; `orphan`: nor was this one, for nothing is known of the
    job `holder`, which it needs."""

    srv_us: int
    job: str
    result: EnqueueResult
    state: str = ""
    fence: int = 0
    holder: str = ""

    @property
    def created(self) -> bool:
        """True when this call created the job, by whichever of its copies."""
        return self.result in ("created", "repeated")


@dataclass(frozen=True, slots=True)
class EnqueuedMany:
    """For each job of the call, in its order: what came of it."""

    srv_us: int
    items: tuple[Enqueued, ...]


class LeasedJob(NamedTuple):
    """One job as it was claimed: the lease and its end, what the envelope holds, and the three counters of rule 6."""

    lease: Lease
    deadline_ms: int
    name: str
    class_name: str
    lane: str
    payload: bytes
    options: Options
    enqueued_ms: int
    due_ms: int
    claims: int
    failures: int
    crashes: int


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim leased. `sleep_ms`: the next sweep may wait that long. `corrupt`: ids that the script could not read and
    buried, also while it promoted. `unreadable`: jobs that are leased and cannot be run, each with the reason; their holder
    buries them."""

    srv_us: int
    result: ClaimResult
    sleep_ms: int
    jobs: tuple[LeasedJob, ...]
    corrupt: tuple[str, ...] = ()
    unreadable: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """For each item of the call, in its order: the result and how the lease ended."""

    srv_us: int
    items: tuple[tuple[EndResult, str], ...]


@dataclass(frozen=True, slots=True)
class FinishedAndClaimed:
    """Both halves of the fused call."""

    srv_us: int
    finished: Ended
    claimed: Claimed


@dataclass(frozen=True, slots=True)
class Extended:
    """For each lease, in the call's order: the result and the server time at which it now ends (0 when stale or cancelled)."""

    srv_us: int
    items: tuple[tuple[EndResult, int], ...]


@dataclass(frozen=True, slots=True)
class Marked:
    """`ok`; `repeated` for another copy of the same call; `stale` when the lease has ended, so the handler must not start."""

    srv_us: int
    result: MarkResult


class DueSchedule(NamedTuple):
    """A schedule whose next tick, `expected_ms`, has come: its version and how it ticks, as they are stored."""

    schedule: str
    version: str
    expected_ms: int
    anchor_ms: int
    timing: str
    policy: str


@dataclass(frozen=True, slots=True)
class Promoted:
    """How many due jobs became claimable, and the first of the schedules that are due. `corrupt`: ids that the script could not
    read and buried. `version` of the news."""

    srv_us: int
    promoted: int
    sleep_ms: int
    corrupt: tuple[str, ...] = ()
    due: tuple[DueSchedule, ...] = ()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Learned:
    """The news: classes with their targets (JSON), how many handlers the worker runs at once (0: as it was started), and its
    pause (None: there is none, 0: until it is resumed, else the ms that are left)."""

    srv_us: int
    version: int
    concurrency: int
    pause_ms: int | None
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reaped:
    """The leases that were taken away, each with the job's crash counter. `buried`: ids that had crashed too often; `corrupt`:
    ids that the script could not read and buried. Where a sweep was cut off, an id may stand there without its lease."""

    srv_us: int
    sleep_ms: int
    leases: tuple[tuple[Lease, int], ...]
    buried: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Woken:
    """`marker`: that of a class was there, `news`: that of the news; none when the block ran out."""

    marker: bool
    news: bool = False


@dataclass(frozen=True, slots=True)
class Administered:
    """`done`, or `repeated` for another copy of the same call. `refused`: the call came too late and was not applied."""

    srv_us: int
    result: AdministeredResult

    @property
    def done(self) -> bool:
        """True when this call was carried out, by whichever of its copies."""
        return self.result != "refused"


class NameCounts(NamedTuple):
    """Jobs of one name in each state."""

    waiting: int = 0
    delayed: int = 0
    active: int = 0
    dead: int = 0
    blocked: int = 0


class Altered(NamedTuple):
    """What came of one job: `done`; `changed` when it was in another `state`; `held` when the job `holder` has its unique key by
    now; `corrupt` when nobody can read it, so that it cannot run."""

    job: str
    result: Literal["done", "changed", "held", "corrupt"]
    state: str
    holder: str | None = None

    @property
    def done(self) -> bool:
        """True when this call has done it, by whichever of its copies. `state` is the one that it was in before."""
        return self.result == "done"


@dataclass(frozen=True, slots=True)
class AlteredJobs(Administered):
    """With what came of each job of the call, in its order; of none when it was refused."""

    items: tuple[Altered, ...] = ()


@dataclass(frozen=True, slots=True)
class Cleaned(Administered):
    """With how many jobs were removed, how many stay, and the era."""

    removed: int = 0
    kept: int = 0
    era: Era | None = None


@dataclass(frozen=True, slots=True)
class Forgotten(Administered):
    """With the era; without, and `busy`, when jobs are in hand."""

    era: Era | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Paged:
    """How many entries were looked at, and their ids, or the count of each name."""

    srv_us: int
    seen: int
    jobs: tuple[str, ...]
    names: dict[str, int]


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of one job, raw: its state, last fence, the time that its state is scored by, envelope and run fields."""

    state: str
    fence: int
    at_ms: int
    envelope: bytes
    run: dict[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class Inspected:
    """What is known of the first jobs of the call, at least of one."""

    srv_us: int
    items: tuple[Looked, ...]


@dataclass(frozen=True, slots=True)
class ScheduleChanged(Administered):
    """`found` is what the call met: `new`, `changed`, `same`, `gone` (no such schedule), `other` (another version), `full` (no
    room for another one). A `repeated` call tells what its first copy met."""

    found: str = ""


@dataclass(frozen=True, slots=True)
class Ticked:
    """`ticked`, or `repeated` for another copy of the same call, with the jobs that were made and how many were not because the
    job before had not ended; `moved`: the schedule has another version or waits for another tick."""

    srv_us: int
    result: TickResult
    jobs: tuple[str, ...] = ()
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as it is stored: its definition, and its state. Times are server ms, 0 where there is none; `last_ms` is the
    last tick that made a job, `job` a sealed envelope."""

    schedule: str
    version: int
    timing: str
    policy: str
    job: bytes
    enabled: bool
    anchor_ms: int
    next_ms: int
    last_ms: int
    last_job: str
    count: int
    missed: int
    skipped: int
    error: str


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """A page of schedules; `more`: others follow."""

    srv_us: int
    items: tuple[StoredSchedule, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs in each state at one instant. `blocked` wait for others to finish; `handing` have ended, and those are still to be
    told. `done` keeps the last 1,000 that finished; `finished` and `buried` count all that ever were."""

    srv_us: int
    waiting: int
    delayed: int
    active: int
    dead: int
    done: int
    finished: int
    buried: int
    blocked: int = 0
    handing: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of a job: `state` is pending, finished, discarded, rejected (turned away by another job), dead, kept (nothing
    is left but its record) or gone; `ended_ms` is 0 where the server does not know it any more. `record` is its result as it is
    stored, empty where there is none; `error` is the last one of a dead job."""

    srv_us: int
    state: SeenState
    fence: int
    ended_ms: int
    record: bytes
    error: str


@dataclass(frozen=True, slots=True)
class Heard:
    """Ids of jobs that have ended, and the entry after which to listen next."""

    jobs: tuple[str, ...]
    after: str


class Event(NamedTuple):
    """One thing that has happened in a queue: see `queue.events`. `id` is its place among them, `srv_ms` the server's time."""

    id: str
    srv_ms: int
    kind: str
    job: str
    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events, and the entry after which the next ones are."""

    events: tuple[Event, ...]
    after: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Ids of each state (waiting, delayed, active, dead, done, blocked) with the time that the state scores them by, 0 for
    waiting."""

    srv_us: int
    states: dict[str, list[tuple[str, int]]]


Reply = (
    Enqueued
    | EnqueuedMany
    | Claimed
    | Ended
    | FinishedAndClaimed
    | Extended
    | Marked
    | Promoted
    | Reaped
    | Woken
    | Learned
    | Administered
    | Ticked
    | SchedulePage
    | Paged
    | Inspected
    | Counts
    | Seen
    | Heard
    | EventPage
    | Snapshot
    | WorkersReply
    | bool
)
