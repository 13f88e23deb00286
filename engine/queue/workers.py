"""The workers of a queue: which are alive, since when, and what each has leased, from their heartbeats (BQ02 to BQ04, MQ30).

A worker beats every 10 s unless told otherwise, and is taken for dead when three beats in a row have not come; then a sweep looks
for leases that it has left behind, and the next beat may find it gone from the list. A worker that stops takes its leave at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from engine.errors import Malformed
from engine.ops.workers import BUCKET_MAX, ListedWorker, RunTimes, bucket_end_ns

# -- How long handlers took, as `queue.stats()` tells it: by name and outcome, with a histogram that
# percentiles are estimated from (MQ36).

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


#: Workers of one answer.
LIMIT_MAX = 1_000
#: Names of jobs that a worker tells in its beats.
HANDLERS_TOLD = 100


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its last beat told it. `beat_age_ms` is by the server's clock; `in_hand` counts its leases, of which `jobs` are
    at most 100 ids; `leads`: it sweeps for all of them. `handlers` are at most 100 names; `priorities` the least and the greatest
    that it claims, None: all; `routing` what targets and routes of jobs ask for; `paused` and `gate_closed`: whether a pause or
    its gate kept it from claiming when it beat. On an old keyspace those that the registry of the format lists come behind the
    others, with their names as incarnations and 0 for what is not known. `unreadable` says why a beat that somebody else
    has written cannot be read."""

    name: str
    incarnation: str
    host: str
    pid: int
    version: str
    alive: bool
    beat_age_ms: int
    started_ms: int
    in_hand: int
    jobs: tuple[str, ...]
    leads: bool
    concurrency: int
    lease_ms: int
    handlers: tuple[str, ...]
    attributes: Mapping[str, Any]
    priorities: tuple[int, int] | None = None
    routing: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paused: bool = False
    gate_closed: bool = False
    unreadable: str = ""


def worker_info(listed: ListedWorker, now_ms: int) -> WorkerInfo:
    """The description of a worker from its last heartbeat, at this server time: of one that cannot be read, that it is there."""
    try:
        about = cast("dict[str, Any]", json.loads(listed.about))
        priorities: Any = about.get("priorities")
        return WorkerInfo(
            name=str(about.get("name", "")),
            incarnation=listed.incarnation,
            host=str(about.get("host", "")),
            pid=_number(about, "pid"),
            version=str(about.get("version", "")),
            alive=listed.until_ms > now_ms,
            beat_age_ms=max(0, now_ms - (listed.until_ms - listed.ttl_ms)),
            started_ms=_number(about, "started_ms"),
            in_hand=_number(about, "in_hand"),
            jobs=tuple(map(str, about.get("jobs", ()))),
            leads=listed.leads,
            concurrency=_number(about, "concurrency"),
            lease_ms=listed.lease_ms,
            handlers=tuple(map(str, about.get("handlers", ()))),
            attributes=dict(about.get("attributes", {})),
            priorities=(int(priorities[0]), int(priorities[1])) if priorities else None,
            routing=dict(about.get("routing", {})),
            paused=bool(about.get("paused", False)),
            gate_closed=bool(about.get("gate_closed", False)),
        )
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        age_ms = max(0, now_ms - (listed.until_ms - listed.ttl_ms))
        empty = WorkerInfo(
            "", listed.incarnation, "", 0, "", listed.until_ms > now_ms, age_ms, 0, 0, (), listed.leads, 0, 0, (), {}
        )
        return replace(empty, unreadable=f"its beat cannot be read: {error}")


def _number(about: Mapping[str, Any], name: str) -> int:
    """A number of a beat, which pages reckon with. Raises ValueError, TypeError, OverflowError."""
    number = int(about.get(name, 0))
    if not 0 <= number < 2**53:
        raise ValueError(f"{name} is no number of a worker")
    return number


def added_workers(parts: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """The workers of several shards, each process once, by name and process: what it has in hand in all of them."""
    found: dict[tuple[str, str, int], WorkerInfo] = {}
    for part in parts:
        who = (part.name, part.host, part.pid)
        known = found.get(who)
        if known is not None:
            latest = min(known, part, key=lambda info: info.beat_age_ms)
            jobs, in_hand = known.jobs + part.jobs, known.in_hand + part.in_hand
            part = replace(latest, jobs=jobs, in_hand=in_hand, leads=known.leads or part.leads, alive=known.alive or part.alive)
        found[who] = part
    return list(found.values())
