"""One channel in one storage: runs its operations and calls listeners after publications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.channel.steps import Answers, Opening
from engine.models.dsps import DspsModel
from engine.ops.base import Call, DeadlineBound, Operation
from engine.redis.async_driver import AsyncDriver
from engine.redis.dialer import AsyncNotifier
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import Sent

#: What is called after a publication, from any thread, also with nobody waiting any more; it must be short
#: and not raise.
Listener = Callable[[], None]


class AsyncOpenStorage(Protocol):
    """One channel in one storage."""

    @property
    def live(self) -> bool:
        """Whether listeners are called for every message that is published from now on. While it is
        not so, waiting calls poll. Listeners are called as well when it begins and when it ends."""
        ...

    async def send(self, operation: Operation, intended_ns: int | None = None) -> Sent:
        """Stamp an operation and run it. One that was refused as late, with no copy unanswered, is sent once
        more. Raises OutcomeUnknown, ServerUnavailable, ScriptFault, UnsafeServer."""
        ...

    async def send_many(self, operations: Sequence[Operation], intended_ns: int | None = None) -> Answers:
        """Run several, at most 100, in one piece where that is possible; what came of each, in their
        order."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each publication from now on. Does not wait: until `live`, publications may
        be missed."""
        ...

    def unlisten(self, listener: Listener) -> None:
        """Do not call `listener` any more."""
        ...

    async def close(self) -> None:
        """Close what is open; it opens again with the next use."""
        ...


# -- A channel on a Redis or Valkey server: see `RedisStorage`.


class AsyncOpenRedis:
    """One channel on a server."""

    def __init__(self, endpoint: Endpoint, opening: Opening) -> None:
        self.url = endpoint.url
        self._model = DspsModel(opening.channel, lua=opening.lua)
        endpoint = endpoint.for_keys_like(self._model.keys.prefix)
        self._driver = AsyncDriver(endpoint, self._model.scripts.values(), observer=opening.observer)
        self._notifier = AsyncNotifier(endpoint, self._model.keys.wake_topic)

    @property
    def live(self) -> bool:
        """Whether listeners are called for every message that is published from now on."""
        return self._notifier.live

    async def send(self, operation: Operation, intended_ns: int | None = None) -> Sent:
        """Run an operation."""
        async with self._driver.permits:
            if isinstance(operation, DeadlineBound):
                await self._driver.server_now_ms()
            sent = await self._driver.send(self._call(operation), intended_ns)
            if sent.came_late:
                sent = await self._driver.send(self._call(operation), intended_ns)
            return sent

    async def send_many(self, operations: Sequence[Operation], intended_ns: int | None = None) -> Answers:
        """Run several, in one piece."""
        async with self._driver.permits:
            await self._driver.server_now_ms()
            outcomes = await self._driver.send_many(
                [self._call(operation) for operation in operations], intended_ns
            )
            late = [
                at for at, outcome in enumerate(outcomes) if isinstance(outcome, Sent) and outcome.came_late
            ]
            if late:
                again = await self._driver.send_many([self._call(operations[at]) for at in late], intended_ns)
                for at, outcome in zip(late, again, strict=True):
                    outcomes[at] = outcome
            return outcomes

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each publication from now on."""
        self._notifier.listen(listener)

    def unlisten(self, listener: Listener) -> None:
        """Do not call `listener` any more."""
        self._notifier.unlisten(listener)

    async def close(self) -> None:
        """Close the idle connections."""
        await self._notifier.close()
        await self._driver.close()

    def _call(self, operation: Operation) -> Call[Any]:
        """The call of an operation that leaves now."""
        if isinstance(operation, DeadlineBound):
            operation = operation.stamped(self._driver.not_after_ms())
        return self._model.call(operation)
