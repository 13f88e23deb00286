"""Admin actions on a queue: pauses, limits, retention, and changes of single jobs or of many. Each call has
an `op_id`, its identity (rule 7), and a time after which it is void.

Behind them, what moves whole queues: resharding, and the restore of a backup."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Literal, NamedTuple, get_args

from engine.errors import Malformed, OutcomeUnknown, UnsupportedFeature
from engine.ops.base import DeadlineBound, Operation, frozen, immutable, one_of, server_us, whole

AdministeredResult = Literal["done", "repeated", "refused"]
ADMINISTERED_RESULTS = get_args(AdministeredResult)


def _new_op_id() -> str:
    return os.urandom(8).hex()


@immutable
class Administered:
    """`done`, or `repeated` for another copy of the same call. `refused`: the call came too late and was not
    applied."""

    srv_us: int
    result: AdministeredResult

    @property
    def refused(self) -> bool:
        """True when the call came too late and was not applied."""
        return self.result == "refused"

    def check_done(self) -> None:
        """Raise OutcomeUnknown for a call that was refused after an unanswered send: the first copy may have
        been applied."""
        if self.refused:
            raise OutcomeUnknown("the call was refused as late after an unanswered send")


@immutable
class AdminOperation(DeadlineBound, goes="all"):
    """The base of administrative calls. The reply of most is their result alone, and they hold in all
    shards."""

    #: The identity (rule 7): copies have it in common.
    op_id: str = field(default_factory=_new_op_id, kw_only=True)

    def parse(self, raw: Any, decode: object) -> Any:
        """The raw reply as a value: an Administered."""
        return Administered(server_us(raw), one_of(raw[1], ADMINISTERED_RESULTS))

    def merge(self, replies: Sequence[Any]) -> Any:
        """The reply of shard 0: each has done the same."""
        return replies[0]


@immutable
class Pause(AdminOperation, script="pause", slots={"class": "class_name"}):
    """Claim nothing of a class (`*`: of the queue) until it is resumed, or for `length_ms`."""

    class_name: str
    length_ms: int


@immutable
class Resume(AdminOperation, script="resume", slots={"class": "class_name"}):
    """End a pause."""

    class_name: str

    def parse(self, raw: Any, decode: object) -> Resumed:
        """The raw reply as a value; a call that was refused has looked at no pause."""
        return Resumed(
            server_us(raw), one_of(raw[1], ADMINISTERED_RESULTS), len(raw) > 2 and int(raw[2]) == 1
        )

    def merge(self, replies: Sequence[Resumed]) -> Resumed:
        """Whether there was such a pause in any shard."""
        return replace(replies[0], was_paused=any(reply.was_paused for reply in replies))


@immutable
class Resumed(Administered):
    """With whether there was such a pause."""

    was_paused: bool = False


#: What the rate of a limit counts in (rule 20).
Window = Literal["fixed", "sliding"]


@immutable
class Limit:
    """At most `concurrency` jobs in hand at once, and at most `rate` claims in `per_ms`; 0 = not limited. A
    fixed window begins at a multiple of its length, a sliding one is every stretch of that length."""

    concurrency: int = 0
    rate: int = 0
    per_ms: int = 0
    window: Window = "sliding"

    @property
    def words(self) -> str:
        """As the scripts read it."""
        return f"{self.concurrency} {self.rate} {self.per_ms} {self.window}"

    def divided(self, shards: int) -> list[Limit]:
        """The limit of a name for each shard: together they allow what it allows. Raises Malformed for one
        that is too small."""
        for bound in ("concurrency", "rate"):
            given = getattr(self, bound)
            if 0 < given < shards:
                raise Malformed(
                    bound,
                    given,
                    f"at least {shards}, the number of shards that a limit of a name is divided among",
                )

        def share(whole: int, number: int) -> int:
            return whole // shards + (number < whole % shards)

        return [
            replace(self, concurrency=share(self.concurrency, number), rate=share(self.rate, number))
            for number in range(shards)
        ]

    @classmethod
    def whole(cls, parts: Iterable[Limit]) -> Limit:
        """The limit of a name that was divided into these."""
        listed = list(parts)
        return replace(
            listed[0],
            concurrency=sum(part.concurrency for part in listed),
            rate=sum(part.rate for part in listed),
        )


@immutable
class SetLimit(AdminOperation, script="set_limit", slots={"limit": "target", "definition": "limit.words"}):
    """Define a limit (None: remove it) for a name (`n:<name>`), for a key (`k:<key>`) or for each key without
    its own (`k:*`)."""

    target: str
    limit: Limit | None

    def part(self, number: int, shards: int, home: Callable[[str], int]) -> SetLimit | None:
        """Of a name each shard has a share; a key has its limit in the shard of its jobs."""
        kind, _, of = self.target.partition(":")
        if kind == "n":
            limit = self.limit
            return self if limit is None else replace(self, limit=limit.divided(shards)[number])
        return self if of == "*" or home(of) == number else None


@immutable
class SetWorker(AdminOperation, script="set_worker"):
    """Set how many handlers a worker runs at once (`c:<worker>`, `c:*` for every worker without its own), or
    pause it for so many ms (`p:<worker>`, 0 = until it is resumed); None removes that."""

    field: str
    value: int | None

    def part(self, number: int, shards: int, home: object) -> SetWorker:
        """The pause of a worker; its places it shares among its shards by itself."""
        if shards > 1 and self.field.startswith("c:"):
            raise UnsupportedFeature(
                "the concurrency of a worker of a queue with shards is that which it was started with"
            )
        return self


@immutable
class SetRetention(AdminOperation, script="set_retention"):
    """Bounds of what is kept of ended jobs, by their field."""

    bounds: tuple[tuple[str, int], ...]

    def part(self, number: int, shards: int, home: object) -> SetRetention:
        """Each shard keeps its share of the numbers."""
        shares = [(name, -(-most // shards) if name.endswith("_max") else most) for name, most in self.bounds]
        return replace(self, bounds=tuple(shares))


@immutable
class SetEvents(AdminOperation, script="set_events"):
    """Keep about so many events of the queue from now on; 0: none."""

    keep: int


@frozen
class HistoryRule:
    """Of the last `keep` jobs that have ended is kept how (0: of none), for `age_ms` (0: for any time); of
    those with these names (none: of all), and with payloads of up to `payload_bytes`."""

    keep: int
    age_ms: int = 0
    payload_bytes: int = 0
    names: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """As the scripts read it."""
        words = (self.keep, self.age_ms, self.payload_bytes, *self.names)
        return " ".join(map(str, words)) if self.keep else ""

    @classmethod
    def read(cls, text: str) -> HistoryRule | None:
        """From what is stored; None where nothing is kept."""
        words = text.split()
        keep, age_ms, payload_bytes = map(whole, (*words[:3], *"000"[len(words) :]))
        return cls(keep, age_ms, payload_bytes, tuple(words[3:])) if keep else None


@immutable
class SetHistory(AdminOperation, script="set_history", slots={"setting": "rule.words"}):
    """Keep how jobs end from now on, or no longer."""

    rule: HistoryRule

    def part(self, number: int, shards: int, home: object) -> SetHistory:
        """Each shard keeps its share of the number."""
        return replace(self, rule=replace(self.rule, keep=-(-self.rule.keep // shards)))


#: Admin actions on a job: `run_now` ends its delay, `requeue` makes a dead one wait again; the others end the
#: job.
AdminAction = Literal["cancel", "remove", "discard", "requeue", "run_now"]


@immutable
class Alter(AdminOperation, script="alter", label="change of a job", goes="find"):
    """Do something to those of the jobs that are in this `state`; the state of another one is told, and it is
    left alone."""

    action: AdminAction
    jobs: tuple[str, ...]
    state: str

    def parse(self, raw: Any, decode: object) -> AlteredJobs:
        """The raw reply as a value."""
        return AlteredJobs.read(self.jobs, raw)


@immutable
class Revive(AdminOperation, script="revive", label="revival of jobs", goes="find"):
    """Let those of the jobs that were buried with a parent wait for their parents again (rule 25)."""

    jobs: tuple[str, ...]

    def parse(self, raw: Any, decode: object) -> AlteredJobs:
        """The raw reply as a value."""
        return AlteredJobs.read(self.jobs, raw)


AlteredResult = Literal["done", "changed", "held", "corrupt", "orphan"]
_ALTERED_RESULTS = get_args(AlteredResult)


class Altered(NamedTuple):
    """What came of one job.

    - `done`
    - `changed`: nothing was done, because it was in another `state`; `gone`: no such job is known, and
      `unknown` is true
    - `held`: the job `holder` has its unique key by now
    - `corrupt`: nobody can read it, so it cannot run
    - `orphan`: its parent `holder` is lost still, or not known any more

    Of a requeue with children, `children` went back to wait for their parents, and `left` others that were
    buried with a parent stay dead."""

    job: str
    result: AlteredResult
    state: str
    holder: str | None = None
    children: int = 0
    left: int = 0

    @property
    def done(self) -> bool:
        """True when this call has done it, by whichever of its copies. `state` is the one that it was in
        before."""
        return self.result == "done"

    @property
    def unknown(self) -> bool:
        """True when the queue knows no such job: none had this id, or it is forgotten."""
        return self.result == "changed" and self.state == "gone"

    def __str__(self) -> str:
        if self.done:
            return f"{self.job}: done, it was {self.state}"
        if self.unknown:
            return f"{self.job}: nothing was done, the queue knows no such job"
        why = {
            "changed": f"it is {self.state}",
            "held": f"{self.holder} has its unique key",
            "corrupt": "nobody can read it",
            "orphan": f"its parent {self.holder} is lost or not known any more",
        }
        return f"{self.job}: nothing was done, {why[self.result]}"


@immutable
class AlteredJobs(Administered):
    """With what came of each job of the call, in its order; of none when it was refused."""

    items: tuple[Altered, ...] = ()

    @classmethod
    def read(cls, jobs: tuple[str, ...], raw: Any) -> AlteredJobs:
        """From a raw reply: three words for each job, of which a call that was refused has none."""
        result = one_of(raw[1], ADMINISTERED_RESULTS)
        words = [word.decode() for word in raw[2]]
        jobs = () if result == "refused" else jobs
        if len(words) != 3 * len(jobs):
            raise ValueError(f"{len(words)} words for {len(jobs)} jobs")
        items: list[Altered] = []
        for job, altered, state, holder in zip(jobs, words[::3], words[1::3], words[2::3], strict=True):
            found = one_of(altered.encode(), _ALTERED_RESULTS)
            items.append(Altered(job, found, state, None if holder == "-" else holder))
        return cls(server_us(raw), result, tuple(items))


@immutable
class Era:
    """Where the deletion of many jobs began: what came later than this sequence, or ended after this time,
    stays."""

    sequence: int
    at_ms: int


@immutable
class Clean(
    AdminOperation,
    script="clean",
    slots={"era_sequence": "era.sequence", "era_ms": "era.at_ms"},
    goes="each",
):
    """Remove at most `most` jobs of a state that are older than so long, of one page of at most `limit`
    behind `offset` others. `era`: None = it begins now."""

    state: str
    older_than_ms: int
    era: Era | None
    offset: int
    limit: int
    most: int

    def parse(self, raw: Any, decode: object) -> Cleaned:
        """The raw reply as a value; only a call that was carried out has numbers."""
        result = one_of(raw[1], ADMINISTERED_RESULTS)
        numbers = [int(word) for word in raw[2:]]
        if not numbers:
            return Cleaned(server_us(raw), result)
        removed, kept, *era = numbers
        return Cleaned(server_us(raw), result, removed, kept, Era(*era))


@immutable
class Cleaned(Administered):
    """With how many jobs were removed, how many stay, and the era. `ordered`: jobs that have ended come in
    the order of time, so that behind the first young one there are only younger ones."""

    removed: int = 0
    kept: int = 0
    era: Era | None = None
    ordered: bool = True


@immutable
class Forget(AdminOperation, script="forget", label="obliterate", goes="each"):
    """Begin or end the deletion of a queue."""

    phase: Literal["begin", "end"]
    force: bool

    def parse(self, raw: Any, decode: object) -> Forgotten:
        """The raw reply as a value."""
        busy = raw[1] == b"busy"
        result = "done" if busy else one_of(raw[1], ADMINISTERED_RESULTS)
        if len(raw) < 5:
            return Forgotten(server_us(raw), result, None, busy)
        return Forgotten(server_us(raw), result, Era(int(raw[2]), int(raw[3])), busy, int(raw[4]) == 1)


@immutable
class Forgotten(Administered):
    """With the era; without, and `busy`, when jobs are in hand. `more`: another call is needed to end it."""

    era: Era | None = None
    busy: bool = False
    more: bool = False


@immutable
class MakeTestQueue(Operation, script="make_test_queue"):
    """Allow `now_ms` on a queue that has never held a job."""

    def parse(self, raw: Any, decode: object) -> bool:
        """Whether it is allowed now."""
        return raw[1] == b"made"


# -- What the jobs of one name share beside their payloads, on a format that has such a place: Mosquito's
# metadata (MQ16).


@immutable
class ReadMetadata(Operation):
    """All that is kept for a name."""

    name: str

    def parse(self, raw: Any, decode: object) -> dict[str, str]:
        """The fields of an HGETALL reply."""
        texts = [word.decode(errors="replace") for word in raw]
        return dict(zip(texts[::2], texts[1::2], strict=True))


@immutable
class SetMetadata(AdminOperation, script="set_metadata"):
    """Set fields, add to those in `added`, and remove those with None."""

    name: str
    fields: tuple[tuple[str, str | None], ...]
    added: tuple[tuple[str, int], ...] = ()

    def parse(self, raw: Any, decode: object) -> MetadataSet:
        """The raw reply as a value."""
        values = tuple(int(word) for word in (raw[2] if len(raw) > 2 else ()))
        return MetadataSet(server_us(raw), one_of(raw[1], ADMINISTERED_RESULTS), values)


@immutable
class MetadataSet(Administered):
    """With the values of the fields that were added to, in the order of the call."""

    values: tuple[int, ...] = ()


# -- What a server holds: the queues (MQ22), noted as used and listed, and the subscribers of channels.


@immutable
class NoteQueue(Operation, patient=False):
    """List the queue as used at a time."""

    used_ms: int

    def parse(self, raw: object, decode: object) -> Literal[True]:
        """It is listed, now or before."""
        return True


@immutable
class ListQueues(Operation):
    """The queues under a prefix."""


@immutable
class ListSubscribers(Operation):
    """Subscribers of channels, from a cursor of the scan on."""

    cursor: int


@immutable
class ReadClocks(Operation):
    """The clocks of channels and the cursors of subscribers."""


# -- The era of a queue: it ends when a server has lost writes (docs/guides/acknowledgements.md).

#: What a server lacks that a process was told of: jobs, by their sequence; a claim; `marker`: the entry
#: of an era that it has seen.
Missing = Literal["", "sequence", "claim", "marker"]
_MISSING = get_args(Missing)


@immutable
class NoteEra(Operation, script="note_era", patient=False):
    """Note the server that the queue is on. `replid` is its replication id, `before` and `known` are that of
    the server that the process knew and the entry that it saw there, '' = none. `acknowledged` is the highest
    sequence that it was acknowledged. `claims`: incarnation, counter of the last answered claim, and whether
    its record must still be there."""

    replid: str
    before: str
    known: str
    acknowledged: int
    claims: tuple[tuple[str, int, bool], ...] = ()

    def parse(self, raw: Any, decode: object) -> EraNoted:
        """The raw reply as a value."""
        return EraNoted(server_us(raw), raw[1].decode(), int(raw[2]), one_of(raw[3], _MISSING))


@immutable
class EraNoted:
    """The entry of this server; `found`: the least sequence at which an era began that the process did not
    know; what is missing."""

    srv_us: int
    entry: str
    found: int
    missing: Missing


# -- Queues in several shards: the record of how many there are, and moving jobs from one shard to another
# (`engine.queue.sharding`).


@immutable
class ReadShards(Operation, label="read the record of shards"):
    """The record of a queue's shards; '' where there is none."""

    def parse(self, raw: Any, decode: object) -> str:
        """The raw reply as a value."""
        return "" if raw is None else raw.decode()


