"""Requests vanish on their way to the server: the client waits for a reply to something that never happened."""

from __future__ import annotations

from chaos.faults.base import Seen
from chaos.faults.network_base import LostFault
from chaos.toxiproxy_client import blackhole


class NetRequestLost(LostFault):
    """inject: a black hole upstream. witness: a write through each proxy is unanswered and not at the server.

    heal: the black hole goes, and with it the connections that it swallowed from. healed: every target is answered again.
    """

    arrives = False

    def act(self) -> Seen:
        toxics = [blackhole("upstream")]
        return self.strike(lambda: self.network.poison(self.targets, toxics), "requests vanish on their way to the server")

    def observe_healed(self) -> Seen:
        return self.seen_healed()
