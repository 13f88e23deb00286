"""A mapping whose values expire, as a server's keys do; the store of MemoryStorage. A plain data structure without a lock.

What has ended is not found any more from that instant on, and leaves the memory a little later, when somebody sweeps.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: Values that one sweep looks at: more than anybody adds between two.
SWEPT_MAX = 4_096


class TtlMap(Generic[K, V]):
    """Values by key, each until its end, an instant in any unit that the caller counts in."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V, int]] = {}
        #: For each key one entry: when to look at it. Its end may have moved since: later, and it is put back; earlier, and it
        #: stays for so much longer without being found.
        self._looks: list[tuple[int, int, K]] = []
        self._watched: set[K] = set()
        self._added = 0

    def __len__(self) -> int:
        """How many values are in memory, expired ones included."""
        return len(self._values)

    def get(self, key: K, now: int) -> V | None:
        """The value; None where there is none or it has expired."""
        found = self._values.get(key)
        return found[0] if found is not None and now < found[1] else None

    def end(self, key: K) -> int:
        """When the value expires or has expired; 0 for one that is not in memory."""
        found = self._values.get(key)
        return 0 if found is None else found[1]

    def has(self, key: K) -> bool:
        """Whether a value is in memory, expired or not."""
        return key in self._values

    def put(self, key: K, value: V, end: int) -> None:
        """Set a value and when it expires."""
        self._values[key] = (value, end)
        if key not in self._watched:
            self._watched.add(key)
            self._look_at(key, end)

    def delete(self, key: K) -> None:
        """Delete a value, if there is one."""
        self._values.pop(key, None)

    def sweep(self, now: int) -> list[K]:
        """Delete some of the expired values. Returns their keys."""
        gone: list[K] = []
        for _ in range(SWEPT_MAX):
            if not self._looks or now < self._looks[0][0]:
                break
            key = heapq.heappop(self._looks)[2]
            found = self._values.get(key)
            if found is not None and now < found[1]:
                self._look_at(key, found[1])
                continue
            self._watched.discard(key)
            self._values.pop(key, None)
            gone.append(key)
        return gone

    def _look_at(self, key: K, when: int) -> None:
        self._added += 1
        heapq.heappush(self._looks, (when, self._added, key))
