"""The history of one worker cannot be written any more: a fault of the harness, which no plan draws. The run must be unknown."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from chaos.faults.base import Scene, Seen
from chaos.plan import PlannedFault
from chaos.tail import Tail

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
