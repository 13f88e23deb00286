"""What is looked at a few times a second while a step runs, and the times that handlers have noted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

from engine import Queue


@dataclass(frozen=True, slots=True)
class Look:
    """One instant. Figures of the server and of processors are totals, so that the difference of two looks is what was used
    between them. `commands_us`: by command."""

    t_ns: int
    waiting: int
    in_system: int
    server_cpu_s: float
    net_bytes: int
    commands_us: Mapping[str, int]
    workers_cpu_s: float


class Looker:
    """Looks at the queue, its server, and the worker processes."""

    def __init__(self, queue: Queue, server: redis.Redis, pids: Callable[[], Mapping[str, int]]) -> None:
        self._queue, self._server, self._pids = queue, server, pids

    def look(self) -> Look:
        """One look. Raises EngineError and redis.RedisError."""
        counts = self._queue.counts()
        info: Any = self._server.info("everything")
        times = [psutil.Process(pid).cpu_times() for name, pid in self._pids().items() if name.startswith("worker-")]
        return Look(
            time.monotonic_ns(),
            counts.waiting,
            counts.waiting + counts.active + counts.delayed,
            info["used_cpu_user"] + info["used_cpu_sys"],
            info["total_net_input_bytes"] + info["total_net_output_bytes"],
            {name.removeprefix("cmdstat_"): value["usec"] for name, value in info.items() if name.startswith("cmdstat_")},
            sum(used.user + used.system for used in times),
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a handler, on the monotonic clock."""

    start_ns: int
    end_ns: int


class HandlerTimes:
    """The lines of `bench.timed_handlers`, read as they come. Of a job that ran again the first run counts."""

    def __init__(self) -> None:
        self.ran: dict[str, Ran] = {}
        self._read: dict[Path, int] = {}

    def read(self, path: Path) -> int:
        """Read what was added to a file; how many bytes of whole lines it had so far."""
        done = self._read.get(path, 0)
        if path.exists():
            with path.open("rb") as file:
                file.seek(done)
                whole = file.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            for line in whole.decode().splitlines():
                job, start, end = line.split()
                self.ran.setdefault(job, Ran(int(start), int(end)))
            self._read[path] = done = done + len(whole)
        return done
