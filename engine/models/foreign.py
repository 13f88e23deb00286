"""The base of the models of foreign keyspaces: the engine's operations, mapped to calls of the scripts in `lua/foreign`.

A model adds what is specific to its format: key names (`wire` and `ours` of its keys), a codec (`encode`, `decode`) and
`lua/<model>/modules`. Jobs exist only in the foreign structures; leases, tokens and tombstones are in the engine's own keys,
under `ironclaim:`. None of these models runs on a cluster: the scripts build keys that are in several slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from engine.errors import UnsupportedFeature
from engine.models import (
    envelope,
    foreign_replies,
    lanes_schedules,
)
from engine.models.fields import pack, unpack
from engine.models.foreign_keys import ForeignKeys
from engine.models.ids import random_id
from engine.models.model import Finding
from engine.models.names import ANY_TEXT, Names
from engine.models.scripted import Scripted, raw_texts, token
from engine.ops.admin import Alter, Cleaned, SetLimit
from engine.ops.base import Operation
from engine.ops.claims import Attributes, Bury, Claim, Drop, Failure, Finish, LeasedJob, Release, Retry, Value
from engine.ops.jobs import CloseWindows, Enqueue, EnqueueMany, Lease, Options
from engine.ops.looks import Count, Explain, Inspect, ListObstacles, ReadProgress
from engine.ops.schedules import Tick
from engine.ops.sweeps import Sweep, Wait
from engine.options import PLAIN
from engine.wire.call import Call
from engine.wire.scripts import load_foreign, scripts_folder

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
_NOTHING_SPECIAL = Attributes("")


class Foreign(Scripted):
    """The mapping for one queue of a foreign model. `prefix`: the prefix that the application has set; `lua`: another folder of
    scripts; `layout` and `settings` are passed to the scripts unchanged."""

    name: str
    #: What its names and ids may be.
    names: Names = ANY_TEXT
    #: The options of jobs that the format can hold, by the names in JobOptions.
    OPTIONS: frozenset[str] = frozenset()
    #: The options of a job without explicit ones.
    defaults: Options = PLAIN
    #: Operations that the model does not have.
    LACKS: frozenset[type[Any]] = frozenset({CloseWindows, Explain, ListObstacles})
    FINDINGS: tuple[Finding, ...] = ()
    #: Foreign producers push no wake marker: an idle worker polls after this time (ms).
    poll_ms: int = 100
    #: Foreign clients send no notification when a job has ended, so a wait polls this often (ms).
    hear_ms = 200
    routes_at_claim = True

    def __init__(self, queue: str, prefix: str, *, lua: Path | None = None, layout: str = "", settings: str = "") -> None:
        keys = ForeignKeys(queue, prefix, *self.places(queue, prefix))
        constants = {"prefix": keys.prefix, "root": keys.wire, "queue": queue, "layout": layout, "settings": settings}
        super().__init__(keys, load_foreign(lua or scripts_folder(), self.name, REUSED), constants)
        self.keys: ForeignKeys = keys
        self.layout, self.settings = layout, settings
        self._lua = lua
        self._not_held = sorted({*_DEFAULTS} - self.OPTIONS)

    @staticmethod
    def places(queue: str, prefix: str) -> tuple[str, str]:
        """The prefix of the foreign keys of a queue, with its colon, and the text after `ironclaim:` in the engine's own
        keys."""
        return f"{prefix}:", ""

    def encode(self, job: Enqueue) -> bytes:
        """A new job as packed fields, the body first: `item.fields` in the format's `admit` and `add`."""
        raise NotImplementedError

    def sibling(self, queue: str) -> Self:
        """The same model of another queue."""
        other = type(self)(queue, self.keys.root, lua=self._lua, layout=self.layout, settings=self.settings)
        other.now_ms = self.now_ms
        return other

    #: The nonce is kept apart from the job.
    draws_ids = False

    def new_id(self) -> str:
        """A new id for a job without one; '' if the server assigns it."""
        return random_id()

    def new_ids(self) -> Iterator[str]:
        """Like `new_id`, for many jobs."""
        while True:
            yield self.new_id()

    def check_id(self, value: object) -> str:
        """Return a caller's id if it is valid. Raises Malformed."""
        return self.names.job_id(value)

    def check(self, id: str, name: str, payload: bytes, options: Options) -> None:
        """Raise UnsupportedFeature for an option that the format cannot hold; a model may also check names and payloads."""
        for option in self._not_held:
            if getattr(options, option) != _DEFAULTS[option]:
                raise UnsupportedFeature(f"{self.name} has no option {option}: its jobs have no room for that")

    def refuse(self, operation: Operation) -> None:
        """Raise UnsupportedFeature for an operation that the model lacks."""
        if type(operation) in self.LACKS:
            raise UnsupportedFeature(f"{self.name} has no {type(operation).__name__}")
        if isinstance(operation, SetLimit) and operation.target.startswith("k:"):
            raise UnsupportedFeature(f"{self.name} has no limits of keys: its jobs have none")

    def schedule_id(self, schedule: str, moment: str) -> str:
        """The id of the job that a schedule makes."""
        return f"cron:{schedule}:{moment}"

    def template(self, job: Enqueue) -> bytes:
        """Two fields: an envelope, for readers of the schedule, and the job as the format stores it."""
        return pack(lanes_schedules.sealed(job), self.encode(job))

    def read_template(self, raw: bytes) -> LeasedJob:
        """Decode the first of the two fields."""
        parts = unpack(raw) or [b""]
        return envelope.decode(parts[0], Lease("", 0, ""), 0, (0, 0, 0))

    def read_reply(self, operation: Operation, raw: Any) -> Any:
        """Parse the reply as the operation declares it; the replies of enqueues have a form of their own."""
        if isinstance(operation, Enqueue | EnqueueMany):
            return foreign_replies.enqueued(operation, raw)
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
                least, most = priorities or ("", "")
                described = b"" if worker is None else _described(worker)
                return self.bound(operation, argument_groups=(classes,), worker=described, least=least, most=most)
            case Finish(claim=None):
                return self._end(operation, _finishes(operation.leases, operation.values))
            case Finish(claim=Claim() as claim):
                return self._claim(operation, claim, _finishes(operation.leases, operation.values))
            case Release():
                return self._end(operation, [("release", lease, b"") for lease in operation.leases])
            case Drop():
                pairs = zip(operation.leases, operation.outcomes, strict=True)
                return self._end(operation, [("drop", lease, pack(word)) for lease, word in pairs])
            case Retry():
                return self._end(operation, [("retry", failure.lease, _failed(failure)) for failure in operation.failures])
            case Bury():
                return self._end(operation, [("bury", failure.lease, _failed(failure)) for failure in operation.failures])
            case Sweep(orphans=True):
                return self.bound(operation, "orphans")
            case Tick(schedule=schedule, ticks_ms=ticks_ms):
                made = [self.keys.enqueued(f"cron:{schedule}:{tick_ms}") for tick_ms in ticks_ms]
                words = [word for ms in ticks_ms for word in (ms, self.schedule_id(schedule, str(ms)))]
                return self.bound(operation, key_groups=(made,), argument_groups=(words,))
            case ReadProgress():
                return self.bound(operation, "read_progress")
            case Inspect(jobs=jobs):
                return self.bound(operation, key_groups=(raw_texts(self.job_keys(jobs)),), argument_groups=(raw_texts(jobs),))
            case Wait():
                news = "" if operation.version is None else self.keys.news(operation.version)
                block_ms = min(operation.block_ms, self.poll_ms)
                keys = (self.keys.all_classes, *([news] if news else []))
                words = ("BLPOP", *keys, block_ms / 1000)
                return Call(None, keys, words, partial(foreign_replies.woken, news), operation, block_ms)
            case _:
                return super().call(operation)

    def job_keys(self, jobs: Iterable[str]) -> list[str]:
        """The engine's own key `run:<id>` of each job."""
        return [self.keys.run(job) for job in jobs]

    def alter(self, operation: Alter) -> Call[Any]:
        """The call of an admin action on jobs."""
        return self.bound(operation, "alter", (raw_texts(self.job_keys(operation.jobs)),), (raw_texts(operation.jobs),))

    def _enqueue(self, operation: Enqueue | EnqueueMany, jobs: Sequence[Enqueue]) -> Call[Any]:
        first = jobs[0]
        words: list[object] = []
        for job in jobs:
            words += (job.job, job.options.wait_ms, self.encode(job))
        new = self.keys.enqueued(first.nonce.hex() + first.job)
        return self.bound(operation, "enqueue", (), (words,), new=new, not_after_ms=first.not_after_ms)

    def _claim(self, operation: Claim | Finish, claim: Claim, ends: Sequence[tuple[str, Lease, bytes]]) -> Call[Any]:
        least, most = claim.priorities or ("", "")
        return self.bound(
            operation,
            "claim",
            (self._runs(ends),),
            (claim.classes, _words(ends)),
            record=self.keys.claim(claim.incarnation),
            incarnation=claim.incarnation,
            counter=claim.counter,
            limit=claim.limit,
            lease_ms=claim.lease_ms,
            not_after_ms=claim.not_after_ms,
            owner=claim.owner,
            most_ms=claim.sleep_max_ms,
            crashed_max=claim.crashed_max,
            least=least,
            most=most,
            worker=_described(claim.worker or _NOTHING_SPECIAL),
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
