"""How much longer a round trip is through proxies than to the server itself, told by the shortest of many.

A machine adds time to a round trip and never takes any away: a server that is busy with one script, or a probe that did not get
its turn, makes single ones longer. So both sides are asked again and again, and only the shortest so far counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan

from chaos.network import Network, Way
from chaos.probe import Address


class RoundTrips:
    """The shortest round trips to the server and through the proxies of the named processes, of all looks so far."""

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        self._ways = {name: network.ways(name) for name in names}
        #: One way to each server, over which its direct round trips are timed.
        self._direct = {way.server: way for ways in self._ways.values() for way in ways}
        self._shortest_ms: dict[Address, float] = {}

    def observe(self) -> None:
        """Time one more round trip each, all at once."""
        asked = {**self._direct, **{way.entry: way for ways in self._ways.values() for way in ways}}
        with ThreadPoolExecutor(len(asked)) as pool:
            took_ms = dict(zip(asked, pool.map(timed, asked.values(), asked), strict=True))
        for address, ms in took_ms.items():
            self._shortest_ms[address] = min(self._shortest_ms.get(address, inf), ms)

    def added_ms(self) -> dict[str, float]:
        """How much longer the way of each is, the quickest of several; nan, which no bound holds for, where no round trip
        succeeded."""
        return {name: min(map(self._added_ms, ways)) for name, ways in self._ways.items()}

    def _added_ms(self, way: Way) -> float:
        through_ms, direct_ms = (self._shortest_ms.get(address, inf) for address in (way.entry, way.server))
        return nan if inf in (through_ms, direct_ms) else through_ms - direct_ms


def timed(way: Way, address: Address) -> float:
    """One round trip in ms to an end of a way; infinite when it failed."""
    try:
        return way.round_trip_ms(address)
    except OSError:
        return inf
