"""Once a second, from a thread of its own: server figures, queue counts, CPU and memory per process, and the clocks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, TextIO

import psutil
import redis

from bench.schedstat import schedstat_s
from chaos import rows
from chaos.probe import Address
from engine import Counts, EngineError, Queue
from record.history import HistoryFile
from record.recorder import ClockOffsets

PERIOD_S = 1.0

#: Queue counts that are sampled.
COUNTS = ("waiting", "delayed", "active", "dead", "done", "finished")

#: What is taken from INFO.
INFO_FIELDS = (
    "used_memory",
    "used_memory_rss",
    "connected_clients",
    "blocked_clients",
    "total_commands_processed",
    "instantaneous_ops_per_sec",
    "evicted_keys",
    "rejected_connections",
    "total_error_replies",
    "used_cpu_user",
    "used_cpu_sys",
    "role",
    "run_id",
    "master_replid",
)


class WorldSampler:
    """Writes `samples/{server,processes}.jsonl` and the clock rows of the harness until it is closed, and whatever else `_look`
    looks at.

    A sample that cannot be had is a row with `error`: the server may well be the victim of a fault. `login`: user and password
    of the server, where it wants some.
    """

    #: What `_look` writes to.
    MORE_FILES: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        address: Callable[[], Address],
        samples: Path,
        harness: HistoryFile,
        pids: Callable[[], Mapping[str, int]],
        login: Mapping[str, str] | None = None,
    ) -> None:
        self._address, self._login = address, dict(login or {})
        self._asked: Address | None = None
        self._redis: redis.Redis | None = None
        self._harness = harness
        # Every look: the clocks of all other hosts are compared with this one by them.
        self._offsets = ClockOffsets(harness, period_ns=0)
        self._pids = pids
        self._processes: dict[int, psutil.Process] = {}
        self._files: dict[str, TextIO] = {
            name: (samples / f"{name}.jsonl").open("a", buffering=1) for name in ("server", "processes", *self.MORE_FILES)
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop sampling and close the files and connections."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5 * PERIOD_S)
        for file in self._files.values():
            file.close()
        if self._redis is not None:
            self._redis.close()

    def _look(self) -> int | None:
        """Look at what the run is about; the server's time in us, None when it did not answer."""
        raise NotImplementedError

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(0.0, due_s - time.monotonic())):
            due_s += PERIOD_S
            # A full disk must not end the run: the history says so itself, and samples are only for the report.
            with suppress(OSError):
                self._sample()

    def _sample(self) -> None:
        sent_ns = time.monotonic_ns()
        srv_us = self._look()
        if srv_us is not None:
            self._offsets.learn(sent_ns, time.monotonic_ns(), srv_us)
        self._harness.append([rows.clock(wall_ns=time.time_ns(), srv_us=srv_us)])
        self._sample_server()
        for name, pid in self._pids().items():
            self._sample_process(name, pid)

    def _sample_server(self) -> None:
        try:
            info: Any = self._primary().info("everything")
        except (redis.RedisError, OSError) as error:
            self._write("server", {"error": str(error)})
        else:
            self._write("server", {name: info[name] for name in INFO_FIELDS if name in info})

    def _primary(self) -> redis.Redis:
        """A client of the server that is primary now. Raises OSError while there is none."""
        address = self._address()
        if self._redis is None or address != self._asked:
            if self._redis is not None:
                self._redis.close()
            more: Any = {"socket_timeout": PERIOD_S, **self._login}
            self._redis = redis.Redis(address.host, address.port, decode_responses=True, **more)
            self._asked = address
        return self._redis

    def _sample_process(self, name: str, pid: int) -> None:
        try:
            process = self._processes.setdefault(pid, psutil.Process(pid))
            cpu, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            return
        counted_s = schedstat_s(pid)
        row = {"proc": name, "pid": pid, "cpu_user_s": cpu.user, "cpu_system_s": cpu.system, "rss_bytes": memory.rss}
        self._write("processes", row | {"cpu_wait_s": counted_s and counted_s[1]})

    def _write(self, file: str, row: dict[str, Any]) -> None:
        stamped = {"t_ns": time.monotonic_ns(), "wall_ns": time.time_ns(), **row}
        self._files[file].write(json.dumps(stamped, separators=(",", ":")) + "\n")


class Sampler(WorldSampler):
    """That of a run of jobs: also `samples/queue.jsonl`. `queue`: one of its own, which it closes."""

    MORE_FILES = ("queue",)

    def __init__(
        self,
        *,
        queue: Queue,
        address: Callable[[], Address],
        samples: Path,
        harness: HistoryFile,
        pids: Callable[[], Mapping[str, int]],
        login: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(address=address, samples=samples, harness=harness, pids=pids, login=login)
        self.counts: Counts | None = None
        self._queue = queue

    def close(self) -> None:
        super().close()
        self._queue.close()

    def _look(self) -> int | None:
        try:
            counts = self._queue.counts()
        except EngineError as error:
            self._write("queue", {"error": str(error)})
            return None
        self.counts = counts
        self._write("queue", {"srv_us": counts.srv_us, **{name: getattr(counts, name) for name in COUNTS}})
        return counts.srv_us
