"""How many workers a load needs: the formula of the capacity plan (`reports.capacity.plan`) and of the metric
`ironclaim_wanted_workers`, which so agree. Arithmetic that needs the standard library alone."""

from __future__ import annotations

import math


def worker_rate_per_s(service_ms: float, handlers_at_once: float, cpu_us_per_job: float = 0.0) -> float:
    """Jobs per second of a worker that is always busy: its handlers are all taken first, or its processor is
    (0: it never is)."""
    places = 1_000 * handlers_at_once / service_ms
    return min(places, 1e6 / cpu_us_per_job) if cpu_us_per_job else places


def workers_needed(rate_per_s: float, each_per_s: float) -> int:
    """How many workers do this rate when each does so much of it. An error of rounding asks for none more."""
    return math.ceil(rate_per_s / each_per_s - 1e-9)
