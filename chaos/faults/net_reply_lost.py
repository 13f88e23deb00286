"""Replies vanish on their way back: what the client asked for has happened, and it does not know. It sends everything again."""

from __future__ import annotations

import time

from chaos.faults.base import Scene, Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S, LostFault
from chaos.plan import PRODUCER, PlannedFault
from chaos.toxiproxy_client import blackhole

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
