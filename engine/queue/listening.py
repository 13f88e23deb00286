"""The calls of a queue's parts that block on the server: waits for results, readers of events. They have a driver of their own,
whose connections wait longer for a reply, so that nothing else stands in line behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.drivers.async_driver import AsyncDriver
from engine.drivers.driver import SyncDriver
from engine.operations import Operation

if TYPE_CHECKING:
    from engine.queue.asynchronous.queue import AsyncQueue
    from engine.queue.synchronous.queue import Queue

#: A call blocks for at most this long; who waits longer asks again.
BLOCK_MS = 5_000


class Listening:
    """Those of one part of a `Queue`. It connects with the first one."""

    def __init__(self, queue: Queue) -> None:
        self._build = queue.model.call
        self._driver = SyncDriver(queue.endpoint, (), clock=queue.driver.clock, block_ms_max=BLOCK_MS)

    def run(self, operation: Operation) -> Any:
        """Run an operation that blocks; its reply. Raises ServerUnavailable, OutcomeUnknown."""
        return self._driver.run(self._build(operation))

    def close(self) -> None:
        """Close the idle connections."""
        self._driver.close()


class AsyncListening:
    """The same of an `AsyncQueue`."""

    def __init__(self, queue: AsyncQueue) -> None:
        self._build = queue.model.call
        self._driver = AsyncDriver(queue.endpoint, (), clock=queue.driver.clock, block_ms_max=BLOCK_MS)

    async def run(self, operation: Operation) -> Any:
        """Run an operation that blocks; its reply. Raises ServerUnavailable, OutcomeUnknown."""
        return await self._driver.run(self._build(operation))

    async def close(self) -> None:
        """Close the idle connections."""
        await self._driver.close()
