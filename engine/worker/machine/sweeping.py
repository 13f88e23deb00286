"""A worker's sweeps: when the next one is due, the ticks of schedules that it finds due, and whether other
workers are still there. Pure code, a part of the state machine."""

from __future__ import annotations

from collections.abc import Callable

from engine.calendar import UnknownZone, calendar
from engine.ops import schedules
from engine.ops.base import Operation, ServerClock
from engine.ops.claims import ReadWorkerUpdates, ReapLost, Sweep, Swept
from engine.ops.looks import Count
from engine.ops.schedules import DueSchedule, Tick, TickPolicy, Timing
from engine.ops.workers import Beaten, ClientConnection, Connected, ListConnections, ListedConnections
from engine.worker.machine.events import MS
from engine.worker.machine.settings import Settings

#: Most jobs that one sweep moves, where a lease that is reaped counts as two. So a sweep takes the server
#: some 3 ms at most. As long as there are more, the next one follows at once.
SWEEP_LIMIT = 100
#: Leases that one call looks at for workers whose heartbeats have stopped. It reaps at most 50 of them.
ORPHANS_PAGE = 250
DONE_MAX = 1000
#: A follower that notes that something falls due sweeps no sooner than so much later, because each of its
#: claims tells it so.
FOLLOW_MS = 200
#: So long a worker leaves a schedule whose zone it does not know to workers that do, before it sets it aside
#: for all of them.
ZONE_PATIENCE_MS = 30_000


# -- Which ticks of a due schedule make a job, and which are missed.

#: Jobs of one tick call, and so the most ticks that are made up for at once; older ones count as missed.
CATCH_UP_MAX = 100
_ERROR_CHARACTERS_MAX = 200


def tick(due: DueSchedule, now_ms: int, incarnation: str, counter: int) -> Tick:
    """The call that makes the jobs of a due schedule and moves it on; one that cannot be read is set aside
    with the reason."""
    try:
        timing = schedules.from_stored(Timing, due.timing)
        policy = schedules.from_stored(TickPolicy, due.policy)
        known = calendar(timing)
        seen, total = known.between(due.expected_ms, now_ms, due.anchor_ms, CATCH_UP_MAX)
        next_ms = known.after(seen[-1], due.anchor_ms)
    except (ValueError, ArithmeticError) as error:
        # Also what datetime raises for times beyond its calendar.
        text = str(error)[:_ERROR_CHARACTERS_MAX] or type(error).__name__
        return Tick(incarnation, counter, due.schedule, due.version, due.expected_ms, (), 0, 0, "allow", text)
    ticks = _wanted(seen, now_ms - due.expected_ms > policy.late_ms, now_ms, policy)
    missed = total - len(ticks)
    return Tick(
        incarnation,
        counter,
        due.schedule,
        due.version,
        due.expected_ms,
        ticks,
        next_ms,
        missed,
        policy.overlap,
    )


def zone_unknown(due: DueSchedule) -> bool:
    """Whether nothing but its zone keeps this machine from reading a schedule: one that has it, or newer
    ones, can."""
    try:
        calendar(schedules.from_stored(Timing, due.timing))
    except UnknownZone:
        return True
    except ValueError:
        return False
    return False


def _wanted(seen: list[int], late: bool, now_ms: int, policy: TickPolicy) -> tuple[int, ...]:
    """Those of the last due ticks that make a job: all of them, unless the first due one is late."""
    if late and policy.missed == "skip":
        return tuple(tick_ms for tick_ms in seen if now_ms - tick_ms <= policy.late_ms)
    return tuple(seen[-1:] if late and policy.missed == "once" else seen)


