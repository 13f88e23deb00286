"""J15: every tick of a schedule makes one job, however many workers tick (rule 24).

`schedules` of the spec names those with a fixed interval. Their jobs are `cron:<schedule>:<tick>`, and two that follow each other
must lie one interval apart. That no tick makes two jobs is J6's: both would have one id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.frames import Frames


def schedules(run: Run) -> list[dict[str, Any]]:
    """The schedules that the spec declares: each with `name` and `every_ms`."""
    return list(run.spec.get("schedules") or ())


def doubts(run: Run) -> list[str]:
    """Without jobs no tick was seen."""
    return [] if run.has("created") else ["no enqueue ever succeeded"]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Ticks that follow each other too late or too early; and schedules that never ticked, which prove nothing."""
    declared = F.array(
        *(
            F.struct(F.lit(one["name"]).alias("name"), F.lit(one["every_ms"]).cast("bigint").alias("every_ms"))
            for one in schedules(frames.run)
        )
    )
    # Also jobs that nobody was told to have made: their tick was sent, and they ran.
    there = F.col("created") | F.col("claim_done_ns").isNotNull() | (F.size("states") > 0)
    ticked = frames.jobs.where(there & F.col("schedule").isNotNull())
    each = ticked.join(
        frames.jobs.sparkSession.range(1).select(F.explode(declared).alias("by")), F.col("schedule") == F.col("by.name")
    )
    in_order = Window.partitionBy("schedule").orderBy("tick_ms")
    gaps = each.withColumn("gap_ms", F.col("tick_ms") - F.lag("tick_ms").over(in_order))
    told = sentence(
        "came ", F.col("gap_ms"), " ms after the tick before it, its schedule ticks every ", F.col("by.every_ms"), " ms"
    )
    wrong = Flag("tick missed", F.col("gap_ms") != F.col("by.every_ms"), told, absence=True)
    counted = (
        frames.jobs.sparkSession.range(1)
        .select(F.explode(declared).alias("by"))
        .join(each.groupBy("schedule").agg(F.count(F.lit(1)).alias("ticks")), F.col("schedule") == F.col("by.name"), "left")
    )
    idle = counted.select(F.col("by.name").alias("job"), F.coalesce("ticks", F.lit(0)).alias("ticks"))
    silent = Flag("never ticked", F.col("ticks") < 2, sentence("ticked ", F.col("ticks"), " times"), False, level="unknown")
    return [(gaps, wrong), (idle, silent)]


CHECK = Check("J15", "every tick fires once", doubts, more=more, applies=lambda run: bool(schedules(run)))
