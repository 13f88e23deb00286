"""Read-only views of a queue: counts, pages of jobs, and the description of one. Nothing here changes a
key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, fields, replace
from typing import Any, Literal, NamedTuple, cast, get_args

from engine.errors import utc
from engine.ops.admin import Window
from engine.ops.base import Operation, frozen, immutable, one_of, server_us, text, whole
from engine.ops.claims import Attributes, Marked, marked
from engine.ops.jobs import LEASE_SLOTS, Lease
from engine.ops.workers import WorkerInfo

#: Names that a sentence lists.
_NAMED = 3
#: States of jobs as a snapshot lists them, and how many digits of the sequence stand before an id among the
#: delayed ones.
_STATES = ("waiting", "delayed", "active", "dead", "done", "blocked")
_DUE_DIGITS = 10


@immutable
class Count(Operation, script="counts", label="counts", goes="all"):
    """Count the jobs in each state; with classes, of the waiting ones only those in them. Of many lanes one
    call counts a part: `cursor` is what the call before has answered. The waiting jobs are the sum of all
    calls. With `worker` and `priorities` those models that look at the routing of each job count only what
    this worker may run."""

    classes: tuple[str, ...] = ()
    cursor: str = ""
    worker: Attributes | None = None
    priorities: tuple[int, int] | None = None

    def parse(self, raw: Any, decode: object) -> Counts:
        """The raw reply as a value."""
        expired, losses, skipped = (*map(whole, raw[11:14]), 0, 0)[:3]
        return Counts(
            server_us(raw),
            *map(whole, raw[1:10]),
            cursor=raw[10].decode(),
            expired=expired,
            data_losses=losses,
            skipped=skipped,
        )

    def merge(self, replies: Sequence[Counts]) -> Counts:
        """The sums; with a cursor where any shard has more lanes."""
        names = [field.name for field in fields(Counts) if field.name not in ("srv_us", "cursor")]
        sums = {name: sum(getattr(reply, name) for reply in replies) for name in names}
        return replace(replies[0], cursor=next(filter(None, (reply.cursor for reply in replies)), ""), **sums)


@immutable
class Counts:
    """Jobs in each state at one instant; the waiting ones of more than some 500 lanes at several. `blocked`
    wait for others to finish; `handing` have ended, and those are still to be told. `finished_kept` are the
    last 1,000 that finished. `finished`, `dead_total`, `expired` and `skipped` (by `skip_on`) count all that
    ever were, `data_losses` how often processes found that the server went back. `cursor` says that these are
    not all lanes; a queue's `counts` have them all. `done` and `buried` are former names of two of them."""

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
    cursor: str = ""
    expired: int = 0
    data_losses: int = 0
    skipped: int = 0

    @property
    def finished_kept(self) -> int:
        """Those of the finished jobs that can still be listed."""
        return self.done

    @property
    def dead_total(self) -> int:
        """How often a job has become dead."""
        return self.buried


class NameCounts(NamedTuple):
    """Jobs of one name in each state."""

    waiting: int = 0
    delayed: int = 0
    active: int = 0
    dead: int = 0
    blocked: int = 0


@immutable
class Listing(Operation, script="listing", label="snapshot", goes="each"):
    """One page of every state."""

    offset: int
    limit: int

    def parse(self, raw: Any, decode: object) -> Snapshot:
        """The raw reply as a value: ids and scores of each state."""
        states: dict[str, list[tuple[str, int]]] = {}
        for state, flat in zip(_STATES, raw[1:7], strict=True):
            skip = _DUE_DIGITS if state == "delayed" else 0
            pairs = [(text(flat[at][skip:]), whole(flat[at + 1])) for at in range(0, len(flat), 2)]
            states[state] = [(job, 0) for job, _ in pairs] if state == "waiting" else pairs
        return Snapshot(server_us(raw), states)


@immutable
class Snapshot:
    """Ids of each state (waiting, delayed, active, dead, done, blocked) with the time that the state scores
    them by, 0 for waiting."""

    srv_us: int
    states: dict[str, list[tuple[str, int]]]


#: States whose jobs can be listed; of the last one they have ended.
LISTED = ("waiting", "blocked", "delayed", "active", "stuck", "dead", "finished")


