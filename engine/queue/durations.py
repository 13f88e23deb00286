"""How long handlers took, as `queue.stats()` tells it: by name and outcome, with a histogram that percentiles are estimated from
(MQ36)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.errors import Malformed
from engine.ops.workers import BUCKET_MAX, RunTimes, bucket_end_ns

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Durations:
    """How long runs took. `buckets` has an entry for each bucket that is not empty, in order: its number and how many runs.
    Bucket b holds those of 2^((b-1)/2) ns up to 2^(b/2) ns, and the last one (95) all of 39 hours and more."""

    count: int
    total_us: int
    most_us: int
    buckets: tuple[tuple[int, int], ...]

    @property
    def mean_ms(self) -> float:
        """The average; 0 without a run."""
        return self.total_us / self.count / 1000 if self.count else 0.0

    @property
    def most_ms(self) -> float:
        """The longest run."""
        return self.most_us / 1000

    def percentile_ms(self, percent: float) -> float:
        """So many percent of the runs (0 to 100) took at most so long: estimated inside its bucket, within a fifth of the true
        value, and never more than the longest run; 0 without a run. Raises Malformed."""
        if not 0 <= percent <= 100:
            raise Malformed("percent", percent, "a number from 0 to 100")
        wanted = percent / 100 * self.count
        before = 0
        for bucket, runs in self.buckets:
            if before + runs >= wanted:
                start_ns = bucket_end_ns(bucket - 1) if bucket else 0.0
                end_ns = bucket_end_ns(bucket) if bucket < BUCKET_MAX else self.most_us * 1000.0
                return min((start_ns + (end_ns - start_ns) * (wanted - before) / runs) / _MS, self.most_ms)
            before += runs
        return 0.0


@dataclass(frozen=True, slots=True)
class HandlerTimes:
    """How long the handlers of one name took since `since_ms` (server time of the first report): runs that returned, and runs
    that raised or were given up. Runs, not jobs: a job that ran three times counts thrice, and each job of a batch counts with
    the time of the whole batch. The name `*` stands for all names beyond the first 1,000."""

    name: str
    since_ms: int
    succeeded: Durations
    failed: Durations


def handler_times(name: str, since_ms: int, items: Iterable[RunTimes]) -> HandlerTimes:
    """What the server has counted of one name."""
    found = {
        item.outcome: Durations(sum(runs for _, runs in item.buckets), item.total_us, item.most_us, item.buckets)
        for item in items
    }
    return HandlerTimes(name, since_ms, found["ok"], found["failed"])


def added_times(parts: Iterable[HandlerTimes]) -> list[HandlerTimes]:
    """The times of several shards together, in the order of the names."""
    found: dict[str, HandlerTimes] = {}
    for part in parts:
        known = found.get(part.name)
        if known is not None:
            ends = _added(known.succeeded, part.succeeded), _added(known.failed, part.failed)
            part = HandlerTimes(part.name, min(known.since_ms, part.since_ms), *ends)
        found[part.name] = part
    return [found[name] for name in sorted(found)]


def _added(one: Durations, other: Durations) -> Durations:
    buckets = dict(one.buckets)
    for bucket, runs in other.buckets:
        buckets[bucket] = buckets.get(bucket, 0) + runs
    most_us = max(one.most_us, other.most_us)
    return Durations(one.count + other.count, one.total_us + other.total_us, most_us, tuple(sorted(buckets.items())))
