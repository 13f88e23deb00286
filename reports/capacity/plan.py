"""The plan: workers, shards, memory, network, what a loss does, and the cost. Arithmetic on the basis alone.

`sliders.js` computes the same on the page; a test compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.sizing import worker_rate_per_s, workers_needed
from reports.capacity.basis import Basis
from reports.capacity.question import Prices, Question, check
from reports.errors import JudgeError

GIB = 2**30

#: More shards than this are no answer.
SHARDS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A plan. Times are None where no rate is left, or the recovery was not drilled."""

    utilisation: float
    shards: int
    workers: int
    spare: int
    capacity: float
    server_share: float
    memory_gib: float
    network_mbit_per_s: float
    backlog_jobs: float
    drain_s: float | None
    worker_lost_headroom: float
    worker_lost_s: float | None
    primary_lost_jobs: float | None
    primary_lost_s: float | None
    cost_per_million: float


def per_worker(basis: Basis, handler_ms: float) -> float:
    """Jobs per second of a worker that is always busy: its places or its processor are full first."""
    return worker_rate_per_s(basis.service_ms(handler_ms), basis.handlers_at_once, basis.worker_us_per_job)


def workers_for(rate: float, each: float, basis: Basis) -> int | None:
    """How many workers of one server do this rate; None when more of them no longer do more."""
    workers, before = max(1, workers_needed(rate, each)), 0.0
    while (reached := workers * each * basis.efficiency(workers)) < rate * (1 - 1e-9):
        if reached <= before:
            return None
        workers, before = workers + 1, reached
    return workers


def shards_least(asked: Question, basis: Basis) -> int:
    """How many shards the servers' ceiling asks for."""
    return math.ceil(asked.rate / basis.shard_rate_max / asked.server_utilisation - 1e-9)


def sized(asked: Question, basis: Basis, utilisation: float) -> tuple[int, int]:
    """Shards, and workers of each shard."""
    each = per_worker(basis, asked.handler_ms) * utilisation
    for count in range(shards_least(asked, basis), SHARDS_MAX + 1):
        if workers := workers_for(asked.rate / count, each, basis):
            return count, workers
    raise JudgeError(
        f"rate is {asked.rate:,.0f}, which {SHARDS_MAX:,} shards do not do; one does at most {1e6 / basis.server_us_per_job:,.0f}"
    )


def numbers(asked: Question, basis: Basis, prices: Prices) -> Numbers:
    """The plan. Raises JudgeError, in one line with what would be possible, when there is none."""
    check(asked, basis)
    utilisation = min(asked.worker_utilisation, basis.meeting(asked.p99_ms, asked.handler_ms))
    shards, each_shard = sized(asked, basis, utilisation)
    needed = shards * each_shard
    # A spare worker per plan, not per shard: what is lost is one.
    spare = 1
    workers = needed + spare if asked.workers is None else asked.workers
    busy = per_worker(basis, asked.handler_ms) * basis.efficiency(math.ceil(workers / shards))
    ceiling = shards * basis.shard_rate_max
    capacity = min(workers * busy, ceiling)
    left = min((workers - 1) * busy, ceiling)
    backlog = asked.rate * asked.backlog_s
    more = asked.payload_bytes - basis.payload_bytes
    memory = backlog * max(1.0, basis.bytes_per_waiting + more) + asked.rate * asked.retained_s * basis.bytes_per_retained
    memory_gib = memory * basis.fragmentation / GIB
    # A payload goes to the server and from it.
    bytes_per_job = max(1.0, basis.bytes_per_job + 2 * more)
    stopped = None if basis.primary_lost_ms is None else asked.rate / shards * basis.primary_lost_ms / 1_000
    copies = 1 + prices.replicas
    hourly = (
        workers * prices.worker_per_hour
        + shards * copies * prices.server_per_hour
        + memory_gib * copies * prices.memory_gib_per_hour
    )
    return Numbers(
        utilisation=utilisation,
        shards=shards,
        workers=workers,
        spare=workers - needed,
        capacity=capacity,
        server_share=asked.rate * basis.server_us_per_job / 1e6 / shards,
        memory_gib=memory_gib,
        network_mbit_per_s=asked.rate * bytes_per_job * 8 / 1e6,
        backlog_jobs=backlog,
        drain_s=drained(backlog, capacity, asked.rate),
        worker_lost_headroom=left / asked.rate - 1,
        worker_lost_s=None if basis.worker_lost_ms is None else basis.worker_lost_ms / 1_000,
        primary_lost_jobs=stopped,
        primary_lost_s=None if stopped is None else drained(stopped, capacity / shards, asked.rate / shards),
        cost_per_million=hourly / (asked.rate * 3_600) * 1e6 + bytes_per_job * 1e6 / GIB * prices.network_per_gib,
    )


def drained(jobs: float, capacity: float, rate: float) -> float | None:
    """Seconds until a backlog is gone while jobs go on to come; None when it never is."""
    return jobs / (capacity - rate) if capacity > rate else None
