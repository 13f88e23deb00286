"""The frames that every check reads: events (one row per job of an operation), tokens (one per lease), jobs (one per job), and
in_hand (one per lease held at a kill).

All are partitioned by job once, so the windows and groups over a job, a token or both need no further shuffle (rule 36).
Times are monotonic ns. A null column means that the history has no such row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import cached
from reports.channels import frames as channel_frames
from reports.channels.frames import ChannelFrames
from reports.columns import job_columns, token_columns
from reports.facts import Run
from reports.recovery import in_hand

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

ROW_COLUMNS = (
    "kind",
    "proc",
    "f",
    "type",
    "op",
    "call",
    "sends",
    "intended_ns",
    "first_send_ns",
    "done_ns",
    "srv_us",
    "srv_from_us",
    "lease_ms",
)
ITEM_COLUMNS = (
    "job",
    "fence",
    "nonce",
    "result",
    "outcome",
    "delay_ms",
    "run_at_ms",
    "expires_ms",
    "due_ms",
    "enqueued_ms",
    "deadline_ms",
    "class",
    "lane",
    "unique",
    "holder",
    "needs",
    "wants",
    "schedule",
    "tick_ms",
    "priority",
    "crc",
    "result_crc",
    "crashes",
    "claims",
    "failures",
    "attempts",
    "backoff",
    "backoff_least_ms",
    "dedup",
    "on_parent_failure",
)


#: What a lease shows of the one before it, which has the next smaller fence.
BEFORE = ("claims", "failures", "crashes", "retry_delay_ms", "reap_crashes", "end_unanswered", "claim_era")


@dataclass(frozen=True)
class Frames:
    """The input of the checks. `run` holds the small facts."""

    run: Run
    events: DataFrame
    tokens: DataFrame
    jobs: DataFrame
    in_hand: DataFrame


AnyFrames = Frames | ChannelFrames


def build(rows: DataFrame, run: Run) -> AnyFrames:
    """All frames of a run, cached for several passes."""
    return channel_frames.build(rows, run) if run.of_channels else of_jobs(rows, run)


def of_jobs(rows: DataFrame, run: Run) -> Frames:
    """The frames of a job run."""
    found = cached(events(rows, run), run)
    leases = cached(tokens(found, eras=len(run.replids) > 1), run)
    named = cached(jobs(found, run), run)
    return Frames(run, found, leases, named, in_hand(leases, named, run))


def events(rows: DataFrame, run: Run) -> DataFrame:
    """One row per job of an operation, effect or snapshot.

    An operation appears once: as its completion (type ok, fail or info), or as its invocation (type invoke) if it never had one.
    A job that a completion leaves out was not answered: it appears as invoked, unless the whole operation failed.
    """
    usable = rows.where("readable").withColumn("era", era(run)).where(F.col("kind").isin("operation", "effect", "final"))
    # The tick of a schedule is the enqueue of its job.
    usable = usable.withColumn("f", F.when(F.col("f") == "tick", "enqueue").otherwise(F.col("f")))
    invoked = F.coalesce(F.col("type") == "invoke", F.lit(False))
    each = usable.select("*", F.posexplode("items").alias("position", "item"))
    failed, reported = (F.col("type") == "fail").alias("failed"), F.col("items.job").alias("reported")
    answered = usable.where(~invoked & F.col("op").isNotNull()).select(
        F.col("proc").alias("by"), F.col("op").alias("of"), failed, reported
    )
    same = (F.col("proc") == F.col("by")) & (F.col("op") == F.col("of"))
    settled = same & (F.col("failed") | F.array_contains("reported", F.col("item.job")))
    unanswered = each.where(invoked).join(answered, on=settled, how="left_anti")
    exploded = each.where(~invoked).unionByName(unanswered)
    # Jobs of several callers in one call each have an intended instant of their own.
    intended = F.coalesce("item.intended_ns", "intended_ns").alias("intended_ns")
    chosen = [intended if name == "intended_ns" else F.col(name) for name in ROW_COLUMNS]
    chosen += [F.col(f"item.{name}") for name in ITEM_COLUMNS]
    renamed = F.col("result").alias("answer"), F.col("name").alias("snapshot")
    return exploded.select(*chosen, "position", "state", *renamed, "era").repartition("job")


def era(run: Run) -> Column:
    """The era of the server at a row: the replid of the last connection row before it in the same file."""
    if len(run.replids) <= 1:
        return F.lit(next(iter(run.replids), ""))
    latest = Window.partitionBy("source").orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return F.coalesce(F.last("replid", ignorenulls=True).over(latest), F.lit(""))


def tokens(events: DataFrame, *, eras: bool = False) -> DataFrame:
    """One row per lease, identified by its token (job, fence, nonce), with columns about other leases of the job.

    The lease was certainly held during [claim_done_ns, hold_end_ns), and may have been held longer. `eras`: the server had
    several eras. A claim that a failover lost does not replace an earlier lease, so then only claims of the same era are
    compared.
    """
    grouped = events.where(F.col("fence").isNotNull()).groupBy("job", "fence", "nonce").agg(*token_columns())
    lease_end = F.coalesce("extend_end_ns", "claim_end_ns")
    held = F.when(F.col("claim_done_ns").isNotNull(), F.least("over_ns", "reap_sent_ns", lease_end))
    by_claim = Window.partitionBy("job", *["claim_era"] * eras).orderBy("claim_done_ns", "fence", "nonce")
    before = by_claim.rowsBetween(Window.unboundedPreceding, -1)
    newest_first = Window.partitionBy("job").orderBy(F.desc("fence"), F.desc("nonce"))
    newer = newest_first.rowsBetween(Window.unboundedPreceding, -1)
    older = newest_first.rowsBetween(1, Window.unboundedFollowing)
    holder = F.struct("hold_end_ns", "fence", "nonce", "proc")
    # Two leases with the same fence (rule 33): each counts as newer than the other.
    same, same_too = (F.coalesce(at("fence").over(newest_first) == F.col("fence"), F.lit(False)) for at in (F.lead, F.lag))
    twin_ns = F.when(same, F.lead("claim_done_ns").over(newest_first))
    newer_claim_ns = F.least(F.min("claim_done_ns").over(newer), twin_ns)
    replaced_ns = replaced(newest_first) if eras else newer_claim_ns
    reaped_ns = F.when(F.col("reap_era") == F.coalesce("accepted_era", "reap_era"), F.col("reap_done_ns"))
    return grouped.withColumn("hold_end_ns", held).withColumns(
        {
            "earlier": F.max(F.when(F.col("hold_end_ns") > F.col("claim_done_ns"), holder)).over(before),
            "shared_fence": same | same_too,
            "newer_claim_ns": newer_claim_ns,
            "newer_start_ns": F.min("start_ns").over(newer),
            "older_again": F.max("again").over(older),
            "before": F.lead(F.struct(*BEFORE)).over(newest_first),
            "replaced_ns": F.least(replaced_ns, reaped_ns),
        }
    )


def replaced(newest_first: WindowSpec) -> Column:
    """When a newer claim was first answered, counting only claims of the era in which the lease last had a call accepted."""
    claim = F.when(F.col("claim_done_ns").isNotNull(), F.struct("claim_done_ns", "claim_era", "fence", "nonce"))
    claims = F.collect_list(claim).over(newest_first.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing))

    def newer(other: Column) -> Column:
        twin = (other["fence"] == F.col("fence")) & (other["nonce"] != F.col("nonce"))
        return (other["claim_era"] == F.col("accepted_era")) & ((other["fence"] > F.col("fence")) | twin)

    return F.array_min(F.transform(F.filter(claims, newer), lambda other: other["claim_done_ns"]))


def jobs(events: DataFrame, run: Run) -> DataFrame:
    """One row per job that appears anywhere in the history.

    finish_open, bury_open, drop_open: an unanswered call may have finished, buried or dropped the job. due_ns: the latest
    instant at which its enqueue and retries make it claimable.
    """
    open_ends = F.filter("ends", lambda end: ~F.exists("leases", lambda lease: superseded(end, lease)))

    def unanswered(*calls: str) -> Column:
        return F.exists(open_ends, lambda end: end["unanswered"] & end["f"].isin(*calls))

    again_ns = F.array_max(F.transform(F.filter(open_ends, lambda end: end["f"] == "retry"), lambda end: end["due_ns"]))
    return (
        events.groupBy("job")
        .agg(*job_columns(run))
        .withColumns(
            {
                "accepted": F.size("finishes") > 0,
                "dropped": F.size("drops") > 0,
                "drop_open": unanswered("drop"),
                "finish_open": unanswered("finish"),
                "bury_open": unanswered("retry", "bury"),
                "due_ns": F.greatest("enqueue_due_ns", again_ns),
            }
        )
        .drop("ends", "leases")
    )


def superseded(end: Column, lease: Column) -> Column:
    """True when the call no longer matters: the lease that it names was reaped, or the job was claimed again later."""
    own = (lease["fence"] == end["fence"]) & (lease["nonce"] == end["nonce"]) & lease["reaped"]
    return (lease["era"] == end["era"]) & ((lease["fence"] > end["fence"]) | own)
