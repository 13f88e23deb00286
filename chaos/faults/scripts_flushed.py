"""The server forgets all scripts again and again, as it does when an operator flushes them or when it starts anew."""

from __future__ import annotations

from chaos.faults.commands import refusals
from chaos.faults.server_base import ServerFault

CODE = "NOSCRIPT"

#: How often, and for how long.
EVERY_S = 0.05
STORM_S = 2.0

#: A process that was refused has written so by then.
REFUSED_TIMEOUT_S = 10.0


class ScriptsFlushed(ServerFault):
    """inject: SCRIPT FLUSH every 50 ms for two seconds. witness: the server's count of NOSCRIPT replies rises, processes were
    refused with it, and each of them was answered all the same. heal: nothing more is flushed. healed: everybody is answered."""

    def prepare(self) -> None:
        self._flushes = 0
        self._refusals = refusals(self.port, CODE)

    def act(self) -> str:
        self.scene.wait(self._flushed, timeout_s=STORM_S, poll_s=EVERY_S)
        return f"SCRIPT FLUSH, {self._flushes} times in {STORM_S:g} s"

    def observe(self) -> tuple[bool, str]:
        missing = self.scene.unanswered_since(self.since_ns, REFUSED_TIMEOUT_S)
        self.scene.wait(lambda: bool(self.refused(CODE)), timeout_s=REFUSED_TIMEOUT_S)
        more, whom = refusals(self.port, CODE) - self._refusals, self.refused(CODE)
        words = f"{more} NOSCRIPT replies, to {', '.join(whom) or 'nobody'}; answered: "
        return more > 0 and bool(whom) and not missing, words + (f"all but {', '.join(missing)}" if missing else "everybody")

    def mend(self) -> str:
        return "nothing is flushed any more"

    def _flushed(self) -> bool:
        """Flush once more; never true."""
        self.harm("SCRIPT", "FLUSH")
        self._flushes += 1
        return False
