"""The queues of a server (MQ22): what notes one as used, and lists them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.operations.declaration import Declaration


@dataclass(frozen=True, slots=True)
class NoteQueue(Declaration, patient=False):
    """List the queue as used at a time."""

    used_ms: int


@dataclass(frozen=True, slots=True)
class ListQueues(Declaration):
    """The queues under a prefix."""


RegistryOperation = NoteQueue | ListQueues
