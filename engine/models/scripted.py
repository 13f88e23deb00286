"""The base of the models of queues: calls of the operations that follow, or nearly follow, from their declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from engine.errors import ScriptFault, UnsupportedFeature
from engine.models import lanes_schedules
from engine.models.lanes_keys import LanesKeys
from engine.models.slots import FilledSlots
from engine.ops.admin import Alter, NoteQueue, SetRetention
from engine.ops.base import Operation
from engine.ops.claims import Extend, Failure, LeasedJob
from engine.ops.jobs import Enqueue, Lease
from engine.ops.looks import AwaitEnds, Count, Inspect, ReadEvents, ReadProgress
from engine.ops.schedules import PutSchedule
from engine.ops.workers import Beat, ReportRunTimes
from engine.wire.call import Call
from engine.wire.scripts import Script

#: Most names of a queue with run times of their own; the times of all further names are added under `*`.
RUN_TIMES_NAMES_MAX = 1_000


class Scripted(FilledSlots):
    """Calls of one queue's scripts."""

    name: str
    #: The scripts of foreign formats identify a call by one nonce.
    merges_enqueues = False
    #: A wait for the end of a job polls this often.
    hear_ms = 5_000

    def __init__(self, keys: LanesKeys, scripts: Mapping[str, Script], constants: Mapping[str, object]) -> None:
        super().__init__(keys, scripts, constants)
        self.keys = keys

    def decode(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob:
        """A job as the model stores it; `counters` are claims, failures, crashes. Raises ScriptFault."""
        raise NotImplementedError

    def read_reply(self, operation: Operation, raw: Any) -> Any:
        """Parse the reply as the operation declares it."""
        return operation.parse(raw, self._decode_or_fail)

    def _decode_or_fail(self, raw: Any, lease: Lease, deadline_ms: int, counters: tuple[int, int, int]) -> LeasedJob | Failure:
        """A claimed job, or a Failure that says why it cannot be read, so that one bad job does not fail the whole batch."""
        try:
            return self.decode(raw, lease, deadline_ms, counters)
        except ScriptFault as fault:
            return Failure(lease, str(fault))

    def control(self, worker: str) -> tuple[str, ...]:
        """The pub/sub channels that a worker of this name reads; foreign formats have none."""
        return ()

    @property
    def listed(self) -> str:
        """The name under which the queue is listed among those of a server."""
        return self.keys.queue

    def template(self, job: Enqueue) -> bytes:
        """The job that each tick of a schedule enqueues, encoded as the schedule stores it."""
        raise NotImplementedError

    def job_keys(self, jobs: Iterable[str]) -> list[str]:
        """The keys that scripts about leased jobs get for each job."""
        raise NotImplementedError

    def alter(self, operation: Alter) -> Call[Any]:
        """The call of an admin action on jobs."""
        raise NotImplementedError

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        keys = self.keys
        match operation:
            case Extend(leases=leases):
                return self.about_leases(operation, leases, [token(lease) for lease in leases])
            case Beat():
                return self.bound(operation, argument_groups=(operation.others,))
            case ReportRunTimes(items=items):
                words = [
                    word for item in items for word in (*item[:4], " ".join(f"{bucket} {runs}" for bucket, runs in item.buckets))
                ]
                names = [keys.took_by(item.name) for item in items]
                others = keys.took_by("*")
                return self.bound(
                    operation, key_groups=(names,), argument_groups=(words,), others=others, names_max=RUN_TIMES_NAMES_MAX
                )
            case SetRetention(bounds=bounds):
                return self.bound(operation, argument_groups=([word for bound in bounds for word in bound],))
            case PutSchedule():
                timing, policy = lanes_schedules.written(operation.timing), lanes_schedules.written(operation.policy)
                job, most = self.template(operation.job), lanes_schedules.SCHEDULES_MAX
                return self.bound(operation, timing=timing, policy=policy, job=job, most=most)
            case Alter():
                return self.alter(operation)
            case Inspect(jobs=jobs):
                return self.bound(operation, key_groups=(raw_texts(self.job_keys(jobs)),), argument_groups=(raw_texts(jobs),))
            case Count(classes=classes):
                return self.bound(operation, argument_groups=(classes,))
            case ReadProgress():
                key = keys.run(operation.job)
                return Call(None, (key,), ("HGET", key, "progress"), partial(self.parse, operation), operation)
            case AwaitEnds():
                block_ms = min(operation.block_ms, self.hear_ms)
                key = keys.wait(operation.token)
                words = ("XREAD", "COUNT", 100, "BLOCK", block_ms, "STREAMS", key, operation.after)
                return Call(None, (key,), words, partial(self.parse, operation), operation, block_ms)
            case ReadEvents():
                return self._read_events(operation)
            case NoteQueue():
                words = ("ZADD", keys.queues, "GT", operation.used_ms, self.listed)
                return Call(None, (keys.queues,), words, partial(self.parse, operation), operation, patient=operation.patient)
            case _ if operation.script in self.scripts:
                return self.bound(operation)
            case _:
                raise UnsupportedFeature(f"{self.name} has no {type(operation).__name__}")

    def about_leases(self, operation: Operation, leases: Iterable[Lease], items: Iterable[Iterable[object]]) -> Call[Any]:
        """The call of an operation on leases: `items` are the arguments for each."""
        words = [word for item in items for word in item]
        return self.bound(operation, key_groups=(self.job_keys(lease.job for lease in leases),), argument_groups=(words,))

    def _read_events(self, operation: ReadEvents) -> Call[Any]:
        """A plain command, without a script, because reading events changes nothing."""
        if operation.after == "$":
            words: tuple[object, ...] = ("XREVRANGE", self.keys.events, "+", "-", "COUNT", 1)
        else:
            block = ("BLOCK", operation.block_ms) if operation.block_ms else ()
            words = ("XREAD", "COUNT", operation.limit, *block, "STREAMS", self.keys.events, operation.after)
        return Call(None, (self.keys.events,), words, partial(self.parse, operation), operation, operation.block_ms)


def token(lease: Lease) -> tuple[object, ...]:
    """The arguments of a script for one lease: id, fence, nonce."""
    return (lease.job, lease.fence, lease.nonce)


def raw_texts(texts: Iterable[str]) -> list[bytes]:
    """Keys and ids as bytes: a list may have an id that is no text."""
    return [text.encode(errors="surrogateescape") for text in texts]
