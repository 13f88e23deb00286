"""The timeouts of the jobs that run: when one is due, and what it is still waited for. Pure code, a part of the step machine.

A coroutine is cancelled and a child process killed, and they get a moment to end; nobody can stop a function in a thread. What
goes on all the same is given up: its run is told as failed, its lease is not renewed, its place stays taken until it returns.
"""

from __future__ import annotations

from engine.operations import Lease, LeasedJob
from engine.worker.machine.events import MS, Settings

#: A coroutine that was cancelled gets this long to clean up, with its lease renewed as before.
CLEAN_UP_MS = 5000
#: A child process says when the handler begins; until then it may take so long to start and to import.
START_UP_MS = 10_000


class Timeouts:
    """Jobs without a timeout are not in here, so they cost nothing."""

    def __init__(self, settings: Settings) -> None:
        self._stoppable = settings.stoppable
        self._spawned = settings.spawned
        self._until_ns: dict[Lease, int] = {}
        self._jobs: dict[Lease, LeasedJob] = {}
        #: Those that were told to end.
        self._told: set[Lease] = set()

    def __bool__(self) -> bool:
        return bool(self._until_ns)

    def began(self, job: LeasedJob, now_ns: int) -> None:
        """The handler of this job starts now."""
        if job.options.timeout_ms:
            self._jobs[job.lease] = job
            start_up_ms = START_UP_MS if job.name in self._spawned else 0
            self._until_ns[job.lease] = now_ns + (start_up_ms + job.options.timeout_ms) * MS

    def extend(self, lease: Lease, for_ms: int, now_ns: int) -> None:
        """The handler asks for so long from now on. Too late where it was told to end; nothing where it has no timeout."""
        if lease in self._until_ns and lease not in self._told:
            self._until_ns[lease] = now_ns + for_ms * MS

    def ended(self, lease: Lease) -> None:
        """The handler has returned or raised."""
        if self._jobs.pop(lease, None) is not None:
            self._until_ns.pop(lease, None)
            self._told.discard(lease)

    def next_ns(self) -> int | None:
        """When the next one is due."""
        return min(self._until_ns.values()) if self._until_ns else None

    def due(self, now_ns: int) -> tuple[list[LeasedJob], list[LeasedJob]]:
        """Jobs whose handlers are to be stopped, and those that are given up."""
        stop: list[LeasedJob] = []
        give_up: list[LeasedJob] = []
        for lease in [lease for lease, until_ns in self._until_ns.items() if until_ns <= now_ns]:
            job = self._jobs[lease]
            if lease not in self._told:
                self._told.add(lease)
                stop.append(job)
                if job.name in self._stoppable:
                    self._until_ns[lease] = now_ns + CLEAN_UP_MS * MS
                    continue
            give_up.append(job)
            del self._until_ns[lease]
        return stop, give_up


def timed_out(job: LeasedJob, more: str = "") -> str:
    """What a run that took too long is told as; `more`: what its handler raised when it was cancelled."""
    text = f"TimeoutError: not done within {job.options.timeout_ms} ms"
    return f"{text}, then {more}" if more else text
