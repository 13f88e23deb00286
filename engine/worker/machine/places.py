"""The places of one worker of many shards: which shard may run jobs in them, and for how long. Pure code but for a lock.

A place is lent to a shard, which runs its jobs there one after the other and takes ahead what fills the usual time, as any worker
does. When all places are lent and other shards have work, a shard gives back what is more than its part, and the rest when its
turn of 25 ms is over and its last job has ended. So short jobs are claimed many at a time, and no shard waits long for another.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from engine.worker.machine.events import MS

#: How long a shard keeps a place while others wait for one.
TURN_MS = 25


class Quota:
    """The places that one shard has: its machine says what it does and hears how many they are."""

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

    def update(self, held: int, running: int, now_ns: int, *, wants: bool) -> int:
        """How many places it has, when so many jobs are leased or asked for, and so many run; `wants`: it would claim more."""
        return self._places.update(self, held, running, now_ns, wants)

    def leave(self) -> None:
        """Give everything back: the shard is served no more."""
        self._places.leave(self)

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

    def update(self, quota: Quota, held: int, running: int, now_ns: int, wants: bool) -> int:
        """See Quota."""
        with self._lock:
            if not wants:
                self._forget(quota)
            if quota.granted and not held and not wants:
                quota.granted = 0
            if wants and not quota.granted and quota not in self._waiting:
                self._waiting.append(quota)
            # What each has when all that have places or wait for one have as many.
            part = max(1, self._count // max(1, sum(1 for other in self._quotas if other.granted or other in self._waiting)))
            others = [other for other in self._quotas if other is not quota]
            pressed = any(other.granted < part and (other.short or other in self._waiting) for other in others)
            if quota.granted > part and pressed:
                quota.granted = max(part, min(quota.granted, running))
            elif quota.granted and self._waiting and now_ns - quota.since_ns > TURN_MS * MS:
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
