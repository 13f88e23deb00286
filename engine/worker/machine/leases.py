"""The jobs that a worker has leased: not yet started, or running, each with the end of its lease on the
worker's clock. Also when renewals are due, and how long a worker that stops waits for its handlers."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass

from engine.ops.base import ServerClock, immutable
from engine.ops.claims import Extend, LeasedJob
from engine.ops.jobs import Lease
from engine.worker.machine.claiming import RESEND_MS
from engine.worker.machine.events import MS, LoseLease, Start, StopHandler, StopReason
from engine.worker.machine.settings import Settings

# -- The jobs that wait in a worker for one kind of place, and those that run there. Pure code, a part of
# the lease table.


@dataclass(slots=True, eq=False)
class Held:
    """One leased job."""

    job: LeasedJob
    lease_until_ns: int
    #: When it was taken, and from its start on when it was started.
    since_ns: int
    marked: bool = False
    lost: bool = False
    told: bool = False
    #: Its run was told as failed while its handler goes on.
    stuck: bool = False
    #: It runs in a batch that another job leads, and takes no place of its own.
    follows: bool = False


class RunQueue:
    """The jobs of one kind in the order of their claims, and those of them that run: at most `places`,
    batches counted as one."""

    __slots__ = ("crashed", "followers", "inline", "places", "ready", "running")

    def __init__(self, places: int, *, inline: bool) -> None:
        self.places = places
        self.inline = inline
        self.ready: deque[Held] = deque()
        #: How many of `ready` have a crash behind them.
        self.crashed = 0
        self.running: dict[Lease, Held] = {}
        #: How many of `running` follow in a batch.
        self.followers = 0

    @property
    def free(self) -> int:
        """Handlers that may be started now."""
        return self.places - len(self.running) + self.followers

    @property
    def startable(self) -> int:
        """Jobs that start as soon as a handler is free."""
        return len(self.ready) - self.crashed

    def running_since_ns(self) -> list[int]:
        """When each running handler was started, oldest first."""
        return [held.since_ns for held in self.running.values() if not held.follows]

    def oldest(self) -> Held | None:
        """The job that has waited longest for a free handler."""
        return next((held for held in self.ready if not held.job.crashes), None) if self.startable else None

    def gather(
        self, head: Held, most: int, least_until_ns: int, now_ns: int
    ) -> tuple[list[LeasedJob], list[Lease]]:
        """The batch that starts with this job, which has left `ready`, and the leases that end too soon. The
        others have its name and lane, and keep their order. A job with a crash runs alone (rule 12)."""
        if head.job.crashes:
            return [head.job], []
        batch, too_late, rest = [head.job], list[Lease](), deque[Held]()
        for held in self.ready:
            job = held.job
            if len(batch) == most or job.crashes or job.name != head.job.name or job.lane != head.job.lane:
                rest.append(held)
            elif held.lease_until_ns < least_until_ns:
                too_late.append(job.lease)
            else:
                held.since_ns, held.follows = now_ns, True
                self.running[job.lease] = held
                self.followers += 1
                batch.append(job)
        self.ready = rest
        return batch, too_late

    def pop(self, lease: Lease) -> Held:
        """Remove a job whose handler has ended."""
        held = self.running.pop(lease)
        self.followers -= held.follows
        return held


@immutable
class Begun:
    """What may begin now: handlers to start, leases to give back because they end too soon, and the lease of
    a job that starts once it is marked."""

    started: tuple[Start, ...] = ()
    too_late: tuple[Lease, ...] = ()
    mark: Lease | None = None


NOTHING = Begun()
#: Jobs that one worker has leased at most, those of batches as well: it renews them in one call.
LEASES_MAX = 2000


class LeaseTable:
    """Keyed by lease, not by job: a worker that froze may be given a job again while the old handler still
    runs.

    A lease is counted, on the monotonic clock, from the *first send* of its claim or of its last renewal that
    was answered. The server can only have started counting later (rule 9). At most one job with a crash
    behind it is marked or runs (rule 12). Inline jobs wait in a run queue of their own, and one of them runs
    at a time.
    """

    def __init__(self, settings: Settings) -> None:
        self._lease_ns = settings.lease_ms * MS
        self._margin_ns = self._lease_ns // 5
        self._inline_names = settings.inline
        self._batches = settings.batches
        #: Jobs of the largest batch; 0 where no handler takes several.
        self.largest = max(settings.batches.values(), default=0)
        # Whether jobs are taken ahead for batches: not from when others of them went back until the next
        # batch has started.
        self._batching = True
        self.pooled = RunQueue(settings.concurrency, inline=False)
        self.inline = RunQueue(settings.places - settings.concurrency, inline=True)
        self.run_queues = tuple(run_queue for run_queue in (self.pooled, self.inline) if run_queue.places)
        # Its mark is on the way, and a handler's place is kept for it.
        self._marking: Held | None = None
        # The one job with a crash behind it that is being marked or runs.
        self._crashed: Lease | None = None
        #: How many handlers go on although their runs are over.
        self.stuck = 0

    def __len__(self) -> int:
        count = 0 if self._marking is None else 1
        for run_queue in self.run_queues:
            count += len(run_queue.ready) + len(run_queue.running)
        return count

    def add(self, jobs: Iterable[LeasedJob], first_send_ns: int, now_ns: int) -> None:
        """Add claimed jobs."""
        until_ns = first_send_ns + self._lease_ns
        for job in jobs:
            run_queue = self._queue_of(job)
            run_queue.ready.append(Held(job, until_ns, now_ns))
            if job.crashes:
                run_queue.crashed += 1

    def resize(self, pooled: int) -> None:
        """Set how many handlers of the pool may run at once. Handlers that already run go on."""
        self.pooled.places = pooled

    def begin(self, now_ns: int) -> Begun:
        """Fill the free places. No handler starts with less than a fifth of its lease left (rule 9)."""
        begun = NOTHING
        for run_queue in self.run_queues:
            if run_queue.ready and run_queue.free > 0:
                new = self._begin(run_queue, now_ns)
                begun = Begun(
                    begun.started + new.started, begun.too_late + new.too_late, begun.mark or new.mark
                )
        return begun

    def _begin(self, run_queue: RunQueue, now_ns: int) -> Begun:
        marking = self._marking is not None and self._queue_of(self._marking.job) is run_queue
        places = run_queue.free - marking
        started: list[Start] = []
        too_late: list[Lease] = []
        waiting: list[Held] = []
        mark: Lease | None = None
        while run_queue.ready and places > 0:
            held = run_queue.ready.popleft()
            lease = held.job.lease
            if held.job.crashes:
                run_queue.crashed -= 1
            if held.lease_until_ns - now_ns < self._margin_ns:  # anchor: enough-lease-left-to-begin
                self._uncrash(lease)
                too_late.append(lease)
            elif not held.job.crashes or held.marked:  # anchor: crashed-jobs-are-marked-before-they-begin
                held.since_ns = now_ns
                run_queue.running[lease] = held
                batch: list[LeasedJob] = []
                if self._batches and held.job.name in self._batches:
                    self._batching = True
                    batch, late = run_queue.gather(
                        held, self._batches[held.job.name], now_ns + self._margin_ns, now_ns
                    )
                    too_late += late
                started.append(Start(held.job, run_queue.inline, tuple(batch)))
                places -= 1
            elif self._crashed is None:  # anchor: crashed-jobs-run-alone
                self._crashed = mark = lease
                self._marking = held
                places -= 1
            else:
                waiting.append(held)
        run_queue.ready.extendleft(reversed(waiting))
        run_queue.crashed += len(waiting)
        return Begun(tuple(started), tuple(too_late), mark)

    def running(self, names: Container[str]) -> list[LeasedJob]:
        """The jobs of these names that run, but for those whose leases are lost."""
        return [
            held.job
            for run_queue in self.run_queues
            for held in run_queue.running.values()
            if held.job.name in names and not held.lost
        ]

    def queue_running(self, lease: Lease) -> RunQueue | None:
        """The run queue in which the job of this lease runs."""
        run_queue = self._place_of(lease)
        return run_queue if lease in run_queue.running else None

    def swap(self, run_queue: RunQueue, lease: Lease, now_ns: int) -> tuple[LeasedJob, LeasedJob, int] | None:
        """The job of this lease has ended and the next of its queue starts in its place. Returns both and the
        time that the first one took; None, with nothing done, where more is to be decided for either."""
        ending, head = run_queue.running[lease], run_queue.ready[0]
        job = head.job
        if (
            len(run_queue.running) - run_queue.followers > run_queue.places
            or ending.job.crashes
            or job.crashes
            or head.lease_until_ns - now_ns < self._margin_ns  # anchor: enough-lease-left-to-swap
        ):
            return None
        if job.options.is_timed or ending.job.options.is_timed or job.name in self._batches:
            return None
        del run_queue.running[lease]
        run_queue.ready.popleft()
        head.since_ns = now_ns
        run_queue.running[job.lease] = head
        return ending.job, job, now_ns - ending.since_ns

    def is_marking(self, lease: Lease) -> bool:
        """Whether the call that marks this job as started is unanswered."""
        return self._marking is not None and self._marking.job.lease == lease

    def marked(self, lease: Lease) -> None:
        """Let the job start next: its mark was answered."""
        if self._marking is not None and self.is_marking(lease):
            self._marking.marked = True
            run_queue = self._queue_of(self._marking.job)
            run_queue.ready.appendleft(self._marking)
            run_queue.crashed += 1
            self._marking = None

    def unmark(self, lease: Lease) -> list[Lease]:
        """Remove a job whose mark cannot be set."""
        if not self.is_marking(lease):
            return []
        self._marking = None
        self._uncrash(lease)
        return [lease]

    def give_back(self) -> list[Lease]:
        """Remove all jobs that have not started; they are given back."""
        leases: list[Lease] = []
        for run_queue in self.run_queues:
            leases += [held.job.lease for held in run_queue.ready]
            run_queue.ready.clear()
            run_queue.crashed = 0
        if self._marking is not None:
            leases += self.unmark(self._marking.job.lease)
        for lease in leases:
            self._uncrash(lease)
        return leases

    def give_back_idle(self, run_queue: RunQueue, ahead: int, waited_ns: int, now_ns: int) -> list[Lease]:
        """What has waited so long for a place, beyond `ahead` jobs, leaves the table. A job that waits
        because another one with a crash behind it runs would only come back, so it stays."""
        oldest = run_queue.oldest()
        if oldest is None or now_ns - oldest.since_ns < waited_ns:  # anchor: jobs-taken-ahead-are-given-back
            return []
        over = [held for held in run_queue.ready if not held.job.crashes][ahead:]
        idle = [held for held in over if now_ns - held.since_ns >= waited_ns]
        self._batching = self._batching and all(held.job.name in self._batches for held in idle)
        for held in idle:
            run_queue.ready.remove(held)
        return [held.job.lease for held in idle]

    def ended(self, lease: Lease, now_ns: int) -> tuple[LeasedJob, int, bool]:
        """A handler has ended: its job leaves the table. Returns the job, the time that it took, and whether
        it was given up."""
        held = self._place_of(lease).pop(lease)
        self._uncrash(lease)
        self.stuck -= held.stuck
        return held.job, now_ns - held.since_ns, held.stuck

    def give_up(self, lease: Lease, now_ns: int) -> int:
        """The run of this job is over although its handler goes on: it keeps its place, and its lease is not
        renewed. Returns how long it has run."""
        held = self._place_of(lease).running[lease]
        held.lost = held.told = held.stuck = True
        self.stuck += 1
        return now_ns - held.since_ns

    @property
    def has_crashed(self) -> bool:
        """Whether a job that has crashed before is leased."""
        return self._crashed is not None or self.pooled.crashed > 0 or self.inline.crashed > 0

    @property
    def startable(self) -> int:
        """Jobs that start as soon as a handler is free."""
        return self.pooled.startable + self.inline.startable

    @property
    def busy(self) -> bool:
        """Whether no handler of any kind is free."""
        return all(run_queue.free <= 0 for run_queue in self.run_queues)

    def ahead(self, measured: int) -> int:
        """How many jobs to take ahead where there are batches, and `measured` handlers' worth would do: a
        whole batch for a place that is free, or will be soon. Where it turned out that others waited behind
        them, no more than measured."""
        if not self._batching or not (measured or not self.busy):
            return measured
        # A free place is claimed for beside these.
        return max(measured, self.largest if self.busy else self.largest - 1)

    def room(self, wanted: int) -> int:
        """How many jobs to claim for so many runs and jobs ahead: a batch that runs counts as one."""
        if self.largest:
            wanted = min(wanted + sum(run_queue.followers for run_queue in self.run_queues), LEASES_MAX)
        return wanted - len(self)

    def oldest_wait_ns(self) -> int | None:
        """Since when the oldest job waits for a free handler, monotonic ns."""
        since_ns: int | None = None
        for run_queue in self.run_queues:
            held = run_queue.oldest() if run_queue.ready else None
            if held is not None and (since_ns is None or held.since_ns < since_ns):
                since_ns = held.since_ns
        return since_ns

    def running_since_ns(self) -> list[int]:
        """When each running handler was started, oldest first."""
        if len(self.run_queues) == 1:
            return self.run_queues[0].running_since_ns()
        return sorted([*self.pooled.running_since_ns(), *self.inline.running_since_ns()])

    def leases(self) -> list[Lease]:
        """The leases to renew: all that are not known to be lost."""
        return [held.job.lease for held in self._all() if not held.lost]

    def renewed(self, leases: Iterable[Lease], first_send_ns: int) -> None:
        """Extend the leases whose renewal was answered."""
        known = {held.job.lease: held for held in self._all()}
        for lease in leases:
            if lease in known:
                known[lease].lease_until_ns = first_send_ns + self._lease_ns

    def lose(self, lease: Lease, starved_ms: int, *, cancelled: bool = False) -> list[LoseLease]:
        """The server has ended this lease. Empty when its handler was told before, and not of a cancel. A job
        that has not started leaves the table."""
        held = next((held for held in self._all() if held.job.lease == lease), None)
        if held is None or held.lost:
            return []
        held.lost = True
        run_queue = self._queue_of(held.job)
        if held is self._marking:
            self.unmark(lease)
        elif lease not in run_queue.running:
            run_queue.ready.remove(held)
            run_queue.crashed -= held.job.crashes > 0
            self._uncrash(lease)
        untold = cancelled or not held.told
        held.told = True
        return [LoseLease(lease, starved_ms, lease in run_queue.running, cancelled)] if untold else []

    def run_out(self, now_ns: int) -> list[Lease]:
        """Leases of running jobs that were not renewed in time by this worker's clock, each once. They may
        still hold on the server, so they go on being renewed."""
        over: list[Lease] = []
        for run_queue in self.run_queues:
            for held in run_queue.running.values():
                if held.lease_until_ns <= now_ns and not held.told:
                    held.told = True
                    over.append(held.job.lease)
        return over

    def next_end_ns(self) -> int | None:
        """When the next lease of a running job ends on this worker's clock, monotonic ns."""
        end_ns: int | None = None
        for run_queue in self.run_queues:
            for held in run_queue.running.values():
                if not held.told and (end_ns is None or held.lease_until_ns < end_ns):
                    end_ns = held.lease_until_ns
        return end_ns

    def _place_of(self, lease: Lease) -> RunQueue:
        """The run queue of a job that runs."""
        return self.inline if lease in self.inline.running else self.pooled

    def _queue_of(self, job: LeasedJob) -> RunQueue:
        if len(self.run_queues) == 1:
            return self.run_queues[0]
        return self.inline if job.name in self._inline_names else self.pooled

    def _all(self) -> list[Held]:
        ready = [held for run_queue in self.run_queues for held in run_queue.ready]
        running = [held for run_queue in self.run_queues for held in run_queue.running.values()]
        return [*ready, *([self._marking] if self._marking is not None else []), *running]

    def _uncrash(self, lease: Lease) -> None:
        if self._crashed == lease:
            self._crashed = None