@immutable
class Page(Operation, script="page", label="list of jobs", slots={"newest": "newest_first"}, goes="each"):
    """One page of the jobs in a state: their ids, or with `names` how many of them each name has. Those of
    waiting jobs come in parts, of which `cursor` is the next one."""

    state: str
    offset: int
    limit: int
    newest_first: bool = False
    names: bool = False
    cursor: str = ""

    def parse(self, raw: Any, decode: object) -> Paged:
        """The raw reply as a value."""
        # An id of an old keyspace may be no text; so `Inspect` still finds it.
        words = [word.decode(errors="surrogateescape") for word in raw[2]] if not self.names else []
        names = (
            {text(name): int(count) for name, count in zip(raw[2][::2], raw[2][1::2], strict=True)}
            if self.names
            else {}
        )
        return Paged(server_us(raw), int(raw[1]), tuple(words), names, raw[3].decode())


@immutable
class Paged:
    """How many entries were looked at, and their ids, or the count of each name. `cursor`: there is another
    part."""

    srv_us: int
    seen: int
    jobs: tuple[str, ...]
    names: dict[str, int]
    cursor: str


@immutable
class Inspect(Operation, script="inspect", label="look at jobs", goes="find"):
    """What is known of these jobs; `whole`: with envelopes and run fields, else their states alone."""

    jobs: tuple[str, ...]
    whole: bool = True

    def parse(self, raw: Any, decode: object) -> Inspected:
        """The raw reply as a value."""
        if not 1 <= len(raw) - 1 <= len(self.jobs):
            raise ValueError(f"{len(raw) - 1} items for {len(self.jobs)} jobs")
        items: list[Looked] = []
        for state, fence, at_ms, envelope, flat in raw[1:]:
            run = {text(flat[at]): flat[at + 1] for at in range(0, len(flat), 2)}
            items.append(Looked(state.decode(), whole(fence), whole(at_ms), envelope, run))
        return Inspected(server_us(raw), tuple(items))


@immutable
class Looked:
    """What is known of one job, raw: its state, last fence, the time that its state is scored by, envelope
    and run fields."""

    state: str
    fence: int
    at_ms: int
    envelope: bytes
    run: dict[str, bytes] = field(default_factory=dict[str, bytes])


@immutable
class Inspected:
    """What is known of the first jobs of the call, at least of one."""

    srv_us: int
    items: tuple[Looked, ...]


# -- Progress of jobs, their results, and the events of a queue, each with the operation that waits for
# it.


@immutable
class NoteProgress(
    Operation,
    script="progress",
    slots=LEASE_SLOTS,
):
    """Note how far a running job has come: `body` are the fields of a JSON object and its closing brace.
    `count` counts what the worker has noted: an older copy changes nothing (rule 7)."""

    lease: Lease
    count: int
    body: bytes

    def parse(self, raw: Any, decode: object) -> Marked:
        """The raw reply as a value."""
        return marked(raw)


@immutable
class ReadProgress(Operation, slots={"id": "job"}, goes="all"):
    """Read how far a job has come."""

    job: str

    def parse(self, raw: Any, decode: object) -> bytes | None:
        """The HGET reply, or that of a script; None where nothing is noted."""
        if isinstance(raw, list):
            raw = cast("list[Any]", raw)[1] or None
        if raw is None or isinstance(raw, bytes):
            return raw
        raise TypeError("neither a text nor nothing")

    def merge(self, replies: Sequence[bytes | None]) -> bytes | None:
        """The one of the shard that has the job."""
        return next((reply for reply in replies if reply is not None), None)


@immutable
class Look(Operation, script="look", label="look at a result", slots={"id": "job"}, goes="each"):
    """Look what became of a job. With a `waiter`, 16 hex digits, the end of a job that has not ended is told
    to the stream of that waiter."""

    job: str
    waiter: str = ""

    def parse(self, raw: Any, decode: object) -> Seen:
        """The raw reply as a value."""
        state, fence, ended_ms, record, error = raw[1:6]
        return Seen(
            server_us(raw),
            one_of(state, _SEEN_STATES),
            whole(fence),
            whole(ended_ms),
            record,
            error.decode(errors="replace"),
        )


SeenState = Literal[
    "pending", "finished", "cancelled", "discarded", "skipped", "expired", "rejected", "dead", "kept", "gone"
]
_SEEN_STATES = get_args(SeenState)


