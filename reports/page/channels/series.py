"""The series of a channel run over time, aggregated by Spark: clocks, latencies by fan-out, lag by group, rates.

The data collected to the driver grows with the seconds of the run times its channels and subscribers, not with its messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports.channels.deliveries import OTHERS, meant, timed
from reports.channels.measure import by_fan_out, declared_lost
from reports.channels.plan import CLOCK_MAX, NEAR, Planned, lag, past_wrap
from reports.channels.turns import Era, eras, told_clocks
from reports.page.series import Spread, bucket, ended, spread_out
from reports.page.series import one as each
from reports.page.timeline import Axis
from reports.samples import samples

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames

#: Events that are counted per bucket.
RATES = ("offered", "published", "delivered", "redelivered", "lost")
TROUBLES = ("re-sent", "duplicate", "stale", "unanswered")

#: The group of subscribers that are slow or absent by plan.
SLOW = "slow on purpose"

#: Operations whose answers contain a subscriber's cursor.
CURSORS = ("subscribe", "fetch", "acknowledge")


@dataclass(frozen=True)
class Clock:
    """One channel's clock over time. `points`: (second, era, steps past the wrap) by era and time; `near`: it comes near the
    wrap."""

    channel: str
    group: str
    points: tuple[tuple[float, int, int], ...]
    crossed_s: tuple[float, ...]
    near: bool

    @property
    def eras(self) -> list[list[tuple[float, int]]]:
        """The points of each era: (second, steps)."""
        numbers = dict.fromkeys(era for _, era, _ in self.points)
        return [[(at_s, steps) for at_s, era, steps in self.points if era == number] for number in numbers]


@dataclass(frozen=True, slots=True)
class Lag:
    """Unacknowledged messages per subscriber of a group at the end of a bucket: `half` is the median, `most` the maximum."""

    subscribers: int
    half: int
    most: int


@dataclass(frozen=True)
class ChannelSeries:
    """All series over time, by bucket number; groups in order of display."""

    groups: tuple[str, ...]
    clocks: tuple[Clock, ...]
    latencies: Mapping[str, Mapping[int, Spread]]
    lags: Mapping[str, Mapping[int, Lag]]
    counts: Mapping[str, Mapping[int, int]]

    def count(self, name: str, buckets: int) -> list[int]:
        """The counts of all buckets of the run, 0 where there is none."""
        found = self.counts.get(name, {})
        return [found.get(number, 0) for number in range(buckets)]


def channel_series(frames: ChannelFrames, axis: Axis) -> ChannelSeries:
    """All series of a run. Events outside of the axis are left out."""
    plan = by_fan_out(frames.run)
    latest = clock_points(frames, axis)
    clocks = tuple(clock(name, points, eras_of, plan, axis) for name, (points, eras_of) in latest.items())
    latencies: dict[str, dict[int, Spread]] = {}
    for row in latency_rows(frames, axis).collect():
        p50_ms, p99_ms = (ended(value) for value in row["percentiles"])
        latencies.setdefault(row["name"], {})[row["bucket"]] = Spread(row["n"], 0, p50_ms, p99_ms, ended(row["max_ms"]))
    counts: dict[str, dict[int, int]] = {}
    for row in tally(frames, axis).collect():
        counts.setdefault(row["name"], {})[row["bucket"]] = int(row["n"])
    lags = lag_by_group(cursors(frames, axis), clocks_by_bucket(clocks, axis), plan, axis)
    groups = tuple(dict.fromkeys([*(one.group for one in plan.values()), *(one.group for one in clocks), *lags]))
    return ChannelSeries(groups, clocks, latencies, lags, counts)


def clock_points(frames: ChannelFrames, axis: Axis) -> dict[str, tuple[list[tuple[float, int, int]], list[Era]]]:
    """Channel -> the latest clock of each era and bucket with its instant, and its eras. Answers arrive out of order, so the
    highest clock of an era in a bucket is taken as the latest."""
    seen = told_clocks(frames).withColumn("bucket", bucket(F.col("done_ns"), axis))
    latest = (
        seen.where(F.col("bucket").between(0, axis.buckets - 1))
        .groupBy("channel", "era", "bucket")
        .agg(F.max("steps").alias("steps"), F.max_by("done_ns", "steps").alias("done_ns"))
        .orderBy("channel", "era", "bucket")
    )
    by_era = eras(frames)
    found: dict[str, tuple[list[tuple[float, int, int]], list[Era]]] = {name: ([], known) for name, known in by_era.items()}
    starts = {(era.channel, era.era): era for known in by_era.values() for era in known}
    for row in latest.collect():
        points, _ = found[row["channel"]]
        if start := starts.pop((row["channel"], row["era"]), None):
            points.append((axis.second(start.first_ns), row["era"], start.lowest))
        points.append((axis.second(row["done_ns"]), row["era"], row["steps"]))
    return found


def clock(
    name: str, points: Sequence[tuple[float, int, int]], known: Sequence[Era], plan: Mapping[str, Planned], axis: Axis
) -> Clock:
    """One channel's clock."""
    crossed_s = tuple(axis.second(era.crossed_ns) for era in known if era.crossed_ns is not None)
    near = all(abs(steps) <= NEAR for _, _, steps in points)
    group = plan[name].group if name in plan else OTHERS
    return Clock(name, group, tuple(points), crossed_s, near)


