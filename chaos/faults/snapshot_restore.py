"""The only server goes back to what it was some seconds ago, as it does when a backup is put back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import Any

import redis

from chaos.errors import HarnessError
from chaos.faults.asking import counted_losses, record, record_noticed
from chaos.faults.base import Scene, Seen
from chaos.faults.server import ServerEnd
from chaos.network import Network
from chaos.plan import PlannedFault
from chaos.probe import address_of

#: So much load comes after the snapshot, and is lost when that is put back.
LOST_LOAD_S = 3.0

#: Keys that would have lived for at least this long are there some seconds later, unless the server went back.
LONG_LIVED_MS = 12_000
LOOK_TIMEOUT_S = 5.0


class SnapshotRestore(ServerEnd):
    """First the server's files are copied while it works (stage `snapshot`: the instant before; what was answered by then is in
    the copy), and some load comes.

    inject: everybody is cut off, so that nobody writes before it was looked at, and the server is killed. witness: with the copy
    in the place of its files, keys that it had are gone or have other values. heal: everybody may come back. healed: another run
    id, everybody is answered, and some process has noticed what is gone (stage `noticed`).
    """

    #: What is looked at, for people.
    WHAT = "keys"

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        if scene.network is None:
            raise HarnessError(f"{planned.fault}: the run has no proxies")
        self._network: Network = scene.network
        self._copy = self.servers.folder.with_name("snapshot")
        self._snapshot_ns = 0
        self._losses = 0
        self.before: Mapping[str, Any] = {}

    def look(self) -> Mapping[str, Any]:
        """What is there, by name."""
        return lasting_keys(address_of(self.servers.url).port)

    def gone_back(self, now: Mapping[str, Any]) -> list[str]:
        """The names of what was there before the end and is not there now, or is older."""
        return [name for name, value in self.before.items() if name not in now or now[name] != value]

    def prepare(self) -> None:
        """Copy the server's files. They only grow, so what was answered before is in the copy, whatever comes meanwhile."""
        self._snapshot_ns = self.note_written()
        shutil.copytree(self.servers.folder, self._copy)
        detail = f"copied the server's files in {(time.monotonic_ns() - self._snapshot_ns) / 1e6:.0f} ms"
        record(self.scene, self.planned, "snapshot", seen=True, detail=detail, t_ns=self._snapshot_ns)
        self.let_load_come(LOST_LOAD_S)

    def end(self) -> None:
        try:
            self._network.cut(self.scene.clients())
            self.before = self.look()
        except BaseException:
            # Not on record yet: nobody else knows that there is something to heal.
            self._network.heal_all()
            raise
        super().end()

    def witness(self) -> Seen:
        gone = self.is_gone()
        self.start_again()
        back = self.gone_back(self.look())
        self._losses = counted_losses(self.scene, address_of(self.servers.url).port)
        t_ns = time.monotonic_ns()
        age_s = (t_ns - self._snapshot_ns) / 1e9
        detail = f"put back a snapshot that is {age_s:.1f} s old; {len(back)} {self.WHAT} went back"
        return Seen(t_ns, gone and bool(back), detail)

    def change_files(self) -> str:
        shutil.rmtree(self.servers.folder)
        self._copy.rename(self.servers.folder)
        return "the snapshot"

    def heal(self) -> Seen:
        if self.servers.ended:
            self.start_again()
        self.healed_ns = time.monotonic_ns()
        self._network.heal_all()
        return Seen(self.healed_ns, True, "everybody may come back")

    def observe_healed(self) -> tuple[bool, str]:
        record_noticed(self.scene, self.planned, address_of(self.servers.url).port, self._losses)
        return True, ""


def lasting_keys(port: int) -> dict[str, bytes | None]:
    """The keys of a server that live for ever or for long, with the values of strings. Raises HarnessError."""
    try:
        with redis.Redis(port=port, socket_timeout=LOOK_TIMEOUT_S) as client:
            keys: list[bytes] = list(client.scan_iter(count=1_000))
            pipe = client.pipeline(transaction=False)
            for key in keys:
                pipe.pttl(key)
            # Of what is no string it is null.
            pipe.mget(keys or [b"none"])
            *lives_ms, values = pipe.execute()
            found = zip(keys, lives_ms, values, strict=False)
            return {key.decode(errors="replace"): value for key, ms, value in found if ms == -1 or ms >= LONG_LIVED_MS}
    except redis.RedisError as error:
        raise HarnessError(f"server on port {port}: its keys cannot be read: {error}") from error
