"""The costs of a model: throughput, Redis commands and time per job, bytes in each state, and claim cost by queue depth.

    python -m bench.micro.model_costs --model bull --out costs.json

Jobs, calls and numbers are the same for every model, so that only the model differs. The calls are those of one worker under
steady load: enqueues one by one, then claims of ten jobs, each fused with the finish of the previous ten.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import redis

import engine
from bench import models
from bench.micro import clone
from bench.micro.drain import PREFETCH, drain_once
from bench.micro.jobs import Claims, run_as_eval
from bench.micro.jobs import fill as fill_with
from bench.micro.memory import settled
from bench.micro.payload import FLAT, NAME
from bench.micro.place import client, pin_client, pinned_server
from engine.ops.claims import Bury, Failure, Finish
from engine.ops.jobs import Lease

BATCH = 10
OTHER = "other"

#: Delay of the delayed jobs: longer than a measurement.
_HOUR_MS = 3_600_000

#: Maximum number of claims until the first job is reached: a claim of a foreign model checks only some jobs, and the next one
#: goes on behind them.
LOOKS_MAX = 2_000

#: The commands that the client sends; all others in the server's statistics ran inside of scripts.
_SENT = ("evalsha",)


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure."""

    throughput_jobs: int = 4_000
    life_jobs: int = 1_000
    memory_jobs: int = 20_000
    depths: tuple[int, ...] = (100, 10_000, 1_000_000)
    barred: int = 10_000
    claims: int = 100
    repeat: int = 3


QUICK = Size(throughput_jobs=500, life_jobs=100, memory_jobs=1_000, depths=(100, 1_000), barred=500, claims=20, repeat=1)

Report = Callable[[str], None]


def measure(model: str, size: Size, report: Report) -> dict[str, Any]:
    """Measure all parts, each on an empty server of its own."""
    began_s = time.monotonic()
    found: dict[str, Any] = {"size": asdict(size)}
    for name, part in (("throughput", throughput), ("per_job", per_job), ("bytes", bytes_per_job), ("claim_us", claim_cost)):
        found[name] = part(model, size, report)
    return {**found, "took_s": round(time.monotonic() - began_s, 1)}


def fill(queue: engine.Queue, count: int, **fields: Any) -> None:
    """Enqueue this many jobs."""
    fill_with(queue, count, payload=FLAT, **fields)


def throughput(model: str, size: Size, report: Report) -> dict[str, float]:
    """Jobs per second of one producer, and of one worker process that drains the queue."""
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        queue = stack.enter_context(models.queue(model, "throughput", url=server.url))
        queue.counts()
        rates: dict[str, list[float]] = {"enqueue_per_s": [], "drain_per_s": []}
        for _ in range(size.repeat):
            client(server).flushall()
            began_s = time.monotonic()
            for _ in range(size.throughput_jobs):
                queue.enqueue(NAME, FLAT)
            rates["enqueue_per_s"].append(size.throughput_jobs / (time.monotonic() - began_s))
            answer = drain_once(server.url, queue.name, size.throughput_jobs, "inline", PREFETCH, model=model)
            rates["drain_per_s"].append(size.throughput_jobs / answer["seconds"])
    found = {name: median(values) for name, values in rates.items()}
    report(f"throughput: {found['enqueue_per_s']:,.0f} enqueued, {found['drain_per_s']:,.0f} drained per second")
    return found


def per_job(model: str, size: Size, report: Report) -> dict[str, dict[str, float]]:
    """Commands that the server ran, including those inside of scripts, and its microseconds: per enqueue, and per claim and
    finish."""
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        queue = stack.enter_context(models.queue(model, "life", url=server.url))
        plain, claims = client(server), Claims(queue)
        fill(queue, BATCH)
        _finish(queue, claims.take(BATCH))
        plain.config_resetstat()
        for _ in range(size.life_jobs):
            queue.enqueue(NAME, FLAT)
        enqueue = _spent(plain, size.life_jobs)
        plain.config_resetstat()
        leases = claims.take(BATCH)
        done = 0
        while leases:
            done += len(leases)
            leases = tuple(job.lease for job in queue.driver.run(claims.call(BATCH, leases)).claimed.jobs)
        run = _spent(plain, size.life_jobs)
    if done != size.life_jobs:
        raise RuntimeError(f"{model}: {done} of {size.life_jobs} jobs could be claimed")
    report(
        f"per job: {enqueue['commands'] + run['commands']:.1f} commands, {enqueue['redis_us'] + run['redis_us']:.1f} us of Redis"
    )
    return {"enqueue": enqueue, "claim_and_finish": run}


def _spent(plain: redis.Redis, jobs: int) -> dict[str, float]:
    stats: Any = plain.info("commandstats")
    by_name = {name.removeprefix("cmdstat_").split("|")[0]: one for name, one in stats.items()}
    own = {name: one for name, one in by_name.items() if name not in ("info", "config")}
    return {
        "commands": sum(one["calls"] for one in own.values()) / jobs,
        "redis_us": sum(own[name]["usec"] for name in _SENT if name in own) / jobs,
    }


