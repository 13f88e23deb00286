"""The processes of a measurement: adapters that produce or work, the server's statistics, and the CPU that nobody here used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

from bench.micro.payload import PAYLOAD
from bench.micro.place import CLIENT_CPU, ROOT, SERVER_CPU
from bench.peers.environments import ADAPTERS
from bench.peers.libraries import Library
from engine.testing import start_guarded

ENQUEUED, STARTED, ENDED, STARTED_AGAIN = range(4)
_POLL_S = 0.02


class PeerFailed(Exception):
    """An adapter did not do what was asked of it; the message says what, in one line."""


class Records:
    """The times of the jobs of one measurement: int64 nanoseconds of the monotonic clock; 0 is not yet."""

    def __init__(self, path: Path, jobs: int) -> None:
        self.path, self.jobs = path, jobs
        path.write_bytes(bytes(8 * 4 * jobs))

    def times(self, which: int) -> array[int]:
        """The times of one kind, by the number of the job."""
        with self.path.open("rb") as file:
            file.seek(8 * which * self.jobs)
            found = array("q")
            found.frombytes(file.read(8 * self.jobs))
        return found

    def count(self, which: int) -> int:
        """The jobs to which this has happened."""
        return self.jobs - self.times(which).count(0)


@dataclass
class Adapter:
    """A process that runs an adapter."""

    library: Library
    process: subprocess.Popen[bytes]
    started_ns: int

    def cpu_s(self, *, alone: bool = False) -> float:
        """CPU seconds of the process and, unless `alone`, of all its living descendants."""
        total = 0.0
        with suppress(psutil.NoSuchProcess):
            for one in (parent := psutil.Process(self.process.pid), *(() if alone else parent.children(recursive=True))):
                with suppress(psutil.NoSuchProcess):
                    times = one.cpu_times()
                    total += times.user + times.system
        return total

    def kill(self) -> None:
        """SIGKILL to the process and to all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


class Bench:
    """Starts adapters against one server, each in its own process, and ends them."""

    def __init__(self, server: redis.Redis, port: int, folder: Path) -> None:
        self.server, self._port, self._folder = server, port, folder
        self._commands: dict[str, list[str]] = {}
        #: CPU seconds of processes that ended adapters had started: they are killed with them, and nobody waits for them.
        self._grandchildren_cpu_s = 0.0
        self._running: list[Adapter] = []

    def install(self, library: Library, command: list[str]) -> None:
        """Say which command runs a library's adapter."""
        self._commands[library.name] = command

    def records(self, library: Library, jobs: int) -> Records:
        """New records for a measurement."""
        return Records(self._folder / f"{library.name}.records", jobs)

    def start(self, library: Library, records: Records, *, pinned: bool, **order: Any) -> Adapter:
        """Start an adapter; `order` is what differs from the defaults, see `adapters/recording.py`."""
        full = {
            "host": "127.0.0.1",
            "port": self._port,
            "url": f"redis://127.0.0.1:{self._port}/0",
            "queue": f"peers-{library.name}",
            "jobs": records.jobs,
            "payload": PAYLOAD,
            "records": str(records.path),
            "settings": dict(library.default),
            "handler_s": 0,
            "way": "one",
            "in_flight": 1,
            "rate": 0,
            "warm_up": 20,
            **order,
        }
        path = os.pathsep.join((str(ADAPTERS), str(ROOT))) if library.runtime == "checkout" else str(ADAPTERS)
        env = {**os.environ, "PEERS_ORDER": json.dumps(full), "PYTHONPATH": path}
        # What a process inherits decides where it runs; this one is put back at once.
        os.sched_setaffinity(0, {CLIENT_CPU} if pinned else {SERVER_CPU, CLIENT_CPU})
        started_ns = time.monotonic_ns()
        with (self._folder / f"{library.name}.log").open("ab") as log:
            process = start_guarded(
                *(self._commands[library.name],),
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        os.sched_setaffinity(0, {SERVER_CPU, CLIENT_CPU})
        adapter = Adapter(library, process, started_ns)
        self._running.append(adapter)
        return adapter

    def produce(
        self, library: Library, records: Records, *, pinned: bool = True, timeout_s: float = 60, **order: Any
    ) -> dict[str, float]:
        """Run a producer to its end: its `seconds` and `cpu_s` from the first enqueue to the last reply."""
        adapter = self.start(library, records, pinned=pinned, role="produce", **order)
        try:
            output, _ = adapter.process.communicate(timeout=timeout_s)
            return json.loads(output.decode().strip().splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            raise PeerFailed(
                f"{library.name}: the producer did not end well ({type(error).__name__}); its log says why"
            ) from error
        finally:
            self.end(adapter)

    @contextmanager
    def worker(self, library: Library, records: Records, *, pinned: bool, **order: Any) -> Iterator[Adapter]:
        """A worker that runs meanwhile."""
        adapter = self.start(library, records, pinned=pinned, role="work", **order)
        try:
            yield adapter
        finally:
            self.end(adapter)

    def end(self, adapter: Adapter) -> None:
        """Kill what is left of an adapter, and keep its CPU time."""
        self._grandchildren_cpu_s += adapter.cpu_s() - adapter.cpu_s(alone=True)
        adapter.kill()
        self._running.remove(adapter)

    def own_cpu_s(self) -> float:
        """CPU seconds that this process, its adapters and the server have used so far."""
        times = os.times()
        cpu = self.server.info("cpu")
        server_s = float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
        ended_s = times.children_user + times.children_system + self._grandchildren_cpu_s
        return times.user + times.system + server_s + ended_s + sum(adapter.cpu_s() for adapter in self._running)


def wait_for(condition: Any, timeout_s: float, adapters: Sequence[Adapter] = ()) -> bool:
    """Whether the condition came true in time; raises PeerFailed when one of the adapters has ended."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        for adapter in adapters:
            if adapter.process.poll() is not None:
                raise PeerFailed(f"{adapter.library.name}: a worker ended with {adapter.process.returncode}; its log says why")
        if time.monotonic() > until_s:
            return False
        time.sleep(_POLL_S)
    return True


@dataclass(frozen=True)
class ServerUse:
    """What the server has done since its statistics were reset."""

    commands: int
    reads: int
    cpu_s: float


def server_use(server: redis.Redis) -> ServerUse:
    """Commands, those inside scripts among them; reads from sockets, which are round trips; CPU seconds in all."""
    stats: Mapping[str, Any] = server.info("commandstats")
    own = ("cmdstat_info", "cmdstat_config|resetstat")
    commands = sum(int(one["calls"]) for name, one in stats.items() if name not in own)
    cpu = server.info("cpu")
    return ServerUse(
        commands, int(server.info("stats")["total_reads_processed"]), float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])
    )


def busy_cpu_s() -> float:
    """CPU seconds that all processes of the machine have used so far, without interrupts and what a hypervisor took."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system
