"""How the workers of one process share its places: those of a group, and those of the shards of a queue. Pure
code but for locks, a part of the state machine."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from engine.worker.machine.events import MS

Strategy = Literal["strict", "weighted", "shuffle"]
#: Queues of one group: each has its own threads and connections.
QUEUES_MAX = 16
WEIGHT_MAX = 1000
#: A claim that is on its way for longer holds up nobody: its server may be gone.
PATIENCE_S = 1.0


class Share:
    """The part that one queue has of the places of a group. Its machine asks here before it claims, reports
    what it holds, and says how many jobs a claim has brought. See `Sharing`."""

    def __init__(self, sharing: Sharing, number: int) -> None:
        self._sharing = sharing
        self.number = number
        #: Look again: a place may be free. Set by the worker.
        self.poke: Callable[[], None] = lambda: None
        self.held = 0
        self.asked = 0
        self.asked_s = 0.0
        #: Its last claim has not been answered, or not yet.
        self.unanswered = False
        self.wants_jobs = True
        #: Jobs so far by weight: the least is next.
        self.passed = 0.0
        self.allow = partial(sharing.allow, self)
        self.report = partial(sharing.report, self)
        self.answered = partial(sharing.answered, self)

    @property
    def full(self) -> bool:
        """Whether all places of the group are taken."""
        return self._sharing.free <= 0


class Sharing:
    """Several queues share the `places` of one worker process: it decides which of them gets a place that is
    free.

    Pure code but for a lock: each queue has a machine of its own. The machines run in threads (rule 27: a
    queue is in one slot of a cluster, so each is claimed by itself). `strict`: a queue is claimed only while
    those before it have nothing. `weighted`: while several have work, in proportion to their weights.
    `shuffle`: each time one of those that may have work, by chance.
    """

    def __init__(
        self,
        places: int,
        weights: Sequence[int],
        strategy: Strategy,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._places = places
        self._weights = weights
        self._strategy = strategy
        self._draw = draw
        self._lock = threading.Lock()
        # Of a shuffle: who was drawn, until it has claimed or has nothing.
        self._drawn: Share | None = None
        self.shares = tuple(Share(self, number) for number in range(len(weights)))

    @property
    def free(self) -> int:
        """Places that are neither taken nor claimed for."""
        return self._places - sum(share.held + share.asked for share in self.shares)

    def allow(self, share: Share, want: int, held: int) -> int:
        """Grant free places one by one, as long as this queue is next."""
        with self._lock:
            # A machine has one claim on its way at most, so the one before this is answered.
            share.held, share.asked = held, 0
            self._begins_to_want(share)
            if share.unanswered:
                # Its server may be gone: such claims would hold all places until their deadlines.
                want = min(want, 1)
            free, granted = self.free, 0
            while granted < min(want, free) and self._next() is share:
                granted += 1
                share.passed += 1 / self._weights[share.number]
                self._drawn = None
            share.asked, share.asked_s = granted, time.monotonic()
            share.unanswered = share.unanswered or granted > 0
            other = self._to_poke(share) if granted < free else None
        if other is not None:
            other.poke()
        return granted

    def answered(self, share: Share, jobs: int) -> None:
        """Take back the places that a queue was granted and has not used."""
        with self._lock:
            share.unanswered = False
            share.passed -= max(0, share.asked - jobs) / self._weights[share.number]

    def report(self, share: Share, held: int, *, asking: bool, wants_jobs: bool) -> None:
        """Record the state of one queue, and wake the queues that may claim now."""
        with self._lock:
            before = self.free
            if wants_jobs:
                self._begins_to_want(share)
            gone = share.wants_jobs and not wants_jobs and not asking
            share.held = held
            share.asked = share.asked if asking else 0
            share.wants_jobs = wants_jobs or asking
            other = self._to_poke(share) if self.free > 0 and (gone or self.free > before) else None
        if other is not None:
            other.poke()

    def _begins_to_want(self, share: Share) -> None:
        """Start counting the jobs of a queue that was idle: it has saved up none."""
        if not share.wants_jobs:
            share.wants_jobs = True
            share.passed = max(
                share.passed, min((other.passed for other in self._wanting(share)), default=share.passed)
            )

    def _to_poke(self, share: Share) -> Share | None:
        """The queue that is next; None when that is the caller or its claim is in flight."""
        other = self._next()
        return None if other is None or other is share or other.asked else other

    def _wanting(self, share: Share) -> list[Share]:
        return [other for other in self.shares if other is not share and other.wants_jobs]

    def _next(self) -> Share | None:
        """The queue that gets the next place."""
        # One whose claim is on its way may want more. Its answer says so: the others wait for that, or
        # else whoever is answered fastest would get the most places.
        now_s = time.monotonic()
        wanting = [
            share
            for share in self.shares
            if share.wants_jobs and (not share.asked or now_s - share.asked_s < PATIENCE_S)
        ]
        if not wanting:
            return None
        if self._strategy == "strict":
            return wanting[0]
        if self._strategy == "weighted":
            return min(wanting, key=lambda share: (share.passed, share.number))
        if self._drawn not in wanting:
            self._drawn = wanting[int(self._draw() * len(wanting))]
        return self._drawn


# -- The places of one worker of many shards: which shard may run jobs in them, and for how long. Pure
# code but for a lock.
#
# A place is lent to a shard, which runs its jobs there one after the other and takes ahead what fills the
# usual time, as any worker does. When all places are lent and other shards have work, a shard gives back what
# is more than its part, and the rest when its time slice of 25 ms is over and its last job has ended. So
# short jobs are claimed many at a time, and no shard waits long for another.

#: How long a shard keeps a place while others wait for one.
TIME_SLICE_MS = 25


class Quota:
    """The places that one shard has: its machine says what it does and is told how many they are."""

    def __init__(self, places: Places) -> None:
        self._places = places
        #: Look again: it has more or fewer places. Set by the worker.
        self.poke: Callable[[], None] = lambda: None
        self.granted = 0
        #: Whether it may claim for its places.
        self.open = False
        self.since_ns = 0
        #: Whether it would use more places than it has.
        self.short = False
        self.update = partial(places.update, self)
        #: Give everything back: the shard is served no more.
        self.leave = partial(places.leave, self)

    @property
    def idle(self) -> bool:
        """Whether a place is free for it."""
        return self.granted > 0 or self._places.free > 0


class Places:
    """So many places, for any number of shards."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._waiting: deque[Quota] = deque()
        self._quotas: list[Quota] = []

    @property
    def free(self) -> int:
        """Places that no shard has."""
        return self._count - sum(quota.granted for quota in self._quotas)

    def join(self) -> Quota:
        """One more shard."""
        with self._lock:
            quota = Quota(self)
            self._quotas = [*self._quotas, quota]
            return quota

    def leave(self, quota: Quota) -> None:
        """A shard has ended."""
        with self._lock:
            quota.granted, quota.open = 0, False
            self._quotas = [other for other in self._quotas if other is not quota]
            self._forget(quota)
            given = self._hand_out(0)
        for other in given:
            other.poke()

    def update(self, quota: Quota, held: int, running: int, now_ns: int, *, wants: bool) -> int:
        """How many places a shard has, when so many jobs are leased or asked for, and so many run; `wants`:
        it would claim more."""
        with self._lock:
            if not wants:
                self._forget(quota)
            if quota.granted and not held and not wants:
                quota.granted = 0
            if wants and not quota.granted and quota not in self._waiting:
                self._waiting.append(quota)
            # What each has when all that have places or wait for one have as many.
            part = max(
                1,
                self._count
                // max(1, sum(1 for other in self._quotas if other.granted or other in self._waiting)),
            )
            others = [other for other in self._quotas if other is not quota]
            pressed = any(
                other.granted < part and (other.short or other in self._waiting) for other in others
            )
            if quota.granted > part and pressed:
                quota.granted = max(part, min(quota.granted, running))
            elif quota.granted and self._waiting and now_ns - quota.since_ns > TIME_SLICE_MS * MS:
                quota.open = False
                quota.granted = quota.granted if held else 0
                if wants and not quota.granted:
                    self._waiting.append(quota)
            elif quota.granted and not quota.open:
                # Those that waited have been served by others.
                quota.open, quota.since_ns = True, now_ns
            given = self._hand_out(now_ns)
            quota.short = wants and quota.open and held >= quota.granted > 0
            if quota.short and quota.granted < (part if pressed else self._count):
                quota.granted += max(0, min(self.free, (part if pressed else self._count) - quota.granted))
        for other in given:
            if other is not quota:
                other.poke()
        return quota.granted

    def _hand_out(self, now_ns: int) -> list[Quota]:
        """Lend what is free to those that wait, one place each, the longest waiting first."""
        given: list[Quota] = []
        free = self.free
        while free > 0 and self._waiting:
            quota = self._waiting.popleft()
            quota.granted, quota.open, quota.since_ns = 1, True, now_ns
            given.append(quota)
            free -= 1
        return given

    def _forget(self, quota: Quota) -> None:
        if quota in self._waiting:
            self._waiting.remove(quota)
