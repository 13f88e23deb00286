"""What a queue's administration does, without I/O: checks, operations with an identity of their own, and what their answers mean
(rule 7)."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine import validate
from engine.errors import Malformed, OutcomeUnknown, ScriptFault
from engine.models.names import Names
from engine.ops.admin import Administered, Limit, Pause, Resume, Resumed, SetEvents, SetLimit, SetRetention, SetWorker
from engine.ops.base import Operation
from engine.queue.steps import DeadlineBound, Steps
from engine.redis.exchange import Sent

#: The field of a pause of all names.
_WHOLE_QUEUE = "*"
#: Most events that a queue keeps.
EVENTS_KEPT_MAX = 1_000_000

#: An operation that lacks only the time after which it is void.
Draft = Callable[[int], Operation]


def pause(names: Names, name: object, length_ms: object) -> Draft:
    """Pause a name, or the queue (None). Raises Malformed."""
    class_name, op_id = _class_name(names, name), new_op_id()
    length = validate.duration_ms("length_ms", length_ms, 0, validate.DURATION_MS_MAX)
    return lambda not_after_ms: Pause(op_id, not_after_ms, class_name, length)


def resume(names: Names, name: object) -> Draft:
    """Resume a name, or the queue (None). Raises Malformed."""
    class_name, op_id = _class_name(names, name), new_op_id()
    return lambda not_after_ms: Resume(op_id, not_after_ms, class_name)


def set_limit(
    names: Names, name: object, key: object, *, concurrency: object, rate: object, per_ms: object, window: object
) -> Draft:
    """Define a limit. Raises Malformed."""
    target, op_id = _target(names, name, key), new_op_id()
    limit = validate.limit(concurrency=concurrency, rate=rate, per_ms=per_ms, window=window)
    return lambda not_after_ms: SetLimit(op_id, not_after_ms, target, limit)


def remove_limit(names: Names, name: object, key: object) -> Draft:
    """Remove a limit. Raises Malformed."""
    target, op_id = _target(names, name, key), new_op_id()
    none: Limit | None = None
    return lambda not_after_ms: SetLimit(op_id, not_after_ms, target, none)


def set_retention(done_max: object, done_age_ms: object, dead_max: object, dead_age_ms: object) -> Draft:
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
    op_id = new_op_id()
    return lambda not_after_ms: SetRetention(op_id, not_after_ms, bounds)


def set_events(keep: object) -> Draft:
    """Keep so many events; None: none. Raises Malformed."""
    kept, op_id = 0 if keep is None else validate.integer("keep", keep, 1, EVENTS_KEPT_MAX), new_op_id()
    return lambda not_after_ms: SetEvents(op_id, not_after_ms, kept)


def set_concurrency(name: object, concurrency: object) -> Draft:
    """How many handlers a worker, or every worker without a number of its own (None), runs at once; None: as it was started.
    Raises Malformed."""
    field, op_id = "c:*" if name is None else f"c:{validate.worker_name(name)}", new_op_id()
    most = validate.CONCURRENCY_MAX
    value = None if concurrency is None else validate.integer("concurrency", concurrency, 1, most)
    return lambda not_after_ms: SetWorker(op_id, not_after_ms, field, value)


def pause_worker(name: object, length_ms: object) -> Draft:
    """Pause a worker; None: resume it. Raises Malformed."""
    field, op_id = f"p:{validate.worker_name(name)}", new_op_id()
    value = None if length_ms is None else validate.duration_ms("length_ms", length_ms, 0, validate.DURATION_MS_MAX)
    return lambda not_after_ms: SetWorker(op_id, not_after_ms, field, value)


def sending(draft: Draft) -> Steps[None]:
    """Send an administration call whose answer says no more than that it was done."""
    conclude((yield DeadlineBound(draft)))


def resuming(draft: Draft) -> Steps[bool]:
    """Send the end of a pause; whether there was such a pause."""
    sent = yield DeadlineBound(draft)
    conclude(sent)
    return isinstance(sent.reply, Resumed) and sent.reply.was_paused


def conclude(sent: Sent) -> None:
    """Raise OutcomeUnknown for a refusal after an unanswered send: the first copy may have been applied."""
    if not isinstance(sent.reply, Administered):
        raise ScriptFault(f"administration: a reply of type {type(sent.reply).__name__}")
    if not sent.reply.done:
        raise OutcomeUnknown("the call was refused as late after an unanswered send")


def new_op_id() -> str:
    """The identity of one administration call."""
    return os.urandom(8).hex()


def _class_name(names: Names, name: object) -> str:
    if name is None:
        return _WHOLE_QUEUE
    if name == _WHOLE_QUEUE:
        raise Malformed("name", name, f"another one: {_WHOLE_QUEUE} stands for the whole queue, which is None here")
    return names.job_name(name)


def _target(names: Names, name: object, key: object) -> str:
    if name is not None and key is not None:
        raise Malformed("key", key, "left out where a name is given: a limit is of a name or of a key")
    if name is None and key is None:
        raise Malformed("name", name, "the name of jobs, or else key= a key of theirs, or * for each key")
    if name is not None:
        return f"n:{names.job_name(name)}"
    return "k:*" if type(key) is str and key == "*" else f"k:{names.key('key', key)}"
