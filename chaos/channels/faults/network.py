"""Faults of the network where nothing is leased: how one sees that they bit."""

from __future__ import annotations

import time

from chaos.channels.crew import PUBLISHER
from chaos.faults.base import Scene, Seen
from chaos.faults.network import NetLatency
from chaos.faults.network_base import ANSWER_TIMEOUT_S, LostFault
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
