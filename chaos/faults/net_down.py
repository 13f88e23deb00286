"""The connection is gone and comes back: sockets end, and new ones are refused."""

from __future__ import annotations

import time

from chaos.faults.base import Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S, NetworkFault
from chaos.probe import refused


class NetDown(NetworkFault):
    """inject: the proxies stop listening and cut what they carry. witness: they refuse connections, and no target was answered.

    heal: they listen again. healed: every target has a new connection and was answered.
    """

    def act(self) -> Seen:
        return self.strike(lambda: self.network.cut(self.targets), "connections cut, new ones refused")

    def observe(self) -> Seen:
        refusing = [name for name in self.targets if refused(self.network.proxy(name))]
        self.hold()
        silent = self.silent()
        detail = f"refused connections: {', '.join(refusing) or 'nobody'}; no call answered: {', '.join(silent) or 'nobody'}"
        return Seen(time.monotonic_ns(), len(refusing) == len(silent) == len(self.targets), detail)

    def observe_healed(self) -> Seen:
        self.scene.wait(lambda: len(self._connected()) == len(self.targets), timeout_s=ANSWER_TIMEOUT_S)
        connected = self._connected()
        seen = self.seen_healed(f"; new connections: {', '.join(connected) or 'nobody'}")
        return Seen(seen.t_ns, seen.ok and len(connected) == len(self.targets), seen.detail)

    def _connected(self) -> list[str]:
        """Those of the targets that have connected since the heal."""
        return [name for name in self.targets if self.scene.watch.view(name).connected_ns > self.healed_ns]
