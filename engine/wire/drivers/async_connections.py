"""Connections of the asyncio driver: as `engine.wire.drivers.connections`, through redis-py's asyncio client.

A connection belongs to the event loop that it was made in. One whose last reply has not been read never comes back into the
pool, also when the task that used it was cancelled in mid-call.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis

from engine.errors import Malformed
from engine.wire.drivers.client_errors import is_reply
from engine.wire.drivers.connections import Connection, packed
from engine.wire.drivers.endpoint import Endpoint
from engine.wire.drivers.handshake import Handshake, raise_errors

#: Calls of one driver that run at once; others wait for their turn before their time starts.
CONNECTIONS_MAX = 16
#: A pipelined connection on which no exchange has ended for this long gets no more of them.
SILENT_NS = 20_000_000


class PipelinedConnection:
    """A connection on which exchanges are under way, one or several. Their replies come in the order in which they were written,
    so each is written as a whole, also when the client has to wait for room in its buffer, before the next one begins, and waits
    for its turn to read. When the connection fails, it fails for all of them."""

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


class AsyncConnections:
    """A pool of handshaken connections, last in first out, of the running event loop.

    It empties itself when it is used from another loop: what a closed loop left behind is of no use. Two loops that run at once
    cannot share it, for a connection reports to the loop that it was made in: the second one is told so, as Malformed.
    """

    def __init__(self, endpoint: Endpoint, handshake: Handshake, *, patience_ms: int = 0) -> None:
        self._settings = endpoint.settings(patience_ms)
        self._class: Connection = endpoint.connection_class
        # The driver bounds an exchange as a whole: one timer instead of one for each half of each call.
        self._timeout_s = self._settings["socket_timeout"]
        # None, not left out: redis-py 8 has a default, and sends in a task then, whose cancellation Python 3.11 may lose.
        self._settings["socket_timeout"] = None
        self._handshake = handshake
        self._most = endpoint.options.connections_max or CONNECTIONS_MAX
        self._check_ns = endpoint.options.idle_check_ms * 1_000_000
        self._owner: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._idle: list[tuple[Connection, int]] = []
        self._turns = asyncio.Semaphore(self._most)
        # The connection that batches share while any of them is under way.
        self._shared: PipelinedConnection | None = None
        self._opening = asyncio.Lock()

    @property
    def turns(self) -> asyncio.Semaphore:
        """A semaphore to hold while a call runs: a thousand tasks must not open a thousand connections."""
        self._belong()
        return self._turns

    def patience(self) -> asyncio.Timeout:
        """The time within which an answer must come, else TimeoutError."""
        return asyncio.timeout(self._timeout_s)

    async def take(self) -> Connection:
        """A connection that is ready to send. Raises redis-py's errors, TimeoutError, or UnsafeServer."""
        self._belong()
        connection, idle_since_ns = self._idle.pop() if self._idle else (None, 0)
        if connection is None:
            connection = self._class(**self._settings, redis_connect_func=self._greet)
        elif time.monotonic_ns() - idle_since_ns <= self._check_ns or not await _has_news(connection):
            return connection
        try:
            async with self.patience():
                await connection.disconnect(nowait=True)
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def give_back(self, connection: Connection) -> None:
        """Return a connection that is alive and whose last reply has been read."""
        if self._owner is asyncio.get_running_loop():
            self._idle.append((connection, time.monotonic_ns()))
        else:
            # Another loop has taken the pool over while this one stood still in mid-call.
            await connection.disconnect(nowait=True)

    async def write(self, pipelined: PipelinedConnection, commands: Sequence[tuple[object, ...]]) -> None:
        """Write the commands of an exchange behind those of the others. Raises redis-py's errors."""
        connection = pipelined.connection
        async with pipelined.writing:
            if not connection.is_connected:
                # It broke while this exchange waited, and the client would connect again by itself.
                raise redis.ConnectionError("the connection was closed before this exchange was written")
            await connection.send_packed_command(packed(connection, commands), check_health=False)

    async def take_shared(self) -> PipelinedConnection:
        """The connection that batches share now, or a new one, for one more exchange. Raises as `take` does."""
        self._belong()
        async with self._opening:
            if self._shared is None or time.monotonic_ns() - self._shared.answered_ns > SILENT_NS:
                self._shared = PipelinedConnection(await self.take())
            else:
                self._shared.exchanges += 1
            return self._shared

    async def end_exchange(self, pipelined: PipelinedConnection) -> None:
        """An exchange is over, and all its replies have been read. After the last one the connection goes back to the pool."""
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
        """Begin no further exchange on a connection that lacks a script. Those under way still read what the server answered:
        their calls would have an unknown outcome otherwise. The idle connections most likely lack it too, and a call would meet
        one after the other: the next one is a new one, whose handshake loads the scripts."""
        self._share_no_more(pipelined)
        pipelined.retired = True
        # The idle ones of another loop, which has taken the pool over, are not this one's to close.
        if self._owner is asyncio.get_running_loop():
            await self._close_idle(nowait=True)

    async def break_off(self, pipelined: PipelinedConnection) -> None:
        """Close a connection on which a reply may still come, and begin no further exchange on it: the client would connect again
        by itself, and those under way would read the replies of that one."""
        self._share_no_more(pipelined)
        await pipelined.connection.disconnect(nowait=True)

    def _share_no_more(self, pipelined: PipelinedConnection) -> None:
        if self._shared is pipelined:
            self._shared = None

    async def close(self) -> None:
        """Close the idle connections."""
        self._belong()
        await self._close_idle(nowait=False)

    async def _close_idle(self, *, nowait: bool) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            # It has been told to close; a loop that stands still may see the end of that later than the client waits for it.
            with suppress(redis.TimeoutError):
                await connection.disconnect(nowait=nowait)

    async def read(self, connection: Connection, count: int, replies: list[Any], patience: asyncio.Timeout) -> None:
        """Put the next replies of a connection into `replies`, errors that the server sent among them. A failure of the
        connection is raised, also TimeoutError for a reply that does not come in time; what came before it is in the list."""
        while len(replies) < count:
            try:
                replies.append(await connection.read_response(disconnect_on_error=False))
            except (redis.RedisError, OSError) as error:
                if not is_reply(error):
                    raise
                replies.append(error)
            # The next reply has its own time.
            patience.reschedule(asyncio.get_running_loop().time() + self._timeout_s)

    async def _greet(self, connection: Connection) -> None:
        await connection.on_connect()
        missing = self._handshake.conclude(await self._ask(connection, self._handshake.commands))
        if missing:
            raise_errors(await self._ask(connection, missing))

    async def _ask(self, connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        """Send commands on a new connection and read the replies."""
        await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
        replies: list[Any] = []
        async with self.patience() as patience:
            await self.read(connection, len(commands), replies, patience)
        return replies

    def _belong(self) -> None:
        owner = asyncio.get_running_loop()
        if self._owner is owner:
            return
        # A forked child runs a loop of its own, and the copy of its parent's loop seems to run.
        if self._owner is not None and self._owner.is_running() and self._pid == os.getpid():
            bound = "one queue for each event loop: this one is used by another loop that is still running"
            raise Malformed("event loop", owner, bound)
        self._owner, self._pid, self._idle, self._turns = owner, os.getpid(), [], asyncio.Semaphore(self._most)
        self._shared, self._opening = None, asyncio.Lock()


async def _has_news(connection: Connection) -> bool:
    """True when an idle connection has been closed or holds bytes that nobody asked for."""
    try:
        # redis-py before 8 calls it by its longer name.
        look = getattr(connection, "can_read", None) or connection.can_read_destructive
        return bool(await look())
    except (redis.RedisError, OSError):
        return True
