"""The series over time, aggregated by Spark: latencies, rates and troubled calls per bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports import measure
from reports.meaning import unanswered
from reports.page.timeline import SECOND_NS, Axis

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames

#: Events that are counted per bucket.
RATES = ("offered", "enqueued", "finished")
TROUBLES = ("re-sent", "repeated", "refused", "unanswered")


@dataclass(frozen=True, slots=True)
class Spread:
    """The latencies of one bucket: exact percentiles (None = infinite), and the longest finite one."""

    n: int
    unfinished: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True)
class Series:
    """All series over time, by bucket number."""

    latencies: Mapping[str, Mapping[int, Spread]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def count(self, name: str, buckets: int) -> list[int]:
        """The counts of all buckets of the run, 0 where there is none."""
        found = self.counts.get(name, {})
        return [found.get(bucket, 0) for bucket in range(buckets)]


def series(frames: Frames, axis: Axis) -> Series:
    """All series of a run. Events outside of the axis are left out."""
    found: dict[str, dict[int, Spread]] = {}
    counts: dict[str, dict[int, int]] = {}
    for row in latencies(frames, axis).collect():
        p50_ms, p99_ms = (ended(value) for value in row["percentiles"])
        spread = Spread(row["n"], row["unfinished"], p50_ms, p99_ms, ended(row["max_ms"]))
        found.setdefault(row["name"], {})[row["bucket"]] = spread
    for row in tally(frames, axis).collect():
        counts.setdefault(row["name"], {})[row["bucket"]] = row["n"]
    return Series(found, counts)


def ended(value_ms: float | None) -> float | None:
    """A latency in ms; None when it is infinite or was not measured."""
    return value_ms if value_ms is not None and isfinite(value_ms) else None


def latencies(frames: Frames, axis: Axis) -> DataFrame:
    """Per latency and bucket: n, unfinished, percentiles, max_ms. A job counts in the bucket in which it should have been sent.

    The latency of an unanswered enqueue, or of a job without an accepted finish, is infinite; such jobs are not left out.
    """
    jobs = frames.jobs.where(F.col("intended_ns").isNotNull())
    values = {name: F.coalesce(value, F.lit(measure.NEVER_MS)) for name, value in measure.series().items()}
    long = spread_out(jobs, {name: (F.col("intended_ns"), value) for name, value in values.items()}, axis)
    infinite = F.col("value") == F.lit(measure.NEVER_MS)
    return long.groupBy("name", "bucket").agg(
        F.count("*").alias("n"),
        F.count_if(infinite).alias("unfinished"),
        F.percentile("value", [0.5, 0.99]).alias("percentiles"),
        F.max(F.when(~infinite, F.col("value"))).alias("max_ms"),
    )


def tally(frames: Frames, axis: Axis) -> DataFrame:
    """Counts per name and bucket: jobs offered, enqueued and finished, and answers that show trouble."""
    instants = (F.col("intended_ns"), F.col("created_done_ns"), F.col("accepted_done_ns"))
    of_jobs = spread_out(frames.jobs, {name: (at, one()) for name, at in zip(RATES, instants, strict=True)}, axis)
    sent_ns = F.coalesce("first_send_ns", "done_ns")
    in_trouble = {name: (F.when(condition, sent_ns), one()) for name, condition in troubles().items()}
    calls = frames.eventful.events.where((F.col("kind") == "operation") & (F.col("f") != "handle"))
    together = of_jobs.unionByName(spread_out(calls, in_trouble, axis))
    return together.groupBy("name", "bucket").agg(F.count("*").alias("n"))


def troubles() -> dict[str, Column]:
    """Conditions of answers that show trouble, by name; a call for several jobs counts once for each of them."""
    result = F.coalesce("result", F.lit(""))
    conditions = (F.col("sends") > 1, result == "repeated", result.isin("stale", "void"), unanswered())
    return dict(zip(TROUBLES, conditions, strict=True))


def one() -> Column:
    """The value of an event that is only counted."""
    return F.lit(1.0)


def spread_out(frame: DataFrame, parts: Mapping[str, tuple[Column, Column]], axis: Axis) -> DataFrame:
    """One row (name, bucket, value) per part whose instant is known and lies on the axis."""
    cells = [
        F.struct(F.lit(name).alias("name"), bucket(at, axis).alias("bucket"), value.alias("value"))
        for name, (at, value) in parts.items()
    ]
    long = frame.select(F.explode(F.array(*cells)).alias("cell")).select("cell.*")
    return long.where(F.col("bucket").between(0, axis.buckets - 1))


def bucket(at: Column, axis: Axis) -> Column:
    """The number of the bucket that contains an instant; negative before the axis begins."""
    return F.floor((at - F.lit(axis.start_ns).cast("bigint")) / F.lit(axis.width_s * SECOND_NS)).cast("int")


def per_second(counts: Sequence[int], axis: Axis) -> list[float]:
    """Counts per bucket as rates."""
    return [count / axis.width_s for count in counts]
