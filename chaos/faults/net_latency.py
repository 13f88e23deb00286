"""Everything takes longer, both ways. Leases must be renewed in time all the same."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.faults.base import Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S, NetworkFault
from chaos.faults.round_trips import RoundTrips
from chaos.toxiproxy_client import latency
from chaos.watch import Answer

#: Added to each direction.
LATENCY_MS = 50
ROUND_TRIP_MS = 2 * LATENCY_MS

#: The clock of a timer may be a little early; a round trip must show at least this part of what was added.
SHOWN = 0.9

#: Healed when less than this part is left.
LEFT = 0.5

#: The slow network stays at least this long, or a third of a lease when that is less.
HOLD_S = 2.0

#: How much longer it stays until every target has been answered late.
ANSWERS_S = 2.0

#: It also stays until a lease has been renewed, at most for this many leases. A worker renews every third of a lease what it has
#: in hand just then, and at a low rate that is often nothing, or a job whose finish overtakes the renewal. Three leases are nine
#: such moments for each worker.
RENEWAL_LEASES = 3

#: How often round trips are timed until they have shown what they should, and for how long at most once the hold is over.
LOOK_S = 0.2
LOOKS_S = 3.0


class NetLatency(NetworkFault):
    """inject: a delay in each direction. witness: PING through each proxy is slower by it than the server itself, and so is a
    call of each target. It stays until a worker has renewed its leases through it.

    heal: the delays go. healed: PING is as quick as before, and every target is answered.
    """

    def act(self) -> Seen:
        toxics = [latency("upstream", LATENCY_MS), latency("downstream", LATENCY_MS)]
        return self.strike(lambda: self.network.poison(self.targets, toxics), f"{LATENCY_MS} ms added to each direction")

    def observe(self) -> Seen:
        trips = RoundTrips(self.network, self.targets)

        def shown() -> bool:
            return all(ms >= SHOWN * ROUND_TRIP_MS for ms in trips.added_ms().values())

        held_s = self.in_force_ns / 1e9 + min(HOLD_S, self.scene.lease_ms / 3_000)
        # All the time that it holds, so that no single script of the server's decides.
        self._time(trips, lambda: False, timeout_s=held_s - time.monotonic())
        self.settled()
        self.scene.wait(lambda: len(self._slowed()) == len(self.callers), timeout_s=ANSWERS_S)
        slowed = self._slowed()
        self._time(trips, shown, timeout_s=LOOKS_S)
        detail = f"round trips longer by {self._slower(trips)}; slow calls of {', '.join(slowed) or 'nobody'}"
        return Seen(time.monotonic_ns(), shown() and len(slowed) == len(self.callers), detail + self.words())

    def observe_healed(self) -> Seen:
        trips = RoundTrips(self.network, self.targets)

        def quick() -> bool:
            return all(ms < LEFT * ROUND_TRIP_MS for ms in trips.added_ms().values())

        self._time(trips, quick, timeout_s=ANSWER_TIMEOUT_S)
        seen = self.seen_healed(f"; round trips longer by {self._slower(trips)}")
        return Seen(seen.t_ns, seen.ok and quick(), seen.detail)

    def _time(self, trips: RoundTrips, enough: Callable[[], bool], *, timeout_s: float) -> None:
        """Time round trips, at least one, until they show enough or the time is over."""

        def looked() -> bool:
            trips.observe()
            return enough()

        self.scene.wait(looked, timeout_s=timeout_s, poll_s=LOOK_S)

    def settled(self) -> None:
        """Wait for what is to happen under the latency: that a worker renews its leases."""
        most_s = self.scene.lease_ms / 1_000 * RENEWAL_LEASES
        self.scene.wait(lambda: bool(self._renewed()), timeout_s=self.in_force_ns / 1e9 + most_s - time.monotonic())

    def words(self) -> str:
        """What did happen, as the end of the witness's words."""
        return f"; leases renewed by {', '.join(self._renewed()) or 'nobody'}"

    def _slowed(self) -> list[str]:
        """Those of the callers whose last answered call was sent under the latency and took as long as it must."""
        return [name for name in self.callers if self._was_slow(self.scene.watch.view(name).answered)]

    def _renewed(self) -> list[str]:
        """Those of the workers whose last renewal of a lease was sent under the latency and took as long as it must."""
        return [name for name in self.workers if self._was_slow(self.scene.watch.view(name).renewed)]

    def _was_slow(self, answer: Answer) -> bool:
        return answer.sent_ns >= self.in_force_ns and answer.took_ms >= SHOWN * ROUND_TRIP_MS

    def _slower(self, trips: RoundTrips) -> str:
        return ", ".join(f"{ms:.1f} ms ({name})" for name, ms in trips.added_ms().items())
