"""An operator's failover in which no write is lost: the primary takes no writes until a replica that has everything took over."""

from __future__ import annotations

import time

from chaos.faults.base import Seen
from chaos.faults.failover_base import ASK_S, Failover
from chaos.topology.several import WithSentinels, replication_offset

#: How long the primary takes no writes at most.
PAUSE_MS = 15_000

#: By when replicas have what the primary has.
CATCH_UP_TIMEOUT_S = 10.0


class FailoverClean(Failover):
    """inject: with sentinels the primary is told to take no writes, its replicas catch up, and SENTINEL FAILOVER; a cluster
    does the same by itself (CLUSTER FAILOVER). witness: the majority names another server, and the old primary follows it.

    heal: the old primary takes calls again, and refuses writes. healed: all in step, and everybody is answered.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        if isinstance(self.servers, WithSentinels):
            self.tell(self.old, "CLIENT", "PAUSE", PAUSE_MS, "WRITE")
            self.scene.wait(self._caught_up, timeout_s=CATCH_UP_TIMEOUT_S, poll_s=ASK_S)
        self.servers.failover()
        return Seen(t_ns, True, f"failover from server-{self.old}, which took no writes meanwhile")

    def decided(self) -> str:
        if isinstance(self.servers, WithSentinels) and self.new is not None:
            self.servers.follow(self.old, self.new)
            return f"server-{self.old} follows it"
        return ""

    def mend(self) -> str:
        if isinstance(self.servers, WithSentinels):
            self.tell(self.old, "CLIENT", "UNPAUSE")
        return f"server-{self.old} takes calls again"

    def _caught_up(self) -> bool:
        ports = self.servers.ports
        return len({replication_offset(ports[server]) for server in (self.old, *self.servers.replicas())}) == 1
