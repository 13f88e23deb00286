"""A call: one operation as a value. Building one does no I/O; a driver runs it (docs/architecture.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.ops.base import Operation
from engine.wire.scripts import Script

T = TypeVar("T")

#: What calls of many things carry at most: a longer one would keep the server's one thread for too long.
CALL_BYTES_MAX = 1024 * 1024
#: Calls of one bulk that go out together.
PIPELINE_CALLS = 8


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Which script, its keys, its arguments, how to parse the reply, and the operation that it carries out. The first key says
    where in a cluster it goes; all keys of a call are of one slot.

    A call may be sent any number of times: its arguments hold the identity that makes a second send harmless. `script` is
    None for a plain command, whose words are `arguments`; `block_ms` is how long the server may hold the reply back. One that is
    not `patient` is sent once: what it does is not worth waiting for.
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