@immutable
class SetShards(Operation, script="shard_record", label="write the record of shards"):
    """Replace the record if it still is `known`. `moved`: what enqueues into shard 0 are told from now on;
    `fresh`: only of a queue that has never held a job."""

    known: str
    record: str
    moved: str = ""
    fresh: bool = False

    def parse(self, raw: Any, decode: object) -> ShardsSet:
        """The raw reply as a value."""
        result: Any = one_of(raw[1], ("done", "changed", "used"))
        return ShardsSet(server_us(raw), result, raw[2].decode())


@immutable
class ShardsSet:
    """`done`; `changed` where somebody else was first; `used` where the queue has held jobs without shards.
    `record` is the one that is there now."""

    srv_us: int
    result: Literal["done", "changed", "used"]
    record: str


@immutable
class SetGate(Operation, script="shard_gate", label="close a shard"):
    """Whether a shard takes new jobs, and the sequence that the next ones come after."""

    moved: str = ""
    sequence: int = 0

    def parse(self, raw: Any, decode: object) -> GateSet:
        """The raw reply as a value."""
        return GateSet(server_us(raw), int(raw[1]))


@immutable
class GateSet:
    """The last sequence of the shard."""

    srv_us: int
    sequence: int


@immutable
class TakeJobs(Operation, script="shard_take", label="take jobs out of a shard"):
    """Take these jobs out of their shard, as batch `number` for the shard `to`; 0 only looks whether a batch
    is on its way."""

    number: int
    to: str
    jobs: tuple[str, ...] = ()

    def parse(self, raw: Any, decode: object) -> TakenJobs:
        """The raw reply as a value."""
        result: Any = one_of(raw[1], ("taken", "busy", "stale"))
        items = tuple((job.decode(), packed) for job, packed in zip(raw[4][::2], raw[4][1::2], strict=True))
        return TakenJobs(server_us(raw), result, int(raw[2]), raw[3].decode(), items)


