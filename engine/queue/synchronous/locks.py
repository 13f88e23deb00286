# Generated from engine/queue/asynchronous/locks.py by "make generate"; do not edit.
"""Locks that processes share: see `engine.queue.locks`."""

from __future__ import annotations

from engine.queue import locks
from engine.queue.locks import Lock
from engine.queue.synchronous.calls import Part
from engine.validate import Milliseconds


class Locks(Part):
    """Locks of a queue, as `queue.locks`."""

    def acquire(self, name: str, *, ttl_ms: Milliseconds = 30_000) -> Lock | None:
        """Take a lock for `ttl_ms` (10 to a day); None when somebody holds it. Does not wait. Raises as `enqueue` does."""
        return self._queue.carry_out(locks.acquiring(name, ttl_ms))

    def extend(self, lock: Lock, *, ttl_ms: Milliseconds = 30_000) -> Lock:
        """Hold a lock for `ttl_ms` from now on. Raises LeaseLost when it has expired."""
        return self._queue.carry_out(locks.extending(lock, ttl_ms))

    def release(self, lock: Lock) -> bool:
        """Release a lock. Returns False when it was not held any more."""
        return self._queue.carry_out(locks.releasing(self._queue.model, lock))
