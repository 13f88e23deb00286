"""The latency series and percentiles of a run: their names, and how many samples a percentile needs."""

from __future__ import annotations

#: Latency series of job runs; `reports.percentiles` says what each is. Those of channel runs are the groups of their spec.
SERIES = ("service", "intended", "queue_delay", "end_to_end")

#: Name -> rank in thousandths, as integers, so that the number of samples above it is exact.
RANKS = {"p50_ms": 500, "p90_ms": 900, "p99_ms": 990, "p99_9_ms": 999, "max_ms": 1_000}

#: A percentile with fewer samples above it than this is not reported.
TAIL_MIN = 10

#: The name of all phases together.
ALL = "all"


def samples_min(name: str) -> int:
    """The number of samples from which on a percentile is reported; the maximum always is."""
    return -(-TAIL_MIN * 1_000 // (1_000 - RANKS[name])) if RANKS[name] < 1_000 else 0
