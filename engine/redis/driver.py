"""The synchronous driver: runs calls on a server, one or many at a time on one connection, by the decisions
of `engine.redis.exchange`.

It and the asyncio driver are all of the engine that touches a socket. Safe from threads and from gevent
greenlets.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import redis

from engine.errors import EngineError, OutcomeUnknown
from engine.observer import Intended, Observer
from engine.ops.base import Call, ServerClock
from engine.redis.dialer import Connection, dialer_of, read_replies
from engine.redis.endpoint import Address, Endpoint, Node
from engine.redis.exchange import (
    FAILURES,
    Durability,
    FirstContact,
    InFlightCall,
    Replies,
    Sent,
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
from engine.redis.resolver import asked_node, note_errors
from engine.redis.scripts import Script

# -- Connections to one Redis or Valkey server, each made fit for the engine by a handshake before its first
# call.
#
# The client's own retries are off: redis-py re-sends EVALSHA by default, and re-sending is the engine's
# decision (`engine.redis.exchange`).

Pack = Callable[[tuple[object, ...]], bytes]
_pack: Pack | None
try:
    # What redis-py uses as well where it is installed, without the way through its layers.
    from hiredis import pack_command  # pyright: ignore[reportUnknownVariableType]

    _pack = cast("Pack", pack_command)
except ImportError:
    _pack = None

#: Connections to one node that nobody uses, each with the instant since when (monotonic ns).
Idle = list[tuple[Connection, int]]


class Connections:
    """A pool of handshaken connections, last in first out, safe from threads and greenlets and across a fork.
    A child neither uses nor closes its parent's connections, and makes its own.

    `patience_ms`: how much longer than usual a reply may take. With a bound on the connections, a caller
    waits for a permit. Where the server is found by a resolver, a connection is for one node, and is closed
    when the node is no longer named.
    """

    def __init__(self, endpoint: Endpoint, handshake: Handshake, *, patience_ms: int) -> None:
        self._dialer = dialer_of(endpoint, handshake, patience_ms)
        self.resolver = self._dialer.resolver
        self._slot = endpoint.slot
        self._most = endpoint.options.connections_max
        self._permit_wait_s = endpoint.options.connect_timeout_ms / 1000
        self._check_ns = endpoint.options.idle_check_ms * 1_000_000
        self._begin()
        _POOLS.add(self)

    def _begin(self) -> None:
        """Begin without connections: at first, and in a forked child, where another thread may have held the
        lock for ever."""
        self._lock = threading.Lock()
        self._idle: dict[Address | None, Idle] = {None: []}
        # All that are open, and whether they are to be broken.
        self._open: weakref.WeakKeyDictionary[Connection, Node | None] = weakref.WeakKeyDictionary()
        self._broken = False
        self._permits = threading.BoundedSemaphore(self._most) if self._most else None
        self._pid = os.getpid()

    def take_idle(self, slot: int) -> Connection | None:
        """A connection for calls of a slot that was used a moment ago and needs no check, or None."""
        node = None
        if self._pid != os.getpid() or (
            self.resolver is not None and (node := self.resolver.known(slot)) is None
        ):
            return None
        if self._permits is not None and not self._permits.acquire(blocking=False):
            return None
        with self._lock:
            idle = self._idle.get(None if node is None else node.address)
            if idle and time.monotonic_ns() - idle[-1][1] <= self._check_ns:
                return idle.pop()[0]
        self._give_permit_back()
        return None

    def take(self, slot: int) -> Connection:
        """A connection that is ready to send calls of a slot. Raises redis-py's errors, or UnsafeServer."""
        resolver = self.resolver
        known = None if resolver is None else resolver.known(slot)
        if resolver is None or (known is not None and self._idle.get(known.address)):
            return self.take_at(known, slot)
        # First: the sentinels are listened to for those that have joined.
        resolver.join(self)
        return self.take_at(self._dialer.node(slot), slot)

    def take_at(self, node: Node | None, slot: int) -> Connection:
        """A connection to a node, for calls of a slot. Raises as `take` does."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        if self._permits is not None and not self._permits.acquire(timeout=self._permit_wait_s):
            raise redis.ConnectionError(f"all {self._most} connections are in use")
        try:
            with self._lock:
                idle = self._idle.get(address_of(node))
                connection, idle_since_ns = idle.pop() if idle else (None, 0)
            if (
                connection is not None
                and time.monotonic_ns() - idle_since_ns > self._check_ns
                and _is_readable(connection)
            ):
                connection.disconnect()
                connection = None
            if connection is None:
                connection = self._connected(node, slot)
            if self._broken:
                connection.disconnect()
                raise redis.ConnectionError("the connections are broken")
        except BaseException as error:
            self._give_permit_back()
            note_errors(self.resolver, [error])
            raise
        return connection

    def _connected(self, node: Node | None, slot: int) -> Connection:
        """A new connection. Calls are bounded by the time of the server that has the queue's keys."""
        connection = self._dialer.make(node, learns=slot == self._slot)
        with self._lock:
            self._open[connection] = node
        try:
            connection.connect()
            if node is not None and self.resolver is not None and self.resolver.replaced(node):
                # While it was being made, so `leave` may have missed it.
                raise redis.ConnectionError(f"{node.host}:{node.port} is not the primary any more")
        except BaseException:
            # redis-py closes it for errors of its own alone.
            connection.disconnect()
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        with self._lock:
            address = None if self.resolver is None else address_of(self._open.get(connection))
            self._idle.setdefault(address, []).append((connection, time.monotonic_ns()))
        if self._permits is not None:
            self._permits.release()

    def drop(self, connection: Connection) -> None:
        """Close a connection that was taken and on which a reply may still come."""
        connection.disconnect()
        self._give_permit_back()

    def retire(self, connection: Connection) -> None:
        """Close a connection that lacks a script, and the idle ones, which most likely lack it too: a call
        would meet one after the other. The next one is a new one, whose handshake loads the scripts."""
        self.drop(connection)
        self._close_idle()

    def close(self) -> None:
        """Close the idle connections."""
        self._close_idle()
        if self.resolver is not None:
            self.resolver.part(self)

    def _close_idle(self) -> None:
        with self._lock:
            idle = self._idle
            self._idle = {None: []}
        for connection, _ in itertools.chain.from_iterable(idle.values()):
            connection.disconnect()

    def break_all(self) -> None:
        """Break the connections, also those on which somebody waits for a reply, who gets an error. No other
        one is taken."""
        self._broken = True
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            break_off(connection)

    def leave(self) -> None:
        """Close the connections to servers that are no longer named, also those on which somebody waits for a
        reply."""
        resolver = self.resolver
        if resolver is None:
            return
        with self._lock:
            left = [
                connection
                for connection, node in self._open.items()
                if node is not None and not resolver.serves(node)
            ]
            for node in (self._open[connection] for connection in left):
                self._idle.pop(address_of(node), None)
        for connection in left:
            break_off(connection)

    def _give_permit_back(self) -> None:
        if self._permits is not None:
            self._permits.release()


