"""What a queue's administration does, without I/O: checks, operations with an identity of their own, and what
their answers mean (rule 7)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from engine import validate
from engine.errors import LeaseLost, Malformed, OutcomeUnknown, UnsupportedFeature
from engine.models import Spec, bind
from engine.models.model import Model, Names, named
from engine.ops.admin import (
    AdminAction,
    Alter,
    Altered,
    AlteredJobs,
    Clean,
    Cleaned,
    Era,
    Forget,
    Forgotten,
    ListQueues,
    MetadataSet,
    ReadMetadata,
    SetEvents,
    SetLimit,
    SetMetadata,
    SetRetention,
    SetWorker,
)
from engine.ops.base import Call, Operation, frozen, text, whole
from engine.ops.looks import Inspect, Inspected
from engine.ops.workers import AcquireLock, ExtendLock, LockReply, ReleaseLock
from engine.queue.producing import Steps

#: Most events that a queue keeps.
EVENTS_KEPT_MAX = 1_000_000


def set_limit(
    names: Names,
    name: object,
    key: object,
    *,
    concurrency: object,
    rate: object,
    per_ms: object,
    window: object,
) -> SetLimit:
    """Define a limit. Raises Malformed."""
    target = _target(names, name, key)
    return SetLimit(target, validate.limit(concurrency=concurrency, rate=rate, per_ms=per_ms, window=window))


def remove_limit(names: Names, name: object, key: object) -> SetLimit:
    """Remove a limit. Raises Malformed."""
    return SetLimit(_target(names, name, key), None)


def set_retention(
    done_max: object, done_age_ms: object, dead_max: object, dead_age_ms: object
) -> SetRetention:
    """Bound what is kept of ended jobs; None = as it is. Raises Malformed."""
    given = {
        "done_max": (done_max, 0, validate.DONE_MAX),
        "done_age_ms": (done_age_ms, 1, validate.DURATION_MS_MAX),
        "dead_max": (dead_max, 0, validate.DEAD_MAX),
        "dead_age_ms": (dead_age_ms, 1, validate.DURATION_MS_MAX),
    }
    bounds = tuple(
        (name, (validate.duration_ms if name.endswith("_ms") else validate.integer)(name, *bound))
        for name, bound in given.items()
        if bound[0] is not None
    )
    if not bounds:
        raise Malformed("done_max", None, "at least one of done_max, done_age_ms, dead_max and dead_age_ms")
    return SetRetention(bounds)


def set_events(keep: object) -> SetEvents:
    """Keep so many events; None: none. Raises Malformed."""
    return SetEvents(0 if keep is None else validate.integer("keep", keep, 1, EVENTS_KEPT_MAX))


def set_concurrency(name: object, concurrency: object) -> SetWorker:
    """How many handlers a worker, or every worker without a number of its own (None), runs at once; None: as
    it was started. Raises Malformed."""
    field = "c:*" if name is None else f"c:{validate.worker_name(name)}"
    most = validate.CONCURRENCY_MAX
    return SetWorker(
        field, None if concurrency is None else validate.integer("concurrency", concurrency, 1, most)
    )


def pause_worker(name: object, length_ms: object) -> SetWorker:
    """Pause a worker; None: resume it. Raises Malformed."""
    field, most_ms = f"p:{validate.worker_name(name)}", validate.DURATION_MS_MAX
    return SetWorker(
        field, None if length_ms is None else validate.duration_ms("length_ms", length_ms, 0, most_ms)
    )


def _target(names: Names, name: object, key: object) -> str:
    if name is not None and key is not None:
        raise Malformed("key", key, "left out where a name is given: a limit is of a name or of a key")
    if name is None and key is None:
        raise Malformed("name", name, "the name of jobs, or else key= a key of theirs, or * for each key")
    if name is not None:
        return f"n:{names.job_name(named(name))}"
    return "k:*" if type(key) is str and key == "*" else f"k:{names.key('key', key)}"


# -- What the jobs of one name share beside their payloads: `JobMetadata(queue, "ok_job")`, on queues of
# Mosquito (MQ16).
#
#     metadata = JobMetadata(queue, "ok_job")
#     metadata.set(cursor="17", owner=None)
#     metadata.add("seen")                     # 1
#     metadata.get()                           # {"cursor": "17", "seen": "1"}
#
# The original's programs read and write the same hash, so all values are texts.

_FIELDS_MAX = 1000


class Doing(Protocol):
    """What is needed of a Queue here."""

    model: Model

    def do(self, operation: Operation) -> Any:
        """Carry out an operation, and return its reply."""
        ...


class JobMetadata:
    """The shared values of one name of jobs. Raises UnsupportedFeature for a queue of another model."""

    def __init__(self, queue: Doing, name: str) -> None:
        if queue.model.name != "mosquito":
            raise UnsupportedFeature(f"{queue.model.name} has no metadata of jobs by their name")
        self._queue = queue
        self._name = queue.model.names.job_name(name)

    def get(self) -> dict[str, str]:
        """All fields. Raises as `Queue.counts` does."""
        return self._queue.do(ReadMetadata(self._name))

    def set(self, **fields: str | None) -> None:
        """Set fields; None removes one. Raises as `Queue.enqueue` does, and Malformed for what is no text."""
        for field, value in fields.items():
            if value is not None and not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise Malformed(field, value, "a text, or None to remove it")
        if not 1 <= len(fields) <= _FIELDS_MAX:
            raise Malformed("fields", f"{len(fields)} fields", f"1 to {_FIELDS_MAX} fields")
        self._change(tuple(fields.items()), ())

    def add(self, field: str, number: int = 1) -> int:
        """Add to a number, once however often the call is sent; what it is now. Raises as `set` does."""
        checked = validate.integer("number", number, -(2**53), 2**53)
        return self._change((), ((field, checked),))[0]

    def _change(
        self, fields: tuple[tuple[str, str | None], ...], added: tuple[tuple[str, int], ...]
    ) -> tuple[int, ...]:
        reply: MetadataSet = self._queue.do(SetMetadata(self._name, fields, added))
        return reply.values


# -- The steps that remove many jobs, in bounded pieces: clean, drain and obliterate, without I/O (rule
# 7).
#
# Each work has an era: the last sequence and the time when it began. What was enqueued or ended later stays,
# so neither a busy producer nor a late copy of a call makes it delete a newer job. One that was interrupted
# is simply begun again.

CLEANED = ("waiting", "blocked", "delayed", "dead", "finished")
#: Jobs that one call looks at: to remove one takes the server some 25 us.
PIECE = 100
#: In the order of time where the model keeps them so: behind the first young one there are only younger ones.
_TIMED = ("dead", "finished")
_ROUNDS = 100
#: In the order in which jobs go from state to state while nothing starts, so that none slips through between
#: two of them.
_MOVING = ("active", "blocked", "delayed", "waiting", "dead", "finished")


def cleaning(state: object, older_than_ms: object, limit: object) -> Steps[int]:
    """Remove the jobs of one state that are old enough. Returns how many. Raises Malformed."""
    if not isinstance(state, str) or state not in CLEANED:
        raise Malformed("state", state, f"one of {', '.join(CLEANED)}")
    age_ms = validate.duration_ms("older_than_ms", older_than_ms, 0, validate.DURATION_MS_MAX)
    most = validate.integer("limit", limit, 1, 2**48)
    removed, _ = yield from _clean(state, age_ms, most, None)
    return removed


def draining(delayed: object) -> Steps[int]:
    """Remove the jobs that wait. Returns how many. Raises Malformed."""
    also = ("blocked", "delayed") if validate.truth("delayed", delayed) else ()
    removed, era = yield from _clean("waiting", 0, 2**48, None)
    for state in also:
        more, _ = yield from _clean(state, 0, 2**48, era)
        removed += more
    return removed


def obliterating(force: object) -> Steps[bool]:
    """Remove everything. Returns False, with nothing removed, when jobs are leased. Raises Malformed."""
    force = validate.truth("force", force)
    begun = yield from _forget("begin", force)
    if begun.busy:
        return False
    # Jobs move from state to state meanwhile: it ends with a round that finds none.
    for _ in range(_ROUNDS):
        removed = 0
        for state in _MOVING if force else _MOVING[1:]:
            # Nothing starts meanwhile; and what has finished since it began, of jobs that were in hand, goes
            # too.
            held = yield from _forget("begin", force)
            if held.busy:
                return False
            if begun.era and held.era:
                begun = replace(begun, era=Era(begun.era.sequence, held.era.at_ms))
            some, _ = yield from _clean(state, 0, 2**48, begun.era)
            removed += some
        if not removed:
            break
    yield from _forget("end", force)
    return True


def _clean(state: str, age_ms: int, most: int, era: Era | None) -> Steps[tuple[int, Era | None]]:
    removed = offset = 0
    while removed < most:
        reply: Cleaned = yield Clean(state, age_ms, era, offset, PIECE, most - removed)
        era = reply.era
        removed += reply.removed
        offset += reply.kept
        if not reply.removed + reply.kept or (reply.kept and state in _TIMED and reply.ordered):
            break
    return removed, era


def _forget(phase: Literal["begin", "end"], force: bool) -> Steps[Forgotten]:
    """Begin or end, with as many calls as it takes. Returns the reply of the first one, or the one that says
    busy."""
    first: Forgotten | None = None
    while True:
        reply: Forgotten = yield Forget(phase, force)
        first = first or reply
        if reply.busy or not reply.more:
            return reply if reply.busy else first


# -- The steps of admin actions on single jobs, without I/O: cancel, remove, requeue and the like (rules 7
# and 26).
#
# What is done to a job names the state that it was seen in. It is looked at first, and when its state has
# changed meanwhile, once more. A late copy of a call finds another state, or its own record, and changes
# nothing.

#: States in which a job may be for each action.
ALLOWED: dict[AdminAction, tuple[str, ...]] = {
    "cancel": ("waiting", "blocked", "delayed", "active"),
    "remove": ("waiting", "blocked", "delayed", "dead", "finished"),
    "discard": ("dead",),
    "requeue": ("dead",),
    "run_now": ("delayed",),
}
#: Looks at a job whose state changes all the time.
_TRIES = 5


def altering(names: Names, action: AdminAction, job: object, expected_state: object) -> Steps[Altered]:
    """Do something to one job, if it is in a state that allows it. Raises Malformed."""
    checked = names.known_id(job)
    expected = None if expected_state is None else check_state(expected_state, ALLOWED[action])
    altered: Altered | None = None
    for _ in range(_TRIES):
        state = expected
        if state is None:
            looked: Inspected = yield Inspect((checked,), whole=False)
            state = looked.items[0].state
        if state not in ALLOWED[action]:
            return Altered(checked, "changed", state)
        reply: AlteredJobs = yield Alter(action, (checked,), state)
        (altered,) = reply.items
        if expected is not None or altered.result != "changed":
            break
    assert altered is not None
    return altered


def check_state(value: object, allowed: tuple[str, ...]) -> str:
    """A state of these. Raises Malformed."""
    if not isinstance(value, str) or value not in allowed:
        raise Malformed("state", value, f"one of {', '.join(allowed)}")
    return value


# -- Which queues a server holds (MQ22): each is listed when something is first put into it, and again
# with its workers' beats.
#
# The list has a key, and so a slot, of its own; no script touches it together with a queue's keys (rule 27).
# It only informs: a queue works whether it is listed or not.

#: Queues of one answer.
LIMIT_MAX = 10_000


@frozen
class QueueInfo:
    """A queue and the server's time (ms) at which it was last noted as used."""

    name: str
    used_ms: int


