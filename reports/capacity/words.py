"""A plan in words: each number with what it was derived from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.capacity.basis import PRIMARY_LOST, WORKER_LOST, Basis
from reports.capacity.plan import Numbers, per_worker, shards_least
from reports.capacity.question import Prices, Question


@dataclass(frozen=True)
class Figure:
    """A number of the plan as a reader sees it, and what it was derived from."""

    name: str
    value: str
    derived: str


def figures(asked: Question, basis: Basis, prices: Prices, found: Numbers) -> Sequence[Figure]:
    """All numbers of a plan, the most important ones first."""
    return [
        *sizes(asked, basis, found),
        *stores(asked, basis, found),
        *losses(asked, basis, found),
        Figure(
            "cost per million jobs",
            f"{found.cost_per_million:,.3f} {prices.currency}",
            f"workers, {1 + prices.replicas} servers a shard with their memory, and network, at the prices of the price file",
        ),
    ]


def sizes(asked: Question, basis: Basis, found: Numbers) -> list[Figure]:
    """Workers and shards."""
    source = basis.sources
    service, each = basis.service_ms(asked.handler_ms), per_worker(basis, asked.handler_ms)
    met = basis.meeting(asked.p99_ms, asked.handler_ms)
    server_each = 1e6 / basis.server_us_per_job
    more = ""
    if basis.shard_rate_max < server_each:
        more = f"; without a law a shard's ceiling is the {basis.shard_rate_max:,.0f} jobs/s that were measured"
    if found.shards > (least := shards_least(asked, basis)):
        more += f"; {least} would do for the servers, but more workers of one server no longer do more"
    return [
        Figure(
            "workers",
            f"{found.workers}",
            f"{found.spare} of them to spare; {asked.rate:,.0f} jobs/s; "
            f"{service:.1f} ms of a place each (the handler, and {source['service']}); "
            f"{basis.worker_us_per_job:,.0f} us of processor each ({source['worker_us_per_job']}); so a busy worker does "
            f"{each:,.0f} jobs/s, and is used to {found.utilisation:.0%}: at most {asked.worker_utilisation:.0%} was asked, and "
            f"{met:.0%} was the busiest step within the p99; lost to scaling: {source['efficiency']}",
        ),
        Figure(
            "shards",
            f"{found.shards}",
            f"{basis.server_us_per_job:,.1f} us a job ({source['server_us_per_job']}), so a busy server does "
            f"{server_each:,.0f} jobs/s; used to {found.server_share:.0%} of at most {asked.server_utilisation:.0%}{more}",
        ),
    ]


def stores(asked: Question, basis: Basis, found: Numbers) -> list[Figure]:
    """Memory, network, and what the backlog takes."""
    source = basis.sources
    return [
        Figure(
            "memory",
            f"{found.memory_gib:,.2f} GiB",
            f"{found.backlog_jobs:,.0f} jobs of {duration(asked.backlog_s)} waiting and {asked.rate * asked.retained_s:,.0f} of "
            f"{duration(asked.retained_s)} retained; {source['memory']} ({basis.bytes_per_waiting:,.0f} and "
            f"{basis.bytes_per_retained:,.0f} bytes at a payload of {basis.payload_bytes:,.0f}, times {basis.fragmentation:.2f})",
        ),
        Figure(
            "network",
            f"{found.network_mbit_per_s:,.0f} Mbit/s",
            f"{source['network']}: {basis.bytes_per_job:,.0f} bytes a job at a payload of {basis.payload_bytes:,.0f}",
        ),
        Figure(
            "backlog drained in",
            "never" if found.drain_s is None else duration(found.drain_s),
            f"{found.backlog_jobs:,.0f} jobs by {left(asked, found)}, with the workers always busy or the servers full",
        ),
    ]


def losses(asked: Question, basis: Basis, found: Numbers) -> list[Figure]:
    """What the loss of a worker and of a primary does."""
    again = "its recovery was not drilled"
    if found.worker_lost_s is not None:
        again = f"its jobs run elsewhere within {duration(found.worker_lost_s)} ({basis.sources[WORKER_LOST]})"
    primary = Figure("a primary's loss made up in", "not known", "its recovery was not drilled")
    if found.primary_lost_jobs is not None and basis.primary_lost_ms is not None:
        primary = Figure(
            primary.name,
            "never" if found.primary_lost_s is None else duration(found.primary_lost_s),
            f"{found.primary_lost_jobs:,.0f} jobs that wait while one of {found.shards} shards is away for "
            f"{duration(basis.primary_lost_ms / 1_000)} ({basis.sources[PRIMARY_LOST]}), by its share of {left(asked, found)}",
        )
    return [
        Figure(
            "headroom after a worker's loss",
            f"{found.worker_lost_headroom:+.0%}",
            f"capacity of {found.workers - 1} workers against {asked.rate:,.0f} jobs/s; {again}",
        ),
        primary,
    ]


def left(asked: Question, found: Numbers) -> str:
    """The rate that is left for a backlog."""
    return f"the capacity of {found.capacity:,.0f} less {asked.rate:,.0f} jobs/s"


def duration(seconds: float) -> str:
    """A time to read."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"
