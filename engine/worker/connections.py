"""Connections of workers beside those of their calls: for control channels, and for waits. Several workers of
one process share them.

A worker that has nothing to do blocks on the wake lists of its queue (rule 22). Several of them block with
one command that names the lists of all, as long as these are on one server: sixteen idle shards then cost
what one does. On a cluster, whose commands name keys of one slot only, each blocks for itself, and one thread
looks after the replies of all.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError, OutcomeUnknown, ScriptFault, logger, spared
from engine.logs import Source, about
from engine.ops.base import BLOCK_MS, Call
from engine.ops.claims import Wait
from engine.ops.workers import ControlMessage, read_control
from engine.redis.dialer import Subscription, dialer_of, identify
from engine.redis.driver import Flight, SyncDriver, break_off
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import Sent, is_reply, message_of
from engine.worker.machine.events import ControlLost, Subscribed

log = logger("ironclaim.worker")

# -- The control connection: it always reads, so a worker at capacity is told of cancels, pauses and new
# classes at once (rules 22 and 26).
#
# An idle worker sends nothing on it. What is lost on the way is learned from the next renewal or sweep, as by
# a worker without it.

#: A server that refuses it, or is away, is asked again after at most so long.
PAUSE_MOST_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Control:
    """The control channels of one worker. `say` takes the messages, in another thread. While the worker is
    `busy`, a connection on which nothing came for `look_s` is checked with a PING. With `presence` the worker
    is told how the server lists the connection."""

    controls: Controls
    channels: tuple[str, ...]
    say: Callable[[ControlMessage | Subscribed | ControlLost], None]
    busy: Callable[[], bool]
    look_s: float
    source: Source
    presence: bool

    def start(self) -> None:
        """Begin to read. Does not wait."""
        self.controls.change(self, there=True)

    def close(self) -> None:
        """End it."""
        self.controls.change(self, there=False)


class Controls:
    """One subscription to the control channels of the workers of one server in one process: a new one
    whenever a worker comes, once no other has come for `gather_s`."""

    def __init__(self, endpoint: Endpoint, *, gather_s: float = 0.0) -> None:
        self._endpoint = endpoint
        self._gather_s = gather_s
        self._lock = threading.Lock()
        self._members: tuple[Control, ...] = ()
        self._subscription: Subscription | None = None
        self._timer: threading.Timer | None = None
        self._refusal = ""

    def change(self, member: Control, *, there: bool) -> None:
        """A worker comes, or leaves."""
        with self._lock:
            self._members = tuple(other for other in self._members if other is not member)
            self._members += (member,) if there else ()
            # One that leaves lets those go on gathering that have come before.
            if self._timer is not None and (there or not self._members):
                self._timer.cancel()
                self._timer = None
            if not self._members:
                self._replace(None)
            elif there and self._gather_s:
                self._timer = threading.Timer(self._gather_s, self._subscribe)
                self._timer.daemon = True
                self._timer.start()
        if there and not self._gather_s:
            self._subscribe()

    def _replace(self, made: Subscription | None) -> bool:
        """Whether there was another one."""
        before, self._subscription = self._subscription, made
        if before is not None:
            before.stop()
        return before is not None

    def _subscribe(self) -> None:
        with self._lock:
            members = self._members
            if not members:
                return
            by_channel = {channel.encode(): member for member in members for channel in member.channels}

            def on_message(message: bytes, channel: bytes) -> None:
                parsed, member = read_control(message), by_channel.get(channel)
                if parsed is not None and member is not None:
                    member.say(parsed)

            def changed() -> None:
                with self._lock:
                    if self._subscription is not made:
                        return
                    self._refusal = "" if made.live else self._refusal
                    # Not later: a worker would go on naming a connection after one that has replaced it.
                    for member in members:
                        listed = made.identity if member.presence else None
                        member.say(Subscribed(listed) if made.live else ControlLost())

            made = Subscription(
                dialer_of(self._endpoint),
                tuple(channel.decode() for channel in by_channel),
                name="control",
                on_message=on_message,
                changed=changed,
                wanted=lambda: True,
                checked=lambda: any(member.busy() for member in members),
                failed=lambda error: self._failed(error, members[0].source),
                look_s=min(member.look_s for member in members),
                pause_most_s=PAUSE_MOST_S,
                identify=identify if any(member.presence for member in members) else lambda _: None,
            )
            if self._replace(made):
                for member in members:
                    # The one before is closed: nobody may go on naming it should the new one not come.
                    member.say(ControlLost())
            made.start()

    def _failed(self, error: Exception, source: Source) -> None:
        """Log why the server refuses it, once; that it is away is logged by the calls."""
        refusal = message_of(error) if is_reply(error) else ""
        if refusal and refusal != self._refusal:
            self._refusal = refusal
            text = (
                "control connection refused (%s): cancels and pauses are heard with the next renewal or sweep"
            )
            log.warning(text, refusal, extra=about(None, source))


# -- Waits.

#: A block begins so much later when not all workers wait: one that was woken for a short job waits again
#: soon.
_GATHER_S = 0.005
#: The list that ends a block early vanishes after so long, should nobody be left to take its entry.
_POKE_MS = 60_000


_UNTOLD = ("the end of a wait was not told to its worker",)
#: What a wait ended with: its answer, an error, or a reply that can be read now.
Ends = Callable[[Sent | EngineError | Flight], None]


class SharedWait:
    """The waits of one worker. What it does not wait for together with others goes through its own driver,
    `alone`."""

    def __init__(self, waits: _Waits | _Replies, alone: SyncDriver) -> None:
        self._waits = waits
        self._alone = alone
        self._lock = threading.Lock()
        self._interrupted = False
        self._call: Call[Any] | None = None
        self._begun_ns = 0
        self._ends: Ends | None = None

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists that it waits for."""
        assert self._call is not None
        return tuple(str(word) for word in self._call.words()[1:-1])

    def begin(self, call: Call[Any], ends: Ends, *, again: bool = False) -> Sent | None:
        """Begin a wait, whose end another thread tells by `ends`; or wait here and return the answer. Raises
        as SyncDriver.send."""
        if self._interrupted:
            raise OutcomeUnknown("interrupted while it waited for its reply")
        if isinstance(self._waits, _Replies):
            flight = self._alone.depart(call, again=again)
            if flight.connection is None:
                # The first one, or after a failure: to connect may last.
                return self._alone.arrive(flight)
            self._waits.watch(flight, ends)
            return None
        if call.arguments[:1] != ("BLPOP",) or call.block_ms < BLOCK_MS:
            return self._alone.send(call, again=again)
        self._call, self._ends, self._begun_ns = call, ends, time.monotonic_ns()
        self._waits.begin(self)
        if self._interrupted:
            self.tell(OutcomeUnknown("interrupted while it waited for its reply"))
        return None

    def arrive(self, flight: Flight) -> Sent:
        """Read the reply of a wait. Raises as SyncDriver.arrive."""
        return self._alone.arrive(flight)

    def interrupt(self) -> None:
        """As SyncDriver.interrupt."""
        self._interrupted = True
        self._waits.leave(self)
        self.tell(OutcomeUnknown("interrupted while it waited for its reply"))
        self._alone.interrupt()

    def tell(self, answer: Any) -> None:
        """Answer the wait: the raw reply, or an error. Only the first answer counts."""
        with self._lock:
            call, ends, self._ends = self._call, self._ends, None
        if ends is None or call is None:
            return
        if isinstance(answer, EngineError):
            ends(answer)
            return
        try:
            sent = Sent(call.parse(answer), self._begun_ns, time.monotonic_ns(), definite=True)
        except EngineError as error:
            ends(error)
        except Exception as error:
            # A defect of ours must not leave a worker that waits for ever.
            ends(ScriptFault(f"waiting together: {error!r}"))
        else:
            ends(sent)

    def close(self) -> None:
        """As SyncDriver.close."""
        self._alone.close()