class Sweeping:
    """When to sweep, and what follows. Updates are read, if there are any, and due schedules tick; the
    leases of workers whose heartbeats have stopped are reaped; in burst mode jobs are counted (rule 13).

    The leader sweeps in each interval and as soon as something falls due. So do a worker that is not listed,
    and a burst, because it has to know when nothing is left. A follower sweeps only for what its own claims
    have told it.
    """

    def __init__(self, settings: Settings, now_ns: int) -> None:
        self._settings = settings
        #: Whether it sweeps whoever leads.
        self._always = not settings.beat_ms or settings.burst
        self.leads = not settings.beat_ms
        #: Whether it sweeps in each interval.
        self.regular = self._always or self.leads
        #: When the next sweep begins; None: it is left to the leader.
        self.at_ns: int | None = now_ns if self._always else None
        self._orphaned = False
        self._sweeps = 0
        #: What is left of the sweep that is on.
        self.rest: list[Operation] = []
        #: Due schedules of a zone that is not known here, by name, version and tick: since when (server ms).
        self._left: dict[tuple[str, str, int], int] = {}
        self._incarnation = ""
        #: The classes that a burst works off.
        self.classes = settings.classes
        #: The updates are on their way.
        self.asking = False
        # The version of the last wake-up that came meanwhile.
        self._taken: int | None = None

    def next_counter(self) -> int:
        """The number of the next call that counts as a sweep of this incarnation."""
        self._sweeps += 1
        return self._sweeps

    def next_operation(self, incarnation: str, now_ns: int, run_id: str = "") -> Operation | None:
        """The next call of the running sweep, or the first one of a sweep that is due. `run_id`: as in
        Sweep."""
        if not self.rest and self.at_ns is not None and now_ns >= self.at_ns:
            most_ms = self._settings.sweep_ms
            self.at_ns = now_ns + most_ms * MS if self.regular else None
            self._incarnation = incarnation
            # A schedule that is left to others is left to their leader.
            sweep = Sweep(
                incarnation,
                self.next_counter(),
                SWEEP_LIMIT,
                most_ms,
                DONE_MAX,
                yields=bool(self._left),
                run_id=run_id,
            )
            self.rest = [sweep]
            if self._orphaned:
                self.rest.append(
                    Sweep(incarnation, self.next_counter(), ORPHANS_PAGE, most_ms, 0, orphans=True)
                )
            if self._settings.burst:
                self.rest.append(Count())
        operation = self.rest.pop(0) if self.rest else None
        return self._count(operation.cursor) if isinstance(operation, Count) else operation

    def _count(self, cursor: str) -> Count:
        """The count of what this worker may run. Without a class that it may run, nothing that waits is for
        it."""
        classes, settings = self.classes or ("@",), self._settings
        return (
            Count(classes, cursor, settings.attributes, settings.priorities)
            if settings.routes_at_claim
            else Count(classes, cursor)
        )

    def count_on(self, cursor: str) -> None:
        """Nothing waits in the lanes that were counted: count the next ones."""
        self.rest.insert(0, Count(cursor=cursor))

    def learn(self, version: int, *, took_wake_up: bool = False) -> None:
        """There is something new to who knows this version. `took_wake_up`: others wait for the
        same wake-up, and only asking leaves it for them (read_worker_updates.lua). So while an answer is on
        its way, the updates are asked for once more after it."""
        if not self.asking:
            self.rest.insert(0, ReadWorkerUpdates(version, self._settings.name))
            self.asking = True
        elif took_wake_up:
            self._taken = version

    def learned(self, classes: tuple[str, ...]) -> None:
        """Note that the updates have been read."""
        self.asking = False
        self.classes = classes
        if self._taken is not None:
            self.learn(self._taken)
            self._taken = None

    def beaten(self, reply: Beaten, done_ns: int) -> None:
        """Note the reply of a heartbeat: whether this worker leads, and whether workers have died that may
        have left leases."""
        if reply.orphaned:  # anchor: orphans-are-looked-for
            self._orphaned = True
        if reply.leads != self.leads:
            self._lead(reply.leads, done_ns)
        if self._orphaned:
            self.soon(done_ns)

    def _lead(self, leads: bool, done_ns: int) -> None:
        """From now on this worker leads, and sweeps at once, or leads no more."""
        self.leads = leads
        self.regular = self._always or leads
        if leads:
            self.soon(done_ns)  # anchor: new-leader-sweeps
        elif not self._always:
            self.at_ns = None

    def swept(self, operation: Sweep, reply: Swept, done_ns: int) -> bool:
        """Note the reply of a sweep. Schedules that are due tick before the next one. Returns whether it has
        ended this worker's lead."""
        if operation.orphans:
            self._orphaned = not reply.sleep_ms
            if self._orphaned:
                # A page of many: the next one follows at once.
                self.soon(done_ns)
            return False
        now_ms = reply.srv_us // 1000
        ticks: list[Operation] = []
        left, self._left = self._left, {}
        for due in reply.due:
            made = tick(due, now_ms, self._incarnation, self._sweeps + 1)
            if made.error and zone_unknown(due):
                tick_of = (due.schedule, due.version, due.expected_ms)
                since_ms = self._left[tick_of] = left.get(tick_of, now_ms)
                if now_ms - since_ms < ZONE_PATIENCE_MS:
                    continue
            self._sweeps += 1
            ticks.append(made)
        if not (reply.sleep_ms or reply.due):
            # More is to be swept at once: a burst that ended before it would leave results of parents behind
            # that nobody lets go.
            self.rest = [operation for operation in self.rest if not isinstance(operation, Count)]
        self.rest[:0] = ticks
        ended = self.leads and not reply.leads and bool(self._settings.beat_ms)
        if ended:
            self._lead(False, done_ns)
        # What is left stays due, so the reply says "at once"; the worker that it is left to needs a moment.
        self.not_after(done_ns, max(reply.sleep_ms, FOLLOW_MS) if self._left else reply.sleep_ms)
        return ended

    def not_after(self, done_ns: int, sleep_ms: int) -> None:
        """A reply said for how long one may sleep. Sweep then at the latest; as a follower, only if something
        falls due before the interval is over."""
        if sleep_ms >= self._settings.sweep_ms and not self.regular:
            return
        least_ms = 1 if self.leads else min(FOLLOW_MS, self._settings.sweep_ms)
        self.soon(done_ns + max(least_ms, sleep_ms) * MS)

    def soon(self, at_ns: int) -> None:
        """Sweep at this time at the latest."""
        self.at_ns = at_ns if self.at_ns is None else min(self.at_ns, at_ns)

    def tick_failed(self, now_ns: int) -> None:
        """Skip a tick that the server refused. The other schedules go on, and the next sweep tries it
        again."""
        self.at_ns = max(self.at_ns or 0, now_ns + self._settings.sweep_ms * MS)

    def failed(self, now_ns: int) -> None:
        """Drop the rest of a sweep of which a call was not answered; the next sweep starts from the
        beginning."""
        self.rest.clear()
        self.asking = False
        self.at_ns = now_ns + self._settings.sweep_ms * MS


