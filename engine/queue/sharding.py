"""Queues in several shards, without I/O: which shard a job belongs to, and the record on the server of how
many there are.

A shard is a Lanes queue of its own, in a slot of its own. Shard 0 has the name of the queue, `mails`. It has
the record, the schedules and the jobs of their ticks, locks, and what handlers of other queues reroute here.
The others share all other jobs, and are named by the version of the record and their number, `mails#1.3`. No
queue of a user has a `#` in its name. No name is used again. So a client with an old record cannot write into
a newer shard (`engine.resharding`).

A job goes by its key, or else by its unique key, or else by its id: crc32 of that, times the number of these
shards, divided by 2^32. So all jobs of a key are in one shard, and order, limits, unique and dedup of a key
hold as in any queue. Callbacks of a job, and what its handler reroutes to another name of the queue, are made
in its shard. So an id that the engine makes of another one counts as that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, cast
from zlib import crc32

from engine import validate
from engine.errors import Malformed, ScriptFault, UnsupportedFeature
from engine.ops.base import frozen
from engine.ops.jobs import Enqueue
from engine.ops.workers import Durations, HandlerTimes, WorkerInfo

SHARDS_MAX = 256
#: How ids go on that are made of that of another job: `<id>>reroute`, `<id>>success:7`, `<id>>failure:7`.
_MADE_OF = ">"


class Layout(NamedTuple):
    """The shards of one version of the record; version 0 is a queue without shards."""

    version: int
    shards: int

    def name(self, queue: str, number: int) -> str:
        """The name of a shard."""
        return f"{queue}#{self.version}.{number}" if number else queue

    def names(self, queue: str) -> tuple[str, ...]:
        """The names of all shards, shard 0 first."""
        return tuple(self.name(queue, number) for number in range(self.shards))

    def home(self, key: str, unique: str, job: str) -> int:
        """The number of the shard that a job belongs to."""
        if self.shards == 1 or job.startswith(validate.OF_SCHEDULES):
            return 0
        of = key or unique or job.partition(_MADE_OF)[0]
        return 1 + (crc32(of.encode()) * (self.shards - 1) >> 32)

    def homes_of(self, former: Layout, number: int) -> range:
        """The shards of this layout that jobs of one shard of a former one may belong to."""
        if number == 0:
            return range(1, self.shards)
        most, share = former.shards - 1, self.shards - 1
        first, last = ((number - 1) << 32) // most, ((number << 32) - 1) // most
        return range(1 + (first * share >> 32), 2 + (last * share >> 32))


def stays_in_shard_0(job: str) -> bool:
    """Whether a job that is in shard 0 belongs there: one of a tick, or one that was rerouted. Handlers of
    other queues reroute to it, because they know no shards."""
    return job.startswith(validate.OF_SCHEDULES) or job.endswith(">reroute")


@frozen
class ShardRecord:
    """How many shards a queue has. While it is resharded, `former` are those that it had. `preparing`: they
    still are the only ones in use. `moving`: new jobs go into the new ones, and those of the former ones are
    moved there. `cleaning`: the former ones hold no jobs any more. `was`: numbers of shards that it had
    before."""

    layout: Layout
    phase: Literal["stable", "preparing", "moving", "cleaning"] = "stable"
    former: Layout | None = None
    was: tuple[int, ...] = ()

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The layouts in use, in the order in which an enqueue asks them."""
        if self.former is None or self.phase == "cleaning":
            return (self.layout,)
        return (self.former,) if self.phase == "preparing" else (self.former, self.layout)

    def names(self, queue: str) -> tuple[str, ...]:
        """The names of all shards in use, shard 0 first."""
        return tuple(dict.fromkeys(name for layout in self.layouts for name in layout.names(queue)))

    def homes(self, queue: str, key: str, unique: str, job: str) -> tuple[str, ...]:
        """The names of the shards that a job may be in, in the order in which an enqueue asks them."""
        return tuple(
            dict.fromkeys(layout.name(queue, layout.home(key, unique, job)) for layout in self.layouts)
        )

    def check(self, queue: str, shards: int) -> None:
        """Raise Malformed for a number of shards that the queue neither has nor had."""
        known = {self.layout.shards, *self.was, *(() if self.former is None else (self.former.shards,))}
        if shards not in known:
            has = self.layouts[-1].shards
            raise Malformed(
                "shards", shards, f"{has}: so many shards has queue {queue}; `ironclaim reshard` changes it"
            )

    def text(self) -> str:
        """As it is on the server."""
        former = None if self.former is None else list(self.former)
        values = {
            "version": self.layout.version,
            "shards": self.layout.shards,
            "phase": self.phase,
            "former": former,
        }
        return json.dumps({**values, "was": list(self.was)}, separators=(",", ":"))

    def preparing(self, shards: int) -> ShardRecord:
        """The record while this number of shards is prepared."""
        return ShardRecord(Layout(self.layout.version + 1, shards), "preparing", self.layout, self.was)

    def moving(self) -> ShardRecord:
        """The record while jobs are moved."""
        return replace(self, phase="moving")

    def cleaning(self) -> ShardRecord:
        """The record when all jobs have been moved."""
        return replace(self, phase="cleaning")

    def stable(self) -> ShardRecord:
        """The record at the end."""
        former = () if self.former is None else (self.former.shards,)
        was = tuple(dict.fromkeys(number for number in (*self.was, *former) if number != self.layout.shards))
        return ShardRecord(self.layout, was=was)