def clocks_by_bucket(clocks: Iterable[Clock], axis: Axis) -> dict[str, list[int | None]]:
    """Channel -> its clock at the end of each bucket, as steps past the wrap; None before it was seen."""
    found: dict[str, list[int | None]] = {}
    for one in clocks:
        at: dict[int, int] = {}
        for at_s, _, steps in one.points:
            at[int(at_s // axis.width_s)] = steps
        found[one.channel] = carried(at, axis)
    return found


def carried(known: Mapping[int, int], axis: Axis) -> list[int | None]:
    """A value for each bucket: the last one known by its end."""
    latest: int | None = None
    found: list[int | None] = []
    for number in range(axis.buckets):
        latest = known.get(number, latest)
        found.append(latest)
    return found


def cursors(frames: ChannelFrames, axis: Axis) -> dict[tuple[str, str], dict[int, int]]:
    """(channel, subscriber) -> bucket -> its cursor in the last answer of the bucket."""
    told = (F.col("type") == "ok") & F.col("f").isin(*CURSORS) & F.col("cursor").isNotNull()
    rows = frames.calls.where(told).withColumn("bucket", bucket(F.col("done_ns"), axis))
    last = (
        rows.where(F.col("bucket").between(0, axis.buckets - 1))
        .groupBy("channel", "subscriber", "bucket")
        .agg(F.max_by("cursor", F.struct("srv_us", "done_ns")).alias("cursor"))
    )
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row in last.collect():
        found.setdefault((row["channel"], row["subscriber"]), {})[row["bucket"]] = row["cursor"]
    return found


def lag_by_group(
    at: Mapping[tuple[str, str], Mapping[int, int]],
    clocks: Mapping[str, Sequence[int | None]],
    plan: Mapping[str, Planned],
    axis: Axis,
) -> dict[str, dict[int, Lag]]:
    """Group -> bucket -> the lag of its subscribers; those that are slow by plan form a group of their own."""
    behind: dict[str, list[list[int]]] = {}
    for (channel, subscriber), known in at.items():
        planned_one = plan.get(channel)
        group = OTHERS if planned_one is None else SLOW if subscriber in planned_one.slow else planned_one.group
        of_group = behind.setdefault(group, [[] for _ in range(axis.buckets)])
        clock_at = clocks.get(channel, [None] * axis.buckets)
        for number, cursor in enumerate(carried(known, axis)):
            steps = clock_at[number]
            if cursor is not None and steps is not None:
                of_group[number].append(lag(past_wrap(cursor), steps))
    order = [*(one.group for one in plan.values()), OTHERS, SLOW]
    return {
        group: {number: summed(values) for number, values in enumerate(behind[group]) if values}
        for group in dict.fromkeys(order)
        if group in behind
    }


def summed(values: Sequence[int]) -> Lag:
    """The lags of some subscribers as one `Lag`."""
    ordered = sorted(values)
    return Lag(len(ordered), ordered[(len(ordered) - 1) // 2], ordered[-1])


def latency_rows(frames: ChannelFrames, axis: Axis) -> DataFrame:
    """Per group and bucket: n, percentiles, max_ms of the latency. A delivery counts in the bucket in which its message should
    have been published."""
    rows = timed(frames).withColumn("bucket", bucket(F.col("intended_ns"), axis))
    return (
        rows.where(F.col("bucket").between(0, axis.buckets - 1))
        .groupBy(F.col("group").alias("name"), "bucket")
        .agg(
            F.count("*").alias("n"),
            F.percentile("latency_ms", [0.5, 0.99]).alias("percentiles"),
            F.max("latency_ms").alias("max_ms"),
        )
    )


def tally(frames: ChannelFrames, axis: Axis) -> DataFrame:
    """Counts per name and bucket."""
    offered = spread_out(meant(frames), {"offered": (F.col("intended_ns"), each())}, axis)
    there = spread_out(frames.messages, {"published": (F.col("confirmed_ns"), each())}, axis)
    first = spread_out(frames.firsts, {"delivered": (F.col("done_ns"), each())}, axis)
    again = spread_out(repeats(frames), {"redelivered": (F.col("done_ns"), each())}, axis)
    lost = spread_out(declared_lost(frames), {"lost": (F.col("done_ns"), F.col("lost").cast("double"))}, axis)
    sent_ns = F.coalesce("first_send_ns", "done_ns")
    calls = spread_out(frames.calls, {name: (F.when(at, sent_ns), each()) for name, at in troubled().items()}, axis)
    twice = F.when((F.col("type") == "ok") & (F.col("item_result") == "duplicate"), F.col("done_ns"))
    duplicates = spread_out(frames.published, {"duplicate": (twice, each())}, axis)
    every = reduce(type(offered).unionByName, (there, first, again, lost, calls, duplicates), offered)
    return every.groupBy("name", "bucket").agg(F.sum("value").alias("n"))


def repeats(frames: ChannelFrames) -> DataFrame:
    """Deliveries of messages that the subscriber had got before."""
    firsts = frames.firsts.select("channel", "subscriber", "message", F.col("done_ns").alias("first_ns"))
    every = frames.delivered.select("channel", "subscriber", "message", "done_ns")
    return every.join(firsts, on=["channel", "subscriber", "message"]).where(F.col("done_ns") > F.col("first_ns"))


def troubled() -> dict[str, Column]:
    """Conditions of troubled calls, by name; duplicates are counted separately, by message."""
    result = F.coalesce("result", F.lit(""))
    return {"re-sent": F.col("sends") > 1, "stale": result == "stale", "unanswered": F.col("type").isin("invoke", "info")}


# Falls of clocks: where the clock that the harness read from the server, once a second, went back.
# Independent of the answers.

FILE = "channels.jsonl"


@dataclass(frozen=True, slots=True)
class Fall:
    """The clock of a channel was lower than a sample before: `high` and `low` as steps past the wrap."""

    channel: str
    at_s: float
    high: int
    low: int


def falls(run: Path, axis: Axis) -> list[Fall]:
    """Every fall in the samples. Unreadable lines are skipped, because no verdict rests on samples."""
    before: dict[str, int] = {}
    found: list[Fall] = []
    for row in samples(run / "samples" / FILE):
        channel, steps, t_ns = row.get("channel"), steps_of(row.get("clock")), row.get("t_ns")
        if isinstance(channel, str) and steps is not None and isinstance(t_ns, int):
            at_s = axis.second(t_ns)
            if channel in before and steps < before[channel] and 0 <= at_s <= axis.end_s:
                found.append(Fall(channel, at_s, before[channel], steps))
            before[channel] = steps
    return found


def steps_of(value: Any) -> int | None:
    """A clock, given as a number or a string of digits, as steps past the wrap."""
    try:
        clock = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return past_wrap(clock) if clock is not None and abs(clock) <= CLOCK_MAX else None
