"""The queues of a server (MQ22): what notes one as used, and lists them."""

from __future__ import annotations

from typing import Literal

from engine.immutable import immutable
from engine.wire.operations.declaration import Declaration


@immutable
class NoteQueue(Declaration, patient=False):
    """List the queue as used at a time."""

    used_ms: int

    def parse(self, raw: object, decode: object) -> Literal[True]:
        """It is listed, now or before."""
        return True


@immutable
class ListQueues(Declaration):
    """The queues under a prefix."""


RegistryOperation = NoteQueue | ListQueues