class _Waits:
    """The waits of several workers as one block, in a thread of its own as long as there is a worker."""

    def __init__(self, endpoint: Endpoint, poke: str) -> None:
        self._endpoint = endpoint
        #: What the thread blocks with; None while there is no worker. An interrupted one is used up.
        self._driver: SyncDriver | None = None
        self._poker = SyncDriver(endpoint, ())
        self._poke = poke
        self._changed = threading.Condition()
        self._members: set[SharedWait] = set()
        self._waiting: dict[SharedWait, tuple[str, ...]] = {}
        self._blocking = False

    def join(self, member: SharedWait) -> None:
        with self._changed:
            if self._driver is None:
                driver = SyncDriver(self._endpoint, (), block_ms_max=BLOCK_MS)
                threading.Thread(target=self._serve, args=(driver,), name="waits", daemon=True).start()
                self._driver, self._blocking = driver, False
            self._members.add(member)

    def leave(self, member: SharedWait) -> None:
        with self._changed:
            self._members.discard(member)
            self._waiting.pop(member, None)
            driver = self._driver
            if not self._members:
                self._driver = None
            self._changed.notify_all()
        if driver is not None and self._driver is not driver:
            driver.interrupt()

    def begin(self, member: SharedWait) -> None:
        with self._changed:
            if member not in self._members:
                # It has left meanwhile: its lists would take wake-ups that are for workers elsewhere.
                return
            self._waiting[member] = member.lists
            self._changed.notify_all()
            blocking, self._blocking = self._blocking, False
        if blocking:
            self._end_block()

    def _end_block(self) -> None:
        """Let the block end, so that the next one names the lists of all that wait."""
        with contextlib.suppress(EngineError):
            self._poker.send_many([_plain("RPUSH", self._poke, "1"), _plain("PEXPIRE", self._poke, _POKE_MS)])

    def _serve(self, driver: SyncDriver) -> None:
        def closed() -> bool:
            return self._driver is not driver

        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or closed())
                self._changed.wait_for(
                    lambda: closed() or len(self._waiting) >= len(self._members), _GATHER_S
                )
                if closed():
                    break
                by_list = {name: member for member, lists in self._waiting.items() for name in lists}
                self._blocking = True
            try:
                answer = self._block(driver, list(by_list))
            except EngineError as error:
                answer = error
            except Exception as error:
                # A defect of ours must not leave workers that wait for ever.
                answer = ScriptFault(f"waiting together: {error!r}")
            with self._changed:
                if closed():
                    break
                self._blocking = False
                if answer is None or (isinstance(answer, list) and _text(answer[0]) == self._poke):
                    continue
                if isinstance(answer, list):
                    member = by_list[_text(answer[0])]
                    told = [member] if self._waiting.pop(member, None) is not None else []
                else:
                    told, self._waiting = list(self._waiting), {}
            for member in told:
                spared(member.tell, answer, otherwise=None, log=log, said=_UNTOLD)
        driver.close()
        with self._changed:
            # The next thread, which serves those that joined meanwhile, pokes with the same one.
            if self._driver is None:
                self._poker.close()

    def _block(self, driver: SyncDriver, lists: list[str]) -> Any:
        call = _plain("BLPOP", self._poke, *lists, BLOCK_MS / 1000)
        return driver.run(Call(None, call.keys, call.arguments, _raw, call.operation, BLOCK_MS))


