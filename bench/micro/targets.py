"""The targets of the engine's micro-benchmarks, and the output of the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Placeholders for a number that could not be measured, and for one that was not requested.
UNKNOWN, NOT_ASKED = "unknown", "-"


@dataclass(frozen=True, slots=True)
class Target:
    """One number of the line of ratios, and its bound."""

    key: str
    what: str
    bound: float
    at_least: bool
    decimals: int = 3

    def met(self, value: float) -> bool:
        """True when the unrounded number is within the bound."""
        return value >= self.bound if self.at_least else value <= self.bound

    def shown(self, value: float) -> str:
        """The number as it is printed."""
        return f"{value:.{self.decimals}f}"

    def reach(self, value: float) -> float:
        """The number relative to its target: 1 = on the target, above 1 = better."""
        return value / self.bound if self.at_least else self.bound / value


TARGETS = (
    Target("enqueue", "enqueue one by one / bare loop with the same script", 0.95, at_least=True),
    Target("bulk", "enqueue_many of 100 / the floor's bulk", 0.85, at_least=True),
    Target("drain", "drain, inline handler / the floor in batches of 50", 0.70, at_least=True),
    Target("pickup_p50", "pickup p50 at 100 jobs/s / bare BLPOP and claim", 1.10, at_least=False),
    Target("pickup_p99", "pickup p99 at 100 jobs/s / bare BLPOP and claim", 1.10, at_least=False),
    Target("claim_deep", "claim cost over depth, max / min", 1.5, at_least=False),
    Target("claim_blocked", "claim cost behind what may not be taken, max / min", 1.5, at_least=False),
    Target("claim_lanes", "claim cost over lanes, max / min", 1.5, at_least=False),
    Target("bytes_valkey", "bytes per waiting job, Valkey", 439, at_least=False, decimals=1),
    Target("bytes_redis", "bytes per waiting job, Redis", 551, at_least=False, decimals=1),
    Target("publish", "publish one by one / bare loop with the same script", 0.90, at_least=True),
    Target("publish_batch", "publish in batches of 100, two connections / DSPS for 20 hosts", 5.0, at_least=True),
    Target("fetch_calls", "round trips of a fetch of up to 64 messages", 1.0, at_least=False),
    Target("wake_ms", "p50 of a long poll beyond bare pub/sub, ms", 2.0, at_least=False),
    Target("catch_up", "keys looked at for a message, behind 10^6 unread / behind 10^3", 1.5, at_least=False),
    Target("catch_up_keys", "keys of the dearest call of a fetch", 1_100, at_least=False, decimals=0),
)

#: Key -> number; None if it could not be measured; absent if it was not requested.
Numbers = Mapping[str, float | None]


def ratio_line(numbers: Numbers) -> str:
    """The last output line of a run."""
    return "ratios: " + " ".join(f"{target.key}={_shown(target, numbers)}" for target in TARGETS)


def table(numbers: Numbers, intervals: Mapping[str, tuple[float, float]] | None = None) -> list[str]:
    """A line for each target: title, number, bound, and verdict."""
    rows = [("", "measured", "target", "")]
    for target in TARGETS:
        shown = _shown(target, numbers)
        if intervals and target.key in intervals:
            low, high = intervals[target.key]
            shown += f" ({target.shown(low)} to {target.shown(high)})"
        rows.append((target.what, shown, f"{'>=' if target.at_least else '<='} {target.bound:g}", verdict(target, numbers)))
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    return [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in rows]


def verdict(target: Target, numbers: Numbers) -> str:
    """`met`, `missed`, `unknown`, or an empty string when the number was not requested."""
    if target.key not in numbers:
        return ""
    value = numbers[target.key]
    if value is None:
        return UNKNOWN
    return "met" if target.met(value) else "missed"


def _shown(target: Target, numbers: Numbers) -> str:
    if target.key not in numbers:
        return NOT_ASKED
    value = numbers[target.key]
    return UNKNOWN if value is None else target.shown(value)
