"""Locks that processes share, beside the jobs of a queue (BN20, MQ23, MQ24): for work that should be done once at a time.

Like a job's lease, a lock ends by time, so its holder may be overtaken without knowing: what must not be done twice is guarded by
the lock's `fence`, which rises with each holder (rule 6).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from engine import validate
from engine.errors import LeaseLost, Malformed, OutcomeUnknown, ScriptFault
from engine.models.model import Model
from engine.ops.base import Operation
from engine.ops.workers import AcquireLock, ExtendLock, LockReply, ReleaseLock
from engine.queue.steps import DeadlineBound, Steps

TTL_MS_MAX = 86_400_000
_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock in hand until `until_ms` (server time). `fence` is larger than that of every holder before; `renewals` counts the
    times that it was extended."""

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

    def operation(not_after_ms: int) -> Operation:
        return AcquireLock(lock_name, token, length_ms, not_after_ms)

    reply = _reply((yield DeadlineBound(operation)).reply)
    if reply.result == "refused":
        raise OutcomeUnknown(f"lock {lock_name}: refused as late after an unanswered send")
    return Lock(lock_name, token, reply.fence, reply.until_ms) if reply.result == "held" else None


def extending(lock: object, ttl_ms: object) -> Steps[Lock]:
    """Hold a lock for longer. Raises LeaseLost when it has expired, Malformed and OutcomeUnknown."""
    held, length_ms = _lock(lock), validate.duration_ms("ttl_ms", ttl_ms, 10, TTL_MS_MAX)
    count = held.renewals + 1

    def operation(not_after_ms: int) -> Operation:
        # A late copy must not hold it for much longer than its sender meant to (rule 9).
        return ExtendLock(held.name, held.token, count, length_ms, not_after_ms)

    reply = _reply((yield DeadlineBound(operation)).reply)
    if reply.result == "refused":
        raise OutcomeUnknown(f"lock {held.name}: refused as late after an unanswered send")
    if reply.result != "held":
        raise LeaseLost(f"lock {held.name}: it has run out, another holder may have it")
    return replace(held, until_ms=reply.until_ms, renewals=count)


def releasing(model: Model, lock: object) -> Steps[bool]:
    """Release a lock. Returns False when it was not held any more."""
    held = _lock(lock)
    reply = _reply((yield model.call(ReleaseLock(held.name, held.token))))
    return reply.result == "released"


def _reply(reply: object) -> LockReply:
    if not isinstance(reply, LockReply):
        raise ScriptFault(f"lock: a reply of type {type(reply).__name__}")
    return reply


def _lock(value: object) -> Lock:
    bound = "a Lock that acquire or extend has returned"
    held = validate.instance("lock", value, Lock, bound)
    if not isinstance(held.token, str) or not _TOKEN.fullmatch(held.token):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Malformed("lock.token", held.token, bound)
    validate.integer("lock.renewals", held.renewals, 0, 2**53)
    return replace(held, name=validate.lock_name(held.name))
