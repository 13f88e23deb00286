"""The power of the only server fails: it comes back with what its disk holds, which is all that it answered for, or all but the
last second of it, about.

A kill alone loses nothing, as the kernel still has what the server wrote. So the file is changed while the server is away.
"""

from __future__ import annotations

from pathlib import Path

from chaos.faults.base import Scene
from chaos.faults.noticed import record
from chaos.faults.server_restart import ServerEnd
from chaos.plan import PlannedFault

#: With a file that is brought to the disk once a second, so much load is on no disk when the power goes: less than that second.
UNSYNCED_S = 0.8

#: What the server says of a file that ends in the middle of a command.
TRUNCATED = "Truncating the AOF"


class ServerKill(ServerEnd):
    """Stage `snapshot`, where a file is noted: the instant before which all that was answered is in it.

    inject: SIGKILL; where its file is brought to the disk every second, what it holds shortly before is noted first. witness: the
    process is gone by it, and connections are refused. heal: what was not on the disk is taken away; where each write is on the
    disk before it is answered, half a command is left at the end instead; and it is started again on its port. healed: another
    run id, everybody is answered, and the server said that it cut off the half command.
    """

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._synced: dict[Path, int] = {}
        self._torn_bytes = 0
        self._log_bytes = 0

    def prepare(self) -> None:
        if self.servers.durability == "everysec":
            noted_ns = self.note_written()
            self._synced = self.servers.written_bytes()
            detail = f"{sum(self._synced.values())} bytes of its file count as brought to the disk, and none that follow"
            record(self.scene, self.planned, "snapshot", seen=True, detail=detail, t_ns=noted_ns)
            self.let_load_come(UNSYNCED_S)

    def change_files(self) -> str:
        self._log_bytes = self.servers.log_bytes()
        if self.servers.durability == "everysec":
            return f"its own file, {self.servers.cut(self._synced)} bytes of it taken away"
        self._torn_bytes = self.servers.tear()
        return f"its own file, and {self._torn_bytes} bytes of a command at the end of it"

    def observe_healed(self) -> tuple[bool, str]:
        if not self._torn_bytes:
            return True, ""
        said = TRUNCATED in self.servers.logged_since(self._log_bytes)
        return said, f"; the server {'cut off' if said else 'did not cut off'} the half command"