def bytes_per_job(model: str, size: Size, report: Report) -> dict[str, float]:
    """Growth of the server's `used_memory` per job in each state, measured right after the jobs entered it."""
    found: dict[str, float] = {}
    with ExitStack() as stack:
        server = stack.enter_context(pinned_server())
        queue = stack.enter_context(models.queue(model, "memory", url=server.url))
        plain, jobs = client(server), size.memory_jobs
        fill(queue, 1_000)
        plain.flushall(asynchronous=False)
        empty = settled(plain)

        def per_job(state: str) -> None:
            found[state] = (settled(plain) - empty) / jobs

        claims = Claims(queue)
        fill(queue, jobs)
        per_job("waiting")
        taken = list(claims.take_all())
        per_job("active")
        for leases in taken:
            _finish(queue, leases)
        per_job("finished")
        plain.flushall(asynchronous=False)
        fill(queue, jobs, delay_ms=_HOUR_MS)
        per_job("delayed")
        plain.flushall(asynchronous=False)
        fill(queue, jobs)
        for leases in Claims(queue, owner=2).take_all():
            queue.driver.run(queue.model.call(Bury(tuple(Failure(lease, "RuntimeError: planned") for lease in leases))))
        per_job("dead")
    report("bytes: " + ", ".join(f"{state} {count:,.0f}" for state, count in found.items()))
    return found


def claim_cost(model: str, size: Size, report: Report) -> dict[str, float]:
    """Microseconds of the server per claimed job: by queue depth, and behind jobs that the worker may not claim."""
    found: dict[str, float] = {}
    scenes = {f"{depth:,} waiting": (0, depth) for depth in size.depths}
    scenes[f"{size.barred:,} unmatchable in front"] = (size.barred, 1_000)
    for title, (barred, free) in scenes.items():
        with ExitStack() as stack:
            server = stack.enter_context(pinned_server())
            queue = stack.enter_context(models.queue(model, "claims", url=server.url))
            plain = client(server)
            began_s = time.monotonic()
            if barred:
                put(queue, plain, barred, OTHER)
            put(queue, plain, free, NAME)
            took_s = time.monotonic() - began_s
            claims = Claims(queue)
            looks, reach_us = _reach(queue, plain, claims)
            if barred:
                found[f"the first job behind {barred:,}"] = reach_us
            if not barred:
                _block(queue, plain, claims, max(2, size.claims // 5))
            # A model that checks a hundred of the jobs in front per claim starts over now and then; one long block covers all
            # that.
            repeat, count = (1, size.repeat * size.claims + barred // 50) if barred else (size.repeat, size.claims)
            found[title] = median(_block(queue, plain, claims, count) for _ in range(repeat))
            report(f"claim: {title}: {found[title]:.1f} us a job, the first after {looks} looks (filled in {took_s:.0f} s)")
    return found


def put(queue: engine.Queue, plain: redis.Redis, count: int, name: str) -> None:
    """Add this many jobs at the back of the queue."""
    if queue.model.name == models.LANES:
        fill(queue, count, name=name)
    else:
        clone.fill(queue, plain, count, name=name)


def _reach(queue: engine.Queue, plain: redis.Redis, claims: Claims) -> tuple[int, float]:
    """Claim until a claim delivers jobs; return the number of claims and the microseconds of all of them."""
    plain.config_resetstat()
    for looks in range(1, LOOKS_MAX + 1):
        if leases := claims.take(BATCH):
            spent_us = _spent(plain, 1)["redis_us"]
            fill(queue, len(leases))
            return looks, spent_us
    raise RuntimeError(f"{queue.model.name}: {LOOKS_MAX} claims got no job")


def _block(queue: engine.Queue, plain: redis.Redis, claims: Claims, count: int) -> float:
    """Run this many claims of ten jobs, adding as many at the back; return the microseconds per job, empty claims included."""
    spent_us, jobs = 0.0, 0
    taken: list[tuple[Lease, ...]] = []
    for _ in range(count):
        plain.config_resetstat()
        leases = claims.take(BATCH)
        spent_us += _spent(plain, 1)["redis_us"]
        jobs += len(leases)
        taken.append(leases)
        fill(queue, len(leases))
    for leases in taken:
        run_as_eval(plain, queue.model.call(Finish(leases)))
    if not jobs:
        raise RuntimeError(f"{queue.model.name}: {count} claims of {BATCH} got no job")
    return spent_us / jobs


def _finish(queue: engine.Queue, leases: tuple[Lease, ...]) -> None:
    queue.driver.run(queue.model.call(Finish(leases)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.model_costs", description="Measure the costs of one model.")
    parser.add_argument("--model", choices=models.NAMES, default=models.LANES)
    parser.add_argument("--quick", action="store_true", help="small numbers, for trying things out")
    parser.add_argument("--out", type=Path, required=True, help="file for the JSON")
    options = parser.parse_args(arguments)
    pin_client()
    began_s = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {options.model}: {text}", flush=True)

    found = measure(options.model, QUICK if options.quick else Size(), report)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
