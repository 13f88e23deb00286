"""The asyncio driver: runs calls on a server by the same decisions as `driver`, and blocks no event loop."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

import redis
from redis.exceptions import AskError

from engine.errors import EngineError
from engine.observer import Intended, Observer
from engine.ops.base import Call, ServerClock
from engine.redis.dialer import Connection, resolver_of
from engine.redis.driver import Idle, address_of, packed
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
    is_reply,
    loads_again,
    not_sent,
    pipeline,
    refused_credentials,
    settle,
    slots_of,
    without_asking,
)
from engine.redis.handshake import Handshake
from engine.redis.resolver import asked_node, note_errors
from engine.redis.scripts import Script

# -- Connections of the asyncio driver: as `engine.redis.driver`, through redis-py's asyncio client.
#
# A connection belongs to the event loop that it was made in. One whose last reply has not been read never
# comes back into the pool, also when the task that used it was cancelled in mid-call.

# -- Opens connections under asyncio: as `dialer` does. Resolvers ask in threads of their own, so no event
# loop waits for them.


#: How often a time that is over is prolonged, and by which part of it each time.
_LOOKS, _PART = 4, 40


class Patience:
    """The time within which an answer must come, else TimeoutError.

    A loop may stand still, because a handler blocks it or the process is stopped. It then finds an answer
    that has long been there and the end of the time in one round. The task that waits would read the answer
    a few rounds later, so a time that is over is prolonged by some more rounds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._bound = asyncio.timeout(None)

    async def __aenter__(self) -> Patience:
        await self._bound.__aenter__()
        self._wait(_LOOKS)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._timer.cancel()
        await self._bound.__aexit__(*failure)

    def renew(self) -> None:
        """Begin it anew: the next answer has its own time."""
        self._timer.cancel()
        self._bound.reschedule(None)
        self._wait(_LOOKS)

    def _wait(self, looks: int, part: int = 1) -> None:
        loop = asyncio.get_running_loop()
        if looks < 0:
            self._bound.reschedule(loop.time())
        else:
            self._timer = loop.call_later(self._timeout_s / part, self._wait, looks - 1, _PART)


