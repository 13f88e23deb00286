"""J15: every tick of a schedule creates one job, however many workers run the scheduler (rule 24).

`schedules` of the spec names the schedules with a fixed interval. Their jobs have the ids `cron:<schedule>:<tick>`, and two
consecutive ones must be one interval apart. By the server's clock no tick fires before its time, and outside of faults none
later than the recovery bound of the spec: the time that a worker may take to be replaced. J6 checks that no tick creates two
jobs: both would have the same id. Of the ticks that the server's clock has jumped over, only the last hundred need fire; so the
first tick after a forward jump may come any number of intervals after the one before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.catch_up import fault_spans
from reports.checks.base import Check, Flag, sentence
from reports.facts import Run
from reports.windows import clock_jumps, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.frames import Frames


def schedules(run: Run) -> list[dict[str, Any]]:
    """The schedules that the spec declares: each with `name` and `every_ms`."""
    return list(run.spec.get("schedules") or ())


def doubts(run: Run) -> list[str]:
    """The check needs at least one created job."""
    return [] if run.has("created") else ["no enqueue ever succeeded"]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Consecutive ticks too far apart or too close; and, as unknown, schedules that ticked less than twice."""
    declared = F.array(
        *(
            F.struct(F.lit(one["name"]).alias("name"), F.lit(one["every_ms"]).cast("bigint").alias("every_ms"))
            for one in schedules(frames.run)
        )
    )
    # Also count jobs whose tick was never answered, if they were claimed or a snapshot lists them.
    there = F.col("created") | F.col("claim_done_ns").isNotNull() | (F.size("states") > 0)
    ticked = frames.jobs.where(there & F.col("schedule").isNotNull())
    each = ticked.join(
        frames.jobs.sparkSession.range(1).select(F.explode(declared).alias("by")), F.col("schedule") == F.col("by.name")
    )
    in_order = Window.partitionBy("schedule").orderBy("tick_ms")
    gaps = each.withColumn("gap_ms", F.col("tick_ms") - F.lag("tick_ms").over(in_order))
    text = sentence(
        "came ", F.col("gap_ms"), " ms after the tick before it, its schedule ticks every ", F.col("by.every_ms"), " ms"
    )
    whole = (F.col("gap_ms") > 0) & (F.col("gap_ms") % F.col("by.every_ms") == 0)
    jumped = whole & within(F.col("ticked.done_ns"), clock_jumps(frames.run))
    wrong = Flag("tick missed", (F.col("gap_ms") != F.col("by.every_ms")) & ~jumped, text, absence=True)
    late_ms, bound_ms = F.col("ticked.srv_ms") - F.col("tick_ms"), frames.run.recovery_bound_ms
    early = Flag("tick early", late_ms < 0, sentence("fired ", -late_ms, " ms before its time"), absence=False)
    behind = (late_ms > bound_ms) & ~within(F.col("ticked.done_ns"), fault_spans(frames.run))
    late = Flag("tick late", behind, sentence("fired ", late_ms, f" ms after its time, more than {bound_ms} ms"), absence=False)
    counted = (
        frames.jobs.sparkSession.range(1)
        .select(F.explode(declared).alias("by"))
        .join(each.groupBy("schedule").agg(F.count(F.lit(1)).alias("ticks")), F.col("schedule") == F.col("by.name"), "left")
    )
    idle = counted.select(F.col("by.name").alias("job"), F.coalesce("ticks", F.lit(0)).alias("ticks"))
    silent = Flag("never ticked", F.col("ticks") < 2, sentence("ticked ", F.col("ticks"), " times"), False, level="unknown")
    return [(gaps, wrong), (ticked, early), (ticked, late), (idle, silent)]


CHECK = Check("J15", "every tick fires once", doubts, more=more, applies=lambda run: bool(schedules(run)))
