"""A handler takes memory until its worker is killed for it, as the kernel does at the bound of a container."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import psutil

from chaos.faults.base import Scene, Seen
from chaos.faults.worker_kill import WorkerKill
from chaos.plan import PlannedFault

#: The worker is killed when it has grown by so much.
BOUND_BYTES = 96 << 20

#: Should nobody kill it, its handler stops here.
GROWTH_MAX_BYTES = 4 * BOUND_BYTES

#: By when a handler has begun to grow and has reached the bound.
GROWTH_TIMEOUT_S = 20.0


class WorkerOom(WorkerKill):
    """inject: the next handler of the worker takes memory without end, and the worker gets SIGKILL at its bound. witness: its
    resident memory was at the bound by then, waitpid said -9, and handlers were cut off. heal: when the jobs in hand have started
    elsewhere (or the bound has passed), start the replacement. healed: it claimed."""

    def __init__(self, scene: Scene, planned: PlannedFault) -> None:
        super().__init__(scene, planned)
        self._bound_bytes = 0
        self._resident_bytes = 0

    def inject(self) -> Seen:
        scene, target = self._scene, self._planned.target
        child = scene.child(target)
        if child is None:
            return Seen(time.monotonic_ns(), False, f"{target} is not alive")
        process = psutil.Process(child.pid)
        self._bound_bytes = process.memory_info().rss + BOUND_BYTES
        grow_file = scene.crew.grow_file(target)
        grow_file.write_text(str(GROWTH_MAX_BYTES))

        def full() -> bool:
            self._resident_bytes = process.memory_info().rss
            return self._resident_bytes >= self._bound_bytes

        grew = scene.wait(full, timeout_s=GROWTH_TIMEOUT_S, poll_s=0.002)
        grow_file.unlink(missing_ok=True)
        t_ns = time.monotonic_ns()
        if grew:
            child.exit_expected = True
            scene.signal(child.pid, signal.SIGKILL)
        return Seen(t_ns, grew, f"{self._words()}; {'SIGKILL' if grew else 'nothing'} to pid {child.pid}")

    def witness(self) -> Seen:
        seen = super().witness()
        return replace(
            seen, ok=seen.ok and self._resident_bytes >= self._bound_bytes > 0, detail=f"{self._words()}; {seen.detail}"
        )

    def _words(self) -> str:
        return f"resident {self._resident_bytes >> 20} MiB, bound {self._bound_bytes >> 20} MiB"
