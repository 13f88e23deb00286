"""Listens on one pub/sub channel of a server, for all threads or greenlets of one user: one connection, read by a thread of
its own.

Who waits is rung at each publication, and whenever the listening begins or ends: what was published in between may have gone
unheard. A connection that was silently cut is found by a PING when nothing came for a while.
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

from engine.drivers.client_errors import FAILURES
from engine.drivers.endpoint import Endpoint

#: Nothing came for so long: ask whether anybody is there.
PING_AFTER_S = 1.0
#: How long to go on listening when nobody waits, for who waits again soon.
LINGER_S = 5.0
PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 0.5

Ring = Callable[[], None]
Connection = Any


class Bell:
    """One topic. It connects with the first one who listens, and ends some seconds after the last one; safe across a fork: a
    child makes its own."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._begin()
        _BELLS.add(self)

    def _begin(self) -> None:
        """Begin without a connection: at first, and in a forked child, where another thread may have held the lock for ever."""
        self._lock = threading.Lock()
        self._rings: dict[Ring, None] = {}
        self._left_s = 0.0
        self._listener: _Listener | None = None
        self._pid = os.getpid()

    @property
    def live(self) -> bool:
        """Whether the server has confirmed the subscription: no later publication is missed."""
        listener = self._listener
        return listener is not None and listener.live

    def listen(self, ring: Ring) -> None:
        """Call the listener at each publication from now on, in the reading thread; it must be short and not raise."""
        if self._pid != os.getpid():
            # A fork that Python did not make, so no hook was called.
            self._begin()
        with self._lock:
            self._rings[ring] = None
            if self._listener is None:
                self._listener = _Listener(self, self._endpoint, self._topic)
                self._listener.start()

    def unlisten(self, ring: Ring) -> None:
        """Stop calling the listener."""
        with self._lock:
            self._rings.pop(ring, None)
            self._left_s = time.monotonic()

    def ring(self) -> None:
        """Call all listeners."""
        with self._lock:
            rings = tuple(self._rings)
        for ring in rings:
            ring()

    def close(self) -> None:
        """End the listening."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def leaves(self, listener: _Listener) -> bool:
        """Whether this thread has to end: another one has replaced it, or nothing has listened for a while."""
        with self._lock:
            if self._listener is listener and not self._rings and time.monotonic() - self._left_s > LINGER_S:
                self._listener = None
            return self._listener is not listener


class _Listener:
    """One thread and its connection."""

    def __init__(self, bell: Bell, endpoint: Endpoint, topic: str) -> None:
        self._bell = bell
        self._settings = endpoint.settings()
        self._class: Connection = endpoint.connection_class
        self._answer_s = endpoint.options.timeout_ms / 1000
        self._topic = topic
        self._ended = threading.Event()
        self._connection: Connection = None
        self.live = False

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._run, name=f"ironclaim-bell-{self._topic}", daemon=True).start()

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
        while not self._bell.leaves(self):
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
        self._bell.ring()

    def _listen(self) -> None:
        """Listen until it has to end. Raises the error with which the connection ended."""
        connection = self._connection
        while not self._bell.leaves(self):
            if not connection.can_read(PING_AFTER_S):
                connection.send_command("PING", check_health=False)
                if not connection.can_read(self._answer_s):
                    raise redis.TimeoutError("no answer to a PING")
            if self._read()[0] == b"message":
                self._bell.ring()

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
            self._bell.ring()


_BELLS: weakref.WeakSet[Bell] = weakref.WeakSet()


def _in_a_forked_child() -> None:
    for bell in list(_BELLS):
        bell._begin()  # pyright: ignore[reportPrivateUsage]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_a_forked_child)
