"""The connection is gone and comes back: sockets end, and new ones are refused."""

from __future__ import annotations

import time

from chaos.faults.base import Seen
from chaos.faults.network_base import ANSWER_TIMEOUT_S, NetworkFault
from chaos.probe import refused


class NetDown(NetworkFault):
    """inject: the proxies stop listening and cut what they carry. witness: they refuse connections, and no target was answered.

    heal: they listen again. healed: everybody was answered, and all whose own connections were cut have new ones.
    """

    def act(self) -> Seen:
        return self.strike(lambda: self.network.cut(self.targets), "connections cut, new ones refused")

    def observe(self) -> Seen:
        refusing = [name for name in self.targets if all(refused(way.entry) for way in self.network.ways(name))]
        self.hold()
        silent = self.silent()
        detail = f"refused connections: {', '.join(refusing) or 'nobody'}; no call answered: {', '.join(silent) or 'nobody'}"
        ok = len(refusing) == len(self.targets) and len(silent) == len(self.callers)
        return Seen(time.monotonic_ns(), ok, detail)

    def observe_healed(self) -> Seen:
        cut = [name for name in self.callers if name in self.targets]
        self.scene.wait(lambda: len(self._connected()) == len(cut), timeout_s=ANSWER_TIMEOUT_S)
        connected = self._connected()
        seen = self.seen_healed(f"; new connections: {', '.join(connected) or 'nobody'}")
        return Seen(seen.t_ns, seen.ok and len(connected) == len(cut), seen.detail)

    def _connected(self) -> list[str]:
        """Those of the targets that have connected since the heal."""
        return [name for name in self.targets if self.scene.watch.view(name).connected_ns > self.healed_ns]
