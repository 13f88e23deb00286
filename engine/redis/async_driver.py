"""The asyncio driver: runs calls on a server by the same decisions as `driver`, and blocks no event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from redis.exceptions import AskError

from engine.errors import EngineError
from engine.observer import Intended, Observer
from engine.ops.base import Call
from engine.redis.async_connections import AsyncConnections, OfEachLoop, PipelinedConnection
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import (
    FAILURES,
    Durability,
    FirstContact,
    InFlightCall,
    Replies,
    Sent,
    ServerClock,
    asking,
    grouped,
    loads_again,
    not_sent,
    pipeline,
    settle,
    slots_of,
    without_asking,
)
from engine.redis.handshake import Handshake
from engine.redis.scripts import Script

T = TypeVar("T")


class AsyncDriver:
    """Runs calls. `block_ms_max` widens the reply timeout for calls that block on the server. A task that is
    cancelled in mid-call leaves its call as it is: sent or not, the outcome is unknown.

    Each call that runs has a connection of its own; who uses a driver takes one of its `permits` for each.
    """

    def __init__(
        self,
        endpoint: Endpoint | str,
        scripts: Iterable[Script],
        *,
        observer: Observer | None = None,
        clock: ServerClock | None = None,
        block_ms_max: int = 0,
        durability: Durability | None = None,
    ) -> None:
        endpoint = Endpoint(endpoint, asynchronous=True) if isinstance(endpoint, str) else endpoint
        self.clock = clock or ServerClock()
        self.deadline_ms = endpoint.options.deadline_ms
        self._observer = observer
        self._block_ms_max = block_ms_max
        self._durability = durability
        patience_ms = max(block_ms_max, durability.wait_ms if durability is not None else 0)
        handshake = Handshake(
            scripts, self.clock, observer, replicated=durability is not None, route=endpoint.route
        )
        self._pools = OfEachLoop(lambda: AsyncConnections(endpoint, handshake, patience_ms=patience_ms))
        #: The slot of calls without keys; None where one server has all slots.
        self._home = endpoint.slot if endpoint.is_cluster else None

    @property
    def _connections(self) -> AsyncConnections:
        return self._pools.here()

    @property
    def permits(self) -> asyncio.Semaphore:
        """A semaphore that bounds the calls that run at once, first come first served."""
        return self._connections.permits

    async def run(self, call: Call[T], intended_ns: int | None = None) -> T:
        """Run a call and return the parsed reply. Raises OutcomeUnknown, ServerUnavailable, ScriptFault or
        UnsafeServer."""
        return cast("T", (await self.send(call, intended_ns)).reply)

    async def send(self, call: Call[Any], intended_ns: int | None = None, *, again: bool = False) -> Sent:
        """Run a call and say when it was first sent. Raises as `run` does, and ScriptFault for a call that
        blocks for longer than this driver waits. `again`: a copy of this call from an earlier `send` is still
        unanswered (rule 5)."""
        in_flight_call = InFlightCall(
            call, self.clock, self._observer, self.deadline_ms, self._block_ms_max, intended_ns, again
        )
        await self.carry((in_flight_call,))
        return in_flight_call.sent()

    async def send_many(
        self, calls: Sequence[Call[Any]], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        """Run calls in one pipeline, at most 100; what came of each, in their order. An error or a lost reply
        concerns its own call only: those without an answer are sent again together, later than their
        neighbours (rule 28)."""
        in_flight = [self.start(call, intended_ns) for call in pipeline(calls)]
        await self.carry(in_flight)
        return [in_flight_call.outcome() for in_flight_call in in_flight]

    def start(self, call: Call[Any], intended_ns: Intended = None) -> InFlightCall:
        """A call that is about to be sent for the first time. Raises ScriptFault as `send` does."""
        return InFlightCall(
            call, self.clock, self._observer, self.deadline_ms, self._block_ms_max, intended_ns
        )

    async def carry(
        self,
        in_flight: Sequence[InFlightCall],
        after_send: Callable[[], None] = lambda: None,
        *,
        shared: bool = False,
    ) -> None:
        """Send until each call has ended. `after_send` is called after each send, when its replies were
        handed out. `shared`: the first send leaves behind others on one connection, and before they are
        answered."""
        pause_s = settle(in_flight, await self._exchange(in_flight, shared=shared))
        after_send()
        while waiting := [in_flight_call for in_flight_call in in_flight if not in_flight_call.ended]:
            await asyncio.sleep(pause_s)
            for in_flight_call in waiting:
                in_flight_call.leaves_again()
            pause_s = settle(waiting, await self._exchange(waiting))
            after_send()

    async def server_now_ms(self) -> int:
        """The server's time, never ahead of it; the first use connects. Raises ServerUnavailable or
        UnsafeServer."""
        if not self.clock.known:
            contact = FirstContact(self.deadline_ms)
            while not self.clock.known:
                try:
                    await self._connections.give_back(await self._connections.take(self._home or 0))
                except FAILURES as error:
                    await asyncio.sleep(contact.failed(error))
        return self.clock.now_ms(time.monotonic_ns())

    def not_after_ms(self) -> int:
        """The server time after which a call that is built now is void (rule 3). The server's time must be
        known."""
        return self.clock.now_ms(time.monotonic_ns()) + self.deadline_ms

    async def close(self) -> None:
        """Close the idle connections."""
        await self._connections.close()

    async def _exchange(self, in_flight: Sequence[InFlightCall], *, shared: bool = False) -> Sequence[Any]:
        """Send calls once, those of one slot in one write, and again those that a node sends on. Returns
        their replies, as `settle` takes them."""
        if self._home is None:
            return await self._exchange_at(0, in_flight, shared=shared)
        replies = Replies(len(in_flight))
        for slot, places in grouped(range(len(in_flight)), slots_of(in_flight, self._home)).items():
            replies.put(
                places, await self._exchange_at(slot, [in_flight[at] for at in places], shared=shared)
            )
            for error, asked in replies.asked(places).values():
                replies.put(asked, await self._send_on(slot, error, [in_flight[at] for at in asked]))
        return replies.all

    async def _exchange_at(
        self, slot: int, in_flight: Sequence[InFlightCall], *, shared: bool
    ) -> Sequence[Any]:
        """Send calls of one slot once, in one write."""
        connections = self._connections
        try:
            pipelined = (
                await connections.take_shared(slot)
                if shared
                else PipelinedConnection(await connections.take(slot))
            )
        except FAILURES as error:
            return [not_sent(error)]
        return await self._send(pipelined, in_flight, self._commands(in_flight))

    async def _send_on(self, slot: int, error: AskError, in_flight: Sequence[InFlightCall]) -> Sequence[Any]:
        """Send calls whose slot is on the move to the node that an ASK names."""
        try:
            connection = await self._connections.take_at(self._connections.asked_node(error), slot)
        except FAILURES as failure:
            return [not_sent(failure)]
        return await self._send(
            PipelinedConnection(connection), in_flight, asking(self._commands(in_flight)), asks=True
        )

    def _commands(self, in_flight: Sequence[InFlightCall]) -> list[tuple[object, ...]]:
        """The commands of these calls."""
        commands = [in_flight_call.call.words() for in_flight_call in in_flight]
        return commands if self._durability is None else [*commands, *self._durability.after(in_flight)]

    async def _send(
        self,
        pipelined: PipelinedConnection,
        in_flight: Sequence[InFlightCall],
        commands: Sequence[tuple[object, ...]],
        *,
        asks: bool = False,
    ) -> Sequence[Any]:
        """Send the commands of calls on a connection, and read their replies. `asks`: each has an ASKING
        before it."""
        connections = self._connections
        replies: list[Any] = []
        try:
            async with connections.patience() as patience:
                await connections.write(pipelined, commands)
                async with pipelined.reading:
                    await connections.read(pipelined.connection, len(commands), replies, patience)
        except FAILURES as error:
            await connections.break_off(pipelined)
            replies.append(error)
        except BaseException:
            # The task was cancelled: the replies may still come, so the connection is not for others.
            await connections.break_off(pipelined)
            raise
        else:
            if loads_again(replies):
                await connections.retire(pipelined)
            await connections.end_exchange(pipelined)
        connections.note_errors(replies)
        if asks:
            replies = without_asking(replies)
        return replies if self._durability is None else self._durability.judge(in_flight, replies)
