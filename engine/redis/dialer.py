"""Opens connections for threads and greenlets: to the server of an endpoint, or to the one that its resolver
names, which is checked by a handshake before anything else is sent to it.

A `Subscription` is such a connection that reads what is published, and is checked with a PING when nothing
came for a while."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis

from engine.errors import Malformed, UnsafeServer, logger
from engine.ops.base import ServerClock
from engine.ops.workers import ClientConnection, read_client
from engine.redis.endpoint import Address, Endpoint, Node, SentinelRoute
from engine.redis.exchange import FAILURES, is_reply, message_of, refused_credentials
from engine.redis.handshake import Handshake, parse_info
from engine.redis.resolver import SWITCHED, Ask, ClusterNodes, Resolver, Sentinels, shared

#: redis-py's own types leave these methods partly unknown.
Connection = Any


class Dialer:
    """Makes connections, not yet connected: `connect` of redis-py does the rest, handshake included.
    `patience_ms`: how much longer than usual a reply may take. Without a handshake a connection to a fixed
    address is only authenticated."""

    def __init__(
        self, endpoint: Endpoint, resolver: Resolver | None, handshake: Handshake | None, patience_ms: int
    ) -> None:
        self.resolver = resolver
        self.endpoint = endpoint
        if handshake is None and resolver is not None:
            handshake = Handshake((), ServerClock(), None, route=endpoint.route)
        self._handshake = handshake
        self._patience_ms = patience_ms

    def node(self, slot: int) -> Node | None:
        """Where a new connection for a slot leads; None: to the fixed address. Raises redis-py's
        ConnectionError."""
        return None if self.resolver is None else self.resolver.node(slot)

    def make(self, node: Node | None, *, learns: bool = True) -> Connection:
        """A connection to a node, which connects with its own `connect`. Learns the server's time if asked
        to."""
        settings = self.endpoint.settings(self._patience_ms, node)
        handshake = self._handshake
        if handshake is None:
            return self.endpoint.connection_class(**settings)

        def greet(connection: Connection) -> None:
            connection.on_connect()
            missing = handshake.conclude(ask(connection, handshake.commands), node, learns=learns)
            if missing:
                handshake.finish(missing, ask(connection, missing))

        return self.endpoint.connection_class(**settings, redis_connect_func=greet)


def ask(connection: Connection, commands: Sequence[tuple[object, ...]]) -> list[Any]:
    """Send commands on a new connection and read the replies."""
    # In one piece: after half of it the server could end the connection, and its replies would stay unread.
    connection.send_packed_command([b"".join(connection.pack_commands(commands))], check_health=False)
    replies: list[Any] = []
    try:
        read_replies(connection, len(commands), replies)
    except FAILURES as error:
        # Who has not said a password may send no long command: the server says so, and hangs up.
        raise refused_credentials(replies) or error from None
    return replies


def read_replies(connection: Connection, count: int, replies: list[Any]) -> bool:
    """Put the next replies of a connection into `replies`, errors that the server sent among them. An answer
    that stays unread would be taken for the next call's. Returns whether there are such errors. A failure of
    the connection is raised; what came before it is in the list."""
    refused = False
    while len(replies) < count:
        try:
            replies.append(connection.read_response(disconnect_on_error=False))
        except FAILURES as error:
            if not is_reply(error):
                raise
            replies.append(error)
            refused = True
    return refused


def asker(reach: Callable[[Address], Endpoint]) -> Ask:
    """What asks servers and sentinels, each on a connection that is closed again."""

    def asked(address: Address, commands: Sequence[tuple[object, ...]]) -> list[Any]:
        endpoint = reach(address)
        # It connects when the commands are sent.
        connection: Connection = endpoint.connection_class(**endpoint.settings())
        try:
            return ask(connection, commands)
        finally:
            connection.disconnect()

    return asked


# -- How a server lists a connection of this process, so that others can see whether it is still there.

log = logger("ironclaim")

#: The kernel asks a silent connection for a sign of life after so many s, again each so many s, and gives it
#: up after so many times. A server that has lost it answers with a reset. Nothing else would tell who only
#: listens, and no call is made for it.
KEEP_ALIVE_S = {"TCP_KEEPIDLE": 3, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2}


def identify(connection: Connection) -> ClientConnection | None:
    """What the server says of this connection, which has nothing outstanding. None where the user may not
    ask."""
    client, server = ask(connection, (("CLIENT", "INFO"), ("INFO", "server")))
    for reply in (client, server):
        if isinstance(reply, Exception):
            _tell_off(message_of(reply))
            return None
    try:
        client_id, address = read_client(client.decode(errors="replace"))
    except (KeyError, ValueError) as error:
        _tell_off(f"CLIENT INFO cannot be read: {error!r}")
        return None
    own = own_addresses(connection._sock)
    keep_alive(connection._sock)
    direct = address in own
    if not direct:
        _tell_off(
            f"the server sees {address.rpartition(':')[0]}, not {own[0].rpartition(':')[0]}: a proxy is "
            "in between"
        )
    return ClientConnection(client_id, address, parse_info(server).get("run_id", ""), direct)


def keep_alive(sock: Any) -> None:
    """Let the kernel find out within five seconds that a silent connection is gone, where it can."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE_S.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def own_addresses(sock: Any) -> tuple[str, ...]:
    """The address of a connected socket as servers list it that see this very socket."""
    if sock.family == socket.AF_UNIX:
        path = f"{sock.getpeername()}:0"
        # Valkey 9 takes the path for an address of IPv6, because of its colon.
        return path, f"[{path}]:0"
    host, port = sock.getsockname()[:2]
    return (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",)


@functools.cache
def _tell_off(reason: str) -> None:
    """Log why presence is off, once in a process for each reason."""
    log.info("presence is off, that this worker is killed is noticed by its leases alone: %s", reason)


# -- A connection that reads what a server publishes on some pub/sub channels, in a thread or greenlet of
# its own.
#
# It connects again for as long as it is wanted. What is published while it is away is missed, so its owner
# is told of every beginning and end.

PAUSE_FIRST_S, PAUSE_MOST_S = 0.01, 0.5


class Subscription:
    """One thread and its connection.

    `on_message` gets each message and its channel, and `changed` is called when `live` has changed; both in
    the thread, so they must be short and not raise. `failed` gets the error of each attempt. Whenever nothing
    came for `look_s` seconds it asks `wanted` whether to go on, and `checked` whether a PING shall find out
    if the connection was silently cut. After a failure it pauses for up to `pause_most_s` seconds. `identify`
    says how the server lists a new connection, before anything is subscribed to.
    """

    def __init__(
        self,
        dialer: Dialer,
        channels: tuple[str, ...],
        *,
        name: str,
        on_message: Callable[[bytes, bytes], None],
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
        self._on_message = on_message
        self._changed = changed
        self._wanted = wanted
        self._checked = checked
        self._told_failure = failed
        self._look_s = look_s
        self._pause_most_s = pause_most_s
        self._identify = identify
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._connection: Connection = None
        self._node: Node | None = None
        #: Whether the server has confirmed all channels: no later message is missed.
        self.live = False
        #: The present connection as the server lists it, where that is known.
        self.identity: ClientConnection | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether its connection is closed for good."""
        return self._thread is not None and not self._thread.is_alive()

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
                    self._dialer.resolver.note_error(error)
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
                self._on_message(said[2], said[1])

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


# -- Which resolver belongs to an endpoint, and the dialer of its connections: where sentinels, clusters
# and connections meet.

#: A connection to a sentinel on which nothing came is checked so often.
LOOK_S = 5.0


def resolver_of(endpoint: Endpoint) -> Resolver | None:
    """The resolver that finds the server of this endpoint, which others may have as well; None for a fixed
    address."""
    route = endpoint.route
    if route is None:
        return None
    # Threads of its own ask, also for asyncio: no event loop has to wait for it, or to be there.
    plain = endpoint.of_kind(asynchronous=False)
    timeout_s = (endpoint.options.connect_timeout_ms + endpoint.options.timeout_ms) / 1000

    def make() -> Resolver:
        if not isinstance(route, SentinelRoute):
            return ClusterNodes(route, asker(plain.of_address), timeout_s)
        credentials = dict(route.credentials)

        def reach(address: Address) -> Endpoint:
            return plain.of_address(address, credentials)

        def listen(address: Address, on_message: Callable[[bytes], None], wanted: Callable[[], bool]) -> None:
            Subscription(
                *(dialer_of(reach(address)), (SWITCHED,)),
                name=f"ironclaim-sentinel-{address.port}",
                on_message=lambda message, _: on_message(message),
                changed=lambda: None,
                wanted=wanted,
                checked=lambda: True,
                failed=lambda _: None,
                look_s=LOOK_S,
            ).start()

        return Sentinels(route, asker(reach), timeout_s, listen)

    return shared(route, plain.sharing_key, make)


def dialer_of(endpoint: Endpoint, handshake: Handshake | None = None, patience_ms: int = 0) -> Dialer:
    """The dialer of an endpoint's connections."""
    return Dialer(endpoint, resolver_of(endpoint), handshake, patience_ms)


# -- Subscribes to one pub/sub channel of a server and calls its listeners, from all threads, greenlets or
# tasks of a process: one connection, read by a thread of its own.
#
# Listeners are called at each publication, and whenever the subscription begins or ends, because a
# publication in between may have been missed. A connection that was silently cut is found by a PING when
# nothing came for a while.

#: When nothing came for so long, a PING checks the connection.
PING_AFTER_S = 1.0
#: How long the subscription stays after the last listener has left, for the next one.
LINGER_S = 5.0
#: A thread that is connecting just then may end so much later.
END_S = 1.0

Listener = Callable[[], None]


class Notifier:
    """The listeners of one topic. It connects with the first listener, and disconnects some seconds after the
    last one has left; safe across a fork. A child makes its own connection."""

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
        """As of Notifier. False until this loop was told so: its listeners are called then, too."""
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
