"""Drain: one worker process on a prefilled queue, by path and prefetch, compared with the floor."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import engine
from bench.micro.drain_process import Order
from bench.micro.floor import Floor
from bench.micro.jobs import fill
from bench.micro.place import child, client, evalsha_stats, pinned_server, server_cpu_s
from bench.micro.rounds import Cost, columns, in_turns, ratio
from bench.models import LANES

#: The batch of the floor in the target, and the paths and prefetches that are measured.
FLOOR_BATCH = 50
FLOOR_BATCHES = (1, 10, FLOOR_BATCH)
#: The prefetch in the target: the worker's default.
PREFETCH: int = inspect.signature(engine.Worker.__init__).parameters["prefetch"].default
PREFETCHES = tuple(sorted({16, 64, PREFETCH, 256}))
PATHS = ("inline", "threads", "asyncio")
_TIMEOUT_S = 300


def measure(jobs: int, repeat: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Jobs per second of each case, one value per repetition, and the ratio of the inline path to the floor."""
    with pinned_server() as server, engine.Queue("drain", url=server.url) as queue:
        plain = client(server)
        floor = Floor(plain, server.port)

        def one(path: str, prefetch: int, jobs: int) -> Cost:
            plain.flushall()
            if path == "floor":
                floor.fill(jobs)
            else:
                fill(queue, jobs)
            plain.config_resetstat()
            server_s = server_cpu_s(plain)
            answer = drain_once(server.url, queue.name, jobs, path, prefetch)
            server_s = server_cpu_s(plain) - server_s
            script_us = evalsha_stats(plain)[1]
            per_job = (script_us / jobs, 1e6 * server_s / jobs, 1e6 * answer["cpu_s"] / jobs)
            return Cost(jobs / answer["seconds"], *per_job)

        def case(path: str, prefetch: int) -> Callable[[], Cost]:
            # One at a time is ten times slower, and fewer jobs give the same precision.
            return lambda: one(path, prefetch, jobs if prefetch > 1 else -(-jobs // 10))

        cases = {f"floor, batch {batch}": case("floor", batch) for batch in FLOOR_BATCHES}
        cases |= {f"inline, prefetch {prefetch}": case("inline", prefetch) for prefetch in PREFETCHES}
        cases |= {f"{path}, prefetch {PREFETCH}": case(path, PREFETCH) for path in PATHS if path != "inline"}
        found = in_turns(cases, repeat, report)
    costs = columns(found)
    rates = costs["jobs_per_s"]
    return {**costs, "ratios": {"drain": ratio(rates[f"inline, prefetch {PREFETCH}"], rates[f"floor, batch {FLOOR_BATCH}"])}}


def drain_once(
    url: str, queue: str, jobs: int, path: str, prefetch: int, profile: bool = False, model: str = LANES
) -> dict[str, Any]:
    """Drain in a child process, and return its result: `seconds`, `cpu_s`, `profile`."""
    with child("bench.micro.drain_process", Order(url, queue, jobs, path, prefetch, profile, model)) as drained:
        output = drained.communicate(timeout=_TIMEOUT_S)[0]
    if drained.returncode:
        raise RuntimeError(f"drain: the process of path {path} ended with code {drained.returncode}")
    return json.loads(output)
