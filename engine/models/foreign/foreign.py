"""The base of the models of foreign keyspaces: the engine's operations, mapped to calls of the scripts in
`lua/foreign`.

A model adds what is specific to its format: key names (`wire` and `ours` of its keys), a codec (`encode`,
`decode`) and `lua/foreign/<model>/modules`. Jobs exist only in the foreign structures; leases, tokens and
tombstones are in the engine's own keys, under `ironclaim:`. None of these models runs on a cluster: the
scripts build keys that are in several slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

from engine.errors import UnsupportedFeature
from engine.models import envelope
from engine.models.lanes_keys import LanesKeys
from engine.models.model import Model, raw_texts, token
from engine.ops.admin import Alter, Cleaned, SetLimit
from engine.ops.base import Call, Operation
from engine.ops.claims import (
    NOTHING_SPECIAL,
    Attributes,
    Bury,
    Claim,
    Drop,
    Failure,
    Finish,
    LeasedJob,
    Release,
    Retry,
    Sweep,
    Value,
    Wait,
    Woken,
)
from engine.ops.jobs import CloseWindows, Enqueue, Enqueued, EnqueuedMany, EnqueueMany, Lease, Options
from engine.ops.looks import Count, Explain, Inspect, ListObstacles, ReadProgress
from engine.ops.schedules import Tick
from engine.redis.scripts import load_model, scripts_folder

# -- Fields of bytes packed into one string, for script arguments whose parts only the model knows.
#
# For each field its length (4 bytes, big-endian) and its bytes. `lua/foreign/modules/format.lua` unpacks
# them.


def pack(*fields: bytes | str | int) -> bytes:
    """Return the fields as one string; texts as UTF-8, numbers as decimals."""
    parts: list[bytes] = []
    for given in fields:
        field = given if isinstance(given, bytes) else str(given).encode()
        parts += (len(field).to_bytes(4, "big"), field)
    return b"".join(parts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the fields of a packed string. Raises ValueError for a truncated one."""
    found: list[bytes] = []
    at = 0
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise ValueError(f"{end - len(packed)} bytes are missing")
        found.append(packed[at + 4 : end])
        at = end
    return found


# -- The engine's own keys beside a foreign keyspace, which leases, tokens and sweeps need.


@dataclass(frozen=True, slots=True)
class ForeignKeys(LanesKeys):
    """Key names of one queue of a foreign model: those of Lanes, under `ironclaim:`, so that an operator can
    tell them apart.

    `root` is the prefix that the application has set, without the colon. `wire` is the prefix of the foreign
    keys, with its colon; `ours` follows `ironclaim:` where several queues share one keyspace.
    """

    wire: str = ""
    ours: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", f"{self.wire}ironclaim:{self.ours}")

    @property
    def queues(self) -> str:
        """Zset: queue by the time (ms) of its last use; of all queues with this root."""
        return f"{self.root}:ironclaim:queues"

    def enqueued(self, nonce: str) -> str:
        """String: `w` while an enqueue is being written, `d` when it is done, then the ids of its jobs, each
        behind a space and `+`, or `-` for a duplicate; until 20 s after the call is void."""
        return f"{self.prefix}new:{nonce}"

    @property
    def all_classes(self) -> str:
        """List: at most one wake-up, for jobs of any class."""
        return f"{self.prefix}wake"

    @property
    def scan(self) -> str:
        """Hash: digest of what a worker takes -> the rank at which its next claim goes on, unless the last
        one reached the end."""
        return f"{self.prefix}scan"

    @property
    def aside(self) -> str:
        """Hash: id -> why it was set aside, for entries that have no place in the format."""
        return f"{self.prefix}aside"

    @property
    def moving(self) -> str:
        """Set: ids of due jobs while a script moves them."""
        return f"{self.prefix}moving"

    @property
    def strays(self) -> str:
        """Zset: id by the time (ms) when a sweep first saw that no foreign client holds it any more."""
        return f"{self.prefix}strays"


# -- Replies of foreign models that differ from those of Lanes: ids that the server assigned, and waits
# that end by polling.

_LETTERS = {"c": "created", "r": "repeated", "d": "duplicate", "o": "orphan", "x": "refused"}
#: Fields per job of a call: its letter, its id, of a duplicate state and fence of the existing job, and the
#: id of that job, or of the parent that is unknown.
_WORDS = 5


def enqueued(operation: Enqueue | EnqueueMany, raw: Any) -> Enqueued | EnqueuedMany:
    """The result of each job of a call, with its id, which the server may have assigned."""
    jobs = (operation,) if isinstance(operation, Enqueue) else operation.jobs
    srv_us, flat = int(raw[0]), [word if isinstance(word, int) else word.decode() for word in raw[1]]
    if len(flat) != _WORDS * len(jobs):
        raise ValueError(f"{len(flat)} words for {len(jobs)} jobs")
    items = tuple(_item(srv_us, flat[at : at + _WORDS]) for at in range(0, len(flat), _WORDS))
    return items[0] if isinstance(operation, Enqueue) else EnqueuedMany(srv_us, items)


