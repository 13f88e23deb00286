"""The calls of Lanes that look at jobs and change them by hand: those operations, mapped to their scripts (rules 7 and 26)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from engine.call import Call
from engine.models import lanes_replies
from engine.models.lanes_keys import LanesKeys
from engine.models.lanes_schedules import Slots
from engine.operations import Alter, Clean, Forget, Inspect, Page, ReadEvents, SetEvents, SetRetention

#: The outcomes of a tombstone (engine/models/envelope.py).
_DISCARDED, _CANCELLED = 2, 7


def slots(operation: Alter | Clean | Forget | SetRetention | SetEvents | Inspect | Page, keys: LanesKeys) -> Slots:
    """The slots of an operation."""
    match operation:
        case Page():
            values: dict[str, object] = {
                "state": operation.state,
                "offset": operation.offset,
                "limit": operation.limit,
                "newest": int(operation.newest_first),
                "names": int(operation.names),
            }
            return Slots("page", values, {})
        case Inspect():
            groups = (_job_and_run(keys, operation.jobs),)
            return Slots("inspect", {"whole": int(operation.whole)}, {}, groups, (operation.jobs,))
        case _:
            pass
    named = {"op": keys.op(operation.op_id)}
    values = {"not_after_ms": operation.not_after_ms}
    match operation:
        case Alter():
            return _alter(operation, keys, values, named)
        case Clean():
            era = operation.era
            values |= {
                "op_id": operation.op_id,
                "state": operation.state,
                "older_than_ms": operation.older_than_ms,
                "era_sequence": "" if era is None else era.sequence,
                "era_ms": "" if era is None else era.at_ms,
                "offset": operation.offset,
                "limit": operation.limit,
                "most": operation.most,
            }
            return Slots("clean", values, named)
        case Forget():
            values |= {"phase": operation.phase, "force": int(operation.force)}
            return Slots("forget", values, named)
        case SetRetention():
            words = [word for bound in operation.bounds for word in bound]
            return Slots("set_retention", values, named, (), (words,))
        case SetEvents():
            return Slots("set_events", {**values, "keep": operation.keep}, named)


def read_events(operation: ReadEvents, keys: LanesKeys) -> Call[Any]:
    """Plain commands: reading takes nothing away."""
    if operation.after == "$":
        words: tuple[object, ...] = ("XREVRANGE", keys.events, "+", "-", "COUNT", 1)
    else:
        block = ("BLOCK", operation.block_ms) if operation.block_ms else ()
        words = ("XREAD", "COUNT", operation.limit, *block, "STREAMS", keys.events, operation.after)
    return Call(None, (), words, partial(lanes_replies.event_page, operation), operation, operation.block_ms)


def _alter(operation: Alter, keys: LanesKeys, values: dict[str, object], named: dict[str, str]) -> Slots:
    jobs = operation.jobs
    if operation.deed == "run_now":
        return Slots("run_now", values, named, ([keys.job(job) for job in jobs],), (jobs,))
    groups = (_job_and_run(keys, jobs),)
    if operation.deed == "requeue":
        return Slots("requeue", values, named, groups, (jobs,))
    outcome = _CANCELLED if operation.deed == "cancel" else _DISCARDED
    values |= {"op_id": operation.op_id, "outcome": outcome, "state": operation.state}
    return Slots("discard", values, named, groups, (jobs,))


def _job_and_run(keys: LanesKeys, jobs: Sequence[str]) -> list[str]:
    return [key for job in jobs for key in (keys.job(job), keys.run(job))]
