"""Memory of a job in each state: the growth of the server's `used_memory` divided by the number of jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

import engine
from bench.micro.jobs import Claims, fill
from bench.micro.place import client, pinned_server
from engine.ops.claims import Finish

#: Wait after the last write, because the server rehashes its growing tables incrementally.
_SETTLE_S = 0.15
_SETTLE_MAX_S = 10.0


def measure(binaries: dict[str, Path | None], jobs: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Bytes per job by server and state; None for a server that is not installed."""
    found: dict[str, dict[str, float] | None] = {}
    for name, binary in binaries.items():
        found[name] = None if binary is None else _on(binary, jobs)
        report(f"{name}: " + ("not installed" if binary is None else "measured"))
    waiting = {name: None if states is None else states["waiting"] for name, states in found.items()}
    return {"bytes_per_job": found, "ratios": {f"bytes_{name}": value for name, value in waiting.items()}}


def _on(binary: Path, jobs: int) -> dict[str, float]:
    with pinned_server(binary) as server, engine.Queue("memory", url=server.url) as queue:
        plain, claims = client(server), Claims(queue)
        # Create connections, scripts and the queue's own keys first, so that they do not count as memory of the jobs.
        fill(queue, 1_000)
        leases = claims.take(1_000)
        plain.flushall(asynchronous=False)
        empty = settled(plain)

        def per_job() -> float:
            return (settled(plain) - empty) / jobs

        fill(queue, jobs)
        waiting = per_job()
        taken = list(claims.take_all())
        active = per_job()
        for leases in taken:
            queue.driver.run(queue.model.call(Finish(leases)))
        finished = per_job()
        plain.delete(queue.model.keys.done)
        tombstone = per_job()
        if sum(map(len, taken)) != jobs or queue.counts().finished != jobs:
            raise RuntimeError(f"memory: {sum(map(len, taken))} of {jobs} jobs were claimed")
    return {"waiting": waiting, "active": active, "finished": finished, "tombstone": tombstone}


def settled(plain: redis.Redis) -> int:
    """`used_memory` after it has stopped changing."""
    end_s = time.monotonic() + _SETTLE_MAX_S
    before, now = -1, int(plain.info("memory")["used_memory"])  # pyright: ignore[reportIndexIssue]
    while abs(now - before) > 1024 and time.monotonic() < end_s:
        time.sleep(_SETTLE_S)
        before, now = now, int(plain.info("memory")["used_memory"])  # pyright: ignore[reportIndexIssue]
    return now
