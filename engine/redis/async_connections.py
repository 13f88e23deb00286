"""Connections of the asyncio driver: as `engine.redis.connections`, through redis-py's asyncio client.

A connection belongs to the event loop that it was made in. One whose last reply has not been read never comes
back into the pool, also when the task that used it was cancelled in mid-call."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import redis
from redis.exceptions import AskError

from engine.redis.connections import Idle, address_of, packed
from engine.redis.dialer import Connection, resolver_of
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import FAILURES, is_reply, refused_credentials
from engine.redis.handshake import Handshake
from engine.redis.routes import Address, Node

# -- Opens connections under asyncio: as `dialer` does. Resolvers ask in threads of their own, so no event
# loop waits for them.


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
        async with asyncio.timeout(2 * self.timeout_s):
            await asyncio.wrap_future(resolver.find())
        return resolver.found(slot)

    def make(self, node: Node | None, *, learns: bool = True) -> Connection:
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

    async def read(
        self, connection: Connection, count: int, replies: list[Any], patience: asyncio.Timeout
    ) -> None:
        """Put the next replies of a connection into `replies`, errors that the server sent among them. A
        failure of the connection is raised, also TimeoutError for a reply that does not come in time; what
        came before it is in the list."""
        while len(replies) < count:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except (redis.RedisError, OSError) as error:
                if not is_reply(error):
                    raise
                replies.append(error)
            # The next reply has its own time.
            patience.reschedule(asyncio.get_running_loop().time() + self.timeout_s)

    async def _ask(self, connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send commands on a new connection and read the replies."""
        # In one piece, and as in `dialer.ask`.
        packed = [b"".join(connection.pack_commands(commands))]
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        try:
            async with asyncio.timeout(self.timeout_s) as patience:
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
    they were written, so each is written as a whole, also when the client has to wait for room in its buffer,
    before the next one begins, and waits for its turn to read. When the connection fails, it fails for all of
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
        self._resolver = self._dialer.resolver
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

    def patience(self) -> asyncio.Timeout:
        """The time within which an answer must come, else TimeoutError."""
        return asyncio.timeout(self._dialer.timeout_s)

    async def take(self, slot: int) -> Connection:
        """A connection that is ready to send calls of a slot. Raises redis-py's errors, TimeoutError, or
        UnsafeServer."""
        resolver = self._resolver
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
            if node is not None and self._resolver is not None and self._resolver.replaced(node):
                # While it was being made, so `leave` may have missed it.
                raise redis.ConnectionError(f"{node.host}:{node.port} is not the primary any more")
        except BaseException as error:
            await connection.disconnect(nowait=True)
            self.note_error(error)
            raise
        return connection

    def note_error(self, error: BaseException) -> None:
        """Take an error that ended a call or a connection: another server may have to be found."""
        if self._resolver is not None and isinstance(error, (redis.RedisError, OSError)):
            self._resolver.note_error(error)

    def note_errors(self, replies: Sequence[Any]) -> None:
        """Take the errors among replies. Where the address is fixed nothing is looked at."""
        if self._resolver is not None:
            for reply in replies:
                if isinstance(reply, Exception):
                    self.note_error(reply)

    def asked_node(self, error: AskError) -> Node | None:
        """The node that an ASK has named; None where the address is fixed."""
        return None if self._resolver is None else self._resolver.at(Address.of(error))

    def leave(self) -> None:
        """Close the connections to servers that are no longer named, also those on which somebody waits for a
        reply; from any thread."""
        with suppress(RuntimeError):
            self._owner.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        resolver = self._resolver
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
        """Begin no further exchange on a connection that lacks a script. Those under way still read what the
        server answered: their calls would have an unknown outcome otherwise. The idle connections most likely
        lack it too, and a call would meet one after the other: the next one is a new one, whose handshake
        loads the scripts."""
        self._share_no_more(pipelined)
        pipelined.retired = True
        await self._close_idle(nowait=True)

    async def break_off(self, pipelined: PipelinedConnection) -> None:
        """Close a connection on which a reply may still come, and begin no further exchange on it: the client
        would connect again by itself, and those under way would read the replies of that one."""
        self._share_no_more(pipelined)
        await pipelined.connection.disconnect(nowait=True)

    def _share_no_more(self, pipelined: PipelinedConnection) -> None:
        self._shared = {slot: shared for slot, shared in self._shared.items() if shared is not pipelined}

    async def close(self) -> None:
        """Close the idle connections."""
        await self._close_idle(nowait=False)
        if self._resolver is not None:
            self._resolver.part(self)

    async def _close_idle(self, *, nowait: bool) -> None:
        idle = self._idle
        self._idle = {None: []}
        for connection, _ in itertools.chain.from_iterable(idle.values()):
            # It has been told to close; a loop that stands still may see the end of that later than the
            # client waits for it.
            with suppress(redis.TimeoutError):
                await connection.disconnect(nowait=nowait)

    async def read(
        self, connection: Connection, count: int, replies: list[Any], patience: asyncio.Timeout
    ) -> None:
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
