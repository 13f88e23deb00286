"""The server closes the connections of one worker again and again, that by which others see that it lives among them."""

from __future__ import annotations

import psutil

from chaos.faults.server_base import ANSWER_TIMEOUT_S, ServerFault
from engine.ops.workers import read_client

#: How often, and for how long: several looks at the connections of workers fall into it (rule 39).
EVERY_S = 0.3
CUTS_S = 5.0

#: So many cuts show that it was connected again in between: each is of a connection that was there.
ENOUGH = 3


class WorkerCut(ServerFault):
    """inject: CLIENT KILL of all connections of the worker every 300 ms for five seconds; where a proxy is in between, of
    everybody's. witness: most of the times there were some, and the worker has connected again. heal: none is cut any more.
    healed: everybody is answered."""

    def prepare(self) -> None:
        self._cuts = self._connections = 0

    def act(self) -> str:
        self.scene.wait(self._cut, timeout_s=CUTS_S, poll_s=EVERY_S)
        return f"CLIENT KILL for {CUTS_S:g} s, {self._connections} connections in {self._cuts} cuts"

    def observe(self) -> tuple[bool, str]:
        target, scene = self.planned.target, self.scene

        def back() -> bool:
            scene.watch.poll()
            return scene.watch.view(target).connected_ns > self.since_ns

        connected = scene.wait(back, timeout_s=ANSWER_TIMEOUT_S)
        words = f"{self._cuts} cuts found connections; {target} {'has' if connected else 'has not'} connected again"
        return connected and self._cuts >= ENOUGH, words

    def mend(self) -> str:
        return "no connection is cut any more"

    def _cut(self) -> bool:
        """Cut what there is; never true."""
        if self.scene.network is None:
            killed = sum(int(self.harm("CLIENT", "KILL", "ID", client_id) or 0) for client_id in self._own())
        else:
            killed = sum(int(self.harm("CLIENT", "KILL", "TYPE", kind) or 0) for kind in ("normal", "pubsub"))
        self._connections += killed
        self._cuts += killed > 0
        return False

    def _own(self) -> list[int]:
        """Client ids of the worker's connections."""
        child = self.scene.child(self.planned.target)
        if child is None:
            return []
        own = {f"{one.laddr.ip}:{one.laddr.port}" for one in psutil.Process(child.pid).net_connections("tcp") if one.laddr}
        clients = [read_client(line) for line in (self.harm("CLIENT", "LIST") or b"").decode().splitlines()]
        return [client_id for client_id, address in clients if address in own]