_POOLS: weakref.WeakSet[Connections] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for pool in list(_POOLS):
        pool._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


def break_off(connection: Connection) -> None:
    """End a connection that another thread may use: closing it from here would leave the one who reads
    without a socket. So it ends as if the server had closed it."""
    sock = connection._sock
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def address_of(node: Node | None) -> Address | None:
    """Where a node listens; None for the fixed address."""
    return None if node is None else node.address


def packed(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[bytes]:
    """The bytes of commands that go out together. Many are one piece, and so one write."""
    if _pack is not None:
        return [b"".join(map(_pack, commands))]
    return [b"".join(chunk for words in commands for chunk in connection.pack_command(*words))]


def _is_readable(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        return bool(connection.can_read())
    except (redis.RedisError, OSError):
        return True


# -- Runs calls on these connections.

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
        patience_ms = block_ms_max if durability is None else max(block_ms_max, durability.wait_ms)
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
            note_errors(self._connections.resolver, [error])
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
                connection = self._connections.take_at(asked_node(self._connections.resolver, error), slot)
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
            note_errors(self._connections.resolver, [error])
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
            note_errors(self._connections.resolver, replies)
        if asks:
            replies = without_asking(replies)
        return replies if self._durability is None else self._durability.judge(in_flight, replies)


def _interrupted(pause_s: float) -> None:
    """In place of the pause before a call is sent again."""
    raise OutcomeUnknown("interrupted while it waited for its reply")
