"""The server has no memory left: it refuses what needs more, and must still take what ends work."""

from __future__ import annotations

from chaos.faults.commands import number_of, refusals, setting, tell
from chaos.faults.server_base import ANSWER_TIMEOUT_S, ServerFault

#: What is refused, and whose.
CODE = "OOM"

#: So much less than it uses is the server given. What is done frees memory, so it is given less again and again.
BELOW_BYTES = 65_536
AGAIN_S = 0.1

#: It stays at least so long, and at most so much longer until somebody was refused.
HOLD_S = 2.5
REFUSED_TIMEOUT_S = 5.0


class MemoryFull(ServerFault):
    """inject: CONFIG SET maxmemory just below what the server uses, with noeviction, and again whenever it uses less. witness:
    its count of OOM replies rises, and calls of processes were refused with OOM. heal: maxmemory as before. healed: everybody is
    answered, and something new is accepted again."""

    def prepare(self) -> None:
        self._before = setting(self.port, "maxmemory")
        self._policy = setting(self.port, "maxmemory-policy")
        self._refusals = refusals(self.port, CODE)
        self._given_bytes = 0

    def act(self) -> str:
        self.harm("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self._press()
        return f"maxmemory {self._given_bytes}, before {self._before}"

    def observe(self) -> tuple[bool, str]:
        self.scene.wait(self._pressed, timeout_s=HOLD_S, poll_s=AGAIN_S)
        self.scene.wait(lambda: self._pressed() or bool(self.refused(CODE)), timeout_s=REFUSED_TIMEOUT_S, poll_s=AGAIN_S)
        more, whom = refusals(self.port, CODE) - self._refusals, self.refused(CODE)
        return more > 0 and bool(whom), f"{more} OOM replies; refused: {', '.join(whom) or 'nobody'}"

    def mend(self) -> str:
        self._created = self.scene.watch.created()
        for name, value in (("maxmemory", self._before), ("maxmemory-policy", self._policy)):
            tell(self.port, "CONFIG", "SET", name, value)
        return f"maxmemory {self._before}"

    def observe_healed(self) -> tuple[bool, str]:
        accepted = self.scene.wait(lambda: self.scene.watch.created() > self._created, timeout_s=ANSWER_TIMEOUT_S)
        return accepted, f"; {'new ones' if accepted else 'nothing new'} accepted"

    def _pressed(self) -> bool:
        """Keep the memory full; never true."""
        self._press()
        return False

    def _press(self) -> None:
        # The buffers of replicas and of the file are no reason to refuse anything.
        used_bytes, apart_bytes = (number_of(self.port, "memory", name) for name in ("used_memory", "mem_not_counted_for_evict"))
        used_bytes -= apart_bytes
        if not self._given_bytes or used_bytes <= self._given_bytes:
            self._given_bytes = used_bytes - BELOW_BYTES
            self.harm("CONFIG", "SET", "maxmemory", self._given_bytes)
