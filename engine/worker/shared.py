"""Connections that several workers of one process share: for their waits, and for their control channels.

A worker that has nothing to do blocks on the wake lists of its queue (rule 22). Several of them block with
one command that names the lists of all, as long as these are on one server. Sixteen idle shards then cost
what one does. On a cluster, whose commands name keys of one slot only, each blocks for itself.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from engine.errors import EngineError, OutcomeUnknown, ScriptFault
from engine.logs import Source
from engine.ops.sweeps import Wait
from engine.ops.workers import ControlMessage, read_control
from engine.redis.call import BLOCK_MS, Call
from engine.redis.dialer import Subscription, dialer_of, identify
from engine.redis.driver import SyncDriver
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import Sent
from engine.worker.control import PAUSE_MOST_S
from engine.worker.machine.events import ControlLost, Subscribed

#: A block begins so much later when not all workers wait: one that was woken for a short job waits again
#: soon.
_GATHER_S = 0.005
#: The list that ends a block early vanishes after so long, should nobody be left to take its entry.
_POKE_MS = 60_000


class SharedWait:
    """The waits of one worker. What it does not wait for together with others goes through its own driver,
    `alone`."""

    def __init__(self, waits: _Waits, alone: SyncDriver) -> None:
        self._waits = waits
        self._alone = alone
        self._interrupted = False
        self.call: Call[Any] | None = None
        self.answer: Any = None
        self.told = threading.Event()

    def send(self, call: Call[Any], intended_ns: int | None = None, *, again: bool = False) -> Sent:
        """As SyncDriver.send, for a wait."""
        if self._waits.apart or call.arguments[:1] != ("BLPOP",) or call.block_ms < BLOCK_MS:
            return self._alone.send(call, intended_ns, again=again)
        begun_ns = time.monotonic_ns()
        self.told.clear()
        self.call = call
        if self._interrupted:
            raise OutcomeUnknown("interrupted while it waited for its reply")
        self._waits.begin(self)
        self.told.wait()
        answer, self.call = self.answer, None
        if isinstance(answer, EngineError):
            raise answer
        return Sent(call.parse(answer), begun_ns, time.monotonic_ns(), definite=True)

    def interrupt(self) -> None:
        """As SyncDriver.interrupt."""
        self._interrupted = True
        self._waits.leave(self)
        self.tell(OutcomeUnknown("interrupted while it waited for its reply"))
        self._alone.interrupt()

    def tell(self, answer: Any) -> None:
        """Answer the wait: the raw reply, or an error."""
        self.answer = answer
        self.told.set()

    def close(self) -> None:
        """As SyncDriver.close."""
        self._alone.close()


class _Waits:
    """The waits of several workers as one block, in a thread of its own."""

    def __init__(self, endpoint: Endpoint, poke: str) -> None:
        self._driver = SyncDriver(endpoint, (), block_ms_max=BLOCK_MS)
        self._poker = SyncDriver(endpoint, ())
        self._poke = poke
        self._changed = threading.Condition()
        self._members: set[SharedWait] = set()
        self._waiting: dict[SharedWait, tuple[str, ...]] = {}
        self._blocking = False
        self._closed = False
        #: Whether each waits for itself, because the lists are not on one node.
        self.apart = endpoint.is_cluster
        self._thread: threading.Thread | None = None

    def join(self, member: SharedWait) -> None:
        with self._changed:
            self._members.add(member)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="waits", daemon=True)
                self._thread.start()

    def leave(self, member: SharedWait) -> None:
        with self._changed:
            self._members.discard(member)
            self._waiting.pop(member, None)
            self._closed = not self._members
            self._changed.notify_all()
        if self._closed:
            self._driver.interrupt()

    def begin(self, member: SharedWait) -> None:
        call = member.call
        assert call is not None
        lists = tuple(str(word) for word in call.words()[1:-1])
        with self._changed:
            self._waiting[member] = lists
            self._changed.notify_all()
            blocking, self._blocking = self._blocking, False
        if blocking:
            self._end_block()

    def _end_block(self) -> None:
        """Let the block end, so that the next one names the lists of all that wait."""
        with contextlib.suppress(EngineError):
            self._poker.send_many([_plain("RPUSH", self._poke, "1"), _plain("PEXPIRE", self._poke, _POKE_MS)])

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._changed.wait_for(
                    lambda: self._closed or len(self._waiting) >= len(self._members), _GATHER_S
                )
                if self._closed:
                    break
                by_list = {name: member for member, lists in self._waiting.items() for name in lists}
                self._blocking = True
            try:
                answer = self._block(list(by_list))
            except EngineError as error:
                answer = error
            except Exception as error:
                # A defect of ours must not leave workers that wait for ever.
                answer = ScriptFault(f"waiting together: {error!r}")
            with self._changed:
                self._blocking = False
                if answer is None or (isinstance(answer, list) and _text(answer[0]) == self._poke):
                    continue
                if isinstance(answer, list):
                    member = by_list[_text(answer[0])]
                    told = [member] if self._waiting.pop(member, None) is not None else []
                else:
                    told, self._waiting = list(self._waiting), {}
            for member in told:
                member.tell(answer)
        self._driver.close()
        self._poker.close()

    def _block(self, lists: list[str]) -> Any:
        call = _plain("BLPOP", self._poke, *lists, BLOCK_MS / 1000)
        return self._driver.run(Call(None, call.keys, call.arguments, _raw, call.operation, BLOCK_MS))


def _plain(command: str, key: str, *words: object) -> Call[Any]:
    return Call(None, (key,), (command, key, *words), _raw, Wait(0, (), None))


def _raw(reply: Any) -> Any:
    return reply


def _text(word: Any) -> str:
    return word.decode() if isinstance(word, bytes) else word


class SharedConnections:
    """The connections of the workers of one server in one process. `poke`: a key of its own, which ends a
    block."""

    def __init__(self, endpoint: Endpoint, prefix: str) -> None:
        self._waits = _Waits(endpoint, f"{prefix}poke:{secrets.token_hex(8)}")
        self._channels = _Channels(endpoint)

    def waiting(self, alone: SyncDriver) -> SharedWait:
        """What waits for one worker; `alone` is its own driver."""
        member = SharedWait(self._waits, alone)
        self._waits.join(member)
        return member

    def control(
        self,
        endpoint: Endpoint,
        channels: tuple[str, ...],
        *,
        say: Callable[[ControlMessage | Subscribed | ControlLost], None],
        busy: Callable[[], bool],
        look_s: float,
        source: Source,
        presence: bool,
    ) -> SharedControl:
        """The control channels of one worker; arguments as of Control."""
        return SharedControl(self._channels, channels, say, busy, look_s, presence=presence)


class SharedControl:
    """The control channels of one worker, read by a connection that it shares."""

    def __init__(
        self,
        shared: _Channels,
        channels: tuple[str, ...],
        say: Callable[[ControlMessage | Subscribed | ControlLost], None],
        busy: Callable[[], bool],
        look_s: float,
        *,
        presence: bool,
    ) -> None:
        self._shared = shared
        self.channels, self.say, self.busy, self.look_s, self.presence = channels, say, busy, look_s, presence

    def start(self) -> None:
        """Begin to read. Does not wait."""
        self._shared.change(self, there=True)

    def close(self) -> None:
        """End it."""
        self._shared.change(self, there=False)


class _Named(Subscription):
    """A subscription that knows the channel of the message that it has just read."""

    channel = b""

    def _read(self) -> list[Any]:
        said = super()._read()
        self.channel = said[1] if len(said) > 2 else b""
        return said


class _Channels:
    """One subscription to the channels of several workers: a new one whenever their number changes, once it
    has stopped changing for a moment."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._members: tuple[SharedControl, ...] = ()
        self._subscription: _Named | None = None
        self._timer: threading.Timer | None = None

    def change(self, member: SharedControl, *, there: bool) -> None:
        with self._lock:
            self._members = tuple(other for other in self._members if other is not member) + (
                (member,) if there else ()
            )
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if not self._members:
                self._replace(None)
            elif there:
                self._timer = threading.Timer(_GATHER_S * 10, self._subscribe)
                self._timer.daemon = True
                self._timer.start()

    def _replace(self, made: _Named | None) -> None:
        before, self._subscription = self._subscription, made
        if before is not None:
            before.stop()

    def _subscribe(self) -> None:
        with self._lock:
            members = self._members
            if not members:
                return
            by_channel = {channel.encode(): member for member in members for channel in member.channels}

            def on_message(message: bytes) -> None:
                parsed, member = read_control(message), by_channel.get(made.channel)
                if parsed is not None and member is not None:
                    member.say(parsed)

            def changed() -> None:
                with self._lock:
                    if self._subscription is not made:
                        return
                for member in members:
                    member.say(
                        Subscribed(made.identity if member.presence else None) if made.live else ControlLost()
                    )

            made = _Named(
                dialer_of(self._endpoint),
                tuple(channel.decode() for channel in by_channel),
                name="control",
                on_message=on_message,
                changed=changed,
                wanted=lambda: True,
                checked=lambda: any(member.busy() for member in members),
                failed=lambda error: None,
                look_s=min(member.look_s for member in members),
                pause_most_s=PAUSE_MOST_S,
                identify=identify,
            )
            self._replace(made)
            for member in members:
                # The one before is closed: nobody may go on naming it should the new one not come.
                member.say(ControlLost())
            made.start()
