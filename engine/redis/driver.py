"""The synchronous driver: runs calls on a server, one or many at a time on one connection, by the decisions
of `engine.redis.exchange`.

It and the asyncio driver are all of the engine that touches a socket. Safe from threads and from gevent
greenlets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from engine.errors import EngineError, OutcomeUnknown
from engine.observer import Intended, Observer
from engine.ops.base import Call
from engine.redis.connections import Connections, packed
from engine.redis.dialer import read_replies
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


class Flight(NamedTuple):
    """A call that may have left: the connection that so many replies come on, None when it has not; or how
    its first send failed."""

    in_flight_call: InFlightCall
    connection: Any = None
    replies: int = 0
    failure: Exception | None = None


class SyncDriver:
    """Runs calls. `block_ms_max` widens the reply timeout for calls that block on the server."""

    def __init__(
        self,
        endpoint: Endpoint | str,
        scripts: Iterable[Script],
        *,
        observer: Observer | None = None,
        clock: ServerClock | None = None,
        block_ms_max: int = 0,
        durability: Durability | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        endpoint = Endpoint(endpoint) if isinstance(endpoint, str) else endpoint
        self.clock = clock or ServerClock()
        self.deadline_ms = endpoint.options.deadline_ms
        self._observer = observer
        self._pause = pause
        self._block_ms_max = block_ms_max
        self._durability = durability
        patience_ms = max(block_ms_max, durability.wait_ms if durability is not None else 0)
        handshake = Handshake(
            scripts, self.clock, observer, replicated=durability is not None, route=endpoint.route
        )
        self._connections = Connections(endpoint, handshake, patience_ms=patience_ms)
        #: The slot of calls without keys; None where one server has all slots.
        self._home = endpoint.slot if endpoint.is_cluster else None

    def run(self, call: Call[T], intended_ns: int | None = None) -> T:
        """Run a call and return the parsed reply. Raises OutcomeUnknown, ServerUnavailable, ScriptFault or
        UnsafeServer."""
        return cast("T", self.send(call, intended_ns).reply)

    def send(self, call: Call[Any], intended_ns: int | None = None, *, again: bool = False) -> Sent:
        """Run a call and say when it was first sent. Raises as `run` does, and ScriptFault for a call that
        blocks for longer than this driver waits. `again`: a copy of this call from an earlier `send` is still
        unanswered (rule 5)."""
        return self.arrive(self.depart(call, intended_ns, again=again))

    def depart(self, call: Call[Any], intended_ns: int | None = None, *, again: bool = False) -> Flight:
        """The first half of `send`, which waits for nothing: the call leaves if a connection is at hand. The
        other half is `arrive`, which any thread may do."""
        in_flight_call = InFlightCall(
            call, self.clock, self._observer, self.deadline_ms, self._block_ms_max, intended_ns, again
        )
        connection = self._connections.take_idle(0 if self._home is None else self._slot(in_flight_call))
        if connection is None:
            return Flight(in_flight_call)
        commands = [call.words()] if self._durability is None else self._commands((in_flight_call,))
        try:
            connection.send_packed_command(packed(connection, commands), check_health=False)
        except FAILURES as error:
            self._connections.drop(connection)
            self._connections.note_error(error)
            return Flight(in_flight_call, failure=error)
        except BaseException:
            # A killed greenlet or an interrupt: the replies may still come, so the connection is not for
            # others.
            self._connections.drop(connection)
            raise
        return Flight(in_flight_call, connection, len(commands))

    def arrive(self, flight: Flight) -> Sent:
        """Wait for the reply of a call that departed; send it, again if need be. Raises as `run` does."""
        in_flight = (flight.in_flight_call,)
        if flight.connection is not None:
            found = self._read(flight.connection, in_flight, flight.replies)
            if self._home is not None:
                replies = Replies(1)
                replies.put([0], found)
                self._send_on(self._slot(flight.in_flight_call), [0], in_flight, replies)
                found = replies.all
            # The usual end: most calls are answered at once.
            if pause_s := flight.in_flight_call.returns(found[0]):
                self._carry_on(in_flight, pause_s)
        elif flight.failure is not None:
            self._carry(in_flight, [flight.failure])
        else:
            self._carry(in_flight, self._exchange(in_flight))
        return flight.in_flight_call.sent()

    def send_many(
        self, calls: Sequence[Call[Any]], intended_ns: int | None = None
    ) -> list[Sent | EngineError]:
        """Run calls in one pipeline, at most 100; what came of each, in their order. An error or a lost reply
        concerns its own call only: those without an answer are sent again together, later than their
        neighbours (rule 28)."""
        in_flight = [self.start(call, intended_ns) for call in pipeline(calls)]
        self.carry(in_flight)
        return [in_flight_call.outcome() for in_flight_call in in_flight]

    def start(self, call: Call[Any], intended_ns: Intended = None) -> InFlightCall:
        """A call that is about to be sent for the first time. Raises ScriptFault as `send` does."""
        return InFlightCall(
            call, self.clock, self._observer, self.deadline_ms, self._block_ms_max, intended_ns
        )

    def carry(self, in_flight: Sequence[InFlightCall]) -> None:
        """Send calls, all in one write, until each has ended."""
        self._carry(in_flight, self._exchange(in_flight))

    def server_now_ms(self) -> int:
        """The server's time, never ahead of it; the first use connects. Raises ServerUnavailable or
        UnsafeServer."""
        if not self.clock.known:
            contact = FirstContact(self.deadline_ms)
            while not self.clock.known:
                try:
                    self._connections.give_back(self._connections.take(self._home or 0))
                except FAILURES as error:
                    self._pause(contact.failed(error))
        return self.clock.now_ms(time.monotonic_ns())

    def not_after_ms(self) -> int:
        """The server time after which a call that is built now is void (rule 3). The server's time must be
        known."""
        return self.clock.now_ms(time.monotonic_ns()) + self.deadline_ms

    def interrupt(self) -> None:
        """Break off the calls that wait for their replies: each raises OutcomeUnknown now, and is not sent
        again. Safe from any thread; the driver carries no more calls afterwards."""
        self._pause = _interrupted
        self._connections.break_all()

    def close(self) -> None:
        """Close the idle connections."""
        self._connections.close()

    def _carry(self, in_flight: Sequence[InFlightCall], replies: Sequence[Any]) -> None:
        """Settle the replies of the first send, and send again until each call has ended."""
        self._carry_on(in_flight, settle(in_flight, replies))

    def _carry_on(self, in_flight: Sequence[InFlightCall], pause_s: float) -> None:
        """Send again, each time after the pause, those that have not ended; 0: all have."""
        while pause_s:
            self._pause(pause_s)
            waiting = [in_flight_call for in_flight_call in in_flight if not in_flight_call.ended]
            for in_flight_call in waiting:
                in_flight_call.leaves_again()
            pause_s = settle(waiting, self._exchange(waiting))

    def _exchange(self, in_flight: Sequence[InFlightCall]) -> Sequence[Any]:
        """Send calls once, those of one slot in one write, and again those that a node sends on. Returns
        their replies, as `settle` takes them."""
        if self._home is None:
            return self._exchange_at(0, in_flight)
        replies = Replies(len(in_flight))
        for slot, places in grouped(range(len(in_flight)), slots_of(in_flight, self._home)).items():
            replies.put(places, self._exchange_at(slot, [in_flight[at] for at in places]))
            self._send_on(slot, places, in_flight, replies)
        return replies.all

    def _exchange_at(self, slot: int, in_flight: Sequence[InFlightCall]) -> Sequence[Any]:
        """Send calls of one slot once, in one write."""
        try:
            connection = self._connections.take(slot)
        except FAILURES as error:
            return [not_sent(error)]
        return self._send(connection, in_flight, self._commands(in_flight))

    def _send_on(
        self, slot: int, places: Sequence[int], in_flight: Sequence[InFlightCall], replies: Replies
    ) -> None:
        """Send the calls whose slot is on the move to the node that an ASK names."""
        for error, asked in replies.asked([*places]).values():
            calls = [in_flight[at] for at in asked]
            try:
                connection = self._connections.take_at(self._connections.asked_node(error), slot)
            except FAILURES as failure:
                replies.put(asked, [not_sent(failure)])
            else:
                replies.put(asked, self._send(connection, calls, asking(self._commands(calls)), asks=True))

    def _send(
        self,
        connection: Any,
        in_flight: Sequence[InFlightCall],
        commands: Sequence[tuple[object, ...]],
        *,
        asks: bool = False,
    ) -> Sequence[Any]:
        """Send the commands of calls on a connection, and read their replies. `asks`: each has an ASKING
        before it."""
        try:
            connection.send_packed_command(packed(connection, commands), check_health=False)
        except FAILURES as error:
            self._connections.drop(connection)
            self._connections.note_error(error)
            return [error]
        except BaseException:
            # A killed greenlet or an interrupt: the replies may still come, so the connection is not for
            # others.
            self._connections.drop(connection)
            raise
        return self._read(connection, in_flight, len(commands), asks=asks)

    def _slot(self, in_flight_call: InFlightCall) -> int:
        """The slot of a call in a cluster."""
        return slots_of((in_flight_call,), self._home or 0)(0)

    def _commands(self, in_flight: Sequence[InFlightCall]) -> list[tuple[object, ...]]:
        """The commands of these calls."""
        commands = [in_flight_call.call.words() for in_flight_call in in_flight]
        return commands if self._durability is None else [*commands, *self._durability.after(in_flight)]

    def _read(
        self, connection: Any, in_flight: Sequence[InFlightCall], count: int, *, asks: bool = False
    ) -> Sequence[Any]:
        """Read the replies to the commands of calls that were sent on a connection, and return the connection
        to the pool."""
        replies: list[Any] = []
        refused = True
        try:
            refused = read_replies(connection, count, replies)
        except FAILURES as error:
            self._connections.drop(connection)
            replies.append(error)
        except BaseException:
            self._connections.drop(connection)
            raise
        else:
            if refused and loads_again(replies):
                self._connections.retire(connection)
            else:
                self._connections.give_back(connection)
        if refused:
            self._connections.note_errors(replies)
        if asks:
            replies = without_asking(replies)
        return replies if self._durability is None else self._durability.judge(in_flight, replies)


def _interrupted(pause_s: float) -> None:
    """In place of the pause before a call is sent again."""
    raise OutcomeUnknown("interrupted while it waited for its reply")
