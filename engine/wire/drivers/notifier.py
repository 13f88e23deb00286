"""Subscribes to one pub/sub channel of a server and calls its listeners, from all threads or greenlets of a process: one
connection, read by a thread of its own.

Listeners are called at each publication, and whenever the subscription begins or ends, because a publication in between may have
been missed. A connection that was silently cut is found by a PING when nothing came for a while.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, cast

import redis

from engine.wire.drivers.client_errors import FAILURES
from engine.wire.drivers.endpoint import Endpoint

#: When nothing came for so long, a PING checks the connection.
PING_AFTER_S = 1.0
#: How long the subscription stays after the last listener has left, for the next one.
LINGER_S = 5.0
PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 0.5

Listener = Callable[[], None]
Connection = Any


class Notifier:
    """The listeners of one topic. It connects with the first listener, and disconnects some seconds after the last one has left;
    safe across a fork: a child makes its own connection."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._begin()
        _NOTIFIERS.add(self)

    def _begin(self) -> None:
        """Begin without a connection: at first, and in a forked child, where another thread may have held the lock for ever."""
        self._lock = threading.Lock()
        self._listeners: dict[Listener, None] = {}
        self._left_s = 0.0
        self._subscription: _Subscription | None = None
        self._pid = os.getpid()

    @property
    def live(self) -> bool:
        """Whether the server has confirmed the subscription: no later publication is missed."""
        subscription = self._subscription
        return subscription is not None and subscription.live

    def listen(self, listener: Listener) -> None:
        """Call the listener at each publication from now on, in the reading thread; it must be short and not raise."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        with self._lock:
            self._listeners[listener] = None
            if self._subscription is None:
                self._subscription = _Subscription(self, self._endpoint, self._topic)
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

    def leaves(self, subscription: _Subscription) -> bool:
        """Whether this thread has to end: another one has replaced it, or nothing has listened for a while."""
        with self._lock:
            if self._subscription is subscription and not self._listeners and time.monotonic() - self._left_s > LINGER_S:
                self._subscription = None
            return self._subscription is not subscription


class _Subscription:
    """One thread and its connection."""

    def __init__(self, notifier: Notifier, endpoint: Endpoint, topic: str) -> None:
        self._notifier = notifier
        self._settings = endpoint.settings()
        self._class: Connection = endpoint.connection_class
        self._answer_s = endpoint.options.timeout_ms / 1000
        self._topic = topic
        self._ended = threading.Event()
        self._connection: Connection = None
        self.live = False

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._run, name=f"ironclaim-notifier-{self._topic}", daemon=True).start()

    def stop(self) -> None:
        """End it now; called from another thread."""
        self._ended.set()
        self.live = False
        # Not disconnected: the thread that reads it does that, and redis-py's connections are not for two.
        socket = getattr(self._connection, "_sock", None)
        if socket is not None:
            with contextlib.suppress(OSError):
                socket.shutdown(2)

    def _run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while not self._notifier.leaves(self):
            try:
                self._subscribe()
                pause_s = PAUSE_FIRST_S
                self._listen()
            except FAILURES:
                # Callers that wait poll meanwhile, and get the server's error there.
                self._silence()
                self._ended.wait(pause_s)
                pause_s = min(PAUSE_MOST_S, pause_s * 2)
        self._silence()

    def _subscribe(self) -> None:
        connection = self._connection = self._class(**self._settings)
        connection.connect()
        connection.send_command("SUBSCRIBE", self._topic, check_health=False)
        while self._read()[0] != b"subscribe":
            pass
        self.live = not self._ended.is_set()
        self._notifier.notify()

    def _listen(self) -> None:
        """Listen until it has to end. Raises the error with which the connection ended."""
        connection = self._connection
        while not self._notifier.leaves(self):
            if not connection.can_read(PING_AFTER_S):
                connection.send_command("PING", check_health=False)
                if not connection.can_read(self._answer_s):
                    raise redis.TimeoutError("no answer to a PING")
            if self._read()[0] == b"message":
                self._notifier.notify()

    def _read(self) -> list[Any]:
        """Read the next message of the server."""
        said = self._connection.read_response(disconnect_on_error=False)
        return cast("list[Any]", said) if isinstance(said, list) and said else [said]

    def _silence(self) -> None:
        """Note that publications are missed from now on."""
        was_live, self.live = self.live, False
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*FAILURES):
                connection.disconnect()
        if was_live:
            self._notifier.notify()


_NOTIFIERS: weakref.WeakSet[Notifier] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for notifier in list(_NOTIFIERS):
        notifier._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)
