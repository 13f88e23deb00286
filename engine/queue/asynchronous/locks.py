"""Locks that processes share: see `engine.queue.locks`."""

from __future__ import annotations

from engine.queue import locks
from engine.queue.asynchronous.calls import AsyncPart
from engine.queue.locks import Lock
from engine.validate import Milliseconds


class AsyncLocks(AsyncPart):
    """Locks of a queue, as `queue.locks`."""

    async def acquire(self, name: str, *, ttl_ms: Milliseconds = 30_000) -> Lock | None:
        """Take a lock for `ttl_ms` (10 to a day); None when somebody holds it. Does not wait. Raises as `enqueue` does."""
        return await self._queue.carry_out(locks.acquiring(name, ttl_ms))

    async def extend(self, lock: Lock, *, ttl_ms: Milliseconds = 30_000) -> Lock:
        """Hold a lock for `ttl_ms` from now on. Raises LeaseLost when it has expired."""
        return await self._queue.carry_out(locks.extending(lock, ttl_ms))

    async def release(self, lock: Lock) -> bool:
        """Release a lock. Returns False when it was not held any more."""
        return await self._queue.carry_out(locks.releasing(self._queue.model, lock))
