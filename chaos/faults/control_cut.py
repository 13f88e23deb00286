"""The server closes the control connection of a worker again and again, and nothing else of it."""

from __future__ import annotations

from itertools import pairwise

import psutil

from chaos.faults.server_base import ANSWER_TIMEOUT_S, ServerFault
from engine.wire.operations.connections import read_client

#: How often, and for how long: several looks at the connections of workers fall into it (rule 39).
EVERY_S = 0.3
CUTS_S = 5.0

#: So many cuts show that it was connected again in between.
ENOUGH = 3


class ControlCut(ServerFault):
    """inject: CLIENT KILL of the control connection of the worker every 300 ms for five seconds; where a proxy is in between, of
    everybody's. witness: there was a new one each time, and there is one now. heal: none is cut any more. healed: everybody is
    answered."""

    def prepare(self) -> None:
        self._cut: list[str] = []

    def act(self) -> str:
        self.scene.wait(self._cut_once, timeout_s=CUTS_S, poll_s=EVERY_S)
        return f"CLIENT KILL for {CUTS_S:g} s, {len(self._cut)} control connections of {self.planned.target}"

    def observe(self) -> tuple[bool, str]:
        back = self.scene.wait(lambda: bool(set(self._controls()) - set(self._cut)), timeout_s=ANSWER_TIMEOUT_S)
        new = all(int(one) < int(other) for one, other in pairwise(self._cut))
        words = f"{len(self._cut)} were cut, each a new one: {new}; connected again: {back}"
        return back and new and len(self._cut) >= ENOUGH, words

    def mend(self) -> str:
        return "no connection is cut any more"

    def _controls(self) -> list[str]:
        """Client ids of the connections that subscribe, those of the worker as far as the server sees whose they are."""
        child = self.scene.child(self.planned.target)
        if child is None:
            return []
        own = {f"{one.laddr.ip}:{one.laddr.port}" for one in psutil.Process(child.pid).net_connections("tcp") if one.laddr}
        lines = (self.harm("CLIENT", "LIST", "TYPE", "pubsub") or b"").decode().splitlines()
        found = [read_client(line) for line in lines]
        return sorted(str(client_id) for client_id, address in found if self.scene.network is not None or address in own)

    def _cut_once(self) -> bool:
        """Cut whatever there is; never true."""
        self._cut += [one for one in self._controls() if self.harm("CLIENT", "KILL", "ID", one)]
        return False
