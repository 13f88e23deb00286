"""The server goes back to what it was some seconds ago: how one sees it in the clocks of channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.channels.crew import ChannelScene
from chaos.channels.keyspace import gone_back
from chaos.faults.snapshot_restore import SnapshotRestore
from chaos.plan import PlannedFault

#: By when clients with a memory have moved every clock on that somebody publishes to.
AHEAD_TIMEOUT_S = 15.0


class ClocksRestore(SnapshotRestore):
    """As in a run of jobs. witness: clocks are behind where they were. healed: publishers have moved on each clock that went
    back, to where it was or further."""

    WHAT = "clocks"

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._keyspace = scene.keyspace
        self._back: list[str] = []

    def look(self) -> Mapping[str, Any]:
        return self._keyspace.clocks()

    def gone_back(self, now: Mapping[str, Any]) -> list[str]:
        self._back = gone_back(self.before, now)
        return self._back

    def observe_healed(self) -> tuple[bool, str]:
        before = {channel: self.before[channel] for channel in self._back}

        def behind() -> list[str]:
            return gone_back(before, self._keyspace.clocks())

        ahead = self.scene.wait(lambda: not behind(), timeout_s=AHEAD_TIMEOUT_S, poll_s=0.1)
        left = behind()
        return ahead, f"; still behind: {', '.join(left)}" if left else f"; {len(before)} clocks are ahead again"
