"""How much longer a round trip is through proxies than to the server itself, told by the shortest of many.

A machine adds time to a round trip and never takes any away: a server that is busy with one script, or a probe that did not get
its turn, makes single ones longer. So both sides are asked again and again, and only the shortest so far counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan

from chaos.network import Network
from chaos.probe import Address, round_trip_ms


class RoundTrips:
    """The shortest round trips to the server and through the proxies of the named processes, of all looks so far."""

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        self._addresses = {name: network.proxy(name) for name in names}
        self._server = network.server
        self._direct_ms = inf
        self._through_ms = dict.fromkeys(names, inf)

    def observe(self) -> None:
        """Time one more round trip each, all at once."""
        with ThreadPoolExecutor(1 + len(self._addresses)) as pool:
            direct = pool.submit(timed, self._server)
            through = {name: pool.submit(timed, address) for name, address in self._addresses.items()}
        self._direct_ms = min(self._direct_ms, direct.result())
        for name, one in through.items():
            self._through_ms[name] = min(self._through_ms[name], one.result())

    def added_ms(self) -> dict[str, float]:
        """How much longer the way through each proxy is; nan, which no bound holds for, where no round trip succeeded."""
        return {name: nan if inf in (ms, self._direct_ms) else ms - self._direct_ms for name, ms in self._through_ms.items()}


def timed(address: Address) -> float:
    """One round trip in ms; infinite when it failed."""
    try:
        return round_trip_ms(address)
    except OSError:
        return inf
