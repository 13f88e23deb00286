"""Pickup time: from the call of `enqueue` to the handler at 100 jobs/s, in slices that alternate with those of a bare loop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import redis

from bench.micro.pickup_process import Order
from bench.micro.place import child, client, pinned_server
from bench.micro.rounds import interval, quantile
from engine.testing import EmbeddedServer

RATE_PER_S = 100.0
SHARES = {"p50": 0.50, "p99": 0.99}
#: The first jobs of a slice are not measured, because the processes are not warmed up.
_WARM_UP_JOBS = 50
_TIMEOUT_S = 60


def measure(slices: int, jobs: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Run `slices` slices per side with `jobs` samples each. Return quantiles in ms over all slices, and their ratios with a 95
    % interval."""
    samples: dict[str, list[list[float]]] = {"worker": [], "bare": []}
    late_ms: list[float] = []
    with pinned_server() as server:
        plain = client(server)
        for number in range(slices):
            # Alternate which side comes first.
            for role in ("worker", "bare") if number % 2 == 0 else ("bare", "worker"):
                picked, late = _slice(server, plain, role, jobs)
                samples[role].append(picked)
                late_ms += late
            report(f"slice {number + 1} of {slices} a side")
    found: dict[str, Any] = {"pickup_ms": {}, "interval": {}, "ratios": {}, "late_ms_p99": quantile(late_ms, 0.99)}
    pooled = {role: [value for slice_ in parts for value in slice_] for role, parts in samples.items()}
    for name, share in SHARES.items():
        values = {role: quantile(pooled[role], share) for role in pooled}
        found["pickup_ms"][name] = values
        found["ratios"][f"pickup_{name}"] = values["worker"] / values["bare"]
        found["interval"][f"pickup_{name}"] = interval(samples["worker"], samples["bare"], share)
    return {**found, "samples_ms": {role: [[round(ms, 4) for ms in part] for part in parts] for role, parts in samples.items()}}


def _slice(server: EmbeddedServer, plain: redis.Redis, role: str, jobs: int) -> tuple[list[float], list[float]]:
    plain.flushall()
    total = jobs + _WARM_UP_JOBS

    def start(role: str) -> subprocess.Popen[bytes]:
        order = Order(role, server.url, "pickup", total, RATE_PER_S)
        return children.enter_context(child("bench.micro.pickup_process", order))

    with ExitStack() as children:
        consumer = start(role)
        assert consumer.stdout is not None
        if consumer.stdout.readline().strip() != b"ready":
            raise RuntimeError(f"pickup: the {role} did not start")
        producer = start("producer")
        answers = [json.loads(one.communicate(timeout=total / RATE_PER_S + _TIMEOUT_S)[0]) for one in (producer, consumer)]
    late_ms, picked_ms = answers[0]["late_ms"], answers[1]["pickup_ms"]
    if len(picked_ms) != total:
        raise RuntimeError(f"pickup: the {role} saw {len(picked_ms)} of {total} jobs")
    return picked_ms[_WARM_UP_JOBS:], late_ms[_WARM_UP_JOBS:]
