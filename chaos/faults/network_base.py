"""What the faults of the network share: whom they hit, how they are healed, and how the world shows that they bit.

Two witnesses for each: a probe of our own through each proxy, compared with the server itself, and the histories of the processes
that were hit, for the probe alone would not show that their connections were hit too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan

from chaos.catalogue import APPS
from chaos.errors import HarnessError
from chaos.faults.base import ASK_TIMEOUT_S, LOST_MS, Scene, Seen
from chaos.network import Network, Way
from chaos.plan import PRODUCER, PlannedFault
from chaos.probe import Address, Silence
from chaos.topology.given import Given
from chaos.toxiproxy import blackhole

#: A fault that takes something away stays this long: past the 2 s after which the engine takes a reply for lost.
HOLD_S = 2.5

#: With short leases it stays at most this part of one, or else it would be the leases that it tests.
HOLD_LEASES = 1 / 3

#: A probe whose reply does not come within this is unanswered.
PROBE_PATIENCE_S = 0.5

#: How long a process may take to send something while replies are lost for a moment.
CALL_TIMEOUT_S = 0.5

#: By when a request whose reply is lost has arrived.
ARRIVAL_TIMEOUT_S = 2.0

#: Clients that lost their connection try again at least every half second.
ANSWER_TIMEOUT_S = 10.0


class NetworkFault:
    """The frame of a network fault. Its subclasses define how to `act`, how to `observe` it and how to `observe_healed`."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        if scene.network is None:
            raise HarnessError(f"{planned.fault}: the run has no proxies")
        self.scene = scene
        self.network: Network = scene.network
        self.targets = planned.targets
        #: Those whose histories show it: an app has none, and cut off with it is who calls it.
        self.callers = tuple(dict.fromkeys(PRODUCER if name in APPS else name for name in planned.targets))
        self.workers = tuple(name for name in self.callers if name != PRODUCER)
        #: When everything was in force.
        self.in_force_ns = 0
        self.healed_ns = 0

    def act(self) -> Seen:
        raise NotImplementedError

    def observe(self) -> Seen:
        raise NotImplementedError

    def observe_healed(self) -> Seen:
        raise NotImplementedError

    def inject(self) -> Seen:
        return self._missing() or self.act()

    def witness(self) -> Seen:
        return self._missing() or self.observe()

    def witness_healed(self) -> Seen:
        return self._missing() or self.observe_healed()

    def _missing(self) -> Seen | None:
        """What to say when a target was never started: a replacement of a worker that could not be killed."""
        missing = [name for name in self.targets if name not in self.network]
        return Seen(time.monotonic_ns(), False, f"never started: {', '.join(missing)}") if missing else None

    def strike(self, act: Callable[[], None], detail: str) -> Seen:
        """Act; what was done is undone when it cannot be done in full. The window begins before the act."""
        t_ns = time.monotonic_ns()
        try:
            act()
        except BaseException:
            # Not on record yet: nobody else knows that there is something to heal.
            self.network.heal_all()
            raise
        self.in_force_ns = time.monotonic_ns()
        return Seen(t_ns, True, detail)

    def heal(self) -> Seen:
        # Before the act: a process that is back within a millisecond was back after the heal.
        self.healed_ns = time.monotonic_ns()
        self.network.heal(name for name in self.targets if name in self.network)
        return Seen(self.healed_ns, True, f"healed and read back: {', '.join(self.targets)}")

    def hold(self) -> None:
        """Stay until the engine has taken replies for lost."""
        until_s = self.in_force_ns / 1e9 + min(HOLD_S, self.scene.lease_ms / 1_000 * HOLD_LEASES)
        self.scene.wait(lambda: False, timeout_s=until_s - time.monotonic(), poll_s=0.01)

    def silent(self) -> list[str]:
        """Those of the callers that have asked for something, waited for, and that no call was answered which they sent while the
        fault was in force."""
        return self.scene.silent_since(self.in_force_ns, self.callers, ASK_TIMEOUT_S)

    def answered_again(self) -> list[str]:
        """Those of the callers that a call was answered which they sent after the heal, waited for."""

        def answered() -> list[str]:
            return [name for name in self.callers if self.scene.watch.view(name).answered.sent_ns > self.healed_ns]

        self.scene.wait(lambda: len(answered()) == len(self.callers), timeout_s=ANSWER_TIMEOUT_S)
        return answered()

    def seen_healed(self, more: str = "") -> Seen:
        """The last stage of every network fault: each caller was answered again."""
        back = self.answered_again()
        t_ns = time.monotonic_ns()
        took = f"answered again {(t_ns - self.healed_ns) / 1e6:.0f} ms after the heal: {', '.join(back) or 'nobody'}"
        return Seen(t_ns, len(back) == len(self.callers), took + more)


