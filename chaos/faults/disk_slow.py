"""The disk of a server that keeps a file is slow: every sync takes 300 ms and more."""

from __future__ import annotations

import random
import time

from chaos.faults.base import Scene, Seen, preload_of
from chaos.plan import PlannedFault
from chaos.probe import ask
from chaos.topology.single import Durable
from engine.testing.server import ask_server

#: How long a sync takes. A server that syncs once a second in the background waits for it only after two seconds.
SYNC_MS = {"always": (300, 500), "everysec": (2_500, 3_500)}

#: How long the disk is slow: some syncs, of either durability.
HOLD_S = {"always": 3.0, "everysec": 8.0}

#: Longer than any sync, and any that is waited for before it.
PATIENCE_S = 15.0

#: A probe that is answered within this waited for no slow sync.
QUICK_MS = 200

PROBE = "ironclaim:probe:disk"


class DiskSlow:
    """inject: syncs of the server take so long from now on. witness: a write is answered no sooner, where every write is synced;
    else the server counts writes that it held back for a sync under way (`aof_delayed_fsync`). heal: they take what the disk
    takes. healed: a write is answered at once, and everybody is answered."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._preload = preload_of(scene, planned)
        self._servers: Durable = scene.servers
        least_ms, most_ms = SYNC_MS[self._servers.durability]
        self._sync_ms = random.Random(f"ironclaim {planned.fault} {scene.crew.spec.seed}").randint(least_ms, most_ms)
        self._delayed = 0
        self._healed_ns = 0

    def inject(self) -> Seen:
        self._delayed = self._count()
        before_ms = self._write_ms()
        t_ns = time.monotonic_ns()
        self._preload.set_sync_delay_ns("server", self._sync_ms * 1_000_000)
        return Seen(t_ns, before_ms < self._sync_ms, f"a write took {before_ms:.0f} ms; every sync takes {self._sync_ms} ms more")

    def witness(self) -> Seen:
        durability = self._servers.durability
        self._scene.wait(lambda: False, timeout_s=HOLD_S[durability])
        took_ms, delayed = self._write_ms(), self._count() - self._delayed
        ok = took_ms >= self._sync_ms if durability == "always" else delayed > 0
        return Seen(time.monotonic_ns(), ok, f"a write took {took_ms:.0f} ms; {delayed} writes held back for a sync")

    def heal(self) -> Seen:
        self._healed_ns = time.monotonic_ns()
        self._preload.set_sync_delay_ns("server", 0)
        return Seen(self._healed_ns, True, "syncs take what the disk takes")

    def witness_healed(self) -> Seen:
        quick = self._scene.wait(lambda: self._write_ms() < QUICK_MS, timeout_s=PATIENCE_S, poll_s=0.1)
        missing = self._scene.unanswered_since(self._healed_ns, PATIENCE_S)
        detail = f"a write is {'answered at once' if quick else 'still slow'}; answered: all but {', '.join(missing) or 'nobody'}"
        return Seen(time.monotonic_ns(), quick and not missing, detail)

    def _write_ms(self) -> float:
        """How long a write takes, from before it is sent to its answer. Raises OSError."""
        address, started_ns = self._servers.address(), time.monotonic_ns()
        ask(address, f"SET {PROBE} 1 PX 1000", PATIENCE_S)
        return (time.monotonic_ns() - started_ns) / 1e6

    def _count(self) -> int:
        """How many writes the server has held back because a sync was under way."""
        lines = ask_server(self._servers.address().port, "INFO persistence", PATIENCE_S).splitlines()
        return int(next((line.partition(":")[2] for line in lines if line.startswith("aof_delayed_fsync:")), 0))
