"""Lanes, the default model: a pure mapping from operations to calls of the scripts in `lua/lanes` (DESIGN 3.5, 3.6).

At present a queue has one class with one lane, both called `main`; the keys are those of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from engine.call import Call
from engine.errors import ScriptFault, UnsupportedFeature
from engine.models import envelope, lanes_replies
from engine.models.lanes_keys import LanesKeys
from engine.operations import (
    Bury,
    Claim,
    Count,
    Enqueue,
    EnqueueMany,
    Extend,
    Finish,
    Lease,
    Listing,
    MakeTestQueue,
    Mark,
    Operation,
    Promote,
    Reap,
    Release,
    Reply,
    Retry,
    Wait,
)
from engine.scripts import Script, load_folder, scripts_folder

CLASS = "main"
LANE = "main"


class Lanes:
    """The mapping for one queue. `lua`: another folder of scripts; `now_ms`: the time of a test, on queues made for tests."""

    def __init__(self, queue: str, *, lua: Path | None = None) -> None:
        self.keys = LanesKeys(queue)
        self.scripts: Mapping[str, Script] = load_folder((lua or scripts_folder()) / "lanes")
        self.now_ms: int | None = None
        keys = self.keys
        self._named = {
            "sweep": keys.sweep,
            "seq": keys.seq,
            "classes": keys.classes,
            "ready": keys.ready(CLASS),
            "lane": keys.lane(LANE),
            "due": keys.due,
            "active": keys.active,
            "dead": keys.dead,
            "done": keys.done,
            "stats": keys.stats,
            "wake": keys.wake(CLASS),
        }
        self._known_slots: dict[str, tuple[Script, Mapping[str, str], Mapping[str, object]]] = {}

    def call(self, operation: Operation) -> Call[Any]:
        """The call that carries out an operation. Raises UnsupportedFeature for one that the model lacks."""
        match operation:
            case Enqueue():
                return self._enqueue(operation)
            case EnqueueMany():
                return self._enqueue_many(operation)
            case Claim():
                return self._call("claim", operation, self._claim(operation))
            case Finish(claim=None):
                return self._call("finish", operation, {}, operation.leases)
            case Finish(claim=Claim() as claim):
                return self._call("claim", operation, self._claim(claim), operation.leases)
            case Release():
                return self._call("release", operation, {}, operation.leases)
            case Retry():
                items = [(*_token(f.lease), f.delay_ms, f.error) for f in operation.failures]
                return self._call("retry", operation, {}, [f.lease for f in operation.failures], items)
            case Bury():
                items = [(*_token(f.lease), f.error) for f in operation.failures]
                return self._call("bury", operation, {}, [f.lease for f in operation.failures], items)
            case Extend():
                named = {"renewal": operation.renewal, "lease_ms": operation.lease_ms, "not_after_ms": operation.not_after_ms}
                return self._call("extend", operation, named, operation.leases)
            case Mark():
                return self._mark(operation)
            case Promote() | Reap():
                return self._sweep(operation)
            case Listing():
                return self._call("listing", operation, {"offset": operation.offset, "limit": operation.limit})
            case Count():
                return self._call("counts", operation, {})
            case MakeTestQueue():
                return self._call("make_test_queue", operation, {})
            case Wait():
                words = ("BLPOP", self.keys.wake(CLASS), operation.block_ms / 1000)
                return Call(None, (), words, lambda raw: lanes_replies.woken(raw), operation, operation.block_ms)
            case _:  # pyright: ignore[reportUnnecessaryComparison]
                raise UnsupportedFeature(f"Lanes has no {type(operation).__name__}")

    def _enqueue(self, operation: Enqueue) -> Call[Any]:
        head, tail = envelope.encode(operation)
        named: dict[str, object] = {
            "id": operation.job,
            "class": operation.class_name,
            "lane_name": operation.lane,
            "delay_ms": operation.options.delay_ms,
            "not_after_ms": operation.not_after_ms,
            "head": head,
            "tail": tail,
        }
        extra = {"job": self.keys.job(operation.job), "run": self.keys.run(operation.job)}
        return self._call("enqueue", operation, named, extra_keys=extra)

    def _enqueue_many(self, operation: EnqueueMany) -> Call[Any]:
        first = operation.jobs[0]
        named: dict[str, object] = {
            "class": first.class_name,
            "lane_name": first.lane,
            "nonce": first.nonce,
            "not_after_ms": first.not_after_ms,
        }
        keys = [key for job in operation.jobs for key in (self.keys.job(job.job), self.keys.run(job.job))]
        items: list[tuple[object, ...]] = [
            (job.job, job.options.delay_ms, b"".join(envelope.encode(job))) for job in operation.jobs
        ]
        return self._call("enqueue_many", operation, named, items=items, item_keys=keys)

    def _mark(self, operation: Mark) -> Call[Any]:
        lease = operation.lease
        keys = {"job": self.keys.job(lease.job), "run": self.keys.run(lease.job)}
        return self._call("mark", operation, {"fence": lease.fence, "nonce": lease.nonce}, extra_keys=keys)

    def _sweep(self, operation: Promote | Reap) -> Call[Any]:
        named = {"counter": operation.counter, "limit": operation.limit, "most_ms": operation.sleep_max_ms}
        extra = {"swept": self.keys.swept(operation.incarnation)}
        if isinstance(operation, Promote):
            return self._call("promote", operation, named, extra_keys=extra)
        return self._call("reap", operation, {**named, "done_max": operation.done_max}, extra_keys=extra)

    def _claim(self, claim: Claim) -> dict[str, object]:
        return {
            "incarnation": claim.incarnation,
            "counter": claim.counter,
            "limit": claim.limit,
            "lease_ms": claim.lease_ms,
            "not_after_ms": claim.not_after_ms,
            "owner": claim.owner,
            "most_ms": claim.sleep_max_ms,
            "crashed_max": claim.crashed_max,
        }

    def _call(
        self,
        name: str,
        operation: Operation,
        values: Mapping[str, object],
        leases: tuple[Lease, ...] | list[Lease] = (),
        items: list[tuple[object, ...]] | None = None,
        extra_keys: dict[str, str] | None = None,
        item_keys: list[str] | None = None,
    ) -> Call[Reply]:
        script, known_keys, known_arguments = self._known(name)
        named_keys = {**known_keys, **(extra_keys or {})}
        claim = operation.claim if isinstance(operation, Finish) else operation
        if isinstance(claim, Claim):
            named_keys["record"] = self.keys.claim(claim.incarnation)
        now_ms: dict[str, object] = {"now_ms": "" if self.now_ms is None else self.now_ms}
        if item_keys is None:
            item_keys = [key for lease in leases for key in (self.keys.job(lease.job), self.keys.run(lease.job))]
        rows = [_token(lease) for lease in leases] if items is None else items
        keys = script.bind_keys(named_keys, item_keys)
        clock = now_ms if "now_ms" in script.arguments else {}
        arguments = script.bind_arguments({**clock, **known_arguments, **values}, [word for row in rows for word in row])
        return Call(script, keys, arguments, lambda raw: lanes_replies.parse(operation, raw), operation)

    def _known(self, name: str) -> tuple[Script, Mapping[str, str], Mapping[str, object]]:
        """A script, and those of its slots that are the same in every call."""
        known = self._known_slots.get(name)
        if known is None:
            script = self.scripts.get(name)
            if script is None:
                raise ScriptFault(f"the folder of scripts has no {name}.lua")
            keys = {slot: key for slot, key in self._named.items() if slot in script.keys}
            arguments = {"prefix": self.keys.prefix} if "prefix" in script.arguments else {}
            known = self._known_slots[name] = (script, keys, arguments)
        return known


def _token(lease: Lease) -> tuple[object, ...]:
    return cast("tuple[object, ...]", (lease.job, lease.fence, lease.nonce))
