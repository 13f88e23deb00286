"""Faults of a run on channels: those of the network as in any run, with other proof that they bit, and those of the server."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from chaos.catalogue import KINDS, SERVERS
from chaos.channels.crew import PUBLISHER, ChannelScene
from chaos.channels.keyspace import gone_back
from chaos.channels.watch import Reader
from chaos.faults import FAULTS as OF_JOBS
from chaos.faults.base import Fault, Scene, Seen, did_not_die, reaped
from chaos.faults.network import NetDown, NetLatency, NetRequestLost
from chaos.faults.network_base import ANSWER_TIMEOUT_S, LostFault
from chaos.faults.snapshot_restore import SnapshotRestore
from chaos.plan import PlannedFault
from chaos.toxiproxy import blackhole

#: Replies are lost for short moments first, until a publish was said to be a duplicate or this time is over.
SHORT_LOSSES_S = 12.0

PUBLISH = "publish"


class ChannelLatency(NetLatency):
    """As in a run of jobs, without leases that are renewed through it."""

    def settled(self) -> None:
        """Nothing more is waited for."""

    def words(self) -> str:
        return ""


class ChannelReplyLost(LostFault):
    """inject: a black hole downstream. witness: a write through each proxy is unanswered and is at the server.

    heal: the black hole goes, and with it the connections that it swallowed from. healed: every target is answered again, and a
    publish that was sent again was said to be a duplicate (which the judge looks for; here it is only waited for).
    """

    arrives = True

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self.publishers = tuple(name for name in planned.targets if name.startswith(PUBLISHER))
        self._begun_ns = 0
        self._losses = 0

    def act(self) -> Seen:
        self._begun_ns = time.monotonic_ns()
        struck = self.strike(self._strike, "")
        return Seen(self._begun_ns, struck.ok, f"replies vanish on their way back; {self._losses} short losses before")

    def observe_healed(self) -> Seen:
        self.scene.wait(self._repeated, timeout_s=ANSWER_TIMEOUT_S / 2)
        return self.seen_healed(f"; publishes that were duplicates: {'some' if self._repeated() else 'none'}")

    def _strike(self) -> None:
        deadline_s = time.monotonic() + SHORT_LOSSES_S
        while not self._repeated() and time.monotonic() < deadline_s:
            self.lose_replies(self.publishers, (PUBLISH,))
            self._losses += 1
        self.network.poison(self.targets, [blackhole("downstream")])

    def _repeated(self) -> bool:
        views = [self.scene.watch.view(name) for name in self.publishers]
        return any(view.repeated_ns.get(PUBLISH, 0) >= self._begun_ns for view in views)


#: How long an instant is waited for at which something is in hand.
AIM_TIMEOUT_S = 4.0

#: Messages wait for the replacement for at least this long.
AWAY_S = 1.5

#: An interpreter has to start, connect and fetch.
REPLACEMENT_TIMEOUT_S = 30.0

#: By when it was given what was in hand. Some of that never comes: its acknowledgement was on its way, and did arrive.
AGAIN_TIMEOUT_S = 3.0


class SubscriberKill:
    """inject: SIGKILL while something is delivered and not acknowledged. witness: waitpid said -9.

    heal: a replacement is started, with the same names. healed: it was given again what was in hand.
    """

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        self._scene = scene
        self._planned = planned
        self._in_hand: dict[Reader, int] = {}
        self._reaped_ns = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        view = scene.watch.channels(target)
        aimed = scene.wait(lambda: bool(view.unread), timeout_s=AIM_TIMEOUT_S, poll_s=0.001)
        child = scene.child(target)
        t_ns = time.monotonic_ns()
        if child is None:
            return Seen(t_ns, False, f"{target} is not alive")
        child.exit_expected = True
        scene.signal(child.pid, signal.SIGKILL)
        return Seen(t_ns, True, f"SIGKILL to pid {child.pid}" + ("" if aimed else ", though nothing was seen in hand"))

    def witness(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = reaped(scene, target)
        if child is None:
            return did_not_die(target)
        self._reaped_ns = time.monotonic_ns()
        scene.watch.poll()
        self._in_hand = {place: clock for place, (clock, _) in scene.watch.channels(target).unread.items()}
        code = child.process.returncode
        detail = f"waitpid returned {code}; {len(self._in_hand)} subscribers had not acknowledged"
        return Seen(self._reaped_ns, code == -signal.SIGKILL, detail)

    def heal(self) -> Seen:
        planned = self._planned
        if not self._reaped_ns:
            return Seen(time.monotonic_ns(), True, f"{planned.target} lives: nothing to heal")
        self._scene.wait(lambda: False, timeout_s=AWAY_S)
        t_ns = time.monotonic_ns()
        self._scene.crew.start_replacement(planned.replacement, planned.target)
        return Seen(t_ns, True, f"{planned.replacement} started")

    def witness_healed(self) -> Seen:
        scene, planned = self._scene, self._planned
        name = planned.replacement if self._reaped_ns else planned.target
        answered = scene.wait(lambda: bool(scene.watch.channels(name).ready), timeout_s=REPLACEMENT_TIMEOUT_S)
        scene.wait(lambda: len(self._again(name)) == len(self._in_hand), timeout_s=AGAIN_TIMEOUT_S)
        again = len(self._again(name))
        detail = f"{name} {'fetches' if answered else 'does not fetch'}; {again} of {len(self._in_hand)} were given it again"
        return Seen(time.monotonic_ns(), answered, detail)

    def _again(self, name: str) -> list[Reader]:
        return self._scene.watch.delivered_again(name, self._in_hand)


#: By when clients with a memory have moved every clock on that somebody publishes to.
AHEAD_TIMEOUT_S = 15.0


class ClocksRestore(SnapshotRestore):
    """As in a run of jobs. witness: clocks are behind where they were. healed: publishers have moved on each clock that went
    back, to where it was or further."""

    WHAT = "clocks"

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._keyspace = scene.keyspace
        self._back: list[str] = []

    def look(self) -> Mapping[str, Any]:
        return self._keyspace.clocks()

    def gone_back(self, now: Mapping[str, Any]) -> list[str]:
        self._back = gone_back(self.before, now)
        return self._back

    def observe_healed(self) -> tuple[bool, str]:
        before = {channel: self.before[channel] for channel in self._back}

        def behind() -> list[str]:
            return gone_back(before, self._keyspace.clocks())

        ahead = self.scene.wait(lambda: not behind(), timeout_s=AHEAD_TIMEOUT_S, poll_s=0.1)
        left = behind()
        return ahead, f"; still behind: {', '.join(left)}" if left else f"; {len(before)} clocks are ahead again"


#: Kind of fault in a plan -> how to make it.
FAULTS: dict[str, Callable[[Any, PlannedFault], Fault]] = {
    "net-latency": ChannelLatency,
    "net-request-lost": NetRequestLost,
    "net-reply-lost": ChannelReplyLost,
    "net-down": NetDown,
    "subscriber-kill": SubscriberKill,
    **{kind.name: OF_JOBS[kind.name] for kind in KINDS.values() if kind.hits == SERVERS and kind.name in OF_JOBS},
    "snapshot-restore": ClocksRestore,
}
