"""The server moves to another address, and its name leads there a moment later: clients must resolve the name again."""

from __future__ import annotations

import time

from chaos.faults.base import Scene, Seen, preload_of
from chaos.faults.network import NetDown
from chaos.plan import PlannedFault
from chaos.preload.control import HOST
from chaos.probe import Address, ask, refused

#: Addresses of this machine between which the name moves.
ADDRESSES = ("127.0.0.1", "127.0.0.2")


class DnsChange(NetDown):
    """inject: the proxies of all processes leave their address for another one, and cut what they carry. witness: the old
    address refuses connections, the new one answers, and no target was answered, as the name leads to the old one. heal: the name
    leads to the new address. healed: the old address refuses connections still, and every target has a new connection and was
    answered, without a restart."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._preload = preload_of(scene, planned)
        self._old = {name: self.network.proxy(name) for name in self.targets if name in self.network}
        before = self.network.listens_at
        self._new_host = next(address for address in ADDRESSES if address != before)

    def act(self) -> Seen:
        said = f"the server of {HOST} moves from {self.network.listens_at} to {self._new_host}"
        return self.strike(lambda: self.network.move(self._new_host), said)

    def observe(self) -> Seen:
        answering = [name for name in self.targets if self._answers(Address(self._new_host, self._old[name].port))]
        refusing = self._refusing()
        self.hold()
        silent = self.silent()
        detail = (
            f"old address refused: {names(refusing)}; new one answered: {names(answering)}; no call answered: {names(silent)}"
        )
        return Seen(time.monotonic_ns(), len(answering) == len(refusing) == len(silent) == len(self.targets), detail)

    def heal(self) -> Seen:
        self.healed_ns = time.monotonic_ns()
        self._preload.lead_to(self.network.listens_at)
        return Seen(self.healed_ns, True, f"{HOST} leads to {self.network.listens_at}")

    def observe_healed(self) -> Seen:
        seen, refusing = super().observe_healed(), self._refusing()
        ok = seen.ok and len(refusing) == len(self.targets)
        return Seen(seen.t_ns, ok, f"{seen.detail}; old address refused: {names(refusing)}")

    def _refusing(self) -> list[str]:
        """Those of the targets whose old address refuses connections."""
        return [name for name in self.targets if refused(self._old[name])]

    def _answers(self, address: Address) -> bool:
        try:
            return ask(address, "PING") == "+PONG"
        except OSError:
            return False


def names(found: list[str]) -> str:
    """Names for people."""
    return ", ".join(found) or "nobody"
