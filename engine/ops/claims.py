"""Leases: claims, what renews and marks them, the ends of runs, and sweeps, which reap leases; each with its
reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from engine.ops.base import Operation, immutable, one_of, server_us, text, whole
from engine.ops.jobs import LEASE_SLOTS, Lease, Options
from engine.ops.schedules import DueSchedule, number
from engine.ops.workers import Connected

#: How a job ends that is neither finished nor dead.
DropOutcome = Literal["discarded", "skipped", "rerouted"]


#: The routing key of jobs that have been given none, and of workers that have been given none.
DEFAULT_ROUTE = "default"


@immutable
class Attributes:
    """What a worker is: its name as a target's `server` has it, its stack and region ('' = none), its
    capabilities, and the routing keys whose jobs it takes."""

    server: str
    stack: str = ""
    capabilities: frozenset[str] = frozenset()
    region: str = ""
    routes: frozenset[str] = frozenset({DEFAULT_ROUTE})


#: A worker without attributes runs what wants nothing of a worker.
NOTHING_SPECIAL = Attributes("")


@immutable
class Claim(Operation, script="claim"):
    """Lease up to `most` jobs of these classes, of which a worker names at most 15 (rule 22). At most
    `crashed_max` of the jobs have a crash behind them: a worker runs one of those at a time. The others
    may be run elsewhere (rule 12). With `priorities` only jobs with one from the first to the second.
    `worker`: what the worker is, for models that look at the routing of each job (None: nothing special).
    (incarnation, counter) is the identity (rule 4).
    """

    incarnation: str
    counter: int
    most: int
    lease_ms: int
    not_after_ms: int
    owner: str
    sleep_max_ms: int
    classes: tuple[str, ...]
    crashed_max: int = 1000
    priorities: tuple[int, int] | None = None
    worker: Attributes | None = None

    def parse(self, raw: Any, decode: Decode) -> Claimed:
        """The raw reply as a value."""
        return self.claimed(server_us(raw), raw[2:], decode)

    def claimed(self, srv_us: int, raw: Any, decode: Decode) -> Claimed:
        """What the claim leased, from the part of a reply that tells it."""
        nonce = f"{self.incarnation}:{self.counter}"
        flat = raw[3]
        # A format that keeps nothing for children, and a claim without any, say nothing.
        left = {
            words[0]: (words[1].decode(errors="replace"), *words[2:])
            for words in (raw[4] or () if len(raw) > 4 else ())
        }
        jobs: list[LeasedJob] = []
        unreadable: list[Failure] = []
        if len(flat) % 7:
            raise ValueError(f"{len(flat)} values for jobs of 7 each")
        values = iter(flat)
        for id, fence, deadline_ms, claims, failures, crashes, sealed in zip(*[values] * 7, strict=True):
            lease = Lease(text(id), fence, nonce)
            job = decode(sealed, lease, deadline_ms, (claims, failures, crashes))
            if isinstance(job, LeasedJob):
                jobs.append(job._replace(left=left[id]) if id in left else job)
            else:
                unreadable.append(job)
        result = one_of(raw[0], _CLAIM_RESULTS)
        corrupt = tuple(text(name) for name in raw[2])
        return Claimed(srv_us, result, int(raw[1]), tuple(jobs), corrupt, tuple(unreadable))


@immutable
class Value:
    """What a handler returned: JSON, how long it is kept, and how long the handler took. `item` is the place
    of its lease in the call."""

    item: int
    data: bytes
    ttl_ms: int
    took_ms: int


@immutable
class Finish(Operation, script="finish"):
    """End leases as finished, and claim the next jobs in the same call when `claim` is given. `values`: what
    those handlers returned that returned something."""

    leases: tuple[Lease, ...]
    claim: Claim | None = None
    values: tuple[Value, ...] = ()

    def parse(self, raw: Any, decode: Decode) -> Ended | FinishedAndClaimed:
        """The raw reply as a value."""
        ended = _ended(raw, len(self.leases))
        if self.claim is None:
            return ended
        return FinishedAndClaimed(ended.srv_us, ended, self.claim.claimed(ended.srv_us, raw[2:], decode))


@immutable
class Failure:
    """One failed run: the lease, why, how long the job waits before the next run, the stack trace for the
    error history, and whether it uses up an attempt."""

    lease: Lease
    error: str
    delay_ms: int = 0
    trace: str = ""
    charge: bool = True


@immutable
class Retry(Operation, script="retry"):
    """End leases of failed runs: each job waits for its back-off, or is buried when its attempts are used
    up."""

    failures: tuple[Failure, ...]

    def parse(self, raw: Any, decode: Decode) -> Ended:
        """The raw reply as a value."""
        return _ended(raw, len(self.failures))


@immutable
class Bury(Operation, script="bury"):
    """End leases of jobs that must not run again by themselves."""

    failures: tuple[Failure, ...]

    def parse(self, raw: Any, decode: Decode) -> Ended:
        """The raw reply as a value."""
        return _ended(raw, len(self.failures))


@immutable
class Drop(Operation, script="drop", label="end of a job"):
    """End leases for good without a finish, each with its outcome: `discarded`, `skipped` or `rerouted`, and
    why. The error of a skipped job is kept."""

    leases: tuple[Lease, ...]
    outcomes: tuple[DropOutcome, ...]
    errors: tuple[str, ...] = ()

    def parse(self, raw: Any, decode: Decode) -> Ended:
        """The raw reply as a value."""
        return _ended(raw, len(self.leases))

    @property
    def items(self) -> Iterator[tuple[Lease, DropOutcome, str]]:
        """Each lease with its outcome and its error, '' where none is said."""
        return zip(self.leases, self.outcomes, self.errors or ("",) * len(self.leases), strict=True)


@immutable
class Release(Operation, script="release"):
    """Give leases back, uncharged. `started`: those of them whose handlers were started and interrupted."""

    leases: tuple[Lease, ...]
    started: frozenset[Lease] = frozenset()

    def parse(self, raw: Any, decode: Decode) -> Ended:
        """The raw reply as a value."""
        return _ended(raw, len(self.leases))


@immutable
class Extend(Operation, script="extend"):
    """Renew leases. `renewal` counts the worker's renewals: one that was applied is not applied again (rule
    9)."""

    leases: tuple[Lease, ...]
    renewal: int
    lease_ms: int
    not_after_ms: int

    def parse(self, raw: Any, decode: Decode) -> Extended:
        """The raw reply as a value."""
        flat = raw[1]
        items: list[tuple[EndResult, int]] = [
            (_END_RESULTS[flat[at]], int(flat[at + 1])) for at in range(0, len(flat), 2)
        ]
        if len(items) != len(self.leases):
            raise ValueError(f"{len(items)} items for {len(self.leases)} leases")
        return Extended(server_us(raw), tuple(items))


@immutable
class Mark(
    Operation,
    script="mark",
    slots=LEASE_SLOTS,
):
    """Say that the handler of a job with a crash behind it is about to run: only then is the next crash
    charged (rule 12)."""

    lease: Lease

    def parse(self, raw: Any, decode: Decode) -> Marked:
        """The raw reply as a value."""
        return marked(raw)


ClaimResult = Literal["leased", "empty", "repeated", "void", "stale"]
EndResult = Literal["ok", "repeated", "stale", "cancelled", "void"]
MarkResult = Literal["ok", "repeated", "stale"]
_CLAIM_RESULTS, _MARK_RESULTS = get_args(ClaimResult), get_args(MarkResult)
_END_RESULTS: dict[bytes, EndResult] = {result.encode(): result for result in get_args(EndResult)}
#: What came of nearly all ends.
FINISHED: tuple[EndResult, str] = ("ok", "finished")


class LeasedJob(NamedTuple):
    """One job as it was claimed: the lease and its end, what the envelope holds, and the three counters of
    rule 6. `left`: what the job that it is the failure callback of died of ('' = it is none), and the records
    of its parents' results in the order of `needs` (b'' = none); empty where the model keeps none."""

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
    left: tuple[Any, ...] = ()