# -- Presence: whether the workers of a queue are connected, so that the leases of one that was killed are
# reaped at once, and not when they run out (rule 39). Pure code, a part of the state machine.
#
# Once a second one sweep of the queue is answered with the control connections of all workers, and its worker
# looks whether they are there. What is missing is looked for once more: a live worker connects again at once,
# and says so. A worker that was missing twice is lost, and its leases are reaped on condition that it has
# named no other connection. A look that says nothing about a single worker (a slow answer, another server, or
# most connections missing) has no consequences (rule 11).

#: So long a worker has to connect again and to say so, between the two looks.
AGAIN_MS = 600
#: An answer that took longer says that the server, or this machine, stood still, and so may the workers that
#: are missing.
PROMPT_MS = 250
#: A reap that arrives later than this after what it follows from is void.
VOID_MS = 500
#: So many looks in a row that were not answered, or refused, are the last ones until the next connection.
FAILED_LOOKS_MAX = 3
#: A worker whose lease was reaped names no connection for so long. The server may have lost the one that this
#: worker still holds, and its socket finds that out in half of this time (KEEP_ALIVE_S of
#: engine/redis/dialer.py).
DOUBT_MS = 10_000
#: Leases that one call looks at.
REAP_PAGE = 250


class Presence:
    """This worker's own control connection, and the looks that it has been asked for."""

    def __init__(self, clock: ServerClock) -> None:
        self._clock = clock
        self._own: ClientConnection | None = None
        self._void_ms = 0
        self.connected(None)

    def connection(self, now_ns: int) -> str:
        """What heartbeats say of the control connection. One behind a proxy is not named, because it need not
        end with this process."""
        if self._own is None or not self._own.direct or now_ns < self._doubtful_until_ns:
            return ""
        return f"{self._own.client_id} {self._own.run_id}"

    @property
    def run_id(self) -> str:
        """The server that this worker can look at; '' where it cannot."""
        return "" if self._own is None or not self._may_look else self._own.run_id

    def connected(self, own: ClientConnection | None) -> bool:
        """There is a new control connection, or none of which the server says anything. Returns whether
        others must be told."""
        before, self._own = self._own, own
        # A server that refuses a look is not asked again before the next connection.
        self._may_look = True
        self._failed_looks = self._doubtful_until_ns = 0
        self._drop()
        return own != before

    def doubted(self, now_ns: int) -> None:
        """A lease of this worker was taken while it lives. A connection that the server has lost must not be
        named again, or the next lease would be taken, too."""
        self._doubtful_until_ns = now_ns + DOUBT_MS * MS

    def next_ns(self) -> int | None:
        """When there is something to do."""
        return 0 if self._lost else self._look_at_ns

    def assigned(self, watched: tuple[Connected, ...], now_ns: int) -> None:
        """A sweep has asked this worker to look at these connections. Who has lost its own since cannot look,
        and would want to at once for ever."""
        own = self._own
        others = own is not None and any(worker.client_id != own.client_id for worker in watched)
        if others and self._look_at_ns is None and not self._lost:
            self.looks = True
            self._watched, self._look_at_ns = watched, now_ns  # anchor: looks-follow-at-once

    def next_operation(
        self, incarnation: str, next_counter: Callable[[], int], now_ns: int
    ) -> Operation | None:
        """The look, or the reap, that is due."""
        # Where it has none there is nothing to look for.
        assert self._own is not None
        if self._lost:
            return ReapLost(
                incarnation,
                next_counter(),
                REAP_PAGE,
                self._void_ms,
                self._lost,
                self._own.run_id,
                *self._goes_on,
            )
        if self._look_at_ns is None or now_ns < self._look_at_ns:
            return None
        # Its own is always among them, and shows that the right server has answered.
        return ListConnections(
            tuple({self._own.client_id: None, **{worker.client_id: None for worker in self._watched}})
        )

    def looked(self, reply: ListedConnections, first_send_ns: int, done_ns: int) -> None:
        """Take what a look has found."""
        self._failed_looks = 0
        missing = frozenset(worker for worker in self._watched if worker.client_id not in reply.addresses)
        # The own one was looked for, too, also where it is not named.
        asked = {worker.client_id for worker in (*self._watched, *filter(None, (self._own,)))}
        gone = {worker.client_id for worker in missing}
        most = 2 * len(gone) > len(asked)  # anchor: most-connections-do-not-die-at-once
        if not missing or most or not self._says_something(reply, first_send_ns, done_ns):
            self._drop()
        elif not self._missed:  # anchor: missing-twice-is-lost
            self._missed, self._look_at_ns = missing, done_ns + AGAIN_MS * MS
        else:
            lost = missing & (self._missed or missing)
            self._drop()
            self._lost, self.looks = tuple(sorted(lost)), bool(lost)
            self._void_ms = self._clock.now_ms(done_ns) + VOID_MS

    def _says_something(self, reply: ListedConnections, first_send_ns: int, done_ns: int) -> bool:
        own = self._own
        answered = own is not None and reply.addresses.get(own.client_id) == own.address
        return answered and done_ns - first_send_ns <= PROMPT_MS * MS  # anchor: slow-looks-say-nothing

    def reaped(self, reply: Swept, done_ns: int) -> None:
        """A page of the reap is over."""
        self._goes_on = reply.goes_on or ("", "")
        if reply.goes_on is None:
            self._lost, self.looks = (), False
        self._void_ms = self._clock.now_ms(done_ns) + VOID_MS

    def failed(self, *, fault: bool) -> None:
        """A look or a reap was not answered, or with `fault` refused."""
        self._failed_looks += 1
        self._may_look = self._may_look and not fault and self._failed_looks < FAILED_LOOKS_MAX
        self._drop()

    def _drop(self) -> None:
        #: Whether there is a look or a reap to do, now or later.
        self.looks = False
        self._watched: tuple[Connected, ...] = ()
        # Those that the first look has missed.
        self._missed: frozenset[Connected] = frozenset()
        self._look_at_ns: int | None = None
        self._lost: tuple[Connected, ...] = ()
        self._goes_on = ("", "")