@immutable
class Seen:
    """What became of a job: `state` is pending, finished, cancelled, discarded, skipped, expired, rejected
    (turned away by another job), dead, kept (nothing is left but its record) or gone. `ended_ms` is 0 where
    the server does not know it any more. `record` is its result as it is stored, empty where there is none.
    `error` is the last one of a dead job, or of one that was skipped."""

    srv_us: int
    state: SeenState
    fence: int
    ended_ms: int
    record: bytes
    error: str


@immutable
class AwaitEnds(Operation, label="wait for a result", goes="each"):
    """Block until something is told to a waiter's stream after entry `after`; at most `block_ms`."""

    waiter: str
    after: str
    block_ms: int

    def parse(self, raw: Any, decode: object) -> EndedJobs:
        """The jobs of an XREAD reply."""
        entries: list[Any] = raw[0][1] if raw else []
        jobs = [text(fields[1]) for _, fields in entries]
        return EndedJobs(tuple(filter(None, jobs)), entries[-1][0].decode() if entries else self.after)


@immutable
class EndedJobs:
    """Ids of jobs that have ended, and the entry after which to listen next."""

    jobs: tuple[str, ...]
    after: str


@immutable
class ReadEvents(Operation, goes="each"):
    """At most `limit` events after entry `after`; `block_ms`: wait so long for the first one, 0 = not at all.
    `$`: no event, only the entry that is the last one now."""

    after: str
    limit: int
    block_ms: int

    def parse(self, raw: Any, decode: object) -> EventPage:
        """The events of an XREAD reply; with `$` the last entry of an XREVRANGE reply."""
        if self.after == "$":
            return EventPage((), raw[0][0].decode() if raw else "0-0")
        events: list[Event] = []
        for at, flat in raw[0][1] if raw else ():
            found = dict(zip(flat[::2], flat[1::2], strict=True))
            words = [
                found.get(field, b"").decode(errors="replace")
                for field in (b"kind", b"job", b"name", b"detail")
            ]
            events.append(Event(at.decode(), int(at.partition(b"-")[0]), *words))
        return EventPage(tuple(events), events[-1].id if events else self.after)


class Event(NamedTuple):
    """One thing that has happened in a queue: see `queue.events`. `id` is its place among them, `srv_ms` the
    server's time."""

    id: str
    srv_ms: int
    kind: str
    job: str
    name: str
    detail: str


@immutable
class EventPage:
    """Events, and the entry after which the next ones are."""

    events: tuple[Event, ...]
    after: str


# -- How jobs have ended, for whoever asks later.


@immutable
class ListHistory(Operation, script="list_history", label="history", goes="each"):
    """One part of the history, the latest first: jobs that ended less than `newer_than_ms` (0 = any time) and
    at least `older_than_ms` ago, until `until_ms`, of which `offset` of that time are passed by. Of `limit`
    that are read those with this id, key or unique key, this name and this outcome ('' = any)."""

    newer_than_ms: int
    older_than_ms: int
    until_ms: int
    offset: int
    limit: int
    key: str = ""
    name: str = ""
    outcome: str = ""

    def parse(self, raw: Any, decode: object) -> HistoryPart:
        """The raw reply as a value."""
        read, last_ms, same = map(whole, raw[2:5])
        pairs = zip(map(whole, raw[5][1::2]), raw[5][::2], strict=True)
        return HistoryPart(server_us(raw), text(raw[1]), read, last_ms, same, tuple(pairs))


@immutable
class HistoryPart:
    """How many entries were `read`, the time of the last one, and how many of them were of that time; those
    that are meant, each behind its time. `setting` is that of the history, '' where the queue keeps none."""

    srv_us: int
    setting: str
    read: int
    last_ms: int
    same: int
    found: tuple[tuple[int, bytes], ...]


# -- What holds jobs back: the pauses and limits of a queue and what each lane waits for, and all that
# bears on one job. Nothing here changes a key.


@frozen
class PauseInfo:
    """A pause that is on: of the jobs of this name, None: of the whole queue; until this time (ms of the
    server's clock since 1970), 0: until it is resumed."""

    name: str | None
    until_ms: int

    @classmethod
    def read(cls, flat: Sequence[bytes]) -> tuple[PauseInfo, ...]:
        """From names (`*`: the queue) and times in turn."""
        pairs = zip(map(text, flat[::2]), map(whole, flat[1::2]), strict=True)
        return tuple(cls(None if name == "*" else name, until_ms) for name, until_ms in pairs)


