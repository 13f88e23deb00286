"""The faults of the network: it is down, or slow, or loses requests, or replies."""

from __future__ import annotations

import time
from collections.abc import Callable

from chaos.faults.base import Scene, Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S, LostFault, NetworkFault, RoundTrips
from chaos.plan import PRODUCER, PlannedFault
from chaos.probe import refused
from chaos.toxiproxy import blackhole, latency
from chaos.watch import Answer


class NetDown(NetworkFault):
    """inject: the proxies stop listening and cut what they carry. witness: they refuse connections, and no target was answered.

    heal: they listen again. healed: everybody was answered, and all whose own connections were cut have new ones.
    """

    def act(self) -> Seen:
        return self.strike(lambda: self.network.cut(self.targets), "connections cut, new ones refused")

    def observe(self) -> Seen:
        refusing = [name for name in self.targets if all(refused(way.entry) for way in self.network.ways(name))]
        self.hold()
        silent = self.silent()
        detail = f"refused connections: {', '.join(refusing) or 'nobody'}; no call answered: {', '.join(silent) or 'nobody'}"
        ok = len(refusing) == len(self.targets) and len(silent) == len(self.callers)
        return Seen(time.monotonic_ns(), ok, detail)

    def observe_healed(self) -> Seen:
        cut = [name for name in self.callers if name in self.targets]
        self.scene.wait(lambda: len(self._connected()) == len(cut), timeout_s=ANSWER_TIMEOUT_S)
        connected = self._connected()
        seen = self.seen_healed(f"; new connections: {', '.join(connected) or 'nobody'}")
        return Seen(seen.t_ns, seen.ok and len(connected) == len(cut), seen.detail)

    def _connected(self) -> list[str]:
        """Those of the targets that have connected since the heal."""
        return [name for name in self.targets if self.scene.watch.view(name).connected_ns > self.healed_ns]


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


class NetRequestLost(LostFault):
    """inject: a black hole upstream. witness: a write through each proxy is unanswered and not at the server.

    heal: the black hole goes, and with it the connections that it swallowed from. healed: every target is answered again.
    """

    arrives = False

    def act(self) -> Seen:
        toxics = [blackhole("upstream")]
        return self.strike(lambda: self.network.poison(self.targets, toxics), "requests vanish on their way to the server")

    def observe_healed(self) -> Seen:
        return self.seen_healed()


#: What must be repeated at least once: the workers' calls, and the producers'.
OF_WORKERS = ("claim", "finish")
OF_PRODUCERS = ("enqueue",)

#: Most claims find nothing, and to repeat those proves nothing. So work piles up first, for this long or this part of a lease.
PILE_UP_S = 1.0
PILE_UP_LEASES = 1 / 4

#: A worker is in the middle of piled-up work when it runs this many handlers.
AT_WORK = 2
AT_WORK_TIMEOUT_S = 1.0

#: Replies are lost for short moments first, until each operation was repeated or this time is over.
SHORT_LOSSES_S = 12.0


class NetReplyLost(LostFault):
    """inject: a black hole downstream. witness: a write through each proxy is unanswered and is at the server.

    heal: the black hole goes, and with it the connections that it swallowed from. healed: every target is answered again, and the
    server has said "repeated" to an enqueue, a claim and a finish (which the judge looks for; here it is only waited for).
    """

    arrives = True

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._begun_ns = 0
        self._losses = 0

    def act(self) -> Seen:
        self._begun_ns = time.monotonic_ns()
        struck = self.strike(self._strike, "")
        return Seen(self._begun_ns, struck.ok, f"replies vanish on their way back; {self._losses} short losses before")

    def observe_healed(self) -> Seen:
        wanted = (*OF_WORKERS, *OF_PRODUCERS)
        self.scene.wait(lambda: self._repeated(wanted), timeout_s=ANSWER_TIMEOUT_S / 2)
        said = [operation for operation in wanted if self._repeated((operation,))]
        return self.seen_healed(f"; repeated: {', '.join(said) or 'nothing'}")

    def _strike(self) -> None:
        deadline_s = time.monotonic() + SHORT_LOSSES_S
        while not self._repeated(OF_WORKERS) and time.monotonic() < deadline_s:
            self._pile_up_work()
            self.lose_replies(self.workers, OF_WORKERS)
            self._losses += 1
        while not self._repeated(OF_PRODUCERS) and time.monotonic() < deadline_s:
            self.lose_replies((PRODUCER,), OF_PRODUCERS)
            self._losses += 1
        self.network.poison(self.targets, [blackhole("downstream")])

    def _pile_up_work(self) -> None:
        """Keep the workers from their work for a moment, and wait until they have gone back to it."""
        self.network.poison(self.workers, [blackhole("downstream")])
        pile_up_s = min(PILE_UP_S, self.scene.lease_ms / 1_000 * PILE_UP_LEASES)
        self.scene.wait(lambda: False, timeout_s=pile_up_s, poll_s=0.01)
        self.network.heal(self.workers)
        healed_ns = time.monotonic_ns()
        views = [self.scene.watch.view(name) for name in self.workers]

        def at_work() -> bool:
            return any(sum(start_ns > healed_ns for start_ns in view.running.values()) >= AT_WORK for view in views)

        self.scene.wait(at_work, timeout_s=AT_WORK_TIMEOUT_S, poll_s=0.001)

    def _repeated(self, operations: tuple[str, ...]) -> bool:
        """True when the server has said to each of these operations that it did it before, since the fault began."""
        views = [self.scene.watch.view(name) for name in self.callers]
        newest = [max(view.repeated_ns.get(operation, 0) for view in views) for operation in operations]
        return all(t_ns >= self._begun_ns for t_ns in newest)