# -- What falls due while jobs run: renewals of leases, timeouts of handlers, and the grace period of a
# worker that stops. Pure code, a part of the state machine.


class Renewing:
    """When the next renewal is due, and its call: all leases in one, at each third of a lease (rules 9 and
    13).

    They come at least as often as the heartbeats, however long the leases are. A renewal shows life, too, on
    a connection of its own; so a worker whose heartbeats alone are lost is not taken for dead (orphans.lua).
    """

    def __init__(self, settings: Settings, clock: ServerClock, now_ns: int) -> None:
        self._lease_ms = settings.lease_ms
        self._every_ns = min(settings.lease_ms * MS // 3, settings.beat_ms * MS or settings.lease_ms * MS)
        self._clock = clock
        self._count = 0
        #: When the next renewal is due.
        self.at_ns = now_ns + self._every_ns

    def soon(self, now_ns: int) -> None:
        """Send the renewal again soon, because the last one failed."""
        self.at_ns = now_ns + RESEND_MS * MS

    def at_once(self, now_ns: int) -> None:
        """Renew at once: the last renewal came too late to count, and its reply has set the clock right; or
        cancels may have been missed."""
        self.at_ns = min(self.at_ns, now_ns + RESEND_MS * MS)

    def begin(self, now_ns: int) -> None:
        """Begin a renewal and schedule the next one."""
        self.at_ns = now_ns + self._every_ns  # anchor: leases-are-renewed-early

    def next_renewal(self, leases: list[Lease], now_ns: int) -> Extend | None:
        """The call of the renewal; None when there is nothing to renew."""
        if not leases or not self._clock.known:
            return None
        self._count += 1
        return Extend(
            tuple(leases), self._count, self._lease_ms, self._clock.now_ms(now_ns) + self._lease_ms // 3
        )


#: A coroutine that was cancelled gets this long to clean up, with its lease renewed as before.
CLEAN_UP_MS = 5000
#: A child process says when the handler begins; until then it may take so long to start and to import.
START_UP_MS = 10_000


class Timeouts:
    """The timeouts of the jobs that run: when one is due, and how long its handler may still clean up.

    A coroutine is cancelled and a child process killed, and they get a moment to end; nobody can stop a
    function in a thread. A handler that goes on all the same is given up. Its run counts as failed, its lease
    is not renewed, its place stays taken until it returns. Jobs without a timeout are not in here, so they
    cost nothing. At its soft timeout a handler is told, once; no more follows from that.
    """

    def __init__(self, settings: Settings) -> None:
        self._stoppable = settings.stoppable
        self._spawned = settings.spawned
        self._until_ns: dict[Lease, int] = {}
        self._soft_ns: dict[Lease, int] = {}
        #: Those that have one and have not ended.
        self.jobs: dict[Lease, LeasedJob] = {}
        #: Those that were told to end.
        self._told: set[Lease] = set()

    def began(self, job: LeasedJob, now_ns: int) -> None:
        """Start the timeout of a job whose handler starts now."""
        if job.options.is_timed:
            self.jobs[job.lease] = job
            start_up_ms = START_UP_MS if job.name in self._spawned else 0
            for times, limit_ms in (
                (self._until_ns, job.options.timeout_ms),
                (self._soft_ns, job.options.soft_timeout_ms),
            ):
                if limit_ms:
                    times[job.lease] = now_ns + (start_up_ms + limit_ms) * MS

    def extend(self, lease: Lease, for_ms: int, now_ns: int) -> None:
        """The handler asks for so long from now on. Too late where it was told to end; nothing where it has
        no timeout. Its soft timeout keeps the distance to the other one."""
        if lease in self._told:
            return
        if lease in self._until_ns:
            self._until_ns[lease] = now_ns + for_ms * MS
        if lease in self._soft_ns:
            options = self.jobs[lease].options
            distance_ms = options.timeout_ms - options.soft_timeout_ms if options.timeout_ms else 0
            self._soft_ns[lease] = now_ns + (for_ms - distance_ms) * MS

    def ended(self, lease: Lease) -> None:
        """Forget the timeout of a job whose handler has ended."""
        if self.jobs.pop(lease, None) is not None:
            self._until_ns.pop(lease, None)
            self._soft_ns.pop(lease, None)
            self._told.discard(lease)

    def untold(self, jobs: Iterable[LeasedJob]) -> list[LeasedJob]:
        """Those whose handlers were not told to end."""
        return [job for job in jobs if job.lease not in self._told]

    def next_ns(self) -> int | None:
        """When the next timeout is due, monotonic ns."""
        return min((*self._until_ns.values(), *self._soft_ns.values()), default=None)

    def due(self, now_ns: int) -> tuple[list[StopHandler], list[LeasedJob]]:
        """The handlers that have to be told now, and the jobs whose handlers are given up."""
        stop: list[StopHandler] = []
        give_up: list[LeasedJob] = []
        for lease in [lease for lease, soft_ns in self._soft_ns.items() if soft_ns <= now_ns]:
            del self._soft_ns[lease]
            stop.append(StopHandler(self.jobs[lease], "soft timeout"))
        for lease in [lease for lease, until_ns in self._until_ns.items() if until_ns <= now_ns]:
            job = self.jobs[lease]
            if lease not in self._told:
                self._told.add(lease)
                self._soft_ns.pop(lease, None)
                stop.append(StopHandler(job))
                if job.name in self._stoppable:
                    self._until_ns[lease] = now_ns + CLEAN_UP_MS * MS
                    continue
            give_up.append(job)
            del self._until_ns[lease]
        return stop, give_up


def timed_out(job: LeasedJob, more: str = "") -> str:
    """The error of a run that took too long; `more`: what its handler raised when it was cancelled."""
    text = f"TimeoutError: {timeout_of(job)}"
    return f"{text}, then {more}" if more else text


def timeout_of(job: LeasedJob) -> TimeoutError:
    """What rules of errors are asked about then."""
    return TimeoutError(f"not done within {job.options.timeout_ms} ms")


#: After its grace a worker still says so long which leases it gives back. So long the handlers that can be
#: stopped may take to end.
GOODBYE_MS = 1000


class Stopping:
    """Why a worker stops, since when, and when it no longer waits, which is asked only once it stops. Nothing
    starts once a stop is asked for; handlers that run get the grace."""

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

    def grace_over(self, now_ns: int) -> bool:
        """Whether handlers that run are not waited for any longer."""
        return now_ns >= self._until_ns

    def next_ns(self, now_ns: int) -> int:
        """When the grace period ends, monotonic ns."""
        return self._until_ns if now_ns < self._until_ns else self._until_ns + GOODBYE_MS * MS

    def over(self, now_ns: int, *, running: bool, telling: bool) -> bool:
        """Whether to leave now. `running`: a handler is on, or a job leased; `telling`: a call is out, or has
        to go out."""
        if not (running or telling):
            return True
        late = now_ns >= self._until_ns + GOODBYE_MS * MS
        return self.grace_over(now_ns) and (not telling or late)
