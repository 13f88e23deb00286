"""SIGKILL the primary: a replica takes its place, and it comes back empty on its port."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import Seen
from chaos.faults.failover_base import Failover, scripts_run

#: A killed process is reaped at once; nobody waits longer than this for one that was not.
REAP_TIMEOUT_S = 3.0


class PrimaryKill(Failover):
    """inject: SIGKILL. witness: the process ended by it, and the majority names another server.

    heal: once every client was answered by that one, the old is started again, with nothing. healed: it follows the new primary,
    everybody is answered, and no client ran a script at it.
    """

    def act(self) -> Seen:
        t_ns = time.monotonic_ns()
        pid = self.servers.pid(self.old)
        self.servers.kill(self.old, self.scene.signal)
        return Seen(t_ns, True, f"SIGKILL to server-{self.old}, pid {pid}")

    def witness(self) -> Seen:
        gone = self.scene.wait(lambda: not self.servers.alive(self.old), timeout_s=REAP_TIMEOUT_S, poll_s=0.001)
        if not gone:
            self.servers.down.discard(self.old)
            return Seen(time.monotonic_ns(), False, f"server-{self.old} did not die")
        seen = super().witness()
        killed = self.servers.ending(self.old) == -signal.SIGKILL
        return Seen(seen.t_ns, seen.ok and killed, seen.detail)

    def mend(self) -> str:
        if self.servers.alive(self.old):
            return f"server-{self.old} lives: nothing to heal"
        self.servers.start_again(self.old)
        return f"server-{self.old} started again, empty"

    def witness_healed(self) -> Seen:
        seen = super().witness_healed()
        count = scripts_run(self.servers.ports[self.old])
        self.stray(count)
        return Seen(seen.t_ns, seen.ok, f"{seen.detail}; {count} scripts at the old one since it is back")
