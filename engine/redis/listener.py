"""Subscribes to one pub/sub channel of a server and calls its listeners, from all threads or greenlets of a
process: one connection, read by a thread of its own.

Listeners are called at each publication, and whenever the subscription begins or ends, because a publication
in between may have been missed. A connection that was silently cut is found by a PING when nothing came for a
while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, cast

from engine.errors import Malformed
from engine.redis.async_connections import AsyncDialer
from engine.redis.dialer import PAUSE_FIRST_S, PAUSE_MOST_S, Connection, Subscription, dialer_of
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import FAILURES
from engine.redis.routes import Node

#: When nothing came for so long, a PING checks the connection.
PING_AFTER_S = 1.0
#: How long the subscription stays after the last listener has left, for the next one.
LINGER_S = 5.0

Listener = Callable[[], None]


class Notifier:
    """The listeners of one topic. It connects with the first listener, and disconnects some seconds after the
    last one has left; safe across a fork: a child makes its own connection."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._begin()
        _NOTIFIERS.add(self)

    def _begin(self) -> None:
        """Begin without a connection: at first, and in a forked child, where another thread may have held the
        lock for ever."""
        self._lock = threading.Lock()
        self._listeners: dict[Listener, None] = {}
        self._left_s = 0.0
        self._subscription: Subscription | None = None
        self._pid = os.getpid()

    @property
    def live(self) -> bool:
        """Whether the server has confirmed the subscription: no later publication is missed."""
        subscription = self._subscription
        return subscription is not None and subscription.live

    def listen(self, listener: Listener) -> None:
        """Call the listener at each publication from now on, in the reading thread; it must be short and not
        raise."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        with self._lock:
            self._listeners[listener] = None
            if self._subscription is None:
                self._subscription = self._subscribe()
                self._subscription.start()

    def unlisten(self, listener: Listener) -> None:
        """Stop calling the listener."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._left_s = time.monotonic()

    def notify(self) -> None:
        """Call all listeners."""
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def close(self) -> None:
        """End the listening."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.stop()

    def _subscribe(self) -> Subscription:
        """A subscription that ends when another one has replaced it, or nothing has listened for a while."""

        def wanted() -> bool:
            with self._lock:
                if (
                    self._subscription is made
                    and not self._listeners
                    and time.monotonic() - self._left_s > LINGER_S
                ):
                    self._subscription = None
                return self._subscription is made

        made = Subscription(
            dialer_of(self._endpoint),
            (self._topic,),
            name=f"ironclaim-notifier-{self._topic}",
            on_message=lambda _: self.notify(),
            changed=self.notify,
            wanted=wanted,
            checked=lambda: True,
            # Callers that wait poll meanwhile, and get the server's error there.
            failed=lambda _: None,
            look_s=PING_AFTER_S,
        )
        return made


_NOTIFIERS: weakref.WeakSet[Notifier] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for notifier in list(_NOTIFIERS):
        notifier._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)


# -- Subscribes to one pub/sub channel of a server under asyncio: as `notifier` does, in a task of the
# running loop.


class AsyncNotifier:
    """One topic, for the tasks of one event loop at a time. Connections of an earlier loop are dropped."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._dialer = AsyncDialer(endpoint)
        self._node: Node | None = None
        self._connection: Connection | None = None
        self._answer_s = endpoint.options.timeout_ms / 1000
        self._topic = topic
        self._listeners: dict[Listener, None] = {}
        self._left_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._owner: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._live = False

    @property
    def live(self) -> bool:
        """Whether the server has confirmed the subscription: no later publication is missed."""
        return self._live

    def listen(self, listener: Listener) -> None:
        """Call the listener at each publication; it must be short and not raise. Raises Malformed as
        `AsyncConnections` does."""
        owner = (asyncio.get_running_loop(), os.getpid())
        if self._owner != owner:
            if self._owner is not None and self._owner[0].is_running() and self._owner[1] == owner[1]:
                bound = (
                    "one channel for each event loop: this one is used by another loop that is still running"
                )
                raise Malformed("event loop", owner[0], bound)
            self._owner, self._listeners, self._task, self._live = owner, {}, None, False
        self._listeners[listener] = None
        if self._task is None or self._task.done():
            self._task = owner[0].create_task(self._run(), name=f"ironclaim-notifier-{self._topic}")

    def unlisten(self, listener: Listener) -> None:
        """Stop calling the listener."""
        self._listeners.pop(listener, None)
        self._left_s = time.monotonic()

    async def close(self) -> None:
        """End the listening."""
        task, self._task = self._task, None
        if task is not None and self._owner == (asyncio.get_running_loop(), os.getpid()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    @property
    def _leaves(self) -> bool:
        """Whether nothing has listened for a while, so that the connection can be closed."""
        return not self._listeners and time.monotonic() - self._left_s > LINGER_S

    async def _run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._leaves:
            try:
                connection = await self._open()
                await self._subscribe(connection)
                pause_s = PAUSE_FIRST_S
                await self._listen(connection)
            except FAILURES as error:
                # Callers that wait poll meanwhile, and get the server's error there.
                if self._dialer.resolver is not None:
                    self._dialer.resolver.note_error(error)
            finally:
                was_live, self._live = self._live, False
                await self._disconnect()
            if was_live:
                self._notify()
            if not self._leaves:
                await asyncio.sleep(pause_s)
                pause_s = min(PAUSE_MOST_S, pause_s * 2)

    def leave(self) -> None:
        """Close the connection if its server is no longer named; from any thread."""
        resolver, node = self._dialer.resolver, self._node
        if (
            self._owner is not None
            and resolver is not None
            and node is not None
            and not resolver.serves(node)
        ):
            with contextlib.suppress(RuntimeError):
                self._owner[0].call_soon_threadsafe(lambda: asyncio.ensure_future(self._disconnect()))

    async def _disconnect(self) -> None:
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(*FAILURES):
                await connection.disconnect(nowait=True)

    async def _open(self) -> Connection:
        """A connection, not yet connected, to the server of the topic."""
        dialer = self._dialer
        if dialer.resolver is not None:
            dialer.resolver.join(self)
        node = self._node = await dialer.node(dialer.endpoint.slot)
        connection = self._connection = dialer.make(node)
        return connection

    async def _subscribe(self, connection: Connection) -> None:
        async with asyncio.timeout(self._answer_s):
            await connection.connect()
            self.leave()
            await connection.send_command("SUBSCRIBE", self._topic, check_health=False)
            while (await self._read(connection))[0] != b"subscribe":
                pass
        self._live = True
        self._notify()

    async def _listen(self, connection: Connection) -> None:
        """Listen while there are listeners. Raises the error with which the connection ended."""
        while not self._leaves:
            try:
                async with asyncio.timeout(PING_AFTER_S):
                    said = await self._read(connection)
            except TimeoutError:
                async with asyncio.timeout(self._answer_s):
                    await connection.send_command("PING", check_health=False)
                    said = await self._read(connection)
            if said[0] == b"message":
                self._notify()

    async def _read(self, connection: Connection) -> list[Any]:
        """Read the next message of the server."""
        said = await connection.read_response(disconnect_on_error=False)
        return cast("list[Any]", said) if isinstance(said, list) and said else [said]
