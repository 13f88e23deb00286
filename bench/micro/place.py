"""Where things run: a private server on one core, everything else on another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from engine.testing import EmbeddedServer, start_guarded
from engine.testing.binary import bundled_binary

SERVER_CPU, CLIENT_CPU = 0, 1
ROOT = Path(__file__).parents[2]


class Unpinnable(Exception):
    """This process may not use two cores, so nothing measured here would mean anything."""


def check_cores() -> None:
    """Raise Unpinnable unless both cores are there, also when this process was started on one of them."""
    os.sched_setaffinity(0, {SERVER_CPU, CLIENT_CPU})
    allowed = os.sched_getaffinity(0)
    if not {SERVER_CPU, CLIENT_CPU} <= allowed:
        raise Unpinnable(f"cores {SERVER_CPU} and {CLIENT_CPU} are needed, this process may use {sorted(allowed)}")


def pin_client() -> None:
    """Keep this process, and those that it starts from now on, on the client's core."""
    os.sched_setaffinity(0, {CLIENT_CPU})


@contextmanager
def pinned_server(binary: str | Path | None = None) -> Iterator[EmbeddedServer]:
    """An empty server on its core."""
    with EmbeddedServer(binary=binary) as server:
        # Every thread of it, those for freeing memory as well.
        for thread in Path(f"/proc/{server.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {SERVER_CPU})
        yield server


def client(server: EmbeddedServer) -> redis.Redis:
    """A plain redis-py client that never sends twice."""
    return redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), protocol=2)


def servers() -> dict[str, Path | None]:
    """The two servers that memory is measured on, whatever the environment names; None for one that this machine lacks."""
    found = {"valkey": bundled_binary() or shutil.which("valkey-server"), "redis": shutil.which("redis-server")}
    return {name: Path(program) if program else None for name, program in found.items()}


def start_module(module: str, *arguments: str, tree: Path = ROOT) -> subprocess.Popen[bytes]:
    """A child process that runs a module of this harness, or of the checkout in `tree`; see `start_program`."""
    return start_program(["-m", module, *arguments], tree)


def start_program(arguments: Sequence[str], tree: Path, *, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """A Python process on the client's core that imports from `tree` and ends with its parent, which reads what it prints."""
    return start_guarded(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=stdin,
        stdout=subprocess.PIPE,
    )


def server_cpu_s(plain: redis.Redis) -> float:
    """Processor time that the server has used so far, with what it spends on sockets."""
    cpu = plain.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def evalsha_stats(plain: redis.Redis) -> tuple[int, float]:
    """Calls of EVALSHA since the last reset of the statistics, and the microseconds that the server spent in them."""
    stats = plain.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    return int(stats["calls"]), float(stats["usec"])