#: Of a queue that has held jobs without shards.
PLAIN = ShardRecord(Layout(0, 1))


def first_record(shards: int) -> ShardRecord:
    """The record of a new queue."""
    return ShardRecord(Layout(1, shards))


def read_record(text: str) -> ShardRecord:
    """A record as it is on the server. Raises ScriptFault."""
    try:
        values = cast("dict[str, Any]", json.loads(text))
        former = None if values["former"] is None else Layout(*map(int, values["former"]))
        layout = Layout(int(values["version"]), int(values["shards"]))
        return ShardRecord(layout, values["phase"], former, tuple(map(int, values["was"])))
    except (ValueError, TypeError, KeyError) as error:
        raise ScriptFault(f"the record of shards cannot be read ({error}): {text!r:.200}") from error


def moved(shards: int, *, families: bool = False) -> str:
    """What a shard tells enqueues that takes no new jobs, or with `families` none but children of its own
    ones."""
    return f"{1 if families else 2} {shards}"


def number_of_shards(value: object) -> int | None:
    """None for a queue without shards. Raises Malformed."""
    number = 1 if value is None else validate.integer("shards", value, 1, SHARDS_MAX)
    return None if number == 1 else number


def check_job(job: Enqueue) -> None:
    """Raise UnsupportedFeature for a job whose options need more than one shard."""
    options = job.options
    if options.needs and not options.key:
        raise UnsupportedFeature(
            f"job {job.job} needs others, which are in its shard only where all have the same key"
        )
    if options.dedup and not (options.key or options.unique):
        raise UnsupportedFeature(
            f"job {job.job} has a dedup key, which holds inside of the shard of a key: give key as well"
        )
    for callback in (options.on_success, options.on_failure):
        if callback is not None and callback.options.key not in ("", options.key):
            raise UnsupportedFeature(
                f"a callback of job {job.job} has another key than the job, and so another shard"
            )


# -- What several shards tell, together.


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
    return Durations(
        one.count + other.count, one.total_us + other.total_us, most_us, tuple(sorted(buckets.items()))
    )


def added_workers(parts: Iterable[WorkerInfo]) -> list[WorkerInfo]:
    """The workers of several shards, each process once, by name and process: what it has in hand in all of
    them."""
    found: dict[tuple[str, str, int], WorkerInfo] = {}
    for part in parts:
        who = (part.name, part.host, part.pid)
        known = found.get(who)
        if known is not None:
            latest = min(known, part, key=lambda info: info.beat_age_ms)
            jobs, in_hand = known.jobs + part.jobs, known.in_hand + part.in_hand
            part = replace(
                latest,
                jobs=jobs,
                in_hand=in_hand,
                leads=known.leads or part.leads,
                alive=known.alive or part.alive,
            )
        found[who] = part
    return list(found.values())