#: Reads a job as a model stores it: body, lease, end of the lease (server ms), and claims, failures and
#: crashes so far. A Failure says why it cannot be read.
Decode = Callable[[Any, Lease, int, tuple[int, int, int]], LeasedJob | Failure]


@immutable
class Claimed:
    """What a claim leased. `sleep_ms`: the next sweep may wait that long. `corrupt`: ids that the script
    could not read and buried, also while it promoted. `unreadable`: jobs that are leased and cannot be run,
    each with the reason; their holder buries them."""

    srv_us: int
    result: ClaimResult
    sleep_ms: int
    jobs: tuple[LeasedJob, ...]
    corrupt: tuple[str, ...] = ()
    unreadable: tuple[Failure, ...] = ()


@immutable
class Ended:
    """For each item of the call, in its order: the result and how the lease ended."""

    srv_us: int
    items: tuple[tuple[EndResult, str], ...]


@immutable
class FinishedAndClaimed:
    """Both halves of the fused call."""

    srv_us: int
    finished: Ended
    claimed: Claimed


@immutable
class Extended:
    """For each lease, in the call's order: the result and the server time at which it now ends (0 when stale
    or cancelled)."""

    srv_us: int
    items: tuple[tuple[EndResult, int], ...]


@immutable
class Marked:
    """`ok`; `repeated` for another copy of the same call; `stale` when the lease has ended, so the handler
    must not start."""

    srv_us: int
    result: MarkResult


