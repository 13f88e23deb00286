"""Jobs come in: what a job is asked to be, the calls that create it, and what came of them."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self, get_args

from engine.ops.base import DeadlineBound, Operation, immutable, one_of, server_us

# -- The names of classes: a job's name, its routing key and its target in one text (rule 18). Needs the
# standard library alone.


@lru_cache(maxsize=1024)
def class_of(name: str, route: str, target: str) -> str:
    """The class of jobs: the name alone, or the name, @, the routing key, and ~ with a digest of the
    target."""
    if not (route or target):
        return name
    digest = f"~{hashlib.blake2b(target.encode(), digest_size=8).hexdigest()}" if target else ""
    return f"{name}@{route}{digest}"


def class_target(route: str, target: str) -> str:
    """The value of a class in the hash `classes`: its target as JSON, '' for a class that any worker may
    run."""
    if not (route or target):
        return ""
    wanted: dict[str, Any] = {"route": route} if route else {}
    return json.dumps(wanted | (json.loads(target) if target else {}), separators=(",", ":"))


#: How the wait between two runs grows with the failed runs n: not at all, by 2^(n-1), by n, by n squared, or
#: as a list says. A stored job has the place of its kind in this list, so new kinds come last.
Backoff = Literal["fixed", "exponential", "linear", "geometric", "custom"]
#: Of an exponential wait half is left to chance, unless the job says otherwise. Jobs that failed together,
#: because what they all need was away, do not all come back in the same millisecond.
EXPONENTIAL_JITTER = 0.5
#: What becomes of a job when one that it needs is lost: buried as well, or it goes on (rule 25).
ParentFailure = Literal["bury", "ignore"]


class Lease(NamedTuple):
    """The right to run and end one job: its id and the token (fence, nonce) of one claim (rule 6)."""

    job: str
    fence: int
    nonce: str


#: The slots of scripts about one lease, for operations with a field `lease`.
LEASE_SLOTS = {
    **dict.fromkeys(("job", "run", "id"), "lease.job"),
    "fence": "lease.fence",
    "nonce": "lease.nonce",
}


class Parent(str):
    """The id of a job that another one needs, with its name where that was given ('' = it was not)."""

    name = ""

    @classmethod
    def named(cls, id: str, name: str) -> Parent:
        """With a name."""
        made = cls(id)
        made.name = name
        return made


@immutable
class Options:
    """What a job carries beside its payload, as the engine reads it. The rows of `engine.options.JobOptions`
    say what each option means.

    A text is '' where there is none, of `serializer` JSON. `attempts` and `crashes_max` are those of rules 6
    and 12. `key` makes the job's lane; `unique` and `dedup` are the keys of rule 23. `backoff_max_ms` 0 and
    `jitter` None are those of the kind of back-off. `needs` are ids of parents (rule 25); `skip_on` and
    `reroute_on` name classes of exceptions, the latter each with its target.
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
    expires_ms: int = 0
    #: The jobs that its success and its failure make (rule 25), which need nothing but this one.
    on_success: Enqueue | None = None
    on_failure: Enqueue | None = None
    cost: int = 1
    soft_timeout_ms: int = 0

    @property
    def calls_back(self) -> bool:
        """Whether its end may make another job."""
        return self.on_success is not None or self.on_failure is not None

    @property
    def is_timed(self) -> bool:
        """Whether the time of its runs is watched."""
        return bool(self.timeout_ms or self.soft_timeout_ms)

    @property
    def goes_alone(self) -> bool:
        """Whether its enqueue is a call of its own: it names keys of other jobs, or brings them."""
        return bool(self.needs) or self.calls_back

    @property
    def jitter_share(self) -> float:
        """The share of each wait between two runs that is left to chance."""
        if self.jitter is not None:
            return self.jitter
        return EXPONENTIAL_JITTER if self.backoff == "exponential" else 0.0

    @property
    def wait_ms(self) -> int:
        """As the scripts read it: the delay, or below 0 the server time at which the job is due."""
        return self.delay_ms or -self.run_at_ms


def reroute_target(target: str) -> tuple[str, str]:
    """Where a reroute goes: its queue ('' for the job's own) and its name. A target is a name, or a queue, a
    colon and a name."""
    queue, colon, name = target.partition(":")
    return (queue, name) if colon else ("", target)


