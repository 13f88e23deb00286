"""What a channel needs of a place that holds its messages: a server, or this process's memory. A channel may have several.

A **storage** is what a service gives (`RedisStorage`, `MemoryStorage`); one may serve many channels. Opened for one of them it
runs operations, and rings a bell when something was published. Its clocks are its own: those of another storage say nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.drivers.errand import Sent
from engine.errors import EngineError
from engine.observer import Observer
from engine.operations.channels import ChannelOperation

#: An operation, or one that lacks only the server time after which it is void: `not_after_ms` in, operation out (rule 3).
Ask = ChannelOperation | Callable[[int], ChannelOperation]
#: What a bell does to one who waits. From any thread, also with nobody waiting any more; it must be short and not raise.
Ring = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Opening:
    """Which channel a storage is opened for. `lua`: another folder of scripts; `observer` hears of every call."""

    channel: str
    lua: Path | None = None
    observer: Observer | None = None


class OpenStorage(Protocol):
    """One channel in one storage, for threads and greenlets."""

    @property
    def live(self) -> bool:
        """Whether every message that is published from now on rings. Whoever waits while that is not so looks from time to time;
        the bell rings when it becomes so, and when it ends."""
        ...

    def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation. One that was refused as late, with no copy unanswered, has been made and sent once more. Raises
        OutcomeUnknown, ServerUnavailable, ScriptFault, UnsafeServer."""
        ...

    def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Run several, at most 100, in one piece where that is possible; what came of each, in their order."""
        ...

    def listen(self, ring: Ring) -> None:
        """Ring this one from now on. Waits for nothing: until `live`, publications may go unheard."""
        ...

    def unlisten(self, ring: Ring) -> None:
        """Ring it no more."""
        ...

    def close(self) -> None:
        """Close what is open; it opens again with the next use."""
        ...


class AsyncOpenStorage(Protocol):
    """The same under asyncio."""

    @property
    def live(self) -> bool:
        """Whether every message that is published from now on rings."""
        ...

    async def send(self, ask: Ask, intended_ns: int | None = None) -> Sent:
        """Run an operation, as `OpenStorage.send` does."""
        ...

    async def send_many(self, asks: Sequence[Ask], intended_ns: int | None = None) -> list[Sent | EngineError]:
        """Run several, as `OpenStorage.send_many` does."""
        ...

    def listen(self, ring: Ring) -> None:
        """Ring this one from now on. Waits for nothing."""
        ...

    def unlisten(self, ring: Ring) -> None:
        """Ring it no more."""
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


class Storage(Protocol):
    """Where messages are. Opening one does no I/O, and raises Malformed for settings that cannot be."""

    def open(self, opening: Opening) -> OpenStorage:
        """For `Channel`."""
        ...

    def open_async(self, opening: Opening) -> AsyncOpenStorage:
        """For `AsyncChannel`."""
        ...
