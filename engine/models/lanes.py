"""Lanes, the default model: a pure mapping from operations to calls of the scripts in `lua/lanes` (DESIGN 3.5, 3.6).

A class is a job's name with what it wants of a worker, a lane is a class with a key (rule 18).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from engine import validate
from engine.call import Call
from engine.class_names import class_target
from engine.errors import ScriptFault, UnsupportedFeature
from engine.models import envelope, lanes_administration, lanes_replies, lanes_schedules, lanes_workers
from engine.models.ids import random_id, random_ids
from engine.models.lanes_keys import LanesKeys
from engine.models.model import Finding
from engine.models.scripted import Scripted, token
from engine.operations import (
    AcquireLock,
    Alter,
    Beat,
    Bury,
    Claim,
    Clean,
    Count,
    Drop,
    EnableSchedule,
    Enqueue,
    EnqueueMany,
    Extend,
    ExtendLock,
    Finish,
    Forget,
    Hear,
    Inspect,
    Lease,
    LeasedJob,
    Limit,
    Listing,
    ListSchedules,
    ListTook,
    ListWorkers,
    Look,
    MakeTestQueue,
    Mark,
    News,
    NoteProgress,
    NoteQueue,
    Operation,
    Options,
    Page,
    Pause,
    Promote,
    PutSchedule,
    ReadEvents,
    ReadProgress,
    Reap,
    Release,
    ReleaseLock,
    RemoveSchedule,
    Reply,
    Resume,
    Retry,
    SetEvents,
    SetLimit,
    SetRetention,
    SetWorker,
    TellTook,
    Tick,
    Value,
    Wait,
    Witness,
)
from engine.options import PLAIN
from engine.scripts import load_folder, scripts_folder

#: The slots of the two scripts whose calls are not bound by name: those that every job pays for.
_ENQUEUE_KEYS = (
    *("sweep", "seq", "job", "run", "classes", "parked", "ready", "lane", "due", "active", "dead", "wake", "stats"),
    *("unique", "dedup"),
)
_ENQUEUE_ARGUMENTS = (
    *("now_ms", "prefix", "id", "class", "lane_name", "target"),
    *("unique_key", "dedup_key", "dedup_ms", "delay_ms", "not_after_ms", "head", "tail"),
)
_CLAIM_KEYS = ("sweep", "due", "rest", "parked", "active", "dead", "stats", "record", "done")
_CLAIM_ARGUMENTS = (
    *("now_ms", "prefix", "incarnation", "counter", "limit", "lease_ms", "not_after_ms", "owner", "most_ms", "crashed_max"),
    *("least", "most", "class_count"),
)


class Lanes(Scripted):
    """The mapping for one queue. `lua`: another folder of scripts; `root`: what its keys begin with; `now_ms`: the time of a
    test, on queues made for tests."""

    name = "lanes"
    FINDINGS: tuple[Finding, ...] = ()
    defaults = PLAIN
    routes_at_claim = False
    #: The wire is the engine's own: it holds whatever an enqueue may say.
    check = None
    #: Every waiting job holds its id twice, and two characters more are 16 bytes.
    new_id = staticmethod(random_id)
    new_ids = staticmethod(random_ids)
    check_id = staticmethod(validate.job_id)

    def __init__(self, queue: str, *, lua: Path | None = None, root: str = "ic") -> None:
        keys = LanesKeys(queue, root)
        super().__init__(keys, load_folder((lua or scripts_folder()) / "lanes"), {"prefix": keys.prefix})
        self._lua = lua
        # The keys of the last claim, by incarnation and classes, up to those of the jobs that it ends.
        self._claim_keys: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}

    def sibling(self, queue: str) -> Lanes:
        """The same model of another queue."""
        other = Lanes(queue, lua=self._lua, root=self.keys.root)
        other.now_ms = self.now_ms
        return other

    def refuse(self, operation: Operation) -> None:
        """It has all of them."""

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job from its envelope."""
        return envelope.decode(raw, lease, deadline_ms, counters)

    def schedule_id(self, schedule: str, moment: str) -> str:
        """One tick is one job."""
        return f"cron:{schedule}:{moment}"

    def template(self, job: Enqueue) -> bytes:
        """An envelope, of which a tick fills in the rest."""
        return lanes_schedules.sealed(job)

    def read_template(self, raw: bytes) -> LeasedJob:
        """That envelope."""
        return envelope.decode(raw, Lease("", 0, ""), 0, (0, 0, 0))

    def parse(self, operation: Operation, raw: Any) -> Reply:
        """The reply of an operation's script as a value."""
        return lanes_replies.parse(operation, raw)

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
            case Release():
                return self._ending("release", operation, [token(lease) for lease in operation.leases], operation.leases)
            case Drop():
                items = [(*token(lease), word) for lease, word in zip(operation.leases, operation.outcomes, strict=True)]
                return self._ending("drop", operation, items, operation.leases)
            case Retry():
                items = [(*token(f.lease), f.delay_ms, f.error, f.trace, int(f.charge)) for f in operation.failures]
                return self._ending("retry", operation, items, [f.lease for f in operation.failures])
            case Bury():
                items = [(*token(f.lease), f.error, f.trace) for f in operation.failures]
                return self._ending("bury", operation, items, [f.lease for f in operation.failures])
            case Extend():
                named = {"renewal": operation.renewal, "lease_ms": operation.lease_ms, "not_after_ms": operation.not_after_ms}
                return self._ending("extend", operation, [token(lease) for lease in operation.leases], operation.leases, named)
            case NoteProgress():
                lease = operation.lease
                named = {"job": self.keys.job(lease.job), "run": self.keys.run(lease.job)}
                values = {"fence": lease.fence, "nonce": lease.nonce, "count": operation.count, "body": operation.body}
                return self.bound("progress", operation, values, named)
            case ReadProgress():
                words = ("HGET", self.keys.run(operation.job), "progress")
                return Call(None, (), words, lanes_replies.progress, operation)
            case Mark():
                return self._mark(operation)
            case Promote() | Reap():
                return self._sweep(operation)
            case Beat() | ListWorkers() | AcquireLock() | ExtendLock() | ReleaseLock() | Witness() | TellTook() | ListTook():
                call = self.bound(*lanes_workers.parts(operation, self.keys))
                # A beat that is lost is followed by another one, and a report is told again later: waiting for one of them would
                # hold up the sweeps behind it.
                return replace(call, patient=not isinstance(operation, Beat | TellTook))
            case Pause() | Resume() | SetLimit() | SetWorker():
                return self._administer(operation)
            case PutSchedule() | EnableSchedule() | RemoveSchedule() | Tick() | ListSchedules():
                slots = lanes_schedules.slots(operation, self.keys)
                return self.bound(slots.script, operation, slots.values, slots.keys, slots.key_groups, slots.argument_groups)
            case Look():
                return self._look(operation)
            case Hear():
                words = ("XREAD", "COUNT", 100, "BLOCK", operation.block_ms, "STREAMS", self.keys.wait(operation.token))
                parse = partial(lanes_replies.heard, operation)
                return Call(None, (), (*words, operation.after), parse, operation, operation.block_ms)
            case ReadEvents():
                return lanes_administration.read_events(operation, self.keys)
            case Alter() | Clean() | Forget() | SetRetention() | SetEvents() | Inspect() | Page():
                slots = lanes_administration.slots(operation, self.keys)
                return self.bound(slots.script, operation, slots.values, slots.keys, slots.key_groups, slots.argument_groups)
            case Listing():
                return self.bound("listing", operation, {"offset": operation.offset, "limit": operation.limit})
            case Count():
                return self.bound("counts", operation, {}, argument_groups=(operation.classes,))
            case MakeTestQueue():
                return self.bound("make_test_queue", operation, {})
            case News():
                return self._news(operation)
            case Wait():
                lists = [*map(self.keys.wake, operation.classes)]
                news = "" if operation.version is None else self.keys.news(operation.version)
                words = ("BLPOP", *lists, *([news] if news else []), operation.block_ms / 1000)
                return Call(None, (), words, lambda raw: lanes_replies.woken(raw, news), operation, operation.block_ms)
            case NoteQueue():
                words = ("ZADD", self.keys.queues, "GT", operation.used_ms, self.keys.queue)
                return Call(None, (), words, lambda raw: True, operation, patient=False)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise UnsupportedFeature(f"Lanes has no {type(operation).__name__}")

    def _enqueue(self, operation: Enqueue) -> Call[Any]:
        """In the header's order by hand: binding by name would take a tenth of the whole enqueue."""
        script, keys, options = self.scripts["enqueue"], self.keys, operation.options
        if script.keys != _ENQUEUE_KEYS or script.arguments != _ENQUEUE_ARGUMENTS:
            raise ScriptFault("script enqueue: its header has other slots than the model")
        name, target = operation.name, ""
        if options.route or options.target:
            name, target = operation.class_name, class_target(options.route, options.target)
        lane = f"{name}/{options.key}" if options.key else name
        head, tail = envelope.encode(operation)
        bound = (
            *(keys.sweep, keys.seq, keys.job(operation.job), keys.run(operation.job), keys.classes, keys.parked),
            *(keys.ready(name), keys.lane(lane), keys.due, keys.active, keys.dead, keys.wake(name), keys.stats),
            *(keys.unique(options.unique), keys.dedup(options.dedup)),
        )
        if options.needs:
            bound += (keys.blocked, keys.feeding, keys.handing, keys.done, keys.keeping, keys.needs(operation.job))
            of_parent = (keys.job, keys.feeds, keys.heirs, keys.result)
            bound += tuple(key_of(parent) for parent in options.needs for key_of in of_parent)
        arguments = (
            *("" if self.now_ms is None else self.now_ms, keys.prefix, operation.job, name, lane, target),
            *(options.unique, options.dedup, options.dedup_ms, options.wait_ms, operation.not_after_ms, head, tail),
        )
        return Call(script, bound, arguments, lambda raw: lanes_replies.parse(operation, raw), operation)

    def _enqueue_many(self, operation: EnqueueMany) -> Call[Any]:
        keys, first = self.keys, operation.jobs[0]
        job_prefix = keys.job("")
        # By class and key: its number, and what the class wants of a worker.
        lanes: dict[tuple[str, str], tuple[str, str]] = {}
        uniques: list[str] = []
        item_keys: list[str] = []
        places: list[object] = []
        items: list[object] = []
        # Most jobs of a call have their name and options in common, and with them all of the envelope but the payload.
        known: dict[tuple[str, int], tuple[str, bytes]] = {}
        for job in operation.jobs:
            mark = (job.name, id(job.options))
            common = known.get(mark)
            if common is None:
                target = class_target(job.options.route, job.options.target)
                lane = lanes.setdefault((job.class_name, job.options.key), (str(len(lanes) + 1), target))
                place = self._place(job.options, lane[0], uniques)
                common = known[mark] = (place, b"".join(envelope.encode(job._replace(payload=b""))))
            item_keys.append(job_prefix + job.job)
            items.append(common[1] + job.payload)  # anchor: each-bulk-job-has-its-own-payload
            if common[0]:
                places += (len(items), common[0])
        lane_keys: list[str] = []
        lane_names: list[str] = []
        for (name, key), (_, target) in lanes.items():
            lane = f"{name}/{key}" if key else name
            lane_keys += (keys.ready(name), keys.lane(lane), keys.wake(name))
            lane_names += (name, lane, target)
        counts = {"lane_count": len(lanes), "place_count": len(places) // 2}
        values = {"nonce": first.nonce, "not_after_ms": first.not_after_ms, **counts}
        return self.bound("enqueue_many", operation, values, {}, (lane_keys, uniques, item_keys), (lane_names, places, items))

    def _place(self, options: Options, lane: str, uniques: list[str]) -> str:
        """Where a job of a call goes, as its script reads it; '' is the first lane at once. Its unique and dedup keys are added
        to `uniques`."""
        if options.needs:
            raise ScriptFault("enqueue_many: a job that needs others goes in a call of its own")
        if lane == "1" and not options.wait_ms and not options.unique and not options.dedup:
            return ""
        uniques += [self.keys.unique(options.unique)] if options.unique else []
        uniques += [self.keys.dedup(options.dedup)] if options.dedup else []
        return f"{options.wait_ms} {lane} {options.unique or '/'} {options.dedup or '/'} {options.dedup_ms}"

    def _mark(self, operation: Mark) -> Call[Any]:
        lease = operation.lease
        named = {"job": self.keys.job(lease.job), "run": self.keys.run(lease.job)}
        return self.bound("mark", operation, {"fence": lease.fence, "nonce": lease.nonce}, named)

    def _sweep(self, operation: Promote | Reap) -> Call[Any]:
        values = {"counter": operation.counter, "limit": operation.limit, "most_ms": operation.sleep_max_ms}
        named = {"swept": self.keys.swept(operation.incarnation)}
        if isinstance(operation, Promote):
            return self.bound("promote", operation, values, named)
        if operation.orphans:
            return self.bound("orphans", operation, values, named)
        return self.bound("reap", operation, {**values, "done_max": operation.done_max}, named)

    def _finish(self, operation: Finish) -> Call[Any]:
        items = [word for lease in operation.leases for word in lease[1:]]
        result_keys, results = self._results(operation.leases, operation.values)
        return self.bound("finish", operation, {}, {}, (self._job_keys(operation.leases), result_keys), (items, results))

    def _results(self, leases: Sequence[Lease], values: Sequence[Value]) -> tuple[list[str], list[object]]:
        """KEYS and ARGV of what handlers returned."""
        words: list[object] = []
        for value in values:
            words += (value.item + 1, value.ttl_ms, b'"took_ms":%d,"value":%b}' % (value.took_ms, value.data))
        return [self.keys.result(leases[value.item].job) for value in values], words

    def _look(self, operation: Look) -> Call[Any]:
        keys, job = self.keys, operation.job
        named = {"job": keys.job(job), "run": keys.run(job), "result": keys.result(job), "waits": keys.waits(job)}
        return self.bound("look", operation, {"id": job, "token": operation.token}, {**named, "wait": keys.wait(operation.token)})

    def _claim(self, operation: Claim | Finish, claim: Claim, leases: Sequence[Lease], values: Sequence[Value] = ()) -> Call[Any]:
        """In the header's order by hand, as an enqueue."""
        script, classes = self.scripts["claim"], claim.classes
        if script.keys != _CLAIM_KEYS or script.arguments != _CLAIM_ARGUMENTS:
            raise ScriptFault("script claim: its header has other slots than the model")
        known = self._claim_keys.get((claim.incarnation, classes))
        if known is None:
            named = {**self._named, "record": self.keys.claim(claim.incarnation)}
            class_keys = [key for name in classes for key in (self.keys.ready(name), self.keys.wake(name))]
            known = (*(named[slot] for slot in _CLAIM_KEYS), *class_keys)
            # One group of classes of one worker, and in a test or a tool a few of several.
            self._claim_keys = {(claim.incarnation, classes): known}
        least, most = claim.priorities or ("", "")
        result_keys, results = self._results(leases, values) if values else ((), ())
        keys = (*known, *self._job_keys(leases), *result_keys) if leases else known
        arguments = (
            *("" if self.now_ms is None else self.now_ms, self.keys.prefix, claim.incarnation, claim.counter, claim.limit),
            *(claim.lease_ms, claim.not_after_ms, claim.owner, claim.sleep_max_ms, claim.crashed_max, least, most),
            *(len(classes), *classes, *(word for lease in leases for word in lease[1:]), *results),
        )
        return Call(script, keys, arguments, lambda raw: lanes_replies.parse(operation, raw), operation)

    def _ending(
        self,
        name: str,
        operation: Operation,
        items: list[tuple[object, ...]],
        leases: Sequence[Lease],
        values: Mapping[str, object] | None = None,
    ) -> Call[Any]:
        """A call about jobs in hand: `items` is what it says of each lease."""
        flat = [word for item in items for word in item]
        return self.bound(name, operation, values or {}, {}, (self._job_keys(leases),), (flat,))

    def _news(self, operation: News) -> Call[Any]:
        named = {"news": self.keys.news(operation.version)}
        return self.bound("news", operation, {"version": operation.version, "worker": operation.worker}, named)

    def _administer(self, operation: Pause | Resume | SetLimit | SetWorker) -> Call[Any]:
        values: dict[str, object] = {"not_after_ms": operation.not_after_ms}
        named = {"op": self.keys.op(operation.op_id)}
        if isinstance(operation, SetLimit):
            values |= {"limit": operation.target, "definition": definition(operation.limit)}
            return self.bound("set_limit", operation, values, named)
        if isinstance(operation, SetWorker):
            values |= {"field": operation.field, "value": "" if operation.value is None else operation.value}
            return self.bound("set_worker", operation, values, named)
        values["class"] = operation.class_name
        if isinstance(operation, Resume):
            return self.bound("resume", operation, values, named)
        return self.bound("pause", operation, {**values, "length_ms": operation.length_ms}, named)

    def _job_keys(self, leases: Sequence[Lease]) -> list[str]:
        return [key for lease in leases for key in (self.keys.job(lease.job), self.keys.run(lease.job))]


def definition(limit: Limit | None) -> str:
    """A limit as the scripts read it."""
    return "" if limit is None else f"{limit.concurrency} {limit.rate} {limit.per_ms} {limit.window}"