@immutable
class Enqueue(DeadlineBound, script="enqueue", goes="job"):
    """Create one job. (job, nonce) is the identity; after `not_after_ms` the call is void (rule 3). Its class
    is its name with what it wants of a worker, its lane that class and its key (rule 18)."""

    job: str
    name: str
    payload: bytes
    nonce: bytes
    options: Options

    def stamped(self, not_after_ms: int) -> Self:
        """Itself: it is stamped in place, because a copy would take as long as its envelope. What it was sent
        as before lives on in the bytes of that call."""
        self.not_after_ms = not_after_ms  # pyright: ignore[reportAttributeAccessIssue]
        return self

    @property
    def class_name(self) -> str:
        """The class: jobs that the same workers may claim."""
        options = self.options
        return (
            class_of(self.name, options.route, options.target)
            if options.route or options.target
            else self.name
        )

    @property
    def lane(self) -> str:
        """The lane: jobs of a class that share a key."""
        return f"{self.class_name}/{self.options.key}" if self.options.key else self.class_name

    def parse(self, raw: Any, decode: object) -> Enqueued:
        """The raw reply as a value."""
        if len(raw) == 2:
            # With its sequence (engine/queue/era.py).
            return Enqueued(server_us(raw), self.job, "created", "", 0, self.job)
        result = one_of(raw[1], _RESULTS)
        # Scripts of other formats say it of a job that was created, too.
        fence = 0 if result == "created" else int(raw[3])
        return Enqueued(server_us(raw), self.job, result, raw[2].decode(), fence, raw[4].decode())


@immutable
class CloseWindows(Operation, script="close_windows"):
    """Let the windows of these dedup keys end 20 s from now, each only if the job with it has opened it.
    `items` are pairs of key and job. Repeating it changes nothing."""

    items: tuple[tuple[str, str], ...]

    def parse(self, raw: Any, decode: object) -> ClosedWindows:
        """The raw reply as a value."""
        return ClosedWindows(server_us(raw), int(raw[1]))


@immutable
class ClosedWindows:
    """How many of the windows were open."""

    srv_us: int
    count: int


@immutable
class EnqueueMany(Operation, script="enqueue_many", goes="job"):
    """Create jobs in one piece and in this order. Their ids differ, and `not_after_ms` is the same in all."""

    jobs: tuple[Enqueue, ...]

    def stamped(self, not_after_ms: int) -> Self:
        """Itself, each of its jobs stamped in place."""
        for job in self.jobs:
            job.stamped(not_after_ms)
        return self

    def parse(self, raw: Any, decode: object) -> EnqueuedMany:
        """The raw reply as a value: one letter for each job, and three values for each duplicate."""
        srv_us, letters, known = server_us(raw), raw[1], raw[2]
        if len(letters) != len(self.jobs) or len(known) != 3 * letters.count(b"d"):
            raise ValueError(f"{len(letters)} letters and {len(known)} values for {len(self.jobs)} jobs")
        if not known and b"m" not in letters:
            # Of most calls no job is a duplicate or has moved, and this takes half the time.
            pairs = zip(self.jobs, map(_LETTERS.__getitem__, letters), strict=True)
            return EnqueuedMany(
                srv_us, tuple([Enqueued(srv_us, job.job, result, "", 0, job.job) for job, result in pairs])
            )
        items: list[Enqueued] = []
        states = iter(known)
        for job, letter in zip(self.jobs, letters, strict=True):
            result = _LETTERS[letter]
            if result == "duplicate":
                items.append(
                    Enqueued(
                        srv_us,
                        job.job,
                        result,
                        next(states).decode(),
                        int(next(states)),
                        next(states).decode(),
                    )
                )
            else:
                items.append(Enqueued(srv_us, job.job, result, "", 0, "" if result == "moved" else job.job))
        return EnqueuedMany(srv_us, tuple(items))


EnqueueResult = Literal["created", "repeated", "duplicate", "refused", "orphan", "moved"]
_RESULTS = get_args(EnqueueResult)
#: Results of a bulk enqueue by the letter that the script gives for each.
_LETTERS: dict[int, Any] = {
    ord(letter): result
    for letter, result in zip("crdmx", ("created", "repeated", "duplicate", "moved", "refused"), strict=True)
}


class Enqueued(NamedTuple):
    """`created`, or `repeated` for another copy of the same call. `duplicate`: the id was there already, or
    the job `holder` has the unique key or opened the window of the dedup key. `state` and `fence` say what
    became of that job (`gone`: nothing is left of it). `refused`: the call came too late and was not applied.
    `orphan`: nor was this one, because its parent `holder` is not known. Nor `moved`: new
    jobs go into other shards, of which there are `holder`. `job` is the id of the call; in what a queue
    returns, that of the job that is there, so it is `holder` for a duplicate."""

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

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"


@immutable
class EnqueuedMany:
    """For each job of the call, in its order: what came of it."""

    srv_us: int
    items: tuple[Enqueued, ...]

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return any(item.refused for item in self.items)
