"""Several queues share the places of one worker process: whose turn it is when a place is free. Pure code but for a lock: each
queue has a machine of its own, and the machines run in threads (rule 27: one queue is one slot, so they are claimed one by one).

`strict`: a queue is claimed only while those before it have nothing. `weighted`: while several have work, in proportion to their
weights. `shuffle`: each time one of those that may have work, by chance.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

Strategy = Literal["strict", "weighted", "shuffle"]
#: Queues of one group: each has its own threads and connections.
QUEUES_MAX = 16
WEIGHT_MAX = 1000
#: A claim that is on its way for longer holds up nobody: its server may be gone.
PATIENCE_S = 1.0


class Share:
    """The part of one queue: what its machine asks and tells."""

    def __init__(self, sharing: Sharing, number: int) -> None:
        self._sharing = sharing
        self.number = number
        #: Look again: a place may be free. Set by the worker.
        self.poke: Callable[[], None] = lambda: None
        self.held = 0
        self.asked = 0
        self.asked_s = 0.0
        self.hungry = True
        #: Jobs so far by weight: the least is next.
        self.passed = 0.0

    def allow(self, want: int, held: int) -> int:
        """How many of so many jobs may be claimed now; so many are leased."""
        return self._sharing.allow(self, want, held)

    def report(self, held: int, *, asking: bool, hungry: bool) -> None:
        """What the machine has come to: jobs leased, whether a claim is on its way, and whether it would claim more."""
        self._sharing.report(self, held, asking=asking, hungry=hungry)

    def answered(self, jobs: int) -> None:
        """A claim has brought so many jobs."""
        self._sharing.answered(self, jobs)

    @property
    def full(self) -> bool:
        """Whether no place is free."""
        return self._sharing.free <= 0


class Sharing:
    """`places` handlers at once, over all queues."""

    def __init__(
        self, places: int, weights: Sequence[int], strategy: Strategy, draw: Callable[[], float] = random.random
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
        """Places that nobody has and nobody has asked for."""
        return self._places - sum(share.held + share.asked for share in self.shares)

    def allow(self, share: Share, want: int, held: int) -> int:
        """Grant free places one by one, as long as it is this one's turn."""
        with self._lock:
            # A machine has one claim on its way at most, so the one before this is answered.
            share.held, share.asked = held, 0
            self._begins_to_want(share)
            free, granted = self.free, 0
            while granted < min(want, free) and self._next() is share:
                granted += 1
                share.passed += 1 / self._weights[share.number]
                self._drawn = None
            share.asked, share.asked_s = granted, time.monotonic()
            other = self._to_poke(share) if granted < free else None
        if other is not None:
            other.poke()
        return granted

    def answered(self, share: Share, jobs: int) -> None:
        """What a queue was granted and has not used counts for nothing."""
        with self._lock:
            share.passed -= max(0, share.asked - jobs) / self._weights[share.number]

    def report(self, share: Share, held: int, *, asking: bool, hungry: bool) -> None:
        """Take in what one has come to, and tell those that wait for it."""
        with self._lock:
            before = self.free
            if hungry:
                self._begins_to_want(share)
            gone = share.hungry and not hungry and not asking
            share.held = held
            share.asked = share.asked if asking else 0
            share.hungry = hungry or asking
            other = self._to_poke(share) if self.free > 0 and (gone or self.free > before) else None
        if other is not None:
            other.poke()

    def _begins_to_want(self, share: Share) -> None:
        """Who had nothing to do has saved up no turns."""
        if not share.hungry:
            share.hungry = True
            share.passed = max(share.passed, min((other.passed for other in self._wanting(share)), default=share.passed))

    def _to_poke(self, share: Share) -> Share | None:
        """Whose turn it is, unless it is this one's or a claim of it is on its way."""
        other = self._next()
        return None if other is None or other is share or other.asked else other

    def _wanting(self, share: Share) -> list[Share]:
        return [other for other in self.shares if other is not share and other.hungry]

    def _next(self) -> Share | None:
        """Whose turn it is."""
        # One whose claim is on its way may want more, and its answer says so: the others wait for that, or else whoever is
        # answered fastest would have the most turns.
        now_s = time.monotonic()
        wanting = [share for share in self.shares if share.hungry and (not share.asked or now_s - share.asked_s < PATIENCE_S)]
        if not wanting:
            return None
        if self._strategy == "strict":
            return wanting[0]
        if self._strategy == "weighted":
            return min(wanting, key=lambda share: (share.passed, share.number))
        if self._drawn not in wanting:
            self._drawn = wanting[int(self._draw() * len(wanting))]
        return self._drawn
