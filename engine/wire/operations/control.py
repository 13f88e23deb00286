"""Messages that scripts publish to workers, which read them on a connection of their own (rule 26): text, the first word of which
is the kind.

A message may be lost, so each of them only says early what a worker would learn from one of its calls.
"""

from __future__ import annotations

from engine.immutable import immutable
from engine.wire.operations.jobs import Lease


@immutable
class JobCancelled:
    """The job of this lease was cancelled: `cancelled <fence> <nonce> <job>`."""

    lease: Lease


@immutable
class NewsPublished:
    """There are news for workers (classes with targets, pauses, settings), of this version: `news <version>`."""

    version: int


ControlMessage = JobCancelled | NewsPublished


def read_control(message: bytes) -> ControlMessage | None:
    """A message parsed; None for a kind that this version of the engine does not know."""
    match message.decode(errors="replace").split(" ", 3):
        case ["cancelled", fence, nonce, job] if fence.isdecimal():
            return JobCancelled(Lease(job, int(fence), nonce))
        case ["news", version] if version.isdecimal():
            return NewsPublished(int(version))
        case _:
            return None
