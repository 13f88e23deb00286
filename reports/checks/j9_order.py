"""J9: inside a lane jobs are claimed by priority, and in the order of their arrival where that is equal (rule 19).

The fence of a job's first claim is the server's time of it in ms (rule 6), so fences order first claims, except inside one ms. A
job was certainly waiting from the answer to its enqueue until its first claim, unless it had a delay or needed other jobs. A job
of lower priority whose first claim was sent later than that answer, and has a smaller fence, was taken before it; so was one of
the same priority whose enqueue was sent later than that answer.

Jobs whose first claim is not recorded are left out: its reply was lost, so nobody knows when it was. A run whose server had
several eras is not judged: a failover may have undone an enqueue. Nor are other wire formats, whose promises differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, WindowSpec

    from reports.frames import Frames

#: Priorities of jobs, the highest last.
PRIORITIES = range(1, 11)


def ordered(run: Run) -> bool:
    """True for a run of lanes on a server of one era."""
    return run.of_lanes and len(run.replids) <= 1


def first_claims(frames: Frames) -> DataFrame:
    """One row per job whose first claim is known: that claim, and when the job's enqueue was sent and answered. `waited`: it was
    claimable from its enqueue on."""
    waited = F.col("created") & (F.coalesce("delay_ns", F.lit(0)) == 0) & F.col("needs").isNull()
    return frames.jobs.where(F.col("first_claim").isNotNull() & F.col("enqueue_sent_ns").isNotNull()).select(
        "job",
        "first_claim.*",
        "enqueue_sent_ns",
        F.col("created_done_ns").alias("enqueued_ns"),
        waited.alias("waited"),
    )


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """First claims that were made before the one of a job that had to go first."""
    claims = first_claims(frames)
    waiting = claims.where("waited").withColumn("known_ns", F.col("enqueued_ns"))
    later = F.struct("fence", "job", "claim_done_ns")

    def after(instant: str, *lane: str) -> tuple[DataFrame, WindowSpec]:
        """The waiting jobs beside the claims that may have overtaken them, and what precedes each of these in its lane."""
        both = waiting.unionByName(claims.withColumn("known_ns", F.lit(None).cast("bigint")), allowMissingColumns=True)
        in_time = F.coalesce("known_ns", instant), F.asc_nulls_first("known_ns")
        return both, Window.partitionBy(*lane).orderBy(*in_time).rowsBetween(Window.unboundedPreceding, -1)

    both, by_claim = after("claim_sent_ns", "class", "lane")
    known = F.col("known_ns").isNotNull()
    higher = [F.max(F.when(known & (F.col("priority") > level), later)).over(by_claim) for level in PRIORITIES[:-1]]
    by_level = F.element_at(F.array(*higher), F.col("priority").cast("int"))
    overtaken = both.withColumn("first", F.when(F.col("priority") < PRIORITIES[-1], by_level)).where(~known)
    same, by_arrival = after("enqueue_sent_ns", "class", "lane", "priority")
    passed = same.withColumn("first", F.max(F.when(known, later)).over(by_arrival)).where(~known)
    # Where the server's clock went back, a greater fence may be of an earlier claim: then that one was answered before.
    out_of_turn = (F.col("first.fence") > F.col("fence")) & (F.col("first.claim_done_ns") > F.col("claim_sent_ns"))
    before = ("was claimed ", F.col("first.fence") - F.col("fence"), " ms before ", F.col("first.job"))
    higher_in = sentence(*before, ", which had a higher priority in lane ", F.col("lane"))
    earlier_in = sentence(*before, ", which had come before it in lane ", F.col("lane"))
    return [
        (overtaken, Flag("lower priority first", out_of_turn, higher_in, absence=False)),
        (passed, Flag("later job first", out_of_turn, earlier_in, absence=False)),
    ]


CHECK = Check("J9", "lanes keep their order", doubts, more=more, applies=ordered)
