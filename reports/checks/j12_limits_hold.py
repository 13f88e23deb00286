"""J12: a concurrency limit holds: no more of the jobs that count against it are leased at once than it allows (rule 20).

`limits` of the spec lists those that were set before the load began, each for a name, a key, or every key. A lease counts from
the answer to its claim until the first call was sent that may have ended it, or until it expired by its worker's clock; so all
leases counted at one instant were certainly held at once. A limit that was never reached proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.checks.base import Check, Flag, sentence
from reports.checks.j1_no_overlap import doubts
from reports.facts import Run
from reports.windows import in_loss

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames


def limits(run: Run) -> list[dict[str, Any]]:
    """The concurrency limits that the spec declares: each with `concurrency`, and a `name` or a `key` (`*` = each key)."""
    declared: list[dict[str, Any]] = list(run.spec.get("limits") or ())
    return [limit for limit in declared if limit.get("concurrency")]


def limited(limit: dict[str, Any]) -> Column:
    """The name or key under which a lease counts against this limit; null for leases that the limit does not concern."""
    if name := limit.get("name"):
        # A class is a job name, followed by the worker properties that the job requires.
        return F.when(F.regexp_extract("class", "^[^@~]*", 0) == name, F.lit(name))
    key = F.regexp_extract("lane", "/(.*)$", 1)
    return F.when((key != "") if limit["key"] == "*" else (key == limit["key"]), key)


def crowds(frames: Frames) -> DataFrame:
    """The largest number of leases certainly held at once against each limit, with what the limit allows."""
    # A claim that the servers may have lost, as declared, is held by nobody for certain.
    held = (F.col("hold_end_ns") > F.col("claim_done_ns")) & ~in_loss(frames.run, F.col("claim_done_ns"))
    against = [
        F.struct(limited(limit).alias("limit"), F.lit(limit["concurrency"]).cast("bigint").alias("allowed"))
        for limit in limits(frames.run)
    ]
    # A server that lost claims does not count them: only leases of one era are counted together.
    names = ["claim_done_ns", "hold_end_ns", "claim_era"]
    counted = frames.tokens.where(held).select(*names, F.explode(F.array(*against)).alias("against"))
    counted = counted.where(F.col("against.limit").isNotNull())
    steps = F.array(
        F.struct(F.col("claim_done_ns").alias("t_ns"), F.lit(1).alias("step")),
        F.struct(F.col("hold_end_ns").alias("t_ns"), F.lit(-1).alias("step")),
    )
    each = counted.select("against.*", "claim_era", F.explode(steps).alias("at")).select("limit", "allowed", "claim_era", "at.*")
    # At equal instants an end (step -1) sorts before a claim, because the end of a hold is exclusive.
    up_to_now = Window.partitionBy("limit", "allowed", "claim_era").orderBy("t_ns", "step")
    running = each.withColumn("held", F.sum("step").over(up_to_now.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    return running.groupBy("limit", "allowed").agg(F.max("held").alias("most"))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Limits that were exceeded; and, when no limit was ever reached, an unknown."""
    found = kept(crowds(frames))
    exceeded = Flag(
        "limit exceeded",
        F.col("most") > F.col("allowed"),
        sentence("had ", F.col("most"), " jobs in hand at once, and allows ", F.col("allowed")),
        # Without the row of its end a lease counts until it expires.
        absence=True,
        subject="limit",
    )
    reached = found.agg(F.coalesce(F.max(F.col("most") >= F.col("allowed")), F.lit(False)).alias("reached")).select(
        "reached", F.lit("every limit").alias("limit")
    )
    idle = Flag("no limit reached", ~F.col("reached"), sentence("had room all the time"), False, level="unknown", subject="limit")
    return [(found, exceeded), (reached, idle)]


CHECK = Check("J12", "limits of concurrency hold", doubts, more=more, applies=lambda run: bool(limits(run)))
