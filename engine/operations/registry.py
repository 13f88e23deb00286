"""The queues of a server (MQ22): what notes one as used, and lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoteQueue:
    """List the queue as used at a time."""

    used_ms: int


@dataclass(frozen=True, slots=True)
class ListQueues:
    """The queues under a prefix."""


RegistryOperation = NoteQueue | ListQueues
