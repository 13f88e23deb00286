"""A call: one operation as a value. Building one does no I/O; a driver runs it (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from engine.errors import ScriptFault
from engine.ops.base import Operation, immutable
from engine.redis.scripts import Script

# -- An estimate of the server's time that never runs ahead of it.
#
# Each reply says the server's time. It is counted from the reply's *arrival*, so the estimate is early by the
# reply's travel (rule 3): a call that is void after `not_after_ms` may be refused a little too soon, and is
# then sent again, but a copy of it can never be accepted too late.


class Watch(Protocol):
    """What looks out for a server that went back (`engine.queue.era`). Called from many threads, it does not
    raise."""

    #: Commands of each handshake.
    commands: tuple[tuple[object, ...], ...]

    def mark_of(self, call: Any) -> Any:
        """What a call that leaves now remembers for `answered`."""
        ...

    def greeted(self, server: Any, replies: list[Any]) -> tuple[tuple[object, ...], ...]:
        """A handshake has met this server (a ServerIdentity): the command that it has to send in addition, if
        any."""
        ...

    def concluded(self, raw: Any) -> None:
        """The reply to that."""
        ...

    def answered(self, call: Any, raw: Any, mark: Any) -> None:
        """This call has been answered, which left with this mark."""
        ...


class ServerClock:
    """The offset between the server's clock and this process's monotonic clock, from the latest reply. All
    drivers of a queue have one in common, and with it the `watch` over its server, None where nobody
    watches."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.watch = watch
        self._offset_us: int | None = None

    def learn(self, srv_us: int, arrival_ns: int) -> None:
        """Take the server time of a reply that arrived at `arrival_ns` (monotonic). The latest one counts."""
        self._offset_us = srv_us - arrival_ns // 1000

    @property
    def known(self) -> bool:
        """Whether any reply has arrived."""
        return self._offset_us is not None

    def now_ms(self, now_ns: int) -> int:
        """The server's time in ms at the monotonic instant `now_ns`, or a little before it."""
        if self._offset_us is None:
            raise ScriptFault("the server's time is not known before the first reply")
        return (now_ns // 1000 + self._offset_us) // 1000


T = TypeVar("T")

#: What calls of many things carry at most: a longer one would keep the server's one thread for too long.
CALL_BYTES_MAX = 1024 * 1024
#: Calls of one bulk that go out together.
PIPELINE_CALLS = 8
#: A call blocks on the server for at most this long, and who waits longer asks again: a connection that has
#: died unnoticed shows only when a block is over.
BLOCK_MS = 5_000


@immutable
class Call(Generic[T]):
    """Which script, its keys, its arguments, how to parse the reply, and the operation that it carries out.
    The first key says where in a cluster it goes; all keys of a call are of one slot.

    A call may be sent any number of times: its arguments hold the identity that makes a second send harmless.
    `script` is None for a plain command, whose words are `arguments`; `block_ms` is how long the server may
    hold the reply back. One that is not `patient` is sent once: what it does is not worth waiting for.
    """

    script: Script | None
    keys: tuple[str, ...]
    arguments: tuple[object, ...]
    parse: Callable[[Any], T]
    operation: Operation
    block_ms: int = 0
    patient: bool = True

    def words(self) -> tuple[object, ...]:
        """The command as it goes on the wire."""
        if self.script is None:
            return self.arguments
        return ("EVALSHA", self.script.digest, len(self.keys), *self.keys, *self.arguments)
