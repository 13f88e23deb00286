"""The control connection of the workers of a process. It always reads, so a worker at capacity is told of
cancels, pauses and new classes at once (rules 22 and 26).

An idle worker sends nothing on it. What is lost on the way is learned from the next renewal or sweep, as by a
worker without it.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from engine.errors import logger
from engine.logs import Source, about
from engine.ops.workers import ControlMessage, read_control
from engine.redis.dialer import Subscription, dialer_of, identify
from engine.redis.endpoint import Endpoint
from engine.redis.exchange import is_reply, message_of
from engine.worker.machine.events import ControlLost, StopReason, Subscribed

if TYPE_CHECKING:
    from engine.ops.workers import WorkerInfo

log = logger("ironclaim.worker")

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


# -- How much memory this process holds.

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_mb() -> float:
    """The resident memory of this process in MB; where the kernel does not report it, the maximum so far."""
    try:
        with open(_STATM) as statm:
            return int(statm.read().split()[1]) * _PAGE / 1e6
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most / 1e3


# -- What signals mean to a worker: the first SIGTERM or SIGINT asks it to stop, a second one to stop at
# once, a third ends it.

#: They mean the same.
NUMBERS = (signal.SIGTERM, signal.SIGINT)

#: How long the main thread may block. Its handlers run between two of its steps, so a signal that arrives
#: just before it blocks, or in another thread, is heard only when it wakes.
SIGNAL_LOOK_S = 1.0


@contextmanager
def stop_signals(ask: Callable[[StopReason], None]) -> Generator[list[int]]:
    """Ask for a stop at a signal, while this runs in the main thread. Yields the signals that have come so
    far."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        ask("stopped" if len(came) == 1 else "at once")
        if len(came) > 1:
            # Should even that take too long, the next signal ends the process.
            for other in NUMBERS:
                signal.signal(other, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in NUMBERS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- Names of workers: the one that a worker has unless told, and a warning where two have the same.

#: What a name may consist of, and how much of a host's name is taken.
_OTHERS = re.compile(r"[^A-Za-z0-9._-]")
_HOST_CHARACTERS_MAX = 64


def default_name() -> str:
    """`HOST-PID`: in containers all workers may have the same process id."""
    host = _OTHERS.sub("-", socket.gethostname())[:_HOST_CHARACTERS_MAX]
    return f"worker-{host}-{os.getpid()}"


def warn_of_namesakes(found: Iterable[WorkerInfo], source: Source) -> None:
    """Log that another worker of the queue has the name of this one, by the heartbeats of its workers."""
    for info in found:
        if info.name == source.worker and info.alive and not _is_gone(info):
            text = (
                "worker %s: there is another one of this name, on host %s with process id %d, heard "
                "of %d s ago; "
                "a pause, a target or a concurrency that names it means both"
            )
            log.warning(
                text, source.worker, info.host, info.pid, info.beat_age_ms // 1000, extra=about(None, source)
            )
            return


def _is_gone(info: WorkerInfo) -> bool:
    """Whether this was an earlier run in this process, or in one of this host that has ended: its beats only
    count a little longer."""
    if info.host != socket.gethostname():
        return False
    if info.pid == os.getpid():
        return True
    try:
        os.kill(info.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # Somebody else's process.
        return False
    return False
