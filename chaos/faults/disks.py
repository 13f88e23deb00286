"""Disks: that of a server with a file is slow, and that of a recorder is full."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

from chaos.faults.base import Scene, Seen, preload_of
from chaos.plan import PlannedFault
from chaos.probe import ask
from chaos.tail import Tail
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


#: So much more may be written: the row that reaches beyond it is torn.
ROOM_BYTES = 1_000

#: A worker at work writes many rows a second.
STOP_TIMEOUT_S = 15.0
WORK_TIMEOUT_S = 15.0

#: What the worker says on its standard error when it stops recording.
STOPPED = "recording stopped, the verdict will be unknown"


class RecorderDiskFull:
    """inject: no file of the worker may grow beyond the size that its history has soon. witness: its history does not grow, its
    log says that recording has stopped, and its handlers go on. heal: its files may grow again. healed: its handlers go on, and
    the history stays as it is: a hole is never made up for."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        self._scene = scene
        self._target = planned.target
        self._history: Path = scene.crew.history / f"{planned.target}.jsonl"
        self._sink = Tail(scene.crew.history / f"{planned.target}.sink.jsonl")
        self._before = resource.RLIM_INFINITY, resource.RLIM_INFINITY
        self._full_bytes = 0

    def inject(self) -> Seen:
        child = self._scene.child(self._target)
        t_ns = time.monotonic_ns()
        if child is None:
            return Seen(t_ns, False, f"{self._target} is not alive")
        most_bytes = self._history.stat().st_size + ROOM_BYTES
        self._before = resource.prlimit(child.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (most_bytes, self._before[1]))
        return Seen(t_ns, True, f"no file of {self._target} may be larger than {most_bytes} bytes")

    def witness(self) -> Seen:
        stopped = self._scene.wait(self._has_stopped, timeout_s=STOP_TIMEOUT_S, poll_s=0.05)
        self._full_bytes = self._history.stat().st_size
        works = self._works()
        same = self._history.stat().st_size == self._full_bytes
        detail = f"recording {'stopped' if stopped and same else 'went on'} at {self._full_bytes} bytes; handlers {words(works)}"
        return Seen(time.monotonic_ns(), stopped and same and works, detail)

    def heal(self) -> Seen:
        if child := self._scene.child(self._target):
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, self._before)
        return Seen(time.monotonic_ns(), True, f"files of {self._target} may grow again")

    def witness_healed(self) -> Seen:
        works, grown_bytes = self._works(), self._history.stat().st_size - self._full_bytes
        self._sink.close()
        return Seen(time.monotonic_ns(), works and not grown_bytes, f"handlers {words(works)}; {grown_bytes} bytes more recorded")

    def _has_stopped(self) -> bool:
        return STOPPED in self._scene.crew.children[self._target].log.read_text(errors="replace")

    def _works(self) -> bool:
        """True once a handler of the worker has ended from now on, by its own file."""
        self._sink.read()
        return self._scene.wait(lambda: bool(self._sink.read()), timeout_s=WORK_TIMEOUT_S, poll_s=0.02)


def words(works: bool) -> str:
    return "go on" if works else "do not go on"
