"""The interface of places that hold the messages of a channel: a server, or this process's memory. A channel may have several.

A **storage** is what a service gives (`RedisStorage`, `MemoryStorage`); one may serve many channels. Opened for one of them it
runs operations, and tells its listeners when something was published. Its clocks are its own: those of another storage say
nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engine.channel.asynchronous.storage import AsyncOpenStorage
from engine.channel.synchronous.storage import OpenStorage
from engine.observer import Observer


@dataclass(frozen=True, slots=True)
class Opening:
    """Which channel a storage is opened for. `lua`: another folder of scripts; `observer` hears of every call."""

    channel: str
    lua: Path | None = None
    observer: Observer | None = None


class Storage(Protocol):
    """A place for messages. Opening one does no I/O, and raises Malformed for settings that cannot be."""

    def open(self, opening: Opening) -> OpenStorage:
        """For `Channel`."""
        ...

    def open_async(self, opening: Opening) -> AsyncOpenStorage:
        """For `AsyncChannel`."""
        ...