def listing(model: Spec | None, prefix: object, limit: object) -> Call[list[QueueInfo]]:
    """The call that lists the queues of a model under a prefix. Raises Malformed."""
    key = bind(model, "any", prefix, None).model.keys.queues
    most = validate.integer("limit", limit, 1, LIMIT_MAX)
    return Call(None, (key,), ("ZRANGE", key, 0, most - 1, "REV", "WITHSCORES"), _infos, ListQueues())


def _infos(raw: Sequence[bytes]) -> list[QueueInfo]:
    return [QueueInfo(text(raw[at]), whole(raw[at + 1])) for at in range(0, len(raw), 2)]


# -- Locks that processes share, beside the jobs of a queue (BN20, MQ23, MQ24): for work that should be
# done once at a time.
#
# Like a job's lease, a lock ends by time. So its holder may be overtaken without knowing. What must not be
# done twice is guarded by the lock's `fence`, which rises with each holder (rule 6).

TTL_MS_MAX = 86_400_000
_TOKEN = re.compile(r"[0-9a-f]{16}")


@frozen
class Lock:
    """A lock in hand until `until_ms` (server time). `fence` is larger than that of every holder before;
    `renewals` counts the times that it was extended."""

    name: str
    token: str
    fence: int
    until_ms: int
    renewals: int = 0


