"""J15: every tick of a schedule creates one job, however many workers run the scheduler (rule 24).

`schedules` of the spec names the schedules with a fixed interval. Their jobs have the ids `cron:<schedule>:<tick>`, and two
consecutive ones must be one interval apart. By the server's clock no tick fires before its time, and outside of faults none
later than the recovery bound of the spec: the time that a worker may take to be replaced. It counts from when the server's clock
has reached the tick, be it by a jump, and from when there was a worker at all. J6 checks that no tick creates two jobs: both
would have the same id. Of the ticks that the server's clock has jumped over, only the last `CAUGHT_UP` need fire; so the first
tick after a forward jump may come as many intervals after the one before as the jump has more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.catch_up import fault_spans
from reports.checks.base import Check, Flag, milliseconds, sentence
from reports.facts import Run
from reports.windows import CLOCK_JUMP, clock_jumps, reached_ns, within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames

#: So many ticks that were missed are made up for.
CAUGHT_UP = 100


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
    gaps = each.withColumns(
        {"gap_ms": F.col("tick_ms") - F.lag("tick_ms").over(in_order), "before_ns": F.lag("ticked.done_ns").over(in_order)}
    )
    text = sentence(
        "came ", F.col("gap_ms"), " ms after the tick before it, its schedule ticks every ", F.col("by.every_ms"), " ms"
    )
    whole = (F.col("gap_ms") > 0) & (F.col("gap_ms") % F.col("by.every_ms") == 0)
    jumped = whole & (F.col("gap_ms") <= F.col("by.every_ms") + left_out_ms(frames.run, F.col("by.every_ms")))
    wrong = Flag("tick missed", (F.col("gap_ms") != F.col("by.every_ms")) & ~jumped, text, absence=True)
    ahead_ms, bound_ms = F.col("tick_ms") - F.col("ticked.srv_ms"), frames.run.recovery_bound_ms
    early = Flag("tick early", ahead_ms > 0, sentence("fired ", ahead_ms, " ms before its time"), absence=False)
    late_ms, faults = lateness_ms(frames.run), fault_spans(frames.run, besides=CLOCK_JUMP)
    behind = (late_ms > bound_ms) & ~within(F.col("ticked.done_ns"), faults)
    words = sentence("fired ", late_ms, f" ms after its time, more than {bound_ms} ms")
    late = Flag("tick late", behind, words, absence=False, timed=True)
    counted = (
        frames.jobs.sparkSession.range(1)
        .select(F.explode(declared).alias("by"))
        .join(each.groupBy("schedule").agg(F.count("*").alias("ticks")), F.col("schedule") == F.col("by.name"), "left")
    )
    idle = counted.select(F.col("by.name").alias("job"), F.coalesce("ticks", F.lit(0)).alias("ticks"))
    silent = Flag("never ticked", F.col("ticks") < 2, sentence("ticked ", F.col("ticks"), " times"), False, level="unknown")
    return [(gaps, wrong), (ticked, early), (ticked, late), (idle, silent)]


def left_out_ms(run: Run, every_ms: Column) -> Column:
    """How much time the ticks take that need not fire before one that did: those that a jump was over, but for the last ones."""
    left_out = F.lit(0)
    for jump in clock_jumps(run):
        most_ms = F.lit(jump.over_ms) - (CAUGHT_UP - 1) * every_ms
        between = (F.col("before_ns") <= F.lit(jump.end_ns)) & (F.col("ticked.done_ns") >= F.lit(jump.begin_ns))
        left_out = F.greatest(left_out, F.when(between, most_ms).otherwise(0))
    return left_out


def lateness_ms(run: Run) -> Column:
    """How late a tick fired, from when the server's clock had reached it and a worker was there."""
    opened = [file.opened_ns for one in run.processes if one.role == "worker" and (file := run.files.get(one.file))]
    there_ns = min((at for at in opened if at is not None), default=0)
    fired_ns = F.col("ticked.done_ns")
    late_ms = F.least(F.col("ticked.srv_ms") - F.col("tick_ms"), milliseconds(fired_ns - F.lit(there_ns)))
    if not (jumps := clock_jumps(run)):
        return late_ms
    late_ms = F.least(late_ms, milliseconds(fired_ns - reached_ns(run, F.col("tick_ms"))))
    return F.when(~within(fired_ns, [jump.span for jump in jumps if jump.forward_ms is None]), late_ms)


CHECK = Check("J15", "every tick fires once", doubts, more=more, applies=lambda run: bool(schedules(run)))
