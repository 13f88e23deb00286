"""CPU pinning: a private server on one core, and the client processes on another."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from engine.testing import EmbeddedServer, start_guarded
from engine.testing.server import bundled_binary

SERVER_CPU, CLIENT_CPU = 0, 1
ROOT = Path(__file__).parents[2]


class Unpinnable(Exception):
    """This process may not use both cores, so measurements would be meaningless."""


def check_cores() -> None:
    """Raise Unpinnable unless this process may use both cores."""
    os.sched_setaffinity(0, {SERVER_CPU, CLIENT_CPU})
    allowed = os.sched_getaffinity(0)
    if not {SERVER_CPU, CLIENT_CPU} <= allowed:
        raise Unpinnable(f"cores {SERVER_CPU} and {CLIENT_CPU} are needed, this process may use {sorted(allowed)}")


def pin_client() -> None:
    """Pin this process, and those that it starts from now on, to the client's core."""
    os.sched_setaffinity(0, {CLIENT_CPU})


@contextmanager
def quiet() -> Iterator[None]:
    """Log no warnings of the engine."""
    log = logging.getLogger("ironclaim")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


@contextmanager
def pinned_server(binary: str | Path | None = None) -> Iterator[EmbeddedServer]:
    """An empty server, pinned to its core. Who measures on it empties it under living queues, which is no news here."""
    with quiet(), EmbeddedServer(binary=binary) as server:
        # Pin every thread, including those that free memory in the background.
        for thread in Path(f"/proc/{server.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {SERVER_CPU})
        yield server


def client(server: EmbeddedServer) -> redis.Redis:
    """A plain redis-py client without retries."""
    return redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0), protocol=2)


def servers() -> dict[str, Path | None]:
    """The two servers on which memory is measured, independent of the environment; None for one that is not installed."""
    found = {"valkey": bundled_binary() or shutil.which("valkey-server"), "redis": shutil.which("redis-server")}
    return {name: Path(program) if program else None for name, program in found.items()}


def start_module(module: str, *arguments: str, tree: Path = ROOT, stderr: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """A child process that runs a module of this harness, or of the checkout in `tree`; see `start_program`."""
    return start_program(["-m", module, *arguments], tree, stderr=stderr)


@contextmanager
def child(module: str, order: Any, cpu: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this harness that carries out an order, on this core where one is named; it is ended at the end."""
    process = start_module(module, json.dumps(asdict(order)))
    try:
        if cpu is not None:
            os.sched_setaffinity(process.pid, {cpu})
        yield process
    finally:
        process.kill()
        process.wait()


def start_program(
    arguments: Sequence[str], tree: Path, *, stdin: int = subprocess.DEVNULL, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python process on the core of this one that imports from `tree` and ends with its parent; its stdout is a pipe."""
    return start_guarded(
        [sys.executable, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
    )


def server_cpu_s(plain: redis.Redis) -> float:
    """CPU seconds that the server has used so far, in user and kernel mode."""
    cpu = plain.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def evalsha_stats(plain: redis.Redis) -> tuple[int, float]:
    """Calls of EVALSHA since the last reset of the statistics, and the microseconds that the server spent in them."""
    stats = plain.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    return int(stats["calls"]), float(stats["usec"])