@frozen
class LimitInfo:
    """A limit, and how far it is used up.

    It is of all jobs of a `name`, or of all with a `key`. A key without a limit of its own, which has that of
    `*`, is there while lanes wait for it, and `inherited`. `concurrency`, `rate`, `per_ms` and `window` are
    as `set_limit` was given them, 0 where that is not limited. `in_hand` leases count against it, `used` of
    `rate` units are used up in the window, `free_ms` is when units come free (ms, server time; 0: there are
    some), and `parked` lanes wait for a limit slot. `holders`: of some of the leases (5) the job and the name
    of its worker.
    """

    name: str | None
    key: str | None
    inherited: bool
    concurrency: int
    rate: int
    per_ms: int
    window: Window
    in_hand: int
    used: int
    free_ms: int
    parked: int
    holders: tuple[tuple[str, str], ...]

    @property
    def full(self) -> bool:
        """Whether no job that counts against it can be claimed now."""
        return bool(self.free_ms) or 0 < self.concurrency <= self.in_hand

    @property
    def target(self) -> str:
        """`name send`, `key acme`, or `each key`."""
        if self.name is not None:
            return f"name {self.name}"
        return "each key" if self.key == "*" else f"key {self.key}"

    def __str__(self) -> str:
        """`limit of key acme: 2 of 2 in hand, by w1 and w3`."""
        parts: list[str] = []
        if self.concurrency:
            by = listed(dict.fromkeys(worker or "a worker of another program" for _, worker in self.holders))
            parts.append(
                f"{self.in_hand} of {self.concurrency} in hand"
                + (f", by {by}" if self.in_hand and by else "")
            )
        if self.rate:
            until = f", free again at {instant(self.free_ms)}" if self.free_ms else ""
            parts.append(f"{self.used} of {self.rate} claims in {_length(self.per_ms)}{until}")
        return f"limit of {self.target}: {'; '.join(parts)}"

    @classmethod
    def read(cls, values: Sequence[Any]) -> LimitInfo:
        """From the values of a reply: `n:<name>`, `k:<key>` or `k:*`, the definition as `Limit.words` has it,
        and its use."""
        target, definition, in_hand, used, free_ms, parked, flat, inherited = values
        kind, _, of = text(target).partition(":")
        words, holders = text(definition).split(), [text(word) for word in flat]
        # Of one that somebody else has written, that it is there: the scripts let nothing through.
        concurrency, rate, per_ms, window = words if len(words) == 4 else ("0", "0", "0", "fixed")
        return cls(
            *((of, None) if kind == "n" else (None, of)),
            inherited=inherited == 1,
            concurrency=whole(concurrency),
            rate=whole(rate),
            per_ms=whole(per_ms),
            window=cast("Window", window),
            in_hand=whole(in_hand),
            used=whole(used),
            free_ms=whole(free_ms),
            parked=whole(parked),
            holders=tuple(zip(holders[::2], holders[1::2], strict=True)),
        )


def listed(words: Iterable[str], count: int = 0) -> str:
    """`w1, w2 and w3`; of more than three, or where there are `count`, with a number for the others."""
    every = list(words)
    named, more = every[:_NAMED], max(count, len(every)) - min(_NAMED, len(every))
    if more > 0:
        return f"{', '.join(named)} and {more} more"
    return " and ".join(filter(None, (", ".join(named[:-1]), *named[-1:])))


def instant(ms: int) -> str:
    """A server time as people read it, in UTC."""
    return f"{utc(ms):%Y-%m-%d %H:%M:%S} UTC"


def _length(ms: int) -> str:
    return f"{ms / 1000:g} s"


class LaneLook(NamedTuple):
    """A lane with waiting jobs: since when the oldest one waits (ms), and what a claim has found to be in its
    way: a limit, or `rest` until `rest_ms`, or nothing."""

    lane: str
    waiting: int
    since_ms: int
    waits_for: str
    rest_ms: int


@immutable
class ListObstacles(Operation, script="obstacles", label="obstacles", goes="each"):
    """The pauses and limits of a queue, and one part of its lanes: `cursor` is what the call before has
    answered."""

    cursor: str = ""

    def parse(self, raw: Any, decode: object) -> ObstaclesPart:
        """The raw reply as a value."""
        lanes = tuple(
            LaneLook(text(lane), whole(size), whole(since), text(waits), whole(rest))
            for lane, size, since, waits, rest in raw[3]
        )
        return ObstaclesPart(
            server_us(raw), PauseInfo.read(raw[1]), tuple(map(LimitInfo.read, raw[2])), lanes, raw[4].decode()
        )