@immutable
class TakenJobs:
    """The batch that is on its way: its number, the shard that it goes to ('' = none is on its way), and its
    jobs, packed. `busy`: it is another one than was asked for; `stale`: it has arrived already."""

    srv_us: int
    result: Literal["taken", "busy", "stale"]
    number: int
    to: str
    items: tuple[tuple[str, bytes], ...]


@immutable
class PutJobs(Operation, script="shard_put", label="put jobs into a shard"):
    """Put a batch into the shard that it goes to, and add to its counters."""

    source: str
    number: int
    items: tuple[tuple[str, bytes], ...]
    finished: int = 0
    buried: int = 0
    expired: int = 0
    skipped: int = 0

    def parse(self, raw: Any, decode: object) -> JobsPut:
        """The raw reply as a value."""
        return JobsPut(server_us(raw), int(raw[2]))


@immutable
class JobsPut:
    """How many jobs were left out, because another one has their id there."""

    srv_us: int
    left_out: int


@immutable
class DropTaken(Operation, script="shard_drop", label="forget jobs that have moved"):
    """Forget the jobs of a batch that has arrived."""

    number: int

    def parse(self, raw: Any, decode: object) -> TakenDropped:
        """The raw reply as a value."""
        return TakenDropped(server_us(raw), int(raw[1]))


