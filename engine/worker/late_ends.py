"""Says what came of runs whose lease was lost, when the server has answered their ends (rule 37: they are sent all the same)."""

from __future__ import annotations

from engine.logs import Source, about
from engine.ops.base import Operation
from engine.ops.claims import FINISHED, Bury, Drop, Ended, Finish, FinishedAndClaimed, Retry
from engine.ops.jobs import Lease
from engine.spared import logger

log = logger("ironclaim.worker")


class LateEnds:
    """The leases of one worker that were lost while their handlers ran. Safe from threads."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lost: set[Lease] = set()

    def lost(self, lease: Lease) -> None:
        """A running job has lost its lease, or may have: its end will tell."""
        self._lost.add(lease)

    def answered(self, operation: Operation, reply: object) -> None:
        """Log the ends that were refused, and those that were accepted although their lease was taken for lost."""
        ended = reply.finished if isinstance(reply, FinishedAndClaimed) else reply
        if not isinstance(ended, Ended) or (not self._lost and ended.items.count(FINISHED) == len(ended.items)):
            return
        for lease, (result, outcome) in zip(_ended_by(operation), ended.items, strict=False):
            extra = about(lease, self._source)
            if result == "stale" and outcome == "cancelled":
                log.info(
                    "job %s: the end of the run with fence %d was refused, for the job was cancelled", *lease[:2], extra=extra
                )
            elif result == "stale":
                text = "job %s: the end of the run with fence %d was refused: its lease was over, so the job is run again"
                log.warning(text, *lease[:2], extra=extra)
            elif lease in self._lost:
                text = "job %s: the end of the run with fence %d counts: nobody had taken the job meanwhile (%s)"
                log.info(text, *lease[:2], outcome, extra=extra)
            self._lost.discard(lease)


def _ended_by(operation: Operation) -> tuple[Lease, ...]:
    """The leases of runs that the operation ends."""
    match operation:
        case Finish() | Drop():
            return operation.leases
        case Retry() | Bury():
            return tuple(failure.lease for failure in operation.failures)
        case _:
            return ()