def marked(raw: Any) -> Marked:
    """The raw reply of a script that writes down something about a lease, as a value."""
    return Marked(server_us(raw), one_of(raw[1], _MARK_RESULTS))


def _ended(raw: Any, count: int) -> Ended:
    """The raw reply of a script that ends `count` leases, as a value: a result and an outcome for each."""
    srv_us, flat = server_us(raw), raw[1]
    # A number stands for so many finishes that are all ok.
    items = (FINISHED,) * flat if isinstance(flat, int) else tuple(_ends(flat))
    if len(items) != count:
        raise ValueError(f"{len(items)} items for {count} leases")
    return Ended(srv_us, items)


def _ends(flat: Any) -> list[tuple[EndResult, str]]:
    return [(_END_RESULTS[flat[at]], flat[at + 1].decode()) for at in range(0, len(flat), 2)]


# -- The maintenance that workers do: sweeps, waits for work, and updates for workers, each with its reply.


@immutable
class Sweep(Operation, script="sweep", slots={"most_ms": "sleep_max_ms"}):
    """Reap leases that have run out, bury jobs that have crashed too often, and make due jobs claimable. Keep
    what is kept within its bounds. (incarnation, counter) is the identity. `yields`: if it comes from the
    leader, it does not count as one of the leader's, so that another worker may take the lead. `orphans`:
    reap only the leases of workers whose heartbeats have stopped, and do nothing else. `run_id`: the
    server's, by the caller's own control connection. With it the caller may be asked to look at those of the
    other workers."""

    incarnation: str
    counter: int
    limit: int
    sleep_max_ms: int
    done_max: int
    yields: bool = False
    orphans: bool = False
    run_id: str = ""

    def parse(self, raw: Any, decode: object) -> Swept:
        """The raw reply as a value: five words for each lease, six for each schedule that is due."""
        if self.orphans:
            return Swept(server_us(raw), int(raw[1]), *_taken(raw[2]))
        texts = [word.decode(errors="replace") for word in raw[4]]
        due = [
            DueSchedule(name, version, number(expected_ms), number(anchor_ms), timing, policy)
            for name, version, expected_ms, anchor_ms, timing, policy in zip(*[iter(texts)] * 6, strict=True)
        ]
        # Formats of other libraries have no control connections.
        words = [text(word) for word in raw[7]] if len(raw) > 7 else []
        watched = tuple(Connected(*pair) for pair in zip(words[::2], map(whole, words[1::2]), strict=True))
        return Swept(
            server_us(raw),
            int(raw[1]),
            *_taken(raw[3]),
            int(raw[2]),
            tuple(due),
            int(raw[5]),
            raw[6] == 1,
            watched,
        )


