"""Every random decision of an episode. Each is a function of the seed and of where it is asked for, not of what was asked before,
so that leaving one fault out leaves all others as they were: that is what makes a failing episode shrink well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from zlib import crc32

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Fault(NamedTuple):
    """One fault: its kind, where it strikes (the name of a line, a process or the server, and the how-many-th event there), and
    its size in [0, 1), which each kind reads as it needs."""

    kind: str
    site: str
    at: int
    size: float


class Chance:
    """Draws of one episode. `only`: the faults that may strike, of those that the seed has; None for all."""

    def __init__(self, seed: int, only: Collection[Fault] | None = None) -> None:
        self._seed = seed
        self._sites: dict[str, int] = {}
        self._only = None if only is None else {(fault.site, fault.at): fault for fault in only}
        self.struck: list[Fault] = []
        self.healed = False

    def draw(self, site: str, at: int, salt: int = 0) -> float:
        """A number in [0, 1), always the same for the same place."""
        base = self._sites.get(site)
        if base is None:
            base = self._sites[site] = (crc32(site.encode()) * _GOLDEN + self._seed * 0xD1342543DE82EF95) & _MASK
        mixed = (base + at * 0xBF58476D1CE4E5B9 + salt * 0x94D049BB133111EB) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((mixed ^ (mixed >> 31)) >> 11) / (1 << 53)

    def fault(self, site: str, at: int, rates: Mapping[str, float]) -> Fault | None:
        """The fault that strikes here, if one does."""
        if self.healed or not rates:
            return None
        if self._only is not None:
            found = self._only.get((site, at))
            if found is not None:
                self.struck.append(found)
            return found
        left = self.draw(site, at, 7)
        for kind, rate in rates.items():
            if left < rate:
                fault = Fault(kind, site, at, self.draw(site, at, 8))
                self.struck.append(fault)
                return fault
            left -= rate
        return None


def spread_ms(size: float, least_ms: float, most_ms: float) -> float:
    """A length between two bounds, short ones as likely as long ones by their order of magnitude."""
    return least_ms * (most_ms / least_ms) ** size
