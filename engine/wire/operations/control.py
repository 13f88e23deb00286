"""What scripts publish to workers, which read it on a connection of their own (rule 26): text, whose first word says what it is.

A message may be lost, so each of them tells early what a worker would learn from one of its calls.
"""

from __future__ import annotations

from engine.immutable import immutable
from engine.wire.operations.jobs import Lease


@immutable
class CancelTold:
    """The job of this lease was cancelled: `cancelled <fence> <nonce> <job>`."""

    lease: Lease


@immutable
class NewsTold:
    """There are news for workers (classes with targets, pauses, settings), of this version: `news <version>`."""

    version: int


Told = CancelTold | NewsTold


def read_control(message: bytes) -> Told | None:
    """What a message tells; None for one of another version of the engine, which is no business of this one."""
    match message.decode(errors="replace").split(" ", 3):
        case ["cancelled", fence, nonce, job] if fence.isdecimal():
            return CancelTold(Lease(job, int(fence), nonce))
        case ["news", version] if version.isdecimal():
            return NewsTold(int(version))
        case _:
            return None