def _plain(command: str, key: str, *words: object) -> Call[Any]:
    return Call(None, (key,), (command, key, *words), _raw, Wait(0, (), None))


def _raw(reply: Any) -> Any:
    return reply


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else word


class _Replies:
    """The waits of several workers whose lists lie on several nodes. Each has sent its own on a connection of
    its own, and one thread sees which of the replies have come."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._answer_s = endpoint.options.timeout_ms / 1000
        self._lock = threading.Lock()
        self._members: set[SharedWait] = set()
        self._coming: dict[socket.socket, tuple[Flight, Ends, float]] = {}
        self._thread: threading.Thread | None = None
        # Made here, where a process without a file descriptor left learns that. The thread alone uses it.
        self._selector = selectors.DefaultSelector()
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._rung, selectors.EVENT_READ)

    def join(self, member: SharedWait) -> None:
        with self._lock:
            # The thread first, because it may not begin; it has to wait for the lock.
            self._begin_to_serve()
            self._members.add(member)

    def leave(self, member: SharedWait) -> None:
        with self._lock:
            self._members.discard(member)
        self._ring()

    def watch(self, flight: Flight, ends: Ends) -> None:
        """Call `ends` with this flight when its reply has come, or should have come long ago."""
        sock = flight.connection._sock
        until_s = time.monotonic() + flight.in_flight_call.call.block_ms / 1000 + self._answer_s
        if sock is None:
            ends(flight)
            return
        with self._lock:
            # The thread may have ended: with the last worker, which waits once more while it leaves.
            self._begin_to_serve()
            self._coming[sock] = (flight, ends, until_s)
        self._ring()

    def _begin_to_serve(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._serve, name="waits", daemon=True)
            thread.start()
            self._thread = thread

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._bell.send(b".")

    def _serve(self) -> None:
        while True:
            with self._lock:
                # Whoever waits when the last worker leaves gets its answer: its connections are broken.
                if not self._members and not self._coming:
                    self._thread = None
                    return
                coming = dict(self._coming)
            try:
                ready = self._ready(coming)
            except Exception:
                # Whatever it is: each reads its reply itself, and nobody waits for ever.
                log.exception("waits of several workers")
                ready = list(coming)
            for sock in ready:
                with contextlib.suppress(KeyError, ValueError, OSError):
                    self._selector.unregister(sock)
                with self._lock:
                    flight, ends, until_s = self._coming.pop(sock)
                if time.monotonic() >= until_s:
                    break_off(flight.connection)
                spared(ends, flight, otherwise=None, log=log, said=_UNTOLD)

    def _ready(self, coming: dict[socket.socket, tuple[Flight, Ends, float]]) -> list[socket.socket]:
        """Wait; the sockets to read from, those of waits that last too long among them."""
        unwatched = coming.keys() - {key.fileobj for key in self._selector.get_map().values()}
        closed: list[socket.socket] = []
        for sock in unwatched:
            try:
                self._selector.register(sock, selectors.EVENT_READ)
            except (KeyError, ValueError, OSError):
                closed.append(sock)
        if closed:
            return closed
        most_s = min((until_s for _, _, until_s in coming.values()), default=None)
        found = self._selector.select(None if most_s is None else max(0.0, most_s - time.monotonic()))
        ready = {key.fileobj for key, _ in found}
        if self._rung in ready:
            self._rung.recv(4096)
        now_s = time.monotonic()
        return [sock for sock, (_, _, until_s) in coming.items() if sock in ready or now_s >= until_s]


class SharedConnections:
    """The connections of the workers of one server in one process. `poke`: a key of its own, which ends a
    block."""

    def __init__(self, endpoint: Endpoint, prefix: str) -> None:
        self._waits = (
            _Replies(endpoint)
            if endpoint.is_cluster
            else _Waits(endpoint, f"{prefix}poke:{secrets.token_hex(8)}")
        )
        #: Their control channels.
        self.controls = Controls(endpoint, gather_s=_GATHER_S * 10)

    def waiting(self, alone: SyncDriver) -> SharedWait:
        """What waits for one worker; `alone` is its own driver."""
        member = SharedWait(self._waits, alone)
        self._waits.join(member)
        return member
