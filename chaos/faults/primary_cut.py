"""The primary is cut off from its sentinels while clients still reach it: it goes on answering after it was replaced."""

from __future__ import annotations

import time

from chaos.faults.base import Seen
from chaos.faults.failover_base import Failover
from chaos.topology.embedded_sentinel import info


class PrimaryCut(Failover):
    """inject: the primary refuses PING (ACL), by which sentinels find out who lives, and nothing else. witness: it still
    answers as a primary, and the majority names another server.

    heal: once every client was answered by that one, it takes PING again. healed: it follows the new primary, everybody is
    answered.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        self.tell(self.old, "ACL", "SETUSER", "default", "-ping")
        return Seen(t_ns, True, f"server-{self.old} answers its sentinels no more, and its clients as before")

    def decided(self) -> str:
        self._role = info(self.servers.ports[self.old], "replication").get("role", "")
        return f"server-{self.old} still says that it is {self._role}"

    def witness(self) -> Seen:
        self._role = ""
        seen = super().witness()
        return Seen(seen.t_ns, seen.ok and self._role == "master", seen.detail)

    def mend(self) -> str:
        self.tell(self.old, "ACL", "SETUSER", "default", "+ping")
        return f"server-{self.old} answers its sentinels again"
