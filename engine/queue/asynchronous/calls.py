"""The base of a queue and of its parts: how their calls are sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from engine.errors import EngineError
from engine.ops.admin import Administered, AdminOperation, NoteQueue
from engine.ops.base import DeadlineBound, Operation
from engine.ops.jobs import Enqueue, EnqueueMany
from engine.queue.producing import Steps
from engine.queue.settings import QueueSettings
from engine.redis.async_driver import AsyncDriver
from engine.redis.async_gathering import AsyncGathering
from engine.redis.call import BLOCK_MS, Call
from engine.redis.exchange import Sent

T = TypeVar("T")


class AsyncQueueCalls(QueueSettings):
    """A queue's settings and the driver that runs its calls."""

    driver: AsyncDriver
    gathering: AsyncGathering
    _noted = False

    async def do(self, operation: Operation) -> Any:
        """Carry out an operation and return its reply; for the engine's own parts. Raises ServerUnavailable,
        OutcomeUnknown, and UnsupportedFeature, before any I/O, for one that the model lacks."""
        if isinstance(operation, DeadlineBound):
            reply = (await self.send_in_time(operation)).reply
            if isinstance(reply, Administered):
                reply.check_done()
            return reply
        async with self.driver.permits:
            return await self.driver.run(self.model.call(operation))

    async def carry_out(self, steps: Steps[T], intended_ns: int | None = None) -> T:
        """Run steps to their end and return their result; for the engine's own parts."""
        answer: Any = None
        try:
            while True:
                asked = steps.send(answer)
                if isinstance(asked, Operation):
                    answer = await self.do(asked)
                else:
                    async with self.driver.permits:
                        answer = await self.driver.send_many(self._calls(asked), intended_ns)
        except StopIteration as end:
            return end.value

    async def administer(self, operation: AdminOperation) -> None:
        """Carry out an admin action of the whole queue; for the engine's own parts. Raises as `do` does."""
        await self.do(operation)

    async def send_in_time(self, operation: DeadlineBound) -> Sent:
        """Stamp an operation and send it; once more when its deadline was reckoned wrongly (rule 3). For the
        engine's own parts. Raises as `do` does."""
        if self.model.check is not None:
            self.model.refuse(operation)
        async with self.driver.permits:
            await self._contact()
            sent = await self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
            if sent.came_late:
                sent = await self.driver.send(self.model.call(operation.stamped(self.driver.not_after_ms())))
        return sent

    async def _send_enqueue(self, job: Enqueue, intended_ns: int | None) -> Sent:
        """Send the enqueue of one job as `send_in_time` does, perhaps together with those of other
        callers."""
        if self.model.check is not None:
            self.model.refuse(job)
        if not (self._noted and self.driver.clock.known):
            async with self.driver.permits:
                await self._contact()
        sent = await self.gathering.send(job, intended_ns)
        if sent.came_late:
            sent = await self.gathering.send(job, intended_ns)
        return sent

    def _calls(self, operations: Sequence[Enqueue | EnqueueMany]) -> list[Call[Any]]:
        """The calls of operations that leave now in one pipeline."""
        not_after_ms = self.driver.not_after_ms()
        return [self.model.call(operation.stamped(not_after_ms)) for operation in operations]

    async def _contact(self) -> None:
        """Learn the server's time, and list the queue there; only the first call has to."""
        await self.driver.server_now_ms()
        if not self._noted:
            await self._note_use()

    async def _note_use(self) -> None:
        """List the queue among those of its server, the first time that this process puts something into it
        or works for it. A failure concerns nobody here."""
        if not self._noted and self.model.now_ms is None:
            self._noted = True
            with suppress(EngineError):
                await self.driver.send(self.model.call(NoteQueue(await self.driver.server_now_ms())))
            await self.note_era()

    async def note_era(self) -> None:
        """Note the server before the first write of this process, or begin of a worker; for the engine's own
        parts. A failure concerns nobody here. The server must have been met."""
        if self.era is not None and not self.era.used and self.model.now_ms is None:
            noting = self.era.begin()
            with suppress(EngineError):
                if noting is not None:
                    await self.driver.send(self.model.call(noting))


class AsyncPart:
    """A part of a queue, such as `queue.jobs`."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        self._queue = queue


class AsyncBlockingCalls:
    """The calls of a part that block on the server: waits for results, readers of events. They have a driver
    of their own, whose connections wait longer for a reply, so that no other call queues up behind them. It
    connects with the first one."""

    def __init__(self, queue: AsyncQueueCalls) -> None:
        self.model = queue.model
        self._driver = AsyncDriver(queue.endpoint, (), clock=queue.driver.clock, block_ms_max=BLOCK_MS)

    async def run(self, operation: Operation) -> Any:
        """Run an operation that blocks for at most `BLOCK_MS`, and return its reply. Raises
        ServerUnavailable, OutcomeUnknown."""
        return await self._driver.run(self.model.call(operation))

    async def close(self) -> None:
        """Close the idle connections."""
        await self._driver.close()
