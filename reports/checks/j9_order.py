"""J9: inside a lane jobs are claimed by priority, and in the order of their arrival where that is equal (rule 19).

The fence of a job's first claim is the server's time of it in ms (rule 6), so fences order first claims, except inside one ms. A
job was certainly waiting from the answer to its enqueue until its first claim, unless it had a delay or needed other jobs. A job
of lower priority whose first claim was sent later than that answer, and has a smaller fence, was taken before it; so was one of
the same priority whose enqueue was sent later than that answer.

A job that goes in front of its lane (`lifo`) passes others of its priority, and a worker that claims only some priorities passes
all others: such claims are left out. Services before version 11 do not say which jobs go in front: there the order is unknown.

Jobs whose first claim is not recorded are left out: its reply was lost, so nobody knows when it was. A run whose server had
several eras is not judged: a failover may have undone an enqueue. Nor are other wire formats, whose promises differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.checks.j7_attempts import unsaid
from reports.facts import Run
from reports.windows import one_era

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from reports.frames import Frames

#: Priorities of jobs, the highest last.
PRIORITIES = range(1, 11)


def ordered(run: Run) -> bool:
    """True for a run of lanes on a server of one era."""
    return run.of_lanes and one_era(run)


def first_claims(frames: Frames) -> DataFrame:
    """One row per job whose first claim is known: that claim, and when the job's enqueue was sent and answered. `waited`: it was
    claimable from its enqueue on."""
    waited = F.col("created") & (F.coalesce("delay_ns", F.lit(0)) == 0) & F.col("needs").isNull()
    return frames.jobs.where(F.col("first_claim").isNotNull() & F.col("enqueue_sent_ns").isNotNull()).select(
        "job", "first_claim.*", "enqueue_sent_ns", F.col("created_done_ns").alias("enqueued_ns"), waited.alias("waited")
    )


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """First claims that were made before the one of a job that had to go first."""
    claims, priority = first_claims(frames), F.col("priority")
    # Claims that may not have passed a job which had to go first.
    bound = claims.where(~F.col("proc").isin(*frames.run.choosy))
    # Running maxima of numbers are compiled, those of structs are not: the job that went first is looked up by its fence.
    fence = F.when(F.col("known_ns").isNotNull(), F.col("fence"))
    by_claim, in_lane = beside(claims, bound, "claim_sent_ns", "class", "lane")
    higher = [F.max(F.when(priority > level, fence)).over(in_lane) for level in PRIORITIES[:-1]]
    by_level = F.when(priority < PRIORITIES[-1], F.element_at(F.array(*higher), priority.cast("int")))
    overtaken = suspects(by_claim.withColumn("first_fence", by_level), claims, F.col("first.priority") > priority)
    by_arrival, in_band = beside(claims, bound.where(F.col("lifo").isNull()), "enqueue_sent_ns", "class", "lane", "priority")
    in_turn = by_arrival.withColumn("first_fence", F.max(fence).over(in_band))
    passed = suspects(in_turn, claims, F.col("first.priority") == priority)
    before = ("was claimed ", F.col("first.fence") - F.col("fence"), " ms before ", F.col("first.job"))
    higher_in = sentence(*before, ", which had a higher priority in lane ", F.col("lane"))
    earlier_in = sentence(*before, ", which had come before it in lane ", F.col("lane"))
    in_order = "unknown" if unsaid(frames.run) else "violated"
    return [
        (overtaken, Flag("lower priority first", F.lit(True), higher_in, absence=False)),
        (passed, Flag("later job first", F.lit(True), earlier_in, absence=False, level=in_order)),
    ]


def beside(claims: DataFrame, bound: DataFrame, instant: str, *lane: str) -> tuple[DataFrame, WindowSpec]:
    """The waiting jobs beside the bound claims that may have overtaken them (`known_ns` null), and what precedes each."""
    at_ns = F.col(instant).alias("at_ns")
    columns = ("job", "class", "lane", "priority", "fence", "claim_sent_ns", at_ns)
    waiting = claims.where("waited").select(*columns, F.col("enqueued_ns").alias("known_ns"))
    both = waiting.unionByName(bound.select(*columns, F.lit(None).cast("bigint").alias("known_ns")))
    in_time = F.coalesce("known_ns", "at_ns"), F.asc_nulls_first("known_ns")
    return both, Window.partitionBy(*lane).orderBy(*in_time).rowsBetween(Window.unboundedPreceding, -1)


def suspects(found: DataFrame, claims: DataFrame, precedes: Column) -> DataFrame:
    """The claims before which a job was waiting that had to go first and has a greater fence: `first`, looked up by that fence.

    Where the server's clock went back, a greater fence may be of an earlier claim: then that one was answered before.
    """
    first = F.struct("fence", "job", "priority", "claim_done_ns", "enqueued_ns").alias("first")
    waiting = claims.where("waited").select("class", "lane", F.col("fence").alias("first_fence"), first)
    earlier = found.where(F.col("known_ns").isNull() & (F.col("first_fence") > F.col("fence")))
    pairs = earlier.join(waiting, ["class", "lane", "first_fence"])
    out_of_turn = (F.col("first.claim_done_ns") > F.col("claim_sent_ns")) & (F.col("first.enqueued_ns") < F.col("at_ns"))
    return pairs.where(precedes & out_of_turn).groupBy("job", "lane", "fence").agg(F.max("first").alias("first"))


CHECK = Check("J9", "lanes keep their order", doubts, more=more, applies=ordered)
