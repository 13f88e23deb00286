"""The server goes back to what it was some seconds ago, as it does when a backup is put back: clocks go back."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

from chaos import rows
from chaos.channels.faults.server_restart import is_gone, seen_back, start_again
from chaos.channels.keyspace import gone_back
from chaos.channels.scene import ChannelScene
from chaos.errors import HarnessError
from chaos.faults.base import Seen
from chaos.network import Network
from chaos.plan import PlannedFault

#: So much load comes after the snapshot, and is lost when that is put back.
LOST_LOAD_S = 3.0

#: By when clients with a memory have moved every clock on that somebody publishes to.
AHEAD_TIMEOUT_S = 15.0


class SnapshotRestore:
    """First the server's files are copied while it works (stage `snapshot`: the instant before; what was answered by then is in
    the copy), and some load comes.

    inject: everybody is cut off, so that nobody moves a clock before it was seen, and the server is killed. witness: with the
    copy in the place of its files, its clocks are behind where they were. heal: everybody may come back. healed: another run id,
    every process is answered, and publishers have moved each clock on that went back, to where it was or further.
    """

    def __init__(self, scene: ChannelScene, planned: PlannedFault) -> None:
        if scene.network is None:
            raise HarnessError(f"{planned.fault}: the run has no proxies")
        self._scene = scene
        self._planned = planned
        self._network: Network = scene.network
        self._copy = scene.servers.folder.with_name("snapshot")
        self._run_id = ""
        self._before: dict[str, int | None] = {}
        self._back: list[str] = []
        self._healed_ns = 0

    def inject(self) -> Seen:
        scene = self._scene
        self._take_snapshot()
        scene.wait(lambda: False, timeout_s=LOST_LOAD_S)
        self._run_id = scene.servers.run_id()
        t_ns = time.monotonic_ns()
        try:
            self._network.cut(scene.clients())
            self._before = scene.keyspace.clocks()
        except BaseException:
            # Not on record yet: nobody else knows that there is something to heal.
            self._network.heal_all()
            raise
        scene.servers.end(signal.SIGKILL, scene.signal)
        return Seen(t_ns, True, f"everybody cut off, SIGKILL to the server of run id {self._run_id[:8]}")

    def witness(self) -> Seen:
        scene = self._scene
        gone = is_gone(scene, signal.SIGKILL)
        if gone:
            replace(scene.servers.folder, self._copy)
        start_again(scene)
        self._back = gone_back(self._before, scene.keyspace.clocks())
        t_ns = time.monotonic_ns()
        age_s = (t_ns - self._snapshot_ns) / 1e9
        detail = f"put back a snapshot that is {age_s:.1f} s old; {len(self._back)} clocks went back"
        return Seen(t_ns, gone and bool(self._back), detail)

    def heal(self) -> Seen:
        if self._scene.servers.ended:
            start_again(self._scene)
        self._healed_ns = time.monotonic_ns()
        self._network.heal_all()
        return Seen(self._healed_ns, True, "everybody may come back")

    def witness_healed(self) -> Seen:
        scene = self._scene
        before = {channel: self._before[channel] for channel in self._back}
        ahead = scene.wait(lambda: not gone_back(before, scene.keyspace.clocks()), timeout_s=AHEAD_TIMEOUT_S, poll_s=0.1)
        left = gone_back(before, scene.keyspace.clocks())
        words = f"; still behind: {', '.join(left)}" if left else f"; {len(before)} clocks are ahead again"
        return seen_back(scene, self._run_id, self._healed_ns, words, ahead)

    def _take_snapshot(self) -> None:
        """Copy the server's files. They only grow, so what was answered before is in the copy, whatever comes meanwhile."""
        self._snapshot_ns = time.monotonic_ns()
        shutil.copytree(self._scene.servers.folder, self._copy)
        planned = self._planned
        detail = f"copied the server's files in {(time.monotonic_ns() - self._snapshot_ns) / 1e6:.0f} ms"
        row = rows.fault(planned.fault, name=planned.name, stage="snapshot", target=planned.target, seen=True, detail=detail)
        self._scene.harness.append([row], t_ns=self._snapshot_ns)


def replace(folder: Path, copy: Path) -> None:
    """Put the copy in the place of a folder."""
    shutil.rmtree(folder)
    copy.rename(folder)