def woken(updates: str, raw: Any) -> Woken:
    """A BLPOP reply: unless it is an update, there may be work, also without a wake-up, because foreign
    producers push none."""
    updated = raw is not None and raw[0] in (updates, updates.encode())
    return Woken(not updated, updated)


def _item(srv_us: int, words: list[Any]) -> Enqueued:
    letter, job, state, fence, holder = words
    return Enqueued(srv_us, job, cast("Any", _LETTERS[letter]), state, int(fence), holder or job)


#: Scripts of Lanes that use only keys that foreign models have as well.
REUSED = (
    *(
        "beat",
        "lock_acquire",
        "lock_extend",
        "lock_release",
        "replication_probe",
        "report_run_times",
        "list_run_times",
        "read_worker_updates",
        "set_worker",
    ),
    *("set_events", "set_retention", "make_test_queue"),
)
_DEFAULTS = {field.name: field.default for field in fields(Options)}


class Foreign(Model):
    """The mapping for one queue of a foreign model. `prefix`: the prefix that the application has set; `lua`:
    another folder of scripts; `layout` and `settings` are passed to the scripts unchanged."""

    #: The options of jobs that the format can hold, by the names in JobOptions.
    OPTIONS: frozenset[str] = frozenset()
    #: Operations that the model does not have.
    LACKS: frozenset[type[Any]] = frozenset({CloseWindows, Explain, ListObstacles})
    #: Foreign producers push no wake-up: an idle worker polls after this time (ms).
    poll_ms: int = 100
    #: Foreign clients send no notification when a job has ended, so a wait polls this often (ms).
    result_poll_ms = 200
    routes_at_claim = True

    def __init__(
        self, queue: str, prefix: str, *, lua: Path | None = None, layout: str = "", settings: str = ""
    ) -> None:
        keys = ForeignKeys(queue, prefix, *self.places(queue, prefix))
        constants = {
            "prefix": keys.prefix,
            "root": keys.wire,
            "queue": queue,
            "layout": layout,
            "settings": settings,
        }
        super().__init__(keys, load_model(lua or scripts_folder(), self.name, REUSED), constants)
        self.keys: ForeignKeys = keys
        self.layout, self.settings = layout, settings
        self._lua = lua
        self._not_held = sorted({*_DEFAULTS} - self.OPTIONS)

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """The prefix of the foreign keys of a queue, with its colon, and the text after `ironclaim:` in the
        engine's own keys."""
        return f"{prefix}:", ""

    def encode(self, job: Enqueue) -> bytes:
        """A new job as packed fields, the body first: `item.fields` in the format's `admit` and `add`."""
        raise NotImplementedError

    def sibling(self, queue: str) -> Self:
        """The same model of another queue."""
        other = type(self)(queue, self.keys.root, lua=self._lua, layout=self.layout, settings=self.settings)
        other.now_ms = self.now_ms
        return other

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option that the format cannot hold; a model may also check names
        and payloads."""
        for option in self._not_held:
            if getattr(options, option) != _DEFAULTS[option]:
                raise UnsupportedFeature(
                    f"{self.name} has no option {option}: its jobs have no field for that"
                )

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks."""
        if type(operation) in self.LACKS:
            raise UnsupportedFeature(f"{self.name} has no {type(operation).__name__}")
        if isinstance(operation, SetLimit) and operation.target.startswith("k:"):
            raise UnsupportedFeature(f"{self.name} has no limits of keys: its jobs have none")

    def template(self, job: Enqueue) -> bytes:
        """Two fields: an envelope, for readers of the schedule, and the job as the format stores it."""
        return pack(envelope.sealed(job), self.encode(job))

    def read_template(self, raw: bytes) -> LeasedJob:
        """Decode the first of the two fields."""
        parts = unpack(raw) or [b""]
        return envelope.decode(parts[0], Lease("", 0, ""), 0, (0, 0, 0))

    def read_reply(self, operation: Operation, raw: Any) -> Any:
        """Parse the reply as the operation declares it; the replies of enqueues have a form of their own."""
        if isinstance(operation, Enqueue | EnqueueMany):
            return enqueued(operation, raw)
        reply = super().read_reply(operation, raw)
        # Sets and lists are not in the order of time: an old job may come after a young one.
        return replace(reply, ordered=False) if isinstance(reply, Cleaned) else reply

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        self.refuse(operation)
        match operation:
            case Enqueue():
                return self._enqueue(operation, (operation,))
            case EnqueueMany():
                return self._enqueue(operation, operation.jobs)
            case Claim():
                return self._claim(operation, operation, ())
            case Count(classes=classes, worker=worker, priorities=priorities):
                lowest, highest = priorities or ("", "")
                described = b"" if worker is None else _described(worker)
                return self.bound(
                    operation, argument_groups=(classes,), worker=described, lowest=lowest, highest=highest
                )
            case Finish(claim=None):
                return self._end(operation, _finishes(operation.leases, operation.values))
            case Finish(claim=Claim() as claim):
                return self._claim(operation, claim, _finishes(operation.leases, operation.values))
            case Release():
                started = operation.started
                ends = [("release", lease, pack(int(lease in started))) for lease in operation.leases]
                return self._end(operation, ends)
            case Drop():
                ends = [("drop", lease, pack(word, error)) for lease, word, error in operation.items]
                return self._end(operation, ends)
            case Retry():
                return self._end(
                    operation, [("retry", failure.lease, _failed(failure)) for failure in operation.failures]
                )
            case Bury():
                return self._end(
                    operation, [("bury", failure.lease, _failed(failure)) for failure in operation.failures]
                )
            case Sweep(orphans=True):
                return self.bound(operation, "orphans")
            case Tick(schedule=schedule, ticks_ms=ticks_ms):
                made = [self.keys.enqueued(f"cron:{schedule}:{tick_ms}") for tick_ms in ticks_ms]
                words = [word for ms in ticks_ms for word in (ms, self.schedule_id(schedule, str(ms)))]
                return self.bound(operation, key_groups=(made,), argument_groups=(words,))
            case ReadProgress():
                return self.bound(operation, "read_progress")
            case Inspect(jobs=jobs):
                return self.bound(
                    operation,
                    key_groups=(raw_texts(self.job_keys(jobs)),),
                    argument_groups=(raw_texts(jobs),),
                )
            case Wait():
                updates = "" if operation.version is None else self.keys.news(operation.version)
                block_ms = min(operation.block_ms, self.poll_ms)
                keys = (self.keys.all_classes, *([updates] if updates else []))
                words = ("BLPOP", *keys, block_ms / 1000)
                return Call(None, keys, words, partial(woken, updates), operation, block_ms)
            case _:
                return super().call(operation)

    def job_keys(self, jobs: Iterable[str]) -> list[str]:
        """The engine's own key `run:<id>` of each job."""
        return [self.keys.run(job) for job in jobs]

    def alter(self, operation: Alter) -> Call[Any]:
        """The call of an admin action on jobs."""
        return self.bound(
            operation, "alter", (raw_texts(self.job_keys(operation.jobs)),), (raw_texts(operation.jobs),)
        )

    def _enqueue(self, operation: Enqueue | EnqueueMany, jobs: Sequence[Enqueue]) -> Call[Any]:
        first = jobs[0]
        words: list[object] = []
        for job in jobs:
            words += (job.job, job.options.wait_ms, self.encode(job))
        new = self.keys.enqueued(first.nonce.hex() + first.job)
        return self.bound(operation, "enqueue", (), (words,), new=new, not_after_ms=first.not_after_ms)

    def _claim(
        self, operation: Claim | Finish, claim: Claim, ends: Sequence[tuple[str, Lease, bytes]]
    ) -> Call[Any]:
        lowest, highest = claim.priorities or ("", "")
        return self.bound(
            operation,
            "claim",
            (self._runs(ends),),
            (claim.classes, _words(ends)),
            record=self.keys.claim(claim.incarnation),
            incarnation=claim.incarnation,
            counter=claim.counter,
            most=claim.most,
            lease_ms=claim.lease_ms,
            not_after_ms=claim.not_after_ms,
            owner=claim.owner,
            most_ms=claim.sleep_max_ms,
            crashed_max=claim.crashed_max,
            lowest=lowest,
            highest=highest,
            worker=_described(claim.worker or NOTHING_SPECIAL),
            class_count=len(claim.classes),
        )

    def _end(self, operation: Operation, ends: Sequence[tuple[str, Lease, bytes]]) -> Call[Any]:
        return self.bound(operation, "end", (self._runs(ends),), (_words(ends),))

    def _runs(self, ends: Sequence[tuple[str, Lease, bytes]]) -> list[str]:
        return self.job_keys(lease.job for _, lease, _ in ends)


def _finishes(leases: Sequence[Lease], values: Sequence[Value]) -> list[tuple[str, Lease, bytes]]:
    """Ends of successful runs, with the values that their handlers returned."""
    known = {value.item: value for value in values}
    return [("finish", lease, _returned(known.get(at))) for at, lease in enumerate(leases)]


def _returned(value: Value | None) -> bytes:
    return pack() if value is None else pack(value.data, value.ttl_ms, value.took_ms)


def _failed(failure: Failure) -> bytes:
    return pack(failure.error, failure.trace, failure.delay_ms, int(failure.charge))


def _words(ends: Sequence[tuple[str, Lease, bytes]]) -> list[object]:
    return [word for kind, lease, packed in ends for word in (kind, *token(lease), packed)]


def _described(worker: Attributes) -> bytes:
    """The attributes of a worker, packed as the script reads them."""
    capabilities, routes = " ".join(sorted(worker.capabilities)), " ".join(sorted(worker.routes))
    return pack(worker.server, worker.stack, worker.region, capabilities, routes)
