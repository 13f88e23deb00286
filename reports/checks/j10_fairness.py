"""J10: lanes of equal priority take turns, so none starves while others are served (rule 19).

A job is first in its lane when no other job of the lane was claimed between the answer to its enqueue and its own claim. While it
is, at most `TURNS` jobs of other lanes of its class with no higher priority may be claimed for the first time: a visit to a lane
ends after ten jobs. A service may have any number of lanes, so there it is a visit to each other lane of the class, if that is
more. Lanes that a limit concerns are not judged, since a full limit rightly keeps them out. Nor is what J9 leaves out; and claims
of other lanes by workers that take only some priorities do not count.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.checks.j9_order import PRIORITIES, first_claims, ordered
from reports.checks.j12_limits_hold import limited

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.facts import Run
    from reports.frames import Frames

#: A visit to a lane ends after so many jobs.
VISIT = 10

#: Jobs of other lanes that may be claimed while a job is first in its lane: ten visits.
TURNS = 10 * VISIT


def free(run: Run) -> Column:
    """True for a lane that no limit of the spec concerns."""
    concerns = (limited(limit).isNotNull() for limit in run.spec.get("limits") or ())
    return ~reduce(or_, concerns, F.lit(False))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Jobs that were first in their lane while too many others were claimed."""
    claims = first_claims(frames)
    # Each job twice: when it was enqueued and when it was claimed, in the server's ms. Only claims count, and of other lanes only
    # those that weigh.
    weighs = F.when(F.col("proc").isin(*frames.run.choosy), 0).otherwise(1)
    claimed = claims.withColumns({"at_ms": F.col("fence"), "counts": F.lit(1), "weighs": weighs})
    waits = {"at_ms": F.col("enqueued_ms"), "counts": F.lit(0), "weighs": F.lit(0)}
    arrived = claims.where("waited").where(free(frames.run)).withColumns(waits)
    # Claims of one ms have an order that is arbitrary, and always the same.
    in_order = ("at_ms", "counts", F.xxhash64("job"))
    in_time, of_lane = (
        Window.partitionBy(*of).orderBy(*in_order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        for of in (("class",), ("class", "lane"))
    )
    so_far = [F.sum(F.when(F.col("priority") <= level, F.col("weighs"))).over(in_time) for level in PRIORITIES]
    counted = claimed.unionByName(arrived).withColumns(
        {"others": F.element_at(F.array(*so_far), F.col("priority").cast("int")), "own": F.sum("counts").over(of_lane)}
    )
    spans = counted.groupBy("job", "lane").agg(
        F.count("*").alias("rows"),
        (F.max("own") - F.min("own")).alias("own"),
        (F.max("others") - F.min("others") - F.max("weighs")).alias("others"),
    )
    allowed = F.lit(TURNS)
    if frames.run.of_service:
        lanes = claims.groupBy("class").agg(F.count_distinct("lane").alias("lanes"))
        spans = spans.join(F.broadcast(claims.select("job", "class")), "job").join(F.broadcast(lanes), "class")
        allowed = F.greatest(allowed, VISIT * (F.col("lanes") - 1))
    starved = (F.col("rows") == 2) & (F.col("own") == 1) & (F.col("others") > allowed)
    words = sentence("was first in lane ", F.col("lane"), " while ", F.col("others"), " jobs of other lanes were claimed")
    return [(spans, Flag("lane starved", starved, words, absence=True))]


CHECK = Check("J10", "no lane starves", doubts, more=more, applies=ordered)
