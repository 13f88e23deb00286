"""The calls of foreign models that look at jobs, change them by hand, and tick schedules, mapped to the scripts in `lua/foreign`
(rules 7, 24 and 26). Their replies have the shape of those of Lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.models.foreign_keys import ForeignKeys
from engine.models.lanes_schedules import Slots
from engine.operations import (
    Alter,
    Clean,
    Count,
    Forget,
    Inspect,
    Listing,
    Look,
    Operation,
    Page,
    Pause,
    Resume,
    Tick,
)

#: The id of the job that a schedule makes at a tick; '' for one that the server gives.
TickId = Callable[[str, str], str]


def slots(operation: Operation, keys: ForeignKeys, tick_id: TickId) -> Slots | None:
    """The slots of an operation; None for one that foreign models do not have."""
    match operation:
        case Look(job=job, token=token):
            named = {"run": keys.run(job), "waits": keys.waits(job), "wait": keys.wait(token)}
            return Slots("look", {"id": job, "token": token}, named)
        case Inspect(jobs=jobs):
            return Slots("inspect", {"whole": int(operation.whole)}, {}, (_runs(keys, jobs),), (jobs,))
        case Page():
            values: dict[str, object] = {"state": operation.state, "offset": operation.offset, "limit": operation.limit}
            values |= {"newest": int(operation.newest_first), "names": int(operation.names)}
            return Slots("page", values, {})
        case Listing():
            return Slots("listing", {"offset": operation.offset, "limit": operation.limit}, {})
        case Count():
            return Slots("counts", {}, {}, (), (operation.classes,))
        case Alter() | Clean() | Forget() | Pause() | Resume():
            return _administration(operation, keys)
        case Tick():
            return _tick(operation, keys, tick_id)
        case _:
            return None


def _administration(operation: Alter | Clean | Forget | Pause | Resume, keys: ForeignKeys) -> Slots:
    named = {"op": keys.op(operation.op_id)}
    values: dict[str, object] = {"not_after_ms": operation.not_after_ms}
    match operation:
        case Alter(jobs=jobs):
            values |= {"op_id": operation.op_id, "deed": operation.deed, "state": operation.state}
            return Slots("alter", values, named, (_runs(keys, jobs),), (jobs,))
        case Clean(era=era):
            values |= {"op_id": operation.op_id, "state": operation.state, "older_than_ms": operation.older_than_ms}
            values |= {"era_sequence": "" if era is None else era.sequence, "era_ms": "" if era is None else era.at_ms}
            values |= {"offset": operation.offset, "limit": operation.limit, "most": operation.most}
            return Slots("clean", values, named)
        case Forget():
            return Slots("forget", {**values, "phase": operation.phase, "force": int(operation.force)}, named)
        case Pause():
            return Slots("pause", {**values, "class": operation.class_name, "length_ms": operation.length_ms}, named)
        case Resume():
            return Slots("resume", {**values, "class": operation.class_name}, named)


def _tick(operation: Tick, keys: ForeignKeys, tick_id: TickId) -> Slots:
    values: dict[str, object] = {
        "name": operation.schedule,
        "version": operation.version,
        "expected_ms": operation.expected_ms,
        "next_ms": operation.next_ms,
        "missed": operation.missed,
        "overlap": operation.overlap,
        "caller": f"{operation.incarnation}:{operation.counter}",
        "error_text": operation.error,
    }
    made = [keys.enqueued(f"cron:{operation.schedule}:{tick_ms}") for tick_ms in operation.ticks_ms]
    words = [word for ms in operation.ticks_ms for word in (ms, tick_id(operation.schedule, str(ms)))]
    return Slots("tick", values, {"schedule": keys.schedule(operation.schedule)}, (made,), (words,))


def _runs(keys: ForeignKeys, jobs: Sequence[str]) -> list[str]:
    return [keys.run(job) for job in jobs]