@immutable
class TakenDropped:
    """How many jobs were forgotten."""

    srv_us: int
    count: int


# -- The restore of a backup of a queue: the calls that write its keys into an empty one, and that open
# it.

LoadResult = Literal["ok", "opening", "other", "busy", "unreadable"]
_LOADED = get_args(LoadResult)


@immutable
class LoadRestore(Operation, script="restore_load"):
    """Begin to restore a backup, or write some of its keys. `items`: the name of a key without the queue's
    prefix, the time (ms) when it expires (0 = never), and its value as DUMP gives it (b"" = there is no such
    key). (backup, owner) is the identity."""

    phase: Literal["begin", "load"]
    backup: str
    owner: str
    probe: bytes = b""
    items: tuple[tuple[bytes, int, bytes], ...] = ()

    def parse(self, raw: Any, decode: object) -> RestoreLoaded:
        """The raw reply as a value."""
        return RestoreLoaded(server_us(raw), one_of(raw[1], _LOADED), raw[2].decode())


@immutable
class RestoreLoaded:
    """`opening`: all is there but for the last call. `other`: another process has begun since. `busy`: the
    queue is not empty, `why` names a key. `unreadable`: this server does not read the values, by its
    words."""

    srv_us: int
    result: LoadResult
    why: str


@immutable
class EndRestore(Operation, script="restore_end"):
    """Give back up to `limit` of the jobs that were leased when the backup was made, and open the queue when
    none is left."""

    backup: str
    owner: str
    replid: str
    limit: int
    sequence: int
    sweep_value: bytes
    seq_value: bytes

    def parse(self, raw: Any, decode: object) -> RestoreEnded:
        """The raw reply as a value."""
        return RestoreEnded(server_us(raw), one_of(raw[1], ("ok", "more", "other")), int(raw[2]))


@immutable
class RestoreEnded:
    """`more`: call again; `given_back`: jobs of all calls so far."""

    srv_us: int
    result: Literal["ok", "more", "other"]
    given_back: int
