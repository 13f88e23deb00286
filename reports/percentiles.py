"""Exact percentiles of the four latency series, per phase and over all phases.

| series | latency of each job, in ms |
|---|---|
| service | from the first send of its enqueue to the answer |
| intended | from the instant at which it should have been sent to that answer: delay from earlier slow replies counts too |
| queue_delay | by the server's clock: from when it became claimable (enqueue, or the end of its delay) to its first claim |
| end_to_end | from the intended instant plus its delay to the answer of the accepted finish |

A job that never reached the end of a series counts as infinite there, shown as null; it is not left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.facts import MS
from reports.ranks import RANKS, SERIES, samples_min

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

#: Latency of a job that never got there. Interpolating between it and a finite latency gives infinity as well.
NEVER_MS = inf


def series() -> dict[str, Column]:
    """The latency of a job in each series, in ms, as columns."""
    answered_ns, sent_ns, intended_ns = F.col("created_done_ns"), F.col("enqueue_sent_ns"), F.col("intended_ns")
    due_ns = intended_ns + F.coalesce("delay_ns", F.lit(0))
    return {
        "service": (answered_ns - sent_ns) / MS,
        "intended": (answered_ns - intended_ns) / MS,
        "queue_delay": F.col("claim_srv_us") / 1_000 - F.col("claimable_ms"),
        "end_to_end": (F.col("accepted_done_ns") - due_ns) / MS,
    }


def columns() -> list[Column]:
    """The aggregates: one array of exact percentiles for each series."""
    ranks = [rank / 1_000 for rank in RANKS.values()]
    return [F.percentile(F.coalesce(value, F.lit(NEVER_MS)), ranks).alias(name) for name, value in series().items()]


def lines(phase: str, row: Row) -> list[dict[str, Any]]:
    """One line per series: the number of jobs and the percentiles."""
    return [{"phase": phase, "series": name, "n": row["enqueued"], **stated(row["enqueued"], row[name])} for name in SERIES]


def stated(count: int, values_ms: Sequence[float] | None) -> dict[str, float | None]:
    """The percentiles that this number of samples supports, None for the others; the maximum is always included."""
    values = shown(values_ms or [NEVER_MS] * len(RANKS))
    enough = [count >= samples_min(name) for name in RANKS]
    return {name: value if ok else None for name, value, ok in zip(RANKS, values, enough, strict=True)}


def shown(values_ms: Sequence[float]) -> list[float | None]:
    """Percentiles rounded to a microsecond; None for infinite ones."""
    return [round(value, 3) if isfinite(value) else None for value in values_ms]
