"""The server closes all connections again and again, as an operator's CLIENT KILL does."""

from __future__ import annotations

from chaos.faults.commands import number_of
from chaos.faults.server_base import ANSWER_TIMEOUT_S, ServerFault

#: How often, and for how long.
EVERY_S = 0.1
STORM_S = 2.0


class ClientsKilled(ServerFault):
    """inject: CLIENT KILL TYPE normal every 100 ms for two seconds. witness: each process has connected again, and the server has
    counted at least as many new connections. heal: none is killed any more. healed: everybody is answered."""

    def prepare(self) -> None:
        self._killed = 0
        self._connections = number_of(self.port, "stats", "total_connections_received")

    def act(self) -> str:
        self.scene.wait(self._kill, timeout_s=STORM_S, poll_s=EVERY_S)
        return f"CLIENT KILL TYPE normal for {STORM_S:g} s, {self._killed} connections"

    def observe(self) -> tuple[bool, str]:
        clients = self.scene.clients()
        self.scene.wait(lambda: len(self._connected(clients)) == len(clients), timeout_s=ANSWER_TIMEOUT_S)
        connected = self._connected(clients)
        more = number_of(self.port, "stats", "total_connections_received") - self._connections
        words = f"{more} new connections; connected again: {', '.join(connected) or 'nobody'}"
        return len(connected) == len(clients) <= more, words

    def mend(self) -> str:
        return "no connection is killed any more"

    def _connected(self, clients: list[str]) -> list[str]:
        return [name for name in clients if self.scene.watch.view(name).connected_ns > self.since_ns]

    def _kill(self) -> bool:
        """Kill once more; never true."""
        self._killed += int(self.harm("CLIENT", "KILL", "TYPE", "normal") or 0)
        return False
