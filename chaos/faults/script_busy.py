"""Somebody's script does not end: the server answers everybody else that it is busy, until the script is killed."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from chaos.errors import HarnessError
from chaos.faults.commands import refusals, setting, tell
from chaos.faults.network_base import HOLD_LEASES, HOLD_S
from chaos.faults.server_base import ServerFault
from chaos.probe import Address, ask

CODE = "BUSY"

#: From when on the server says that it is busy; by default only after five seconds.
THRESHOLD_MS = 200

#: It would end by itself, should the harness not live to kill it.
SCRIPT = 'EVAL "for i = 1, 1e10 do end" 0'
SCRIPT_TIMEOUT_S = 60.0

#: A server that works answers within this, and how long one is waited for that is to be busy, or not to be any more.
PROBE_PATIENCE_S = 0.3
BUSY_TIMEOUT_S = 15.0


class ScriptBusy(ServerFault):
    """inject: a script that does not end, and busy-reply-threshold 200 ms. witness: the server says that it is busy, and no call
    is answered meanwhile. heal: SCRIPT KILL. healed: everybody is answered; processes were refused with BUSY, and the server
    counted more such replies than the harness itself got."""

    def prepare(self) -> None:
        self._ours = 0
        self._address: Address = self.scene.servers.address()
        self._before = setting(self.port, "busy-reply-threshold")
        self._refusals = refusals(self.port, CODE)

    def act(self) -> str:
        self.harm("CONFIG", "SET", "busy-reply-threshold", THRESHOLD_MS)
        if not self.scene.pretend:
            threading.Thread(target=self._run, name="busy-script", daemon=True).start()
        self.scene.wait(self._is_busy, timeout_s=BUSY_TIMEOUT_S, poll_s=0.05)
        self._busy_ns = time.monotonic_ns()
        return f"a script without an end, busy-reply-threshold {THRESHOLD_MS} ms"

    def observe(self) -> tuple[bool, str]:
        silent, words = self.nobody_answered(self._busy_ns, min(HOLD_S, self.scene.lease_ms / 1_000 * HOLD_LEASES))
        # Asked again: also a busy server is late now and then.
        busy = self.scene.wait(self._is_busy, timeout_s=BUSY_TIMEOUT_S, poll_s=0.05)
        return busy and silent, f"the server is {'busy' if busy else 'not busy'}; {words}"

    def mend(self) -> str:
        if not self.scene.wait(self._is_freed, timeout_s=BUSY_TIMEOUT_S):
            raise HarnessError("the server is still busy after SCRIPT KILL")
        tell(self.port, "CONFIG", "SET", "busy-reply-threshold", self._before)
        return "the script was killed"

    def observe_healed(self) -> tuple[bool, str]:
        whom, more = self.refused(CODE), refusals(self.port, CODE) - self._refusals - self._ours
        return bool(whom) and more > 0, f"; {more} BUSY replies, to {', '.join(whom) or 'nobody'}"

    def _run(self) -> None:
        with suppress(OSError):
            ask(self._address, SCRIPT, SCRIPT_TIMEOUT_S)

    def _is_busy(self) -> bool:
        busy = self._ping().startswith("-BUSY")
        self._ours += busy
        return busy

    def _is_freed(self) -> bool:
        """Kill the script; true once the server answers as ever."""
        with suppress(OSError):
            ask(self._address, "SCRIPT KILL", PROBE_PATIENCE_S)
        reply = self._ping()
        self._ours += reply.startswith("-BUSY")
        return reply == "+PONG"

    def _ping(self) -> str:
        try:
            return ask(self._address, "PING", PROBE_PATIENCE_S)
        except OSError:
            return ""
