"""A connection that reads what a server publishes on some pub/sub channels, in a thread or greenlet of its own.

It connects again for as long as it is wanted. What is published while it is away is missed, so its owner hears of every beginning
and end.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, cast

import redis

from engine.errors import UnsafeServer
from engine.ops.workers import ClientConnection
from engine.wire.drivers.client_errors import FAILURES
from engine.wire.drivers.dialer import Connection, Dialer
from engine.wire.drivers.routes import Node

PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 0.5


class Subscription:
    """One thread and its connection.

    `heard` gets each message, and `changed` is called when `live` has changed; both in the thread, so they must be short and not
    raise. `failed` gets the error of each attempt. Whenever nothing came for `look_s` seconds it asks `wanted` whether to go on,
    and `checked` whether a PING shall find out if the connection was silently cut. After a failure it pauses for up to
    `pause_most_s` seconds. `identify` says how the server lists a new connection, before anything is subscribed to.
    """

    def __init__(
        self,
        dialer: Dialer,
        channels: tuple[str, ...],
        *,
        name: str,
        heard: Callable[[bytes], None],
        changed: Callable[[], None],
        wanted: Callable[[], bool],
        checked: Callable[[], bool],
        failed: Callable[[Exception], None],
        look_s: float,
        pause_most_s: float = PAUSE_MOST_S,
        identify: Callable[[Connection], ClientConnection | None] = lambda _: None,
    ) -> None:
        self._dialer = dialer
        self._answer_s = dialer.endpoint.options.timeout_ms / 1000
        self._channels = channels
        self._name = name
        self._heard = heard
        self._changed = changed
        self._wanted = wanted
        self._checked = checked
        self._told_failure = failed
        self._look_s = look_s
        self._pause_most_s = pause_most_s
        self._identify = identify
        self._ended = threading.Event()
        self._connection: Connection = None
        self._node: Node | None = None
        #: Whether the server has confirmed all channels: no later message is missed.
        self.live = False
        #: The present connection as the server lists it, where that is known.
        self.identity: ClientConnection | None = None

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """End it now; called from another thread."""
        self._ended.set()
        self.live = False
        self._break()

    def leave(self) -> None:
        """Close the connection if its server is no longer named; the thread connects to the one that is."""
        resolver, node = self._dialer.resolver, self._node
        if resolver is not None and node is not None and not resolver.serves(node):
            self._break()

    def _break(self) -> None:
        # Not disconnected: the thread that reads it does that, and redis-py's connections are not for two.
        socket = getattr(self._connection, "_sock", None)
        if socket is not None:
            with contextlib.suppress(OSError):
                socket.shutdown(2)

    @property
    def _goes_on(self) -> bool:
        return not self._ended.is_set() and self._wanted()

    def _run(self) -> None:
        pause_s = PAUSE_FIRST_S
        while self._goes_on:
            try:
                self._subscribe()
                pause_s = PAUSE_FIRST_S
                self._listen()
            except FAILURES as error:
                self._silence()
                if self._dialer.resolver is not None and not isinstance(error, UnsafeServer):
                    self._dialer.resolver.hears(error)
                if not self._ended.is_set():
                    self._told_failure(error)
                self._ended.wait(pause_s)
                pause_s = min(self._pause_most_s, pause_s * 2)
        self._silence()

    def _subscribe(self) -> None:
        if self._dialer.resolver is not None:
            self._dialer.resolver.join(self)
        self._node = self._dialer.node(self._dialer.endpoint.slot)
        connection = self._connection = self._dialer.make(self._node)
        connection.connect()
        self.leave()
        self.identity = self._identify(connection)
        connection.send_command("SUBSCRIBE", *self._channels, check_health=False)
        confirmed = 0
        while confirmed < len(self._channels):
            confirmed += self._read()[0] == b"subscribe"
        self.live = not self._ended.is_set()
        self._changed()

    def _listen(self) -> None:
        """Listen until it has to end. Raises the error with which the connection ended."""
        connection = self._connection
        while self._goes_on:
            if not connection.can_read(self._look_s):
                if not self._checked():
                    continue
                connection.send_command("PING", check_health=False)
                if not connection.can_read(self._answer_s):
                    raise redis.TimeoutError("no answer to a PING")
            said = self._read()
            if said[0] == b"message":
                self._heard(said[2])

    def _read(self) -> list[Any]:
        """Read the next message of the server."""
        said = self._connection.read_response(disconnect_on_error=False)
        return cast("list[Any]", said) if isinstance(said, list) and said else [said]

    def _silence(self) -> None:
        """Note that messages are missed from now on."""
        was_live, self.live = self.live, False
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*FAILURES):
                connection.disconnect()
        if was_live:
            self._changed()
