"""The server stands still for some seconds, and goes on as if nothing had been. Leases go on too, and none is over by then."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import STATE_TIMEOUT_S, process_states
from chaos.faults.server_base import ServerFault
from engine.testing.server import process_id

#: How long, but at most this part of a lease: each is renewed when a third of it is over, so at most two are.
PAUSE_S = 4.0
PAUSE_LEASES = 4 / 9


class ServerPause(ServerFault):
    """inject: SIGSTOP to the server. witness: all its threads stand still, and no call is answered meanwhile. heal: SIGCONT.
    healed: it runs, and everybody is answered. (Leases that were taken from who holds them: J1, early reap.)"""

    def prepare(self) -> None:
        self._pid = process_id(self.port)

    def act(self) -> str:
        self.scene.signal(self._pid, signal.SIGSTOP)
        return f"SIGSTOP to the server, pid {self._pid}"

    def observe(self) -> tuple[bool, str]:
        still = self.scene.wait(lambda: process_states(self._pid) == {"T"}, timeout_s=STATE_TIMEOUT_S, poll_s=0.001)
        stopped_ns = time.monotonic_ns()
        silent, words = self.nobody_answered(stopped_ns, min(PAUSE_S, self.scene.lease_ms / 1_000 * PAUSE_LEASES))
        still = still and process_states(self._pid) == {"T"}
        paused_s = (time.monotonic_ns() - self.since_ns) / 1e9
        return still and silent, f"{'stopped' if still else 'not stopped'} for {paused_s:.1f} s; {words}"

    def mend(self) -> str:
        self.scene.signal(self._pid, signal.SIGCONT)
        return "SIGCONT to the server"

    def observe_healed(self) -> tuple[bool, str]:
        runs = self.scene.wait(lambda: process_states(self._pid).isdisjoint({"T"}), timeout_s=STATE_TIMEOUT_S)
        return runs, "" if runs else "; the server stands still"
