"""J11: a rate limit holds: no window has more claims of the jobs that count against it than it allows (rule 20).

`limits` of the spec lists those that were set before the load began, each for a name, a key, or every key, with `rate` and
`per_ms`. A claim counts at the server's time of its reply. A sliding window is any span of `per_ms` ms; a fixed one begins at a
multiple of `per_ms` of that clock. A lease counts once, however often it was delivered. Left out are leases that may have given
their place back: those whose handler did not start, that were released, or whose end was not answered; and claims that were only
answered by repeats, because the time of the claim itself is not known.

The claims of a window must also lie within `per_ms` by the monotonic clock, from the first send to the last answer. So a server
whose clock went back is not blamed, and when the network is slow a claim too many at the edge of a window is not seen. Only
claims of one era are compared, because a failover may have lost what had been counted. Every job costs one place. A limit that
was never reached proves nothing.

Formats that count rates in windows of their own (Mosquito) have no such limit in their spec.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.checks.base import Check, Flag, milliseconds, sentence
from reports.checks.j1_no_overlap import doubts
from reports.checks.j12_limits_hold import limited
from reports.facts import MS, Run
from reports.windows import in_loss

if TYPE_CHECKING:
    from pyspark.sql import Column

    from reports.frames import Frames


def rates(run: Run) -> list[dict[str, Any]]:
    """The rate limits that the spec declares: each with `rate` and `per_ms`, a `name` or a `key`, and perhaps `window`."""
    declared: list[dict[str, Any]] = list(run.spec.get("limits") or ())
    return [limit for limit in declared if limit.get("rate") and limit.get("per_ms")]


def charged(frames: Frames) -> DataFrame:
    """The leases that certainly took a place in the window of their claim."""
    released = F.coalesce(F.col("given_up.f") == "release", F.lit(False)) | F.col("end_unanswered")
    certain = (F.col("deliveries") > 0) & F.col("claim_srv_ms").isNotNull() & F.col("start_ns").isNotNull()
    # A claim that the servers may have lost, as declared, takes no place for certain.
    certain = certain & ~in_loss(frames.run, F.col("claim_done_ns"))
    return frames.tokens.where(certain & ~released)


def windows(frames: Frames, limit: dict[str, Any]) -> DataFrame:
    """One row for a name or key that a limit concerns. `over_ms`: the shortest time, by the monotonic clock, in which one window
    had more claims than the limit allows, null when none had; `reached`: some window had as many as it allows."""
    rate, per_ms = int(limit["rate"]), int(limit["per_ms"])
    fixed = F.expr(f"claim_srv_ms div {per_ms}") if limit.get("window") == "fixed" else F.lit(0)
    claims = charged(frames).select("*", limited(limit).alias("limit"), fixed.alias("window")).where(F.col("limit").isNotNull())
    in_time = Window.partitionBy("limit", "claim_era", "window").orderBy("claim_srv_ms", "claim_sent_ns", "job")
    # The claims of one window too many: this one and as many before it as the limit allows.
    together = in_time.rowsBetween(-rate, Window.currentRow)
    span_ns = F.max("claim_done_ns").over(together) - F.min("claim_sent_ns").over(together)

    def since_ms(claims_before: int) -> Column:
        return F.col("claim_srv_ms") - F.lag("claim_srv_ms", claims_before).over(in_time)

    over = (since_ms(rate) < per_ms) & (span_ns < per_ms * MS)
    reached = F.col("claim_srv_ms").isNotNull() if rate == 1 else since_ms(rate - 1) < per_ms
    each = claims.select("limit", F.when(over, span_ns).alias("over_ns"), reached.alias("full"))
    of_limit = each.groupBy("limit").agg(F.min("over_ns").alias("over_ns"), F.max("full").alias("reached"))
    return of_limit.select("limit", "reached", "over_ns", F.lit(rate).alias("allowed"), F.lit(per_ms).alias("per_ms"))


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Limits that were exceeded; and, when no limit was ever reached, an unknown."""
    found = kept(reduce(DataFrame.unionByName, (windows(frames, limit) for limit in rates(frames.run))))
    words = (
        "had ",
        F.col("allowed") + 1,
        " claims within ",
        milliseconds(F.col("over_ns")),
        " ms, and allows ",
        F.col("allowed"),
    )
    exceeded = Flag(
        "rate exceeded",
        F.col("over_ns").isNotNull(),
        sentence(*words, " in ", F.col("per_ms"), " ms"),
        # Without the row of its release a lease counts as charged.
        absence=True,
        subject="limit",
    )
    reached = found.agg(F.coalesce(F.max("reached"), F.lit(False)).alias("reached"))
    idle = Flag("no rate reached", ~F.col("reached"), sentence("had room all the time"), False, level="unknown", subject="limit")
    return [(found, exceeded), (reached.withColumn("limit", F.lit("every rate")), idle)]


CHECK = Check("J11", "rates hold", doubts, more=more, applies=lambda run: bool(rates(run)))