@immutable
class ObstaclesPart:
    """Pauses and limits come with the first part. `cursor`: there is another part."""

    srv_us: int
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitInfo, ...]
    lanes: tuple[LaneLook, ...]
    cursor: str


class LivingWorker(NamedTuple):
    """A worker that is taken for alive, and until when it is paused by an administrator: 0 until it is
    resumed, -1 not at all."""

    info: WorkerInfo
    paused_until_ms: int


@immutable
class Explain(
    Operation,
    script="why",
    label="look at a job",
    slots={"id": "job", "needs": "job", "feeds": "job", "heirs": "job"},
    goes="find",
):
    """All that bears on one job."""

    job: str

    def parse(self, raw: Any, decode: object) -> Explained:
        """The raw reply as a value."""
        srv_us, (name, key, priority, target) = server_us(raw), raw[4]
        ran = {text(raw[5][at]): raw[5][at + 1].decode(errors="replace") for at in range(0, len(raw[5]), 2)}
        rest_ms, before, needed = map(whole, raw[8])
        words, fed = ([text(word) for word in flat] for flat in (raw[9], raw[11][1]))
        return Explained(
            *(srv_us, raw[1].decode(), whole(raw[2]), whole(raw[3])),
            *(text(name), text(key), whole(priority), text(target), ran),
            *(PauseInfo.read(raw[6]), tuple(map(LimitInfo.read, raw[7])), rest_ms, before, needed),
            tuple(zip(words[::2], words[1::2], strict=True)),
            tuple(
                LivingWorker(WorkerInfo.read(values[:3], b"", srv_us // 1000), whole(values[3]))
                for values in raw[10]
            ),
            whole(raw[11][0]),
            tuple(zip(fed[::2], fed[1::2], strict=True)),
        )


@immutable
class Explained:
    """The job: its state, its last fence, the time (ms) that its state is scored by, name, key, priority,
    what it requires of a worker (JSON, '' = nothing), and of its run fields owner, error, failures and
    crashes. What bears on it: pauses and limits, the end of its lane's rest (ms, 0: none), how many jobs of
    its lane come first, how many it needs and some of them with their states, and the workers. `feeds` jobs
    wait for it or may still read its result; `children` are some of them."""

    srv_us: int
    state: str
    fence: int
    at_ms: int
    name: str
    key: str
    priority: int
    target: str
    ran: dict[str, str]
    pauses: tuple[PauseInfo, ...]
    limits: tuple[LimitInfo, ...]
    rest_ms: int
    before: int
    needed: int
    needs: tuple[tuple[str, str], ...]
    workers: tuple[LivingWorker, ...]
    feeds: int
    children: tuple[tuple[str, str], ...]


@immutable
class Relatives(Operation, script="relatives", label="look at relatives", goes="find"):
    """The parents and children of jobs, as far as the queue knows them. `cursors`: of each job '' for the
    first page of its children, or what the page before has answered."""

    jobs: tuple[str, ...]
    cursors: tuple[str, ...]

    def parse(self, raw: Any, decode: object) -> RelativesTold:
        """The raw reply as a value."""
        return RelativesTold(server_us(raw), tuple(map(Relation.read, raw[1:])))


class Relation(NamedTuple):
    """A job's state and name ('' = it is not kept), the jobs that it needs, how many of them it lacks as a
    dead job that was buried with one of them, and a page of its children. `more`: the cursor of the next
    page, '' where there is none."""

    state: str
    name: str
    needs: tuple[str, ...]
    lacks: int
    children: tuple[str, ...]
    more: str

    @classmethod
    def read(cls, values: Sequence[Any]) -> Relation:
        """From the values of a reply."""
        state, name, needs, lacks, children, more = values
        return cls(
            text(state),
            text(name),
            tuple(map(text, needs)),
            whole(lacks),
            tuple(map(text, children)),
            text(more),
        )


@immutable
class RelativesTold:
    """Of the jobs of the call, in its order; perhaps not of the last ones."""

    srv_us: int
    items: tuple[Relation, ...]