class LostFault(NetworkFault):
    """A fault that takes requests or replies away. `arrives`: whether the request still takes effect at the server."""

    arrives = False

    def probe(self, name: str) -> tuple[bool, str]:
        """Write over each way of a process; (were they lost as planned, in words)."""
        found = [self._probe(name, way) for way in self.network.ways(name)]
        return all(lost for lost, _ in found), "; ".join(words for _, words in found)

    def _probe(self, name: str, way: Way) -> tuple[bool, str]:
        servers = self.scene.servers
        own = servers.prefix if isinstance(servers, Given) else ""
        key = f"{own}ironclaim:probe:{secrets.token_hex(8)}"
        patience_s = min(PROBE_PATIENCE_S, self.scene.lease_ms / 1_000 * HOLD_LEASES)
        try:
            lost = f"answered {way.write(key, patience_s)}"
        except Silence:
            lost = "no reply"
        except OSError as error:
            lost = f"{type(error).__name__}"
        there = self._arrived(way, key)
        way.forget(key)
        arrived = "at the server" if there else "not at the server"
        return (lost == "no reply" and there == self.arrives), f"{name}: {lost}, write {arrived}"

    def _arrived(self, way: Way, key: str) -> bool:
        """Whether the write is at the server; it may still be on its way where requests arrive."""
        until_s = time.monotonic() + (ARRIVAL_TIMEOUT_S if self.arrives else 0)
        while not (there := way.arrived(key)) and time.monotonic() < until_s:
            time.sleep(0.02)
        return there

    def observe(self) -> Seen:
        # All at once: each takes all of its patience, and the window is to be no longer than it must.
        with ThreadPoolExecutor(len(self.targets)) as pool:
            probes = list(pool.map(self.probe, self.targets))
        self.hold()
        silent = self.silent()
        detail = f"probes: {'; '.join(words for _, words in probes)}; no call answered: {', '.join(silent) or 'nobody'}"
        ok = all(lost for lost, _ in probes) and len(silent) == len(self.callers)
        return Seen(time.monotonic_ns(), ok, detail)

    def lose_replies(self, names: tuple[str, ...], operations: tuple[str, ...]) -> None:
        """Lose the replies of what these processes send next, and wait until that has been sent again and answered."""
        in_force_ns = time.monotonic_ns()
        views = [self.scene.watch.view(name) for name in names]

        def lost() -> bool:
            """True while one of the operations, sent since the loss is in force, has no reply."""
            old_ns = time.monotonic_ns() - LOST_MS * 1_000_000
            calls = [call for view in views for call in view.unanswered.values()]
            return any(name in operations and in_force_ns <= sent_ns < old_ns for name, sent_ns in calls)

        self.network.poison(names, [blackhole("downstream")])
        self.scene.wait(lost, timeout_s=CALL_TIMEOUT_S, poll_s=0.01)
        self.network.heal(names)
        healed_ns = time.monotonic_ns()

        def answered() -> bool:
            return all(view.answered.sent_ns > healed_ns for view in views)

        self.scene.wait(lambda: answered() and not lost(), timeout_s=ANSWER_TIMEOUT_S)


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
