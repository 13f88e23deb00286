"""What handlers tell of their progress until it is noted. Pure code, a part of the step machine."""

from __future__ import annotations

from engine.operations import Lease, NoteProgress
from engine.worker.machine.lease_table import LeaseTable


class ProgressReports:
    """Keeps the newest of each job that runs."""

    def __init__(self, lease_table: LeaseTable) -> None:
        self._lease_table = lease_table
        # How far jobs have come that run, and is not noted yet; and how often something was.
        self._told: dict[Lease, bytes] = {}
        self._count = 0

    def tell(self, lease: Lease, body: bytes) -> None:
        """A handler has come so far."""
        self._told[lease] = body

    def next_operation(self) -> NoteProgress | None:
        """The newest that a handler which still runs has told of its progress."""
        while self._told:
            lease, body = self._told.popitem()
            if self._lease_table.queue_running(lease) is not None:
                self._count += 1
                return NoteProgress(lease, self._count, body)
        return None
