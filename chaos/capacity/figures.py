"""What the samples of a step come to, and whether the step meets its target. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.micro.rounds import quantile
from chaos.capacity.search import MET, MISSED, VOID

#: A driver that uses more of its core sends late, and then measures itself.
DRIVER_MAX = 0.8

#: And sends that are later than this part of the target (p99) are a driver that had no turn: the machine was busy.
LATE_SHARE = 0.2

#: A load of a service that needs more of the time to yield its jobs is what is measured, and not the service.
LOAD_MAX = 0.8

#: The first part of a step, in which an empty queue fills up to its usual length, is no slope.
LEAD_SHARE = 0.2

#: Fewer samples make no interval.
SAMPLES_MIN = 8

#: Commands that clients and servers send; all others run inside of scripts.
SENT = frozenset(
    (
        *("evalsha", "eval", "fcall", "script", "blpop", "bzpopmin", "blmove", "xread", "wait"),
        *("hello", "client", "ping", "info", "config", "select", "auth", "command", "subscribe", "psubscribe"),
        *("replconf", "psync", "sentinel", "cluster", "readonly", "role"),
    )
)

#: Buckets of a histogram: each bound is so many times the one before.
BUCKET = 1.05
BUCKET_FIRST_MS = 0.1


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank in ascending values; 0 of none."""
    return quantile(ordered, share) if ordered else 0.0


def histogram(values_ms: Sequence[float]) -> list[tuple[float, float, int]]:
    """(lower, upper, count) of each bucket that is not empty, with bounds that grow by 5 %."""
    counts: dict[int, int] = {}
    for value_ms in values_ms:
        place = max(0, math.floor(math.log(max(value_ms, BUCKET_FIRST_MS) / BUCKET_FIRST_MS) / math.log(BUCKET)))
        counts[place] = counts.get(place, 0) + 1
    return [(_bound(place), _bound(place + 1), counts[place]) for place in sorted(counts)]


def _bound(place: int) -> float:
    return round(BUCKET_FIRST_MS * BUCKET**place, 4)


def void_reason(cpu_share: float, late_p99_ms: float, target_ms: float, samples: int) -> str | None:
    """Why a step proves nothing; None when it does. `samples`: of the backlog."""
    if samples < SAMPLES_MIN:
        return f"only {samples} samples of the backlog, fewer than {SAMPLES_MIN}"
    if cpu_share > DRIVER_MAX:
        return f"the driver used {cpu_share:.2f} of its core, more than {DRIVER_MAX:g}"
    if late_p99_ms > LATE_SHARE * target_ms:
        return f"the driver was {late_p99_ms:.0f} ms late (p99), more than {LATE_SHARE:g} of the target: the machine was busy"
    return None


def load_reason(made: int, made_s: float, seconds: float) -> str | None:
    """Why a step at a rate that the load itself does not yield proves nothing; None when it does."""
    if made_s <= LOAD_MAX * seconds:
        return None
    return f"the load itself yields at most {made / made_s:.4g} jobs/s: it took {made_s / max(1, made) * 1000:.3g} ms for each"


def outcome(void: str | None, *, p99_ms: float, target_ms: float, slope_low_per_s: float, dropped: int) -> str:
    """Whether a step meets: p99 within the target, no backlog that certainly grows, nothing dropped."""
    if void is not None:
        return VOID
    return MET if p99_ms <= target_ms and slope_low_per_s <= 0 and not dropped else MISSED
