"""What falls due while jobs run: renewals of leases, timeouts of handlers, and the grace period of a worker that stops.
Pure code, a part of the step machine."""

from __future__ import annotations

from engine.ops.claims import Extend, LeasedJob
from engine.ops.jobs import Lease
from engine.server_clock import ServerClock
from engine.worker.machine.call_slots import RESEND_MS
from engine.worker.machine.events import MS, Settings, StopReason


class Renewing:
    """When the next renewal is due, and its call: all leases in one, at each third of a lease (rules 9 and 13).

    They come at least as often as the heartbeats, however long the leases are: a renewal shows life as a heartbeat does, on a
    connection of its own, so a worker whose heartbeats alone are lost is not taken for dead (orphans.lua).
    """

    def __init__(self, settings: Settings, clock: ServerClock, now_ns: int) -> None:
        self._lease_ms = settings.lease_ms
        self._every_ns = min(settings.lease_ms * MS // 3, settings.beat_ms * MS or settings.lease_ms * MS)
        self._clock = clock
        self._count = 0
        #: When the next renewal is due.
        self.at_ns = now_ns + self._every_ns

    def soon(self, now_ns: int) -> None:
        """Retry the renewal soon: the last one failed."""
        self.at_ns = now_ns + RESEND_MS * MS

    def at_once(self, now_ns: int) -> None:
        """Renew at once: the last renewal came too late to count, and its reply has set the clock right; or cancels may have
        been missed."""
        self.at_ns = min(self.at_ns, now_ns + RESEND_MS * MS)

    def begin(self, now_ns: int) -> None:
        """Begin a renewal and schedule the next one."""
        self.at_ns = now_ns + self._every_ns  # anchor: leases-are-renewed-early

    def next_renewal(self, leases: list[Lease], now_ns: int) -> Extend | None:
        """The call of the renewal; None when there is nothing to renew."""
        if not leases or not self._clock.known:
            return None
        self._count += 1
        return Extend(tuple(leases), self._count, self._lease_ms, self._clock.now_ms(now_ns) + self._lease_ms // 3)


#: A coroutine that was cancelled gets this long to clean up, with its lease renewed as before.
CLEAN_UP_MS = 5000
#: A child process says when the handler begins; until then it may take so long to start and to import.
START_UP_MS = 10_000


class Timeouts:
    """The timeouts of the jobs that run: when one is due, and how long its handler may still clean up.

    A coroutine is cancelled and a child process killed, and they get a moment to end; nobody can stop a function in a thread.
    What goes on all the same is given up: its run counts as failed, its lease is not renewed, its place stays taken until it
    returns. Jobs without a timeout are not in here, so they cost nothing.
    """

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
        """Start the timeout of a job whose handler starts now."""
        if job.options.timeout_ms:
            self._jobs[job.lease] = job
            start_up_ms = START_UP_MS if job.name in self._spawned else 0
            self._until_ns[job.lease] = now_ns + (start_up_ms + job.options.timeout_ms) * MS

    def extend(self, lease: Lease, for_ms: int, now_ns: int) -> None:
        """The handler asks for so long from now on. Too late where it was told to end; nothing where it has no timeout."""
        if lease in self._until_ns and lease not in self._told:
            self._until_ns[lease] = now_ns + for_ms * MS

    def ended(self, lease: Lease) -> None:
        """Forget the timeout of a job whose handler has ended."""
        if self._jobs.pop(lease, None) is not None:
            self._until_ns.pop(lease, None)
            self._told.discard(lease)

    def next_ns(self) -> int | None:
        """When the next timeout is due, monotonic ns."""
        return min(self._until_ns.values()) if self._until_ns else None

    def due(self, now_ns: int) -> tuple[list[LeasedJob], list[LeasedJob]]:
        """The jobs whose handlers have to be stopped now, and those whose handlers are given up."""
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
    """The error of a run that took too long; `more`: what its handler raised when it was cancelled."""
    text = f"TimeoutError: not done within {job.options.timeout_ms} ms"
    return f"{text}, then {more}" if more else text


#: After its grace a worker still says so long which leases it gives back.
GOODBYE_MS = 1000


class Stopping:
    """Why a worker stops, since when, and when it no longer waits. Nothing starts once a stop is asked for; handlers that run
    get the grace."""

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
        """Stop. A second call changes nothing unless it says not to wait for handlers."""
        if reason == "at once":
            self._until_ns = min(self._until_ns, now_ns) if self.on else now_ns
            self.reason = reason
        elif not self.on:
            self.reason, self._until_ns = reason, now_ns + self._grace_ns
        self.on = True

    def job_ended(self, now_ns: int) -> None:
        """Count a job: a worker may be set to end after a number of them."""
        self._jobs += 1
        if self._max_jobs and self._jobs >= self._max_jobs:
            self.ask("recycled", now_ns)

    def next_ns(self, now_ns: int) -> int | None:
        """When the grace period ends, monotonic ns."""
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
