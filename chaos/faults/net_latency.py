"""Everything takes longer, both ways. Leases must be renewed in time all the same."""

from __future__ import annotations

import time

from chaos.faults.base import Scene, Seen
from chaos.faults.network_base import NetworkFault
from chaos.plan import PlannedFault
from chaos.probe import round_trip_ms
from chaos.toxiproxy_client import latency

#: Added to each direction.
LATENCY_MS = 50
ROUND_TRIP_MS = 2 * LATENCY_MS

#: The clock of a timer may be a little early; a round trip must show at least this part of what was added.
SHOWN = 0.9

#: Healed when less than this part is left.
LEFT = 0.5

#: The slow network stays at least this long, or a third of a lease when that is less.
HOLD_S = 2.0

#: Workers renew every third of a lease. Past this part of a lease and this much, no renewal will come any more.
RENEWAL_LEASES = 2 / 3
RENEWAL_OVERTIME_S = 2.0


class NetLatency(NetworkFault):
    """inject: a delay in each direction. witness: PING through each proxy is slower by it than the server itself, and so is a
    call of each target. It stays until a worker has renewed its leases through it.

    heal: the delays go. healed: PING is as quick as before, and every target is answered.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._direct_ms = 0.0

    def act(self) -> Seen:
        self._direct_ms = round_trip_ms(self.network.server)
        toxics = [latency("upstream", LATENCY_MS), latency("downstream", LATENCY_MS)]
        return self.strike(lambda: self.network.poison(self.targets, toxics), f"{LATENCY_MS} ms added to each direction")

    def look(self) -> Seen:
        added_ms = self._added_ms()
        lease_s = self.scene.lease_ms / 1_000
        least_s = min(HOLD_S, lease_s / 3)
        self.scene.wait(lambda: False, timeout_s=self.in_force_ns / 1e9 + least_s - time.monotonic(), poll_s=0.01)
        self.settled()
        self.scene.wait(lambda: len(self._slowed()) == len(self.targets), timeout_s=RENEWAL_OVERTIME_S)
        slowed = self._slowed()
        ok = all(ms >= SHOWN * ROUND_TRIP_MS for ms in added_ms.values()) and len(slowed) == len(self.targets)
        detail = f"round trips longer by {self._slower(added_ms)}; slow calls of {', '.join(slowed) or 'nobody'}"
        return Seen(time.monotonic_ns(), ok, detail + self.words())

    def look_healed(self) -> Seen:
        left_ms = self._added_ms()
        seen = self.seen_healed(f"; round trips longer by {self._slower(left_ms)}")
        return Seen(seen.t_ns, seen.ok and all(ms < LEFT * ROUND_TRIP_MS for ms in left_ms.values()), seen.detail)

    def settled(self) -> None:
        """Wait for what is to happen under the latency: that a worker renews its leases."""
        most_s = self.scene.lease_ms / 1_000 * RENEWAL_LEASES + RENEWAL_OVERTIME_S
        self.scene.wait(lambda: bool(self._renewed()), timeout_s=self.in_force_ns / 1e9 + most_s - time.monotonic())

    def words(self) -> str:
        """What did happen, as the end of the witness's words."""
        return f"; leases renewed by {', '.join(self._renewed()) or 'nobody'}"

    def _added_ms(self) -> dict[str, float]:
        """How much longer a round trip through each proxy takes than to the server itself; -1 when none succeeded."""
        added: dict[str, float] = {}
        for name in self.targets:
            try:
                added[name] = round_trip_ms(self.network.proxy(name)) - self._direct_ms
            except OSError:
                added[name] = -1.0
        return added

    def _slowed(self) -> list[str]:
        """Those of the targets whose last answered call was sent under the latency and took as long as it must."""
        answers = {name: self.scene.watch.view(name).answered for name in self.targets}
        least_ms = SHOWN * ROUND_TRIP_MS
        return [name for name, one in answers.items() if one.sent_ns >= self.in_force_ns and one.took_ms >= least_ms]

    def _renewed(self) -> list[str]:
        """Those of the workers that have renewed a lease under the latency."""
        return [name for name in self.workers if self.scene.watch.view(name).renewed.sent_ns >= self.in_force_ns]

    def _slower(self, added_ms: dict[str, float]) -> str:
        return ", ".join(f"{ms:.1f} ms ({name})" for name, ms in added_ms.items())