def new_token() -> str:
    """A random token that identifies the caller of one `acquire`."""
    return os.urandom(8).hex()


def acquiring(name: object, ttl_ms: object) -> Steps[Lock | None]:
    """Take a lock. Returns None when it is held already. Raises Malformed and OutcomeUnknown."""
    lock_name, length_ms = validate.lock_name(name), validate.duration_ms("ttl_ms", ttl_ms, 10, TTL_MS_MAX)
    token = new_token()
    reply: LockReply = yield AcquireLock(lock_name, token, length_ms)
    if reply.result == "refused":
        raise OutcomeUnknown(f"lock {lock_name}: refused as late after an unanswered send")
    return Lock(lock_name, token, reply.fence, reply.until_ms) if reply.result == "held" else None


def extending(lock: object, ttl_ms: object) -> Steps[Lock]:
    """Hold a lock for longer. Raises LeaseLost when it has expired, Malformed and OutcomeUnknown."""
    held, length_ms = _lock(lock), validate.duration_ms("ttl_ms", ttl_ms, 10, TTL_MS_MAX)
    count = held.renewals + 1
    # Void after its deadline: a late copy must not hold it for much longer than its sender meant to (rule 9).
    reply: LockReply = yield ExtendLock(held.name, held.token, count, length_ms)
    if reply.result == "refused":
        raise OutcomeUnknown(f"lock {held.name}: refused as late after an unanswered send")
    if reply.result != "held":
        raise LeaseLost(f"lock {held.name}: it has run out, another holder may have it")
    return replace(held, until_ms=reply.until_ms, renewals=count)


def releasing(lock: object) -> Steps[bool]:
    """Give a lock back. Returns False when it was not held any more."""
    held = _lock(lock)
    reply: LockReply = yield ReleaseLock(held.name, held.token)
    return reply.result == "released"


def _lock(value: object) -> Lock:
    bound = "a Lock that acquire or extend has returned"
    held = validate.instance("lock", value, Lock, bound)
    if not isinstance(held.token, str) or not _TOKEN.fullmatch(held.token):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Malformed("lock.token", held.token, bound)
    validate.integer("lock.renewals", held.renewals, 0, 2**53)
    return replace(held, name=validate.lock_name(held.name))
