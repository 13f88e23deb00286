"""What half of the steps say about the rate at which the p99 reaches its target, and whether runs beside that rate agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from chaos.capacity.search import MET, MISSED

#: Multiples of the predicted rate at which it is verified: it must be met at the first, and missed at the second.
BELOW, ABOVE = 0.9, 1.1


@dataclass(frozen=True, slots=True)
class Prediction:
    """The rate, and between which rates of the half it lies."""

    rate_per_s: float
    low_per_s: float
    high_per_s: float


def half(steps: Sequence[dict[str, Any]], workers: int) -> list[dict[str, Any]]:
    """Every second step with so many workers, in order of the rate, without the void ones."""
    sound = sorted((step for step in steps if not step["void"] and step["workers"] == workers), key=lambda step: step["rate"])
    return sound[::2]


def predict(steps: Sequence[dict[str, Any]], target_ms: float) -> Prediction | None:
    """The rate between the greatest that met and the smallest above it that did not, where the line of log p99 over the rate
    crosses the target; None when these steps have no such pair."""
    missed = [step for step in steps if not step["meets"]]
    met = [step for step in steps if step["meets"] and all(step["rate"] < other["rate"] for other in missed)]
    if not met or not missed:
        return None
    low, high = max(met, key=lambda step: step["rate"]), min(missed, key=lambda step: step["rate"])
    under, over = (math.log(max(step["latency_ms"]["p99"], 1e-3) / target_ms) for step in (low, high))
    # A step may miss by its backlog alone.
    share = -under / (over - under) if over > 0 > under else 0.5
    rate_per_s = low["rate"] + share * (high["rate"] - low["rate"])
    return Prediction(round(rate_per_s, 1), low["rate"], high["rate"])


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many of the runs on each side of the prediction came out as they must."""

    met_below: int
    missed_above: int
    times: int

    @property
    def holds(self) -> bool:
        """True when all of them did."""
        return self.met_below == self.missed_above == self.times


def verdict(outcomes: Sequence[tuple[float, str]], times: int) -> Verdict:
    """Of (multiple of the rate, outcome); a void run counts for neither."""
    return Verdict(
        sum(outcome == MET for multiple, outcome in outcomes if multiple == BELOW),
        sum(outcome == MISSED for multiple, outcome in outcomes if multiple == ABOVE),
        times,
    )


def last_line(found_per_s: float | None, prediction: Prediction | None, verdict: Verdict) -> str:
    """What `make capacity` ends with. The rate is the predicted one, which was verified, else the one that was found."""
    rate = f"{prediction.rate_per_s:g}" if prediction else f"{found_per_s:g}" if found_per_s else "unknown"
    interval = f"{prediction.low_per_s:g}-{prediction.high_per_s:g}" if prediction else "unknown"
    counts = f"met_below={verdict.met_below}/{verdict.times} missed_above={verdict.missed_above}/{verdict.times}"
    return f"capacity: rate={rate} interval={interval} {counts}"
