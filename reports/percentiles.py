"""Exact percentiles of the four series of latency, per phase and over all of them.

| series | of each job, in ms |
|---|---|
| service | from the first send of its enqueue to the answer |
| intended | from the instant at which it should have been sent to that answer: what a slow server does to others counts too |
| queue_delay | by the server's clock: from when it could be claimed (enqueue, or the end of its delay) to its first claim |
| end_to_end | from the intended instant, its delay added, to the answer of the accepted finish |

What never came has no end: it counts as infinite, shown as null, and is not dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import MS

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

#: What never came takes this long, and so does what lies anywhere between it and a finite latency: no part of it is finite.
NEVER_MS = inf

#: Name -> the rank, in thousandths, so that what remains above it is counted exactly.
RANKS = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p99_9_ms": 999, "max_ms": 1_000}

#: A percentile with fewer samples above it than this is not stated.
TAIL_MIN = 10

SERIES = ("service", "intended", "queue_delay", "end_to_end")


def series() -> dict[str, Column]:
    """The latency of a job in each series, in ms."""
    answered_ns, sent_ns, intended_ns = F.col("created_done_ns"), F.col("enqueue_sent_ns"), F.col("intended_ns")
    due_ns = intended_ns + F.coalesce("delay_ns", F.lit(0))
    return {
        "service": (answered_ns - sent_ns) / MS,
        "intended": (answered_ns - intended_ns) / MS,
        "queue_delay": F.col("claim_srv_us") / 1_000 - F.col("claimable_ms"),
        "end_to_end": (F.col("accepted_done_ns") - due_ns) / MS,
    }


def columns() -> list[Column]:
    """The aggregates: one array of percentiles for each series, by sorting."""
    ranks = [rank / 1_000 for rank in RANKS.values()]
    return [F.percentile(F.coalesce(value, F.lit(NEVER_MS)), ranks).alias(name) for name, value in series().items()]


def lines(phase: str, row: Row) -> list[dict[str, Any]]:
    """One line per series: how many jobs, and what is known of them."""
    return [{"phase": phase, "series": name, "n": row["enqueued"], **stated(row["enqueued"], row[name])} for name in SERIES]


def stated(count: int, values_ms: Sequence[float] | None) -> dict[str, float | None]:
    """The percentiles that so many samples can show; the greatest value is always one of them."""
    values = shown(values_ms or [NEVER_MS] * len(RANKS))
    enough = [count * (1_000 - rank) >= TAIL_MIN * 1_000 or rank == 1_000 for rank in RANKS.values()]
    return {name: value if ok else None for name, value, ok in zip(RANKS, values, enough, strict=True)}


def shown(values_ms: Sequence[float]) -> list[float | None]:
    """Percentiles rounded to a microsecond; None for infinite ones."""
    return [round(value, 3) if isfinite(value) else None for value in values_ms]
