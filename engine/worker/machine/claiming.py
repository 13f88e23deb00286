"""A worker's claims: their identity, the classes that they name, and whether one is worth sending. Pure code, a part of the step
machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.ops.claims import Claim, Claimed
from engine.ops.sweeps import Wait, WorkerUpdates
from engine.routing import DEFAULT_ROUTE, matching
from engine.server_clock import ServerClock
from engine.worker.machine.events import Settings

#: Blocking on 1,000 lists costs the server 0.4 ms: at most 16, and one of them is the worker's own, on which it hears of updates.
CLASSES_PER_CALL_MAX = 15
#: So long a worker blocks at most. Whoever leads sets the marker again that another one has taken and died with, in each sweep
#: interval, so nobody has to look for it before; but a connection that has died unnoticed shows only when a block is over.
BLOCK_MS = 5_000


class ClassTurns:
    """Which of a worker's classes its next claim and its next wait are about: at most 15 a call, group by group (rules 18 and
    22)."""

    def __init__(self, classes: Sequence[str]) -> None:
        step = CLASSES_PER_CALL_MAX
        self._groups = [tuple(classes[at : at + step]) for at in range(0, len(classes), step)] or [()]
        self._at = 0
        self._found_empty = 0

    @property
    def groups(self) -> int:
        """The number of groups."""
        return len(self._groups)

    def current(self) -> tuple[str, ...]:
        """The classes that the next call names."""
        return self._groups[self._at]

    def begin(self) -> None:
        """Any group may have work for us."""
        self._found_empty = 0

    def claimed(self, *, more: bool) -> bool:
        """A claim was answered; `more`: it left work behind, as far as one can tell. True while a group may have work for us."""
        self._found_empty = 0 if more else self._found_empty + 1
        self._at = (self._at + 1) % self.groups
        return self._found_empty < self.groups

    def waited(self, *, marker: bool) -> None:
        """A wait ended. The group that it found a marker of is claimed next."""
        if marker:
            self._found_empty = 0
        else:
            self._at = (self._at + 1) % self.groups


class Claiming:
    """Counts the claims of one incarnation (rule 4) and remembers whether work may be there.

    A worker is hungry until a claim has found nothing more, and again when it hears of work.
    """

    def __init__(self, settings: Settings, clock: ServerClock, new_incarnation: Callable[[], str]) -> None:
        self._settings = settings
        self._clock = clock
        self._new_incarnation = new_incarnation
        self.incarnation = new_incarnation()
        self._counter = 0
        # Jobs that want nothing of a worker are of the class of their name, and where each claim looks at that, all jobs.
        plain = settings.routes_at_claim or DEFAULT_ROUTE in settings.attributes.routes
        self._plain = settings.classes if plain else ()
        #: The classes whose jobs this worker may run, as far as it knows.
        self.classes = self._plain
        self._turns = ClassTurns(self.classes)
        #: Of the news, as this worker knows them.
        self.version = 0
        self._hungry = True
        #: A claim is on its way.
        self.asking = False
        # A marker came since the last claim was built: that claim may have been answered before the work came.
        self._heard = False

    @property
    def hungry(self) -> bool:
        """Whether a claim may find work."""
        return self._hungry and bool(self.classes)

    @hungry.setter
    def hungry(self, hungry: bool) -> None:
        self._hungry = hungry

    def learned(self, reply: WorkerUpdates) -> None:
        """The classes with targets, of which some may match this worker."""
        self.version = reply.version
        # anchor: only-matching-classes-are-claimed
        classes = self._plain + matching(reply.targets, self._settings.classes, self._settings.attributes)
        if classes != self.classes:
            self.classes = classes
            self._turns = ClassTurns(classes)
            self.hear(True)

    def take_new_incarnation(self) -> None:
        """Go on under a new incarnation: another process uses the present one."""
        self.incarnation = self._new_incarnation()
        self._counter = 0
        self.hungry = True

    def hear(self, of_work: bool) -> None:
        """Note that there may be work."""
        self.hungry = self._hungry or of_work
        self._heard = self._heard or of_work

    def look_again(self) -> bool:
        """Claim from all classes once more, whatever was found before. False: there is no class to claim from."""
        self._turns.begin()
        self.hear(True)
        return self.hungry

    def waited(self, *, marker: bool) -> None:
        """Note the end of a wait for a marker."""
        self._turns.waited(marker=marker)
        self.hear(marker)

    def answered(self, claim: Claim | None, claimed: Claimed) -> None:
        """What a claim found. Fewer than it asked for: nothing was left, or the script has left a marker for what was."""
        self.asking = False
        asked = claim.limit if claim is not None else 0
        full = len(claimed.jobs) + len(claimed.unreadable) >= asked
        more = full or self._heard or claimed.result not in ("leased", "empty")
        self.hungry = self._turns.claimed(more=more)

    def next_claim(self, limit: int, crashed_max: int, now_ns: int) -> Claim:
        """Build the next claim, which is sent now. The server's time must be known."""
        self._counter += 1
        self._heard = False
        self.asking = True
        return Claim(
            incarnation=self.incarnation,
            counter=self._counter,
            limit=limit,
            lease_ms=self._settings.lease_ms,
            not_after_ms=self._clock.now_ms(now_ns) + self._settings.lease_ms * 4 // 5,
            owner=self._settings.name,
            sleep_max_ms=self._settings.sweep_ms,
            classes=self._turns.current(),
            crashed_max=crashed_max,
            priorities=self._settings.priorities,
            worker=self._settings.attributes,
        )

    def next_wait(self) -> Wait:
        """The wait for a marker; where there are several groups of classes, of all of them in one sweep interval (rule 22)."""
        groups = self._turns.groups
        block_ms = BLOCK_MS if groups == 1 else max(1, min(self._settings.sweep_ms, BLOCK_MS) // groups)
        return Wait(block_ms, self._turns.current(), self.version)
