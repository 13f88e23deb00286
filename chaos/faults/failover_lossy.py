"""A failover that loses writes: nothing reaches the replicas while the primary goes on answering, then it freezes, and thaws as
somebody who has been replaced and does not know."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import Seen, process_states
from chaos.faults.failover_base import Failover
from chaos.faults.noticed import counted_losses, record_noticed
from chaos.topology.several import replication_offset

#: Load that is answered and replicated to nobody.
HELD_S = 1.5

FREEZE_TIMEOUT_S = 3.0

#: What a replica needs to be allowed to copy.
COPYING = ("psync", "sync")


class FailoverLossy(Failover):
    """inject: the primary lets no replica copy (ACL) and cuts those that do; after some load it is stopped (SIGSTOP). witness: it
    had answered more than its replicas have, all its threads stand still, and the majority names another server.

    Right after that it goes on (SIGCONT), and whoever has not heard may still write to it. heal: it lets others copy again.
    healed: it follows the new primary, everybody is answered, and some process has noticed what is gone.
    """

    def act(self) -> Seen:
        self._noticed_before = counted_losses(self.scene, self.servers.ports[self.old])
        t_ns = time.monotonic_ns()
        self.tell(self.old, "ACL", "SETUSER", "default", *(f"-{name}" for name in COPYING))
        self.tell(self.old, "CLIENT", "KILL", "TYPE", "replica")
        self.scene.wait(lambda: False, timeout_s=HELD_S)
        ports = self.servers.ports
        has = max(replication_offset(ports[server]) for server in self.servers.replicas())
        self._ahead_bytes = replication_offset(ports[self.old]) - has
        self.scene.signal(self.servers.pid(self.old), signal.SIGSTOP)
        return Seen(t_ns, True, f"no replication for {HELD_S:g} s, {self._ahead_bytes} bytes; then SIGSTOP to server-{self.old}")

    def witness(self) -> Seen:
        pid = self.servers.pid(self.old)
        frozen = self.scene.wait(lambda: process_states(pid) == {"T"}, timeout_s=FREEZE_TIMEOUT_S)
        seen = super().witness()
        return Seen(seen.t_ns, seen.ok and frozen and self._ahead_bytes > 0, seen.detail)

    def decided(self) -> str:
        self.scene.signal(self.servers.pid(self.old), signal.SIGCONT)
        return f"SIGCONT to server-{self.old}"

    def witness_healed(self) -> Seen:
        seen = super().witness_healed()
        if self.new is not None:
            record_noticed(self.scene, self.planned, self.servers.ports[self.new], self._noticed_before)
        return seen

    def mend(self) -> str:
        self.scene.signal(self.servers.pid(self.old), signal.SIGCONT)
        self.tell(self.old, "ACL", "SETUSER", "default", *(f"+{name}" for name in COPYING))
        return f"server-{self.old} may be copied again"
