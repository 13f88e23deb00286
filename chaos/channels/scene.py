"""What faults of a run on channels may look at and act on."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.channels.crew import ChannelCrew
from chaos.channels.keyspace import Keyspace
from chaos.channels.watch import ChannelWatch
from chaos.faults.base import Scene
from chaos.topology import Durable
from engine.history import HistoryFile


@dataclass(frozen=True, kw_only=True)
class ChannelScene(Scene):
    """`lease_ms` is only how long faults of the network last at most; nothing is leased."""

    crew: ChannelCrew
    watch: ChannelWatch
    servers: Durable
    keyspace: Keyspace
    harness: HistoryFile

    def clients(self) -> list[str]:
        """The processes that live and talk to the server."""
        return [name for name, child in self.crew.children.items() if child.alive()]

    def unanswered_since(self, t_ns: int, timeout_s: float) -> list[str]:
        """Those of the living processes that no call was answered which they sent since then, waited for."""

        def missing() -> list[str]:
            return [name for name in self.clients() if self.watch.view(name).answered.sent_ns <= t_ns]

        self.wait(lambda: not missing(), timeout_s=timeout_s)
        return missing()