@immutable
class ReapLost(Operation, script="reap_lost"):
    """Reap the leases of lost workers: their control connections are gone. They have named no other
    since. (incarnation, counter) is the identity, void after `not_after_ms`. `start_ms` and `start_id`: where
    the page before has ended; '' for the first one."""

    incarnation: str
    counter: int
    limit: int
    not_after_ms: int
    lost: tuple[Connected, ...]
    run_id: str
    start_ms: str = ""
    start_id: str = ""

    def parse(self, raw: Any, decode: object) -> Swept:
        """The raw reply as a value."""
        start = (text(raw[1]), text(raw[2]))
        return Swept(server_us(raw), 0, *_taken(raw[3]), goes_on=start if start[0] else None)


def _taken(words: Any) -> tuple[tuple[tuple[Lease, int], ...], tuple[str, ...], tuple[str, ...]]:
    """The leases with their crash counters, the jobs that were buried, and those that could not be read."""
    leases: list[tuple[Lease, int]] = []
    jobs: dict[str, list[str]] = {kind: [] for kind in _SWEPT_KINDS}
    for kind, job, fence, nonce, crashes in zip(*[iter(words)] * 5, strict=True):
        jobs[one_of(kind, _SWEPT_KINDS)].append(text(job))
        if nonce != b"-":
            leases.append((Lease(text(job), int(fence), text(nonce)), int(crashes)))
    return tuple(leases), tuple(jobs["buried"]), tuple(jobs["corrupt"])


_SWEPT_KINDS = ("reaped", "buried", "corrupt")


@immutable
class Swept:
    """The leases that were reaped, each with the job's crash counter. `buried`: ids that had crashed too
    often; `corrupt`: ids that the script could not read and buried. Where a sweep was cut off, an id may
    stand there without its lease. `promoted`: how many due jobs became claimable. `due`: the first of the
    schedules that are due. `version` of the updates. `leads`: the caller is the leader. `watched`: the
    control connections that the caller is to look at. `goes_on`: where the next page of a ReapLost starts."""

    srv_us: int
    sleep_ms: int
    leases: tuple[tuple[Lease, int], ...] = ()
    buried: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()
    promoted: int = 0
    due: tuple[DueSchedule, ...] = ()
    version: int = 0
    leads: bool = False
    watched: tuple[Connected, ...] = ()
    goes_on: tuple[str, str] | None = None


@immutable
class Wait(Operation, label="wait for work"):
    """Block until one of the classes, at most 15, may have work, or something is new to workers that know
    this version of the updates (None: they are not waited for); at most `block_ms`."""

    block_ms: int
    classes: tuple[str, ...]
    version: int | None = None


@immutable
class Woken:
    """What ended a wait: `work` of a class, or `updates` for workers; neither when the block ran out."""

    work: bool
    updates: bool = False


@immutable
class ReadWorkerUpdates(Operation, script="read_worker_updates"):
    """Ask what is new to a worker that knows this version: classes with targets, and what is set for the
    worker."""

    version: int
    worker: str

    def parse(self, raw: Any, decode: object) -> WorkerUpdates:
        """The raw reply as a value."""
        flat = [text(word) for word in raw[4]]
        targets = tuple(zip(flat[::2], flat[1::2], strict=True))
        return WorkerUpdates(
            server_us(raw), int(raw[1]), int(raw[2]), None if raw[3] < 0 else int(raw[3]), targets
        )


@immutable
class WorkerUpdates:
    """Classes with their targets (JSON), how many handlers the worker runs at once (0: as it was
    started), and its pause (None: there is none, 0: until it is resumed, else the ms that are left)."""

    srv_us: int
    version: int
    concurrency: int
    pause_ms: int | None
    targets: tuple[tuple[str, str], ...]
