"""Subscribes to one pub/sub channel of a server and calls its listeners, from all threads, greenlets or tasks
of a process: one connection, read by a thread of its own.

Listeners are called at each publication, and whenever the subscription begins or ends, because a publication
in between may have been missed. A connection that was silently cut is found by a PING when nothing came for a
while."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable

from engine.errors import Malformed
from engine.redis.dialer import Subscription, dialer_of
from engine.redis.endpoint import Endpoint

#: When nothing came for so long, a PING checks the connection.
PING_AFTER_S = 1.0
#: How long the subscription stays after the last listener has left, for the next one.
LINGER_S = 5.0
#: A thread that is connecting just then may end so much later.
END_S = 1.0

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

    def close(self) -> Subscription | None:
        """End the listening. Returns what is ending, without waiting for it."""
        with self._lock:
            subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.stop()
        return subscription

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
            on_message=lambda _, __: self.notify(),
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


class AsyncNotifier:
    """One topic, for the tasks of one event loop at a time: a thread listens, and each listener is called in
    that loop."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._notifier = Notifier(endpoint.of_kind(asynchronous=False), topic)
        self._listeners: dict[Listener, None] = {}
        self._owner: tuple[asyncio.AbstractEventLoop, int] | None = None
        #: What the thread calls, while it does.
        self._ring: Listener | None = None
        self._live = False

    @property
    def live(self) -> bool:
        """As of Notifier. False until this loop has heard of it: its listeners are called then, too."""
        return self._live if self._ring is not None else self._notifier.live

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
            self._silence()
            self._owner, self._listeners = owner, {}
        self._listeners[listener] = None
        if self._ring is None:
            self._ring = self._ring_of(owner[0])
            self._notifier.listen(self._ring)
            # A subscription that stayed from before tells nobody that it has begun.
            self._live = self._notifier.live

    def unlisten(self, listener: Listener) -> None:
        """Stop calling the listener."""
        self._listeners.pop(listener, None)
        if not self._listeners:
            self._silence()

    async def close(self) -> None:
        """End the listening."""
        if self._owner == (asyncio.get_running_loop(), os.getpid()):
            self._silence()
            ending, until_s = self._notifier.close(), time.monotonic() + END_S
            # Who has closed it may take it that the server has one connection less.
            while ending is not None and not ending.ended and time.monotonic() < until_s:
                await asyncio.sleep(0.001)

    def _silence(self) -> None:
        ring, self._ring = self._ring, None
        if ring is not None:
            self._notifier.unlisten(ring)

    def _ring_of(self, loop: asyncio.AbstractEventLoop) -> Listener:
        def ring() -> None:
            """In the thread: something was published, or `live` has changed."""
            try:
                loop.call_soon_threadsafe(self._tell, ring, self._notifier.live)
            except RuntimeError:
                # A loop that is closed has nobody who waits, so the thread need not stay.
                self._notifier.unlisten(ring)

        return ring

    def _tell(self, ring: Listener, live: bool) -> None:
        if ring is not self._ring:
            # Of an earlier listening: `live` was another one then.
            return
        self._live = live
        for listener in tuple(self._listeners):
            listener()
