"""What a server holds: the queues (MQ22), noted as used and listed, and the subscribers of channels."""

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


@immutable
class ListSubscribers(Declaration):
    """Subscribers of channels, from a cursor of the scan on."""

    cursor: int


@immutable
class ReadClocks(Declaration):
    """The clocks of channels and the cursors of subscribers."""


RegistryOperation = NoteQueue | ListQueues | ListSubscribers | ReadClocks
