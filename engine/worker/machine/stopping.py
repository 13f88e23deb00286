"""How a worker stops: why, since when, and when it no longer waits. Pure code, a part of the step machine."""

from __future__ import annotations

from engine.worker.machine.events import MS, Settings, StopReason

#: After its grace a worker still says so long which leases it gives back.
GOODBYE_MS = 1000


class Stopping:
    """Nothing more starts from the moment on when a stop is asked for; handlers that run get the grace."""

    def __init__(self, settings: Settings) -> None:
        self._grace_ns = settings.grace_ms * MS
        self._max_jobs = settings.max_jobs
        self._jobs = 0
        self._until_ns = 0
        #: Why; None as long as it goes on.
        self.reason: StopReason | None = None
        #: Whether it stops.
        self.on = False

    def ask(self, reason: StopReason, now_ns: int) -> None:
        """Stop. A second one changes nothing, unless it says that handlers are not to be waited for."""
        if reason == "at once":
            self._until_ns = min(self._until_ns, now_ns) if self.on else now_ns
            self.reason = reason
        elif not self.on:
            self.reason, self._until_ns = reason, now_ns + self._grace_ns
        self.on = True

    def job_ended(self, now_ns: int) -> None:
        """A worker that was told to ends after so many jobs."""
        self._jobs += 1
        if self._max_jobs and self._jobs >= self._max_jobs:
            self.ask("recycled", now_ns)

    def next_ns(self, now_ns: int) -> int | None:
        """When to look again."""
        if not self.on:
            return None
        return self._until_ns if now_ns < self._until_ns else self._until_ns + GOODBYE_MS * MS

    def over(self, now_ns: int, *, running: bool, telling: bool) -> bool:
        """Whether to leave now. `running`: a handler is on, or a job leased; `telling`: a call is out, or has to go out."""
        if not self.on:
            return False
        if not (running or telling):
            return True
        return now_ns >= self._until_ns and (not telling or now_ns >= self._until_ns + GOODBYE_MS * MS)