class AsyncDialer:
    """Makes connections, not yet connected, whose reads wait without end: who uses them bounds each exchange
    as a whole, within `timeout_s`."""

    def __init__(self, endpoint: Endpoint, handshake: Handshake, patience_ms: int) -> None:
        self.endpoint = endpoint
        self.resolver = resolver_of(endpoint)
        self.timeout_s: float = endpoint.settings(patience_ms)["socket_timeout"]
        self._handshake = handshake

    async def node(self, slot: int) -> Node | None:
        """Where a new connection for a slot leads; None: to the fixed address. Raises ConnectionError or
        TimeoutError."""
        resolver = self.resolver
        if resolver is None:
            return None
        if (fresh := resolver.fresh(slot)) is not None:
            return fresh
        async with Patience(resolver.patience_s):
            await asyncio.wrap_future(resolver.find())
        return resolver.found(slot)

    def make(self, node: Node | None, *, learns: bool) -> Connection:
        """A connection to a node, which connects with its own `connect`. Learns the server's time if asked
        to."""
        # None, not left out: redis-py 8 has a default, and sends in a task then, whose cancellation Python
        # 3.11 may lose.
        settings = {**self.endpoint.settings(node=node), "socket_timeout": None}
        handshake = self._handshake

        async def greet(connection: Connection) -> None:
            await connection.on_connect()
            missing = handshake.conclude(await self._ask(connection, handshake.commands), node, learns=learns)
            if missing:
                handshake.finish(missing, await self._ask(connection, missing))

        return self.endpoint.connection_class(**settings, redis_connect_func=greet)

    async def read(self, connection: Connection, count: int, replies: list[Any], patience: Patience) -> None:
        """Put the next replies of a connection into `replies`, errors that the server sent among them. A
        failure of the connection is raised, also TimeoutError for a reply that does not come in time. What
        came before it is in the list."""
        while len(replies) < count:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except (redis.RedisError, OSError) as error:
                if not is_reply(error):
                    raise
                replies.append(error)
            patience.renew()

    async def _ask(self, connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send commands on a new connection and read the replies."""
        # In one piece, and as in `dialer.ask`.
        packed = [b"".join(connection.pack_commands(commands))]
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        try:
            async with Patience(self.timeout_s) as patience:
                await self.read(connection, len(commands), replies, patience)
        except FAILURES as error:
            raise refused_credentials(replies) or error from None
        return replies


#: Calls of one driver that run at once; others wait for a permit, and their time starts then.
CONNECTIONS_MAX = 16
#: A pipelined connection on which no exchange has ended for this long gets no more of them.
SILENT_NS = 20_000_000


class PipelinedConnection:
    """A connection on which exchanges are under way, one or several. Their replies come in the order in which
    they were written. So each is written as a whole, also when the client has to wait for room in its buffer,
    before the next one begins, and waits for its time to read. When the connection fails, it fails for all of
    them."""

    __slots__ = ("answered_ns", "connection", "exchanges", "reading", "retired", "writing")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.exchanges = 1
        #: It lacks a script: closed when the last exchange is over, and no call gets it any more.
        self.retired = False
        self.writing = asyncio.Lock()
        self.reading = asyncio.Lock()
        #: When it was opened, or the last exchange ended, monotonic.
        self.answered_ns = time.monotonic_ns()


T = TypeVar("T")


class OfEachLoop(Generic[T]):
    """One of a kind for each event loop that uses it, made by `make` in that loop. What a closed loop left
    behind is of no use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._found: dict[asyncio.AbstractEventLoop, tuple[T, int]] = {}

    def here(self) -> T:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._found.get(loop)
        if found is None:
            # A parent's are kept for good: to close its connections in a forked child takes their sockets out
            # of the epoll that the parent's loop still uses.
            for other, (_, pid) in list(self._found.items()):
                if other.is_closed() and pid == os.getpid():
                    self._found.pop(other, None)
            found = self._found[loop] = self._make(), os.getpid()
        return found[0]


class AsyncConnections:
    """A pool of handshaken connections, last in first out, of the event loop that it is made in: a connection
    reports to that loop alone."""

    def __init__(self, endpoint: Endpoint, handshake: Handshake, *, patience_ms: int) -> None:
        self._dialer = AsyncDialer(endpoint, handshake, patience_ms)
        self.resolver = self._dialer.resolver
        self._slot = endpoint.slot
        self._check_ns = endpoint.options.idle_check_ms * 1_000_000
        self._owner = asyncio.get_running_loop()
        self._idle: dict[Address | None, Idle] = {None: []}
        self._open: weakref.WeakKeyDictionary[Connection, Node | None] = weakref.WeakKeyDictionary()
        #: To hold while a call runs: a thousand tasks must not open a thousand connections.
        self.permits = asyncio.Semaphore(endpoint.options.connections_max or CONNECTIONS_MAX)
        # The connections that batches share while any of them is under way, by slot.
        self._shared: dict[int, PipelinedConnection] = {}
        self._opening = asyncio.Lock()

    def patience(self) -> Patience:
        """The time within which an answer of this server must come."""
        return Patience(self._dialer.timeout_s)

    async def take(self, slot: int) -> Connection:
        """A connection that is ready to send calls of a slot. Raises redis-py's errors, TimeoutError, or
        UnsafeServer."""
        resolver = self.resolver
        known = None if resolver is None else resolver.known(slot)
        if resolver is None or (known is not None and self._idle.get(known.address)):
            return await self.take_at(known, slot)
        # First: the sentinels are listened to for those that have joined.
        resolver.join(self)
        return await self.take_at(await self._dialer.node(slot), slot)

    async def take_at(self, node: Node | None, slot: int) -> Connection:
        """A connection to a node, for calls of a slot. Raises as `take` does."""
        idle = self._idle.get(address_of(node))
        connection, idle_since_ns = idle.pop() if idle else (None, 0)
        if connection is not None:
            if time.monotonic_ns() - idle_since_ns <= self._check_ns or not await _is_readable(connection):
                return connection
            await connection.disconnect(nowait=True)
        connection = self._dialer.make(node, learns=slot == self._slot)
        self._open[connection] = node
        try:
            async with self.patience():
                await connection.connect()
            if node is not None and self.resolver is not None and self.resolver.replaced(node):
                # While it was being made, so `leave` may have missed it.
                raise redis.ConnectionError(f"{node.host}:{node.port} is not the primary any more")
        except BaseException as error:
            await connection.disconnect(nowait=True)
            note_errors(self.resolver, [error])
            raise
        return connection

    def leave(self) -> None:
        """Close the connections to servers that are no longer named, also those on which somebody waits for a
        reply; from any thread."""
        with suppress(RuntimeError):
            self._owner.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        resolver = self.resolver
        if resolver is None:
            return
        left = [
            connection
            for connection, node in self._open.items()
            if node is not None and not resolver.serves(node)
        ]
        for node in (self._open[connection] for connection in left):
            self._idle.pop(address_of(node), None)
        self._leaving = [asyncio.ensure_future(connection.disconnect(nowait=True)) for connection in left]

    async def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        self._idle.setdefault(address_of(self._open.get(connection)), []).append(
            (connection, time.monotonic_ns())
        )

    async def write(self, pipelined: PipelinedConnection, commands: Sequence[tuple[object, ...]]) -> None:
        """Write the commands of an exchange behind those of the others. Raises redis-py's errors."""
        connection = pipelined.connection
        async with pipelined.writing:
            if not connection.is_connected:
                # It broke while this exchange waited, and the client would connect again by itself.
                raise redis.ConnectionError("the connection was closed before this exchange was written")
            await connection.send_packed_command(packed(connection, commands), check_health=False)

    async def take_shared(self, slot: int) -> PipelinedConnection:
        """The connection that batches of a slot share now, or a new one, for one more exchange. Raises as
        `take` does."""
        async with self._opening:
            shared = self._shared.get(slot)
            if shared is None or time.monotonic_ns() - shared.answered_ns > SILENT_NS:
                shared = self._shared[slot] = PipelinedConnection(await self.take(slot))
            else:
                shared.exchanges += 1
            return shared

    async def end_exchange(self, pipelined: PipelinedConnection) -> None:
        """An exchange is over, and all its replies have been read. After the last one the connection goes
        back to the pool."""
        pipelined.exchanges -= 1
        pipelined.answered_ns = time.monotonic_ns()
        if pipelined.exchanges or not pipelined.connection.is_connected:
            return
        self._share_no_more(pipelined)
        if pipelined.retired:
            await pipelined.connection.disconnect(nowait=True)
        else:
            await self.give_back(pipelined.connection)

    async def retire(self, pipelined: PipelinedConnection) -> None:
        """End an exchange, and begin no further one on its connection, which lacks a script. Those under way
        still read what the server answered: their calls would have an unknown outcome otherwise. The idle
        connections most likely lack it too. A call would meet one after the other: the next one is a new
        one, whose handshake loads the scripts."""
        self._share_no_more(pipelined)
        pipelined.retired = True
        # First: a task that is cancelled while it closes the others has ended its exchange.
        await self.end_exchange(pipelined)
        await self._close_idle(nowait=True)

    async def break_off(self, pipelined: PipelinedConnection) -> None:
        """Close a connection on which a reply may still come, and begin no further exchange on it. The client
        would connect again by itself, and those under way would read the replies of that one."""
        self._share_no_more(pipelined)
        await pipelined.connection.disconnect(nowait=True)

    def _share_no_more(self, pipelined: PipelinedConnection) -> None:
        self._shared = {slot: shared for slot, shared in self._shared.items() if shared is not pipelined}

    async def close(self) -> None:
        """Close the idle connections."""
        await self._close_idle(nowait=False)
        if self.resolver is not None:
            self.resolver.part(self)

    async def _close_idle(self, *, nowait: bool) -> None:
        idle = self._idle
        self._idle = {None: []}
        for connection, _ in itertools.chain.from_iterable(idle.values()):
            # It has been told to close; a loop that stands still may see the end of that later than the
            # client waits for it.
            with suppress(redis.TimeoutError):
                await connection.disconnect(nowait=nowait)

    async def read(self, connection: Connection, count: int, replies: list[Any], patience: Patience) -> None:
        """Put the next replies of a connection into `replies`, as `AsyncDialer.read` does."""
        await self._dialer.read(connection, count, replies, patience)


async def _is_readable(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        # redis-py before 8 calls it by its longer name.
        look = getattr(connection, "can_read", None) or connection.can_read_destructive
        return bool(await look())
    except (redis.RedisError, OSError):
        return True


# -- Runs calls on these connections.


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
        patience_ms = block_ms_max if durability is None else max(block_ms_max, durability.wait_ms)
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
            connection = await self._connections.take_at(asked_node(self._connections.resolver, error), slot)
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
            else:
                await connections.end_exchange(pipelined)
        note_errors(connections.resolver, replies)
        if asks:
            replies = without_asking(replies)
        return replies if self._durability is None else self._durability.judge(in_flight, replies)
