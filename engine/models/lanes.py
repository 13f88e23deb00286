"""Lanes, the default model: a pure mapping from operations to calls of scripts in `lua/core` and the folders
beside it.

A class is a job's name with what it requires of a worker, a lane is a class with a key (rule 18).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import ScriptFault
from engine.models import envelope
from engine.models.lanes_keys import LanesKeys
from engine.models.model import LANES, Model, random_ids, token
from engine.ops.admin import Alter, LoadRestore, NoteEra, PutJobs, ReadShards, Revive, TakeJobs
from engine.ops.base import Call, Operation
from engine.ops.claims import (
    Bury,
    Claim,
    Drop,
    Finish,
    LeasedJob,
    ReapLost,
    Release,
    Retry,
    Sweep,
    Value,
    Wait,
    Woken,
)
from engine.ops.jobs import CloseWindows, Enqueue, EnqueueMany, Lease, Options, class_target
from engine.ops.looks import ReadProgress, Relatives
from engine.ops.schedules import Tick
from engine.ops.workers import ListConnections
from engine.options import PLAIN
from engine.redis.scripts import Script, load_model, scripts_folder

#: The outcomes of a tombstone (engine/models/envelope.py).
_DISCARDED, _CANCELLED = 2, 7
#: The slots of the two scripts whose calls are not bound by name, to save time, because every job needs them.
_ENQUEUE_KEYS = ("seq", "job", "ready", "lane", "stats")
_ENQUEUE_ARGUMENTS = ("now_ms", "prefix", "not_after_ms", "head", "tail")
#: Lanes whose keys are kept; where each job has its own key, all of them are new.
_LANES_MAX = 1000
_CLAIM_KEYS = ("sweep", "due", "rest", "parked", "active", "dead", "stats", "record", "done")
_CLAIM_ARGUMENTS = (
    *(
        "now_ms",
        "prefix",
        "incarnation",
        "counter",
        "most",
        "lease_ms",
        "not_after_ms",
        "owner",
        "most_ms",
        "crashed_max",
    ),
    *("lowest", "highest", "class_count"),
)


class Lanes(Model):
    """The mapping for one queue. `lua`: another folder of scripts; `root`: prefix of its keys; `now_ms`: the
    time that a test sets, on queues made for tests."""

    name = "lanes"
    names = LANES
    merges_enqueues = True
    generates_ids = True

    def __init__(self, queue: str, *, lua: Path | None = None, root: str = "ic") -> None:
        keys = LanesKeys(queue, root)
        super().__init__(keys, load_model(lua or scripts_folder(), self.name), {"prefix": keys.prefix})
        self._lua = lua
        # The keys that enqueues into a lane share, by lane; and the script whose header was compared.
        self._enqueue_keys: dict[str, tuple[str, str, str]] = {}
        self._enqueue_script: Script | None = None
        self._seq, self._job = keys.seq, keys.job("")
        # The keys of the last claim, by incarnation and classes, up to those of the jobs that it ends.
        self._claim_keys: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def new_ids(self) -> Iterator[str]:
        """Like `new_id`, for many jobs."""
        return random_ids()

    def sibling(self, queue: str) -> Lanes:
        """The same model of another queue."""
        other = Lanes(queue, lua=self._lua, root=self.keys.root)
        other.now_ms = self.now_ms
        return other

    def control(self, worker: str) -> tuple[str, ...]:
        """The pub/sub channels that a worker of this name reads."""
        return self.keys.control(worker)

    @property
    def listed(self) -> str:
        """The name of the queue, also for one of its shards."""
        return self.keys.queue.partition("#")[0]

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from its envelope."""
        return envelope.decode(raw, lease, deadline_ms, counters)

    def template(self, job: Enqueue) -> bytes:
        """An envelope, in which each tick fills in sequence and times."""
        return envelope.sealed(job)

    def read_template(self, raw: bytes) -> LeasedJob:
        """Decode that envelope."""
        return envelope.decode(raw, Lease("", 0, ""), 0, (0, 0, 0))

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        match operation:
            case Enqueue():
                return self._enqueue(operation)
            case EnqueueMany():
                return self._enqueue_many(operation)
            case Claim():
                return self._claim(operation, operation, ())
            case Finish(claim=None):
                return self._finish(operation)
            case Finish(claim=Claim() as claim):
                return self._claim(operation, claim, operation.leases, operation.values)
            case NoteEra(claims=claims):
                records = [self.keys.claim(incarnation) for incarnation, _, _ in claims]
                words = [word for _, counter, is_there in claims for word in (counter, int(is_there))]
                return self.bound(operation, key_groups=(records,), argument_groups=(words,))
            case LoadRestore(phase="begin"):
                return self.bound(operation, key_groups=(self.keys.lasting,), argument_groups=((),))
            case LoadRestore(items=items):
                # As they are in the file, which no text need be.
                names: list[Any] = [self.keys.prefix.encode() + item[0] for item in items]
                return self.bound(
                    operation,
                    key_groups=(names,),
                    argument_groups=([word for item in items for word in item[1:]],),
                )
            case Release(leases=leases):
                items = [(*token(lease), int(lease in operation.started)) for lease in leases]
                return self.about_leases(operation, leases, items)
            case Drop(leases=leases):
                items = [(*token(lease), *why) for lease, *why in operation.items]
                return self.about_leases(operation, leases, items)
            case Retry(failures=failures):
                items = [(*token(f.lease), f.delay_ms, f.error, f.trace, int(f.charge)) for f in failures]
                return self.about_leases(operation, [f.lease for f in failures], items)
            case Bury(failures=failures):
                return self.about_leases(
                    operation,
                    [f.lease for f in failures],
                    [(*token(f.lease), f.error, f.trace) for f in failures],
                )
            case Sweep(orphans=True):
                return self.bound(operation, "orphans")
            case ReapLost(lost=lost):
                words = [
                    word
                    for worker in lost
                    for word in (worker.incarnation, f"{worker.client_id} {operation.run_id}")
                ]
                return self.bound(operation, argument_groups=(words,))
            case ListConnections(client_ids=client_ids):
                words = ("CLIENT", "LIST", "ID", *client_ids)
                return Call(
                    None,
                    (self.keys.connections,),
                    words,
                    partial(self.parse, operation),
                    operation,
                    patient=False,
                )
            case CloseWindows(items=items):
                keys, jobs = [self.keys.dedup(key) for key, _ in items], [job for _, job in items]
                return self.bound(operation, key_groups=(keys,), argument_groups=(jobs,))
            case Revive(jobs=jobs):
                return self.bound(operation, key_groups=(self.job_keys(jobs),), argument_groups=(jobs,))
            case Relatives(jobs=jobs, cursors=cursors):
                words = [word for pair in zip(jobs, cursors, strict=True) for word in pair]
                return self.bound(
                    operation, key_groups=(list(map(self.keys.job, jobs)),), argument_groups=(words,)
                )
            case Tick():
                jobs = [
                    self.keys.job(self.schedule_id(operation.schedule, str(tick_ms)))
                    for tick_ms in operation.ticks_ms
                ]
                return self.bound(operation, key_groups=(jobs,), argument_groups=(operation.ticks_ms,))
            case ReadShards():
                return Call(
                    None,
                    (self.keys.shards,),
                    ("GET", self.keys.shards),
                    partial(self.parse, operation),
                    operation,
                )
            case TakeJobs(jobs=jobs):
                return self.bound(operation, argument_groups=(jobs,))
            case PutJobs(items=items):
                return self.bound(operation, argument_groups=([word for item in items for word in item],))
            case ReadProgress():
                key = self.keys.run(operation.job)
                return Call(None, (key,), ("GET", key), partial(_progress, operation), operation)
            case Wait():
                lists = [*map(self.keys.wake, operation.classes)]
                updates = "" if operation.version is None else self.keys.news(operation.version)
                keys = (*lists, *([updates] if updates else []))
                words = ("BLPOP", *keys, operation.block_ms / 1000)
                return Call(None, keys, words, partial(_woken, updates), operation, operation.block_ms)
            case _:
                return super().call(operation)

    def job_keys(self, jobs: Iterable[str]) -> list[str]:
        """The keys `job:<id>` and `run:<id>` of each job."""
        return [key for job in jobs for key in (self.keys.job(job), self.keys.run(job))]

    def alter(self, operation: Alter) -> Call[Any]:
        """The call of an admin action: each has its script, and those that end a job share one."""
        jobs = operation.jobs
        if operation.action == "run_now":
            return self.bound(operation, "run_now", ([self.keys.job(job) for job in jobs],), (jobs,))
        groups = (self.job_keys(jobs),)
        if operation.action == "requeue":
            return self.bound(operation, "requeue", groups, (jobs,))
        outcome = _CANCELLED if operation.action == "cancel" else _DISCARDED
        return self.bound(operation, "discard", groups, (jobs,), outcome=outcome)

    def _enqueue(self, operation: Enqueue) -> Call[Any]:
        """Built in the order of the header: binding by name would take a tenth of the whole enqueue."""
        script, keys, options = self.scripts["enqueue"], self.keys, operation.options
        if script is not self._enqueue_script:
            if script.keys != _ENQUEUE_KEYS or script.arguments != _ENQUEUE_ARGUMENTS:
                raise ScriptFault("script enqueue: its header has other slots than the model")
            self._enqueue_script = script
        name, target = operation.name, ""
        if options.route or options.target:
            name, target = operation.class_name, class_target(options.route, options.target)
        lane = f"{name}/{options.key}" if options.key else name
        head, tail = envelope.encode(operation)
        job, of_lane = operation.job, self._enqueue_keys.get(lane)
        if of_lane is None:
            if len(self._enqueue_keys) >= _LANES_MAX:
                self._enqueue_keys.clear()
            of_lane = self._enqueue_keys[lane] = (keys.ready(name), keys.lane(lane), keys.stats)
        bound = (self._seq, self._job + job, *of_lane)
        now_ms = "" if self.now_ms is None else self.now_ms
        arguments = (now_ms, keys.prefix, operation.not_after_ms, head, tail)
        if options is PLAIN:
            return Call(script, bound, arguments, partial(self.parse, operation), operation)
        more = options.expires_ms or options.calls_back
        alone = options.needs or more
        if alone or options.unique or options.dedup or options.wait_ms:
            bound += (keys.sweep, keys.classes, keys.parked, keys.wake(name), keys.run(job), keys.due)
            bound += (keys.active, keys.dead, keys.unique(options.unique), keys.dedup(options.dedup))
            arguments += (target, options.unique, options.dedup, options.dedup_ms, options.wait_ms)
        elif target:
            arguments += (target,)
        if alone:
            bound += (keys.blocked, keys.feeding, keys.handing, keys.done, keys.keeping, keys.needs(job))
            bound += (keys.expiring, keys.feeds(job))
            of_parent = (keys.job, keys.feeds, keys.heirs, keys.result)
            bound += tuple(key_of(parent) for parent in options.needs for key_of in of_parent)
        if more:
            made = (envelope.sealed(job) if job else b"" for job in (options.on_success, options.on_failure))
            arguments += (options.expires_ms, *made)
        return Call(script, bound, arguments, partial(self.parse, operation), operation)

    def _enqueue_many(self, operation: EnqueueMany) -> Call[Any]:
        keys, first = self.keys, operation.jobs[0]
        job_prefix = keys.job("")
        # By class and key: the number of the lane, and what the class requires of a worker.
        lanes: dict[tuple[str, str], tuple[str, str]] = {}
        uniques: list[str] = []
        item_keys: list[str] = []
        places: list[object] = []
        items: list[object] = []
        # Most jobs of a call have their name and options in common, and with them all of the envelope but
        # nonce and payload.
        known: dict[tuple[str, int, bool], tuple[str, bytes, bytes]] = {}
        for job in operation.jobs:
            mark = (job.name, id(job.options), job.nonce == b"")
            common = known.get(mark)
            if common is None:
                target = class_target(job.options.route, job.options.target)
                lane = lanes.setdefault((job.class_name, job.options.key), (str(len(lanes) + 1), target))
                place = self._bulk_entry(job.options, lane[0], uniques)
                head, tail = envelope.encode(replace(job, payload=b""))
                common = known[mark] = (place, head, tail[len(job.nonce) :])
            place, head, tail = common
            item_keys.append(job_prefix + job.job)
            items.append(head + job.nonce + tail + job.payload)  # anchor: each-bulk-job-has-its-own-payload
            if place:
                places += (len(items), place)
        lane_keys: list[str] = []
        lane_names: list[str] = []
        for (name, key), (_, target) in lanes.items():
            lane = f"{name}/{key}" if key else name
            lane_keys += (keys.ready(name), keys.lane(lane), keys.wake(name))
            lane_names += (name, lane, target)
        counts = {"lane_count": len(lanes), "place_count": len(places) // 2}
        groups = ((lane_keys, uniques, item_keys), (lane_names, places, items))
        return self.bound(operation, "", *groups, not_after_ms=first.not_after_ms, **counts)

    def _bulk_entry(self, options: Options, lane: str, uniques: list[str]) -> str:
        """How a job of a bulk call is placed, as its script reads it; '' is the first lane, without a delay.
        Its unique and dedup keys are added to `uniques`."""
        if options.goes_alone:
            raise ScriptFault(
                "enqueue_many: a job that needs others, or has callbacks, goes in a call of its own"
            )
        expires = f" {options.expires_ms}" if options.expires_ms else ""
        if lane == "1" and not options.wait_ms and not options.unique and not options.dedup and not expires:
            return ""
        uniques += [self.keys.unique(options.unique)] if options.unique else []
        uniques += [self.keys.dedup(options.dedup)] if options.dedup else []
        uniques += [self.keys.expiring] if expires else []
        return (
            f"{options.wait_ms} {lane} {options.unique or '/'} {options.dedup or '/'} "
            f"{options.dedup_ms}{expires}"
        )

    def _finish(self, operation: Finish) -> Call[Any]:
        items = [word for lease in operation.leases for word in lease[1:]]
        result_keys, results = self._results(operation.leases, operation.values)
        return self.bound(operation, "", (self._lease_keys(operation.leases), result_keys), (items, results))

    def _results(self, leases: Sequence[Lease], values: Sequence[Value]) -> tuple[list[str], list[object]]:
        """KEYS and ARGV of the values that handlers returned."""
        words: list[object] = []
        for value in values:
            words += (value.item + 1, value.ttl_ms, b'"took_ms":%d,"value":%b}' % (value.took_ms, value.data))
        return [self.keys.result(leases[value.item].job) for value in values], words

    def _claim(
        self, operation: Claim | Finish, claim: Claim, leases: Sequence[Lease], values: Sequence[Value] = ()
    ) -> Call[Any]:
        """Built in the order of the header, like an enqueue."""
        script, classes = self.scripts["claim"], claim.classes
        if script.keys != _CLAIM_KEYS or script.arguments != _CLAIM_ARGUMENTS:
            raise ScriptFault("script claim: its header has other slots than the model")
        known = self._claim_keys.get((claim.incarnation, classes))
        if known is None:
            keys = self.keys
            known = (
                *(keys.sweep, keys.due, keys.rest, keys.parked, keys.active, keys.dead, keys.stats),
                *(keys.claim(claim.incarnation), keys.done),
                *(key for name in classes for key in (keys.ready(name), keys.wake(name))),
            )
            # Only the last one is kept: a worker claims one group of classes; only tests and tools use
            # several.
            self._claim_keys = {(claim.incarnation, classes): known}
        lowest, highest = claim.priorities or ("", "")
        result_keys, results = self._results(leases, values) if values else ((), ())
        bound = (*known, *self._lease_keys(leases), *result_keys) if leases else known
        arguments = (
            *(
                "" if self.now_ms is None else self.now_ms,
                self.keys.prefix,
                claim.incarnation,
                claim.counter,
                claim.most,
            ),
            *(
                claim.lease_ms,
                claim.not_after_ms,
                claim.owner,
                claim.sleep_max_ms,
                claim.crashed_max,
                lowest,
                highest,
            ),
            *(len(classes), *classes, *(word for lease in leases for word in lease[1:]), *results),
        )
        return Call(script, bound, arguments, partial(self.parse, operation), operation)

    def _lease_keys(self, leases: Sequence[Lease]) -> list[str]:
        return self.job_keys(lease.job for lease in leases)


def _progress(operation: ReadProgress, raw: Any) -> bytes | None:
    """What a handler has noted last, of a `run` that was read whole."""
    try:
        return operation.parse(
            envelope.read_run_fields(raw).get("progress") if isinstance(raw, bytes) else raw, None
        )
    except (ValueError, IndexError):
        # Its reader says that it cannot be read.
        return b"run:" + raw[:100]


def _woken(updates: str, raw: Any) -> Woken:
    """A BLPOP reply. `updates`: the list of the worker updates, '' if the call did not wait for it."""
    updated = raw is not None and raw[0] in (updates, updates.encode())
    return Woken(raw is not None and not updated, updated)
