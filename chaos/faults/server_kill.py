"""SIGKILL the only server, which comes back with what its file holds."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from chaos.faults.base import Scene, Seen
from chaos.plan import PlannedFault
from chaos.probe import address_of, refused
from chaos.topology.single import Durable

END_TIMEOUT_S = 8.0

#: It stays away for as long as takes clients to try again, in vain.
DOWN_S = 1.5

#: Clients that lost their server try again at least every half second.
ANSWER_TIMEOUT_S = 15.0

#: With a file that is brought to the disk once a second, so much load is on no disk when the power goes: less than that second.
#: A kill alone loses nothing, as the kernel still has what the server wrote.
UNSYNCED_S = 0.8


class ServerKill:
    """inject: SIGKILL; where its file is brought to the disk every second, that of shortly before is noted first. witness: the
    process is gone by it, and connections are refused. heal: what was not on the disk is taken away, and it is started again on
    its port. healed: another run id, and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._servers: Durable = scene.servers
        self._run_id = ""
        self._synced: dict[Path, int] = {}
        self._healed_ns = 0
        del planned

    def inject(self) -> Seen:
        scene, servers = self._scene, self._servers
        self._run_id = servers.run_id()
        if servers.durability == "everysec":
            self._synced = servers.written_bytes()
            scene.wait(lambda: False, timeout_s=UNSYNCED_S)
        t_ns = time.monotonic_ns()
        servers.end(signal.SIGKILL, scene.signal)
        return Seen(t_ns, True, f"SIGKILL to the server of run id {self._run_id[:8]}")

    def witness(self) -> Seen:
        servers = self._servers
        gone = self._scene.wait(lambda: servers.reaped() is not None, timeout_s=END_TIMEOUT_S)
        self._scene.wait(lambda: False, timeout_s=DOWN_S)
        silent = refused(address_of(servers.url))
        detail = f"the server {'ended' if gone else 'did not end'}; connections {'refused' if silent else 'accepted'}"
        return Seen(time.monotonic_ns(), gone and silent and servers.reaped() == -signal.SIGKILL, detail)

    def heal(self) -> Seen:
        servers = self._servers
        if servers.reaped() is None:
            servers.ended = False
            return Seen(time.monotonic_ns(), True, "the server lives: nothing to heal")
        cut = servers.cut(self._synced)
        servers.start()
        # Once it answers: what was sent before that was not answered by the one that ended.
        self._healed_ns = time.monotonic_ns()
        return Seen(self._healed_ns, True, f"started again with its own file, {cut} bytes of it taken away")

    def witness_healed(self) -> Seen:
        missing = self._scene.unanswered_since(self._healed_ns, ANSWER_TIMEOUT_S)
        t_ns, now = time.monotonic_ns(), self._servers.run_id()
        detail = f"run id {now[:8]}, before {self._run_id[:8]}; answered again within {(t_ns - self._healed_ns) / 1e6:.0f} ms: "
        detail += f"all but {', '.join(missing)}" if missing else "everybody"
        return Seen(t_ns, now != self._run_id and not missing, detail)
