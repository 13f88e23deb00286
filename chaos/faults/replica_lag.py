"""The replicas stand still for a while: the primary goes on alone, and they have to catch up."""

from __future__ import annotations

import signal
import time

from chaos.faults.base import Scene, Seen, process_states
from chaos.faults.failover import FOLLOW_TIMEOUT_S, WHOLE_TIMEOUT_S
from chaos.plan import PlannedFault
from chaos.topology.base import Replicated
from chaos.topology.several import replication_offset

#: How long they stand still, under load.
HELD_S = 3.0


class ReplicaLag:
    """inject: SIGSTOP to every replica of the primary. witness: all their threads stand still, and the primary has written more
    than it had then. heal: SIGCONT. healed: they have caught up, the primary is the same, and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._servers: Replicated = scene.servers
        self._primary: int | None = None
        self._replicas: list[int] = []
        self._offset = 0
        self._healed_ns = 0

    def inject(self) -> Seen:
        servers = self._servers
        self._primary, self._replicas = servers.primary(), servers.replicas()
        t_ns = time.monotonic_ns()
        self._offset = -1 if self._primary is None else replication_offset(servers.ports[self._primary])
        self._send(signal.SIGSTOP)
        return Seen(t_ns, bool(self._replicas), f"SIGSTOP to {self._names()}")

    def witness(self) -> Seen:
        self._scene.wait(lambda: False, timeout_s=HELD_S)
        still = all(process_states(self._servers.pid(server)) == {"T"} for server in self._replicas)
        now = -1 if self._primary is None else replication_offset(self._servers.ports[self._primary])
        behind = now - self._offset
        return Seen(time.monotonic_ns(), still and behind > 0, f"{self._names()} stand still and are {behind} bytes behind")

    def heal(self) -> Seen:
        self._healed_ns = time.monotonic_ns()
        self._send(signal.SIGCONT)
        return Seen(self._healed_ns, True, f"SIGCONT to {self._names()}")

    def witness_healed(self) -> Seen:
        whole = self._scene.wait(self._servers.is_whole, timeout_s=WHOLE_TIMEOUT_S, poll_s=0.1)
        missing = self._scene.unanswered_since(self._healed_ns, FOLLOW_TIMEOUT_S)
        same = self._servers.primary() == self._primary
        detail = f"{'in step again' if whole else 'not in step'}, the primary is {'the same' if same else 'another'}"
        detail += f"; answered: all but {', '.join(missing)}" if missing else "; everybody answered"
        return Seen(time.monotonic_ns(), whole and same and not missing, detail)

    def _send(self, number: int) -> None:
        for server in self._replicas:
            self._scene.signal(self._servers.pid(server), number)

    def _names(self) -> str:
        return ", ".join(f"server-{server}" for server in self._replicas) or "nobody"
