"""A worker's claims and waits: their identity, the classes that they name, and how long a wait blocks on the
server. `Claiming` says whether a claim is worth sending, `Allowance` whether it is allowed, and `Prefetch`
for how many jobs. `CallsInFlight` has one of each kind at most. Pure code, a part of the state machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.ops.base import BLOCK_MS, Call, ServerClock
from engine.ops.claims import Claim, Claimed, Wait, WorkerUpdates
from engine.routing import DEFAULT_ROUTE, matching
from engine.worker.machine.concurrency import Quota, Share
from engine.worker.machine.events import MS, Action, CallKind, Send
from engine.worker.machine.settings import Gate, Settings

#: Blocking on 1,000 lists costs the server 0.4 ms: at most 16, and one of them is the worker's own, which
#: brings updates.
CLASSES_PER_CALL_MAX = 15


class ClassRotation:
    """The classes that the next claim and the next wait name: at most 15 a call, group by group (rules 18 and
    22)."""

    def __init__(self, classes: Sequence[str]) -> None:
        step = CLASSES_PER_CALL_MAX
        self._groups = [tuple(classes[at : at + step]) for at in range(0, len(classes), step)] or [()]
        #: How many.
        self.groups = len(self._groups)
        self._at = 0
        self._found_empty = 0

    def current(self) -> tuple[str, ...]:
        """The classes that the next call names."""
        return self._groups[self._at]

    def begin(self) -> None:
        """Any group may have work for us."""
        self._found_empty = 0

    def claimed(self, *, more: bool) -> bool:
        """A claim was answered; `more`: it left work behind, as far as one can tell. True while a group may
        have work for us."""
        self._found_empty = 0 if more else self._found_empty + 1
        self._at = (self._at + 1) % self.groups
        return self._found_empty < self.groups

    def waited(self, *, found_work: bool) -> None:
        """A wait ended. The group that it found work of is claimed next."""
        if found_work:
            self._found_empty = 0
        else:
            self._at = (self._at + 1) % self.groups


class Claiming:
    """Counts the claims of one incarnation (rule 4) and remembers whether work may be there.

    A worker wants jobs until a claim has found nothing more, and again after a wake-up.
    """

    def __init__(self, settings: Settings, clock: ServerClock, new_incarnation: Callable[[], str]) -> None:
        self._settings = settings
        self._clock = clock
        self._new_incarnation = new_incarnation
        self.incarnation = new_incarnation()
        self._counter = 0
        # Jobs that want nothing of a worker are of the class of their name, and where each claim looks at
        # that, all jobs.
        plain = settings.routes_at_claim or DEFAULT_ROUTE in settings.attributes.routes
        self._plain = settings.classes if plain else ()
        #: The classes whose jobs this worker may run, as far as it knows.
        self.classes = self._plain
        self._rotation = ClassRotation(self.classes)
        #: Of the updates that this worker has.
        self.version = 0
        #: A claim may find work.
        self.wants_jobs = bool(self.classes)
        #: A claim is on its way.
        self.asking = False
        # A wake-up came since the last claim was built: that claim may have been answered before the work
        # came.
        self._notified = False

    def want(self) -> None:
        """A claim may find work, where there is a class to claim from."""
        self.wants_jobs = bool(self.classes)

    def learned(self, reply: WorkerUpdates) -> None:
        """The classes with targets, of which some may match this worker."""
        self.version = reply.version
        # anchor: only-matching-classes-are-claimed
        classes = self._plain + matching(reply.targets, self._settings.classes, self._settings.attributes)
        if classes != self.classes:
            self.classes = classes
            self._rotation = ClassRotation(classes)
            self.notify_work(True)

    def take_new_incarnation(self) -> None:
        """Go on under a new incarnation: another process uses the present one."""
        self.incarnation = self._new_incarnation()
        self._counter = 0
        self.want()

    def notify_work(self, found_work: bool) -> None:
        """Note that there may be work."""
        if found_work:
            self.want()
            self._notified = True

    def look_again(self) -> bool:
        """Claim from all classes once more, whatever was found before. False: there is no class to claim
        from."""
        self._rotation.begin()
        self.notify_work(True)
        return self.wants_jobs

    def waited(self, *, found_work: bool) -> None:
        """Note the end of a wait for work."""
        self._rotation.waited(found_work=found_work)
        self.notify_work(found_work)

    def answered(self, claim: Claim | None, claimed: Claimed) -> None:
        """What a claim found. Fewer than it asked for: nothing was left, or the script has left a wake-up for
        what was."""
        self.asking = False
        asked = claim.most if claim is not None else 0
        full = len(claimed.jobs) + len(claimed.unreadable) >= asked
        more = full or self._notified or claimed.result not in ("leased", "empty")
        self.wants_jobs = self._rotation.claimed(more=more) and bool(self.classes)

    def next_claim(self, most: int, crashed_max: int, now_ns: int) -> Claim:
        """Build the next claim, which is sent now. The server's time must be known."""
        self._counter += 1
        self._notified = False
        self.asking = True
        return Claim(
            incarnation=self.incarnation,
            counter=self._counter,
            most=most,
            lease_ms=self._settings.lease_ms,
            not_after_ms=self._clock.now_ms(now_ns) + self._settings.lease_ms * 4 // 5,
            owner=self._settings.name,
            sleep_max_ms=self._settings.sweep_ms,
            classes=self._rotation.current(),
            crashed_max=crashed_max,
            priorities=self._settings.priorities,
            worker=self._settings.attributes,
        )

    def next_wait(self) -> Wait:
        """The wait for a wake-up; where there are several groups of classes, of all of them in one sweep
        interval (rule 22)."""
        groups = self._rotation.groups
        # Where a worker took a wake-up and died with it, the leader leaves another one in each sweep
        # interval: nobody has to look for it before.
        block_ms = BLOCK_MS if groups == 1 else max(1, min(self._settings.sweep_ms, BLOCK_MS) // groups)
        return Wait(block_ms, self._rotation.current(), self.version)


# -- What a worker may claim now.

#: A gate that was closed is asked again after so long.
GATE_MS = 200


class Allowance:
    """What a worker may claim now: its own pause and the one set by an administrator, how many handlers may
    run at once, and what its gate answers. Jobs whose handlers run go on whatever it says."""

    def __init__(
        self, settings: Settings, gate: Gate | None, share: Share | None = None, quota: Quota | None = None
    ) -> None:
        #: The places belong to several shards, and this says how many this one has now.
        self.quota = quota
        self._concurrency = settings.concurrency
        self._gate = gate
        #: The places belong to several queues, and this says which of them are for this one.
        self.share = share
        #: Handlers of the pool that may run at once.
        self.pooled = settings.concurrency if quota is None else 0
        #: Whether the gate has allowed nothing when it was last asked.
        self.gate_closed = False
        #: Whether there is a pause, or the gate was found closed: only then time decides what may be claimed.
        self.restrained = False
        # By the worker's own `pause`.
        self._paused_here = False
        # From afar: until this instant, 0 = until it is resumed.
        self._paused_until_ns: int | None = None
        self._ask_at_ns = 0

    def pause_here(self, paused: bool) -> None:
        """The worker itself begins or ends a pause."""
        self._paused_here = paused
        self._restrain()

    def _restrain(self) -> None:
        self.restrained = self._paused_here or self._paused_until_ns is not None or self._ask_at_ns > 0

    def learned(self, reply: WorkerUpdates, done_ns: int) -> None:
        """Apply what an administrator has set. A worker cannot run more handlers than it was started with."""
        if self.quota is None:
            self.pooled = (
                min(reply.concurrency, self._concurrency) if reply.concurrency else self._concurrency
            )
        if not reply.pause_ms:
            self._paused_until_ns = reply.pause_ms
        else:
            self._paused_until_ns = done_ns + reply.pause_ms * MS
        self._restrain()

    def paused(self, now_ns: int) -> bool:
        """Whether nothing may be claimed or started."""
        until_ns = self._paused_until_ns
        return self._paused_here or (until_ns is not None and (until_ns == 0 or now_ns < until_ns))

    def closed(self, now_ns: int) -> bool:
        """Whether nothing may be claimed: a pause is on, or the gate has just been found closed."""
        return self.paused(now_ns) or now_ns < self._ask_at_ns

    def kept_back(self, now_ns: int) -> dict[str, bool]:
        """What keeps the worker from claiming, for its heartbeats; nothing where it may claim."""
        reasons = {"paused": self.paused(now_ns), "gate_closed": self.gate_closed}
        return {reason: on for reason, on in reasons.items() if on}

    def most(self, free: int, leased: int, now_ns: int) -> int:
        """How many of so many jobs may be claimed; so many are leased."""
        if (self.restrained and self.closed(now_ns)) or (self.quota is not None and not self.quota.open):
            return 0
        most = free
        if self._gate is not None:
            said = self._gate()
            most = free if said is True else min(free, int(said))
            self.gate_closed = most <= 0
            self._ask_at_ns = now_ns + GATE_MS * MS if most <= 0 else 0
            self._restrain()
        return most if self.share is None or most <= 0 else self.share.allow(most, leased)

    def next_ns(self, now_ns: int) -> int | None:
        """When a pause ends or the gate is asked again, monotonic ns."""
        if not self._paused_until_ns and not self._ask_at_ns:
            return None
        times = [at_ns for at_ns in (self._paused_until_ns or 0, self._ask_at_ns) if at_ns > now_ns]
        return min(times, default=None)


# -- Calls in flight, one of each kind at most, and what has to be sent again. Pure code, a part of the step
# machine.

#: A failed call is tried again after this pause; its own re-sends have already taken the driver's deadline.
RESEND_MS = 100
#: After so many failures in a row the pause doubles with each further one, up to the most: a worker is back
#: within a second.
_PATIENT = 10
RESEND_MOST_MS = 1_000


class CallsInFlight:
    """One call of each kind at a time. A call that must be answered is sent again, the same, until it is
    (rule 4)."""

    def __init__(self) -> None:
        #: The kinds of those that are in flight.
        self.busy: set[CallKind] = set()
        #: When those were first sent of which a copy is unanswered, monotonic ns: a lease counts from there
        #: (rule 9).
        self.first_sends: dict[CallKind, int] = {}
        #: What has to be sent again.
        self.again: dict[CallKind, Call[Any]] = {}
        #: When the pauses end of kinds of which nothing is sent for a while, monotonic ns.
        self.paused: dict[CallKind, int] = {}
        #: How often in a row they have failed: the pause after the next failure is as long.
        self.failures: dict[CallKind, int] = {}

    def tick(self, now_ns: int) -> None:
        """End the pauses whose time is over."""
        self.paused = {kind: at_ns for kind, at_ns in self.paused.items() if at_ns > now_ns}

    def free(self, kind: CallKind) -> bool:
        """Whether a call of this kind may be sent: none is in flight, and there is no pause."""
        return kind not in self.busy and kind not in self.paused

    def pauses(self) -> list[int]:
        """When the pauses end of kinds without a call in flight, monotonic ns."""
        return [at_ns for kind, at_ns in self.paused.items() if kind not in self.busy]

    def pause(self, kind: CallKind, now_ns: int) -> None:
        """Send nothing for a while, longer with each failure in a row. So a server that refuses for hours is
        not asked ten times a second by each worker."""
        failures = self.failures[kind] = self.failures.get(kind, 0) + 1
        pause_ms = min(RESEND_MS << min(max(0, failures - _PATIENT), 10), RESEND_MOST_MS)
        self.paused[kind] = now_ns + pause_ms * MS

    def resend(
        self, kind: CallKind, call: Call[Any], now_ns: int, *, unanswered_since_ns: int | None = None
    ) -> None:
        """Send this call after the pause. `unanswered_since_ns`: a copy that was first sent then is
        unanswered."""
        if unanswered_since_ns is not None:
            self.first_sends.setdefault(kind, unanswered_since_ns)
        self.again[kind] = call
        self.pause(kind, now_ns)

    def drop_claim(self) -> None:
        """A claim of an old incarnation is not sent again: its other user is answered by it."""
        waiting = self.again.get("work")
        if waiting is not None and isinstance(waiting.operation, Claim):
            del self.again["work"]

    def takes(self, kind: CallKind, actions: list[Action]) -> bool:
        """Whether a new call of this kind may be sent. What waits to be sent again goes first, and is sent
        here."""
        if kind in self.busy or kind in self.paused:
            return False
        call = self.again.pop(kind, None)
        if call is not None:
            self.send(kind, call, actions, again=kind in self.first_sends)
        return call is None

    def send(self, kind: CallKind, call: Call[Any], actions: list[Action], *, again: bool = False) -> None:
        """Send a call of this kind."""
        self.busy.add(kind)
        actions.append(Send(kind, call, again))


# -- How many jobs a worker leases ahead of its free handlers.

#: What is taken ahead fills this time.
FILL_MS = 50
#: What more than that was taken, because handlers have become slower since, goes back when it has waited this
#: long.
WAIT_MS_MAX = 4 * FILL_MS
#: Weight of the newest run in the mean.
_NEWEST = 1 / 8


class Prefetch:
    """How many jobs a worker takes ahead of its handlers: what they work off in 50 ms, by their measured time
    (rule 21).

    More would wait behind one slow handler while other workers idle; fewer would leave handlers idle during a
    round trip. The number starts at 1, at most doubles with each run that has ended, and shrinks at once.
    """

    def __init__(self, places: int, most: int) -> None:
        self._places = places
        self._most = most
        self._mean_ns = 0.0
        self._grown = 1

    def ended(self, took_ns: int) -> None:
        """Count a run that took this long, in ns."""
        self._mean_ns += (took_ns - self._mean_ns) * (_NEWEST if self._mean_ns else 1)
        grown = min(2 * self._grown, self._most)
        if not self._mean_ns or grown * self._mean_ns > self._places * FILL_MS * MS:
            grown = min(grown, self._fill(self._places))
        self._grown = grown or 1

    def ahead(self, running_since_ns: Iterable[int], now_ns: int, places: int | None = None) -> int:
        """Jobs to have leased beyond those that run. `running_since_ns`: when the handlers that run were
        started, oldest first. `places`: of so many handlers, where not all may run these jobs.

        A handler that takes longer than usual frees no place soon, also one whose time nobody knows yet.
        """
        turning = self._places if places is None else places
        for since_ns in running_since_ns:
            if now_ns - since_ns <= FILL_MS * MS + self._mean_ns:
                break
            turning -= 1
        return min(self._most, self._grown, self._fill(turning))

    def _fill(self, handlers: int) -> int:
        """Jobs that so many handlers finish in the time to fill; 1 before anything was measured."""
        if not self._mean_ns:
            return min(1, handlers)
        return int(handlers * FILL_MS * MS / self._mean_ns)
