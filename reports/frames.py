"""The frames that every check reads: events (one row per job of an operation), tokens (one per lease), jobs (one per job), and
in_hand (one per lease held at a kill).

The events are partitioned by job once, and the plain jobs set apart in that pass (rule 36). Times are monotonic ns. A null column
means that the history has no such row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from reports import plain
from reports.caching import kept, stored
from reports.channels import frames as channel_frames
from reports.channels.frames import ChannelFrames
from reports.columns import first_claim, job_columns, srv_ms, token_columns
from reports.facts import MS, Run
from reports.meaning import widened
from reports.recovery import in_hand
from reports.windows import era_of_cluster, of_cluster, without_loss

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from reports.load import History

# The rows of plain jobs (see `reports.plain`) in the frames `jobs` and `tokens`: the columns that checks
# compare jobs by.


#: Columns of `jobs` that are known of every job.
JOB_COLUMNS = (
    *("job", "enqueue_sent_ns", "created", "created_done_ns", "intended_ns", "delay_ns", "claim_done_ns", "first_claim"),
    *("started_ns", "accepted", "accepted_done_ns", "ended_ns", "key_free_ns", "dropped", "buried", "failed_for_good"),
    *("stale_finishes", "unique", "needs", "on_parent_failure", "wants", "schedule", "tick_ms", "ticked", "claim_srv_us"),
    *("claimable_ms", "states", "end_states", "drop_open"),
)

#: Columns of `tokens` that are known of every lease.
TOKEN_COLUMNS = (
    *("job", "fence", "nonce", "proc", "class", "lane", "claim_sent_ns", "claim_done_ns", "claim_srv_ms", "hold_end_ns"),
    *("start_ns", "handlings", "handled_ns", "end_sent_ns", "ended", "given_up", "end_unanswered", "reap_sent_ns"),
    *("deliveries", "claim_era"),
)


def plain_jobs(plain: DataFrame) -> DataFrame:
    """One row per plain job. The states in which a snapshot lists it are left out: it can only be `done`."""
    expires_ns, none = F.col("enqueue_sent_ns") + F.col("expires_ms") * MS, F.array().cast("array<string>")
    ticked = F.struct(F.expr("created_srv_us div 1000").alias("srv_ms"), F.col("created_done_ns").alias("done_ns"))
    due_ms = F.col("due_ms")
    made = {
        "created": F.lit(True),
        "intended_ns": F.coalesce("intended_ns", "enqueue_sent_ns"),
        "delay_ns": F.coalesce("delay_ms", F.lit(0)) * MS,
        "claim_done_ns": F.col("done_ns"),
        "first_claim": F.when(F.col("claims") == 1, first_claim()),
        "accepted": F.lit(True),
        "ended_ns": F.col("accepted_done_ns"),
        "key_free_ns": F.least("finish_sent_ns", expires_ns),
        "dropped": F.lit(False),
        "drop_open": F.lit(False),
        "buried": F.lit(False),
        "failed_for_good": F.lit(False),
        "stale_finishes": F.lit(0).cast("bigint"),
        "ticked": F.when(F.col("schedule").isNotNull(), ticked),
        "claim_srv_us": F.col("srv_us"),
        "claimable_ms": F.when(due_ms > 0, due_ms).otherwise(F.col("enqueued_ms")),
        "states": none,
        "end_states": none,
    }
    return plain.select(*(made[name].alias(name) if name in made else F.col(name) for name in JOB_COLUMNS))


def plain_tokens(plain: DataFrame) -> DataFrame:
    """One row per lease of a plain job. It was held until its finish was sent, at the latest until the lease ended."""
    made = {
        "claim_sent_ns": F.col("first_send_ns"),
        "claim_done_ns": F.col("done_ns"),
        "claim_srv_ms": srv_ms(),
        "hold_end_ns": F.least("finish_sent_ns", "lease_end_ns"),
        "start_ns": F.col("started_ns"),
        "handlings": F.lit(1).cast("bigint"),
        "end_sent_ns": F.col("finish_sent_ns"),
        "ended": F.struct(F.col("accepted_done_ns").alias("done_ns"), F.lit("finish").alias("f")),
        "given_up": F.lit(None).cast("struct<done_ns:bigint,f:string>"),
        "end_unanswered": F.lit(False),
        "deliveries": F.lit(1),
        "claim_era": F.col("era"),
        "reap_sent_ns": F.lit(None).cast("bigint"),
    }
    return plain.select(*(made[name].alias(name) if name in made else F.col(name) for name in TOKEN_COLUMNS))


ROW_COLUMNS = (
    *("kind", "proc", "f", "type", "op", "call", "sends", "intended_ns", "first_send_ns", "done_ns", "srv_us", "srv_from_us"),
    *("lease_ms", "incarnation"),
)
ITEM_COLUMNS = (
    *("job", "fence", "nonce", "result", "outcome", "delay_ms", "run_at_ms", "expires_ms", "due_ms", "enqueued_ms"),
    *("deadline_ms", "class", "lane", "unique", "holder", "needs", "wants", "schedule", "tick_ms", "priority", "crc"),
    *("result_crc", "crashes", "claims", "failures", "attempts", "backoff", "backoff_least_ms", "dedup"),
    *("on_parent_failure", "times", "charge", "lifo", "timeout_ms"),
)


#: What a lease shows of the one before it, which has the next smaller fence.
BEFORE = (
    *("claims", "failures", "crashes", "retry_delay_ms", "reap_crashes", "end_unanswered", "claim_era", "claim_done_ns"),
    *("again", "reap_done_ns", "charged"),
)


@dataclass(frozen=True)
class Eventful:
    """All that is known of the jobs that are not plain (see `reports.plain`); flags are conditions on their rows."""

    events: DataFrame
    tokens: DataFrame
    jobs: DataFrame


@dataclass(frozen=True)
class Frames:
    """The input of the checks. `run` holds the small facts.

    `events`: of all jobs; reading it is a pass over the tables on disk. `tokens`, `jobs`: of all jobs, with the columns that
    compare them with others. `eventful`: with all columns, for the jobs that are not plain. `in_hand`: leases held at a kill.
    """

    run: Run
    events: DataFrame
    tokens: DataFrame
    jobs: DataFrame
    in_hand: DataFrame
    eventful: Eventful


AnyFrames = Frames | ChannelFrames


def build(history: History, run: Run, tables: Path) -> AnyFrames:
    """All frames of a run, kept for several passes: what is large in a table of that folder."""
    return channel_frames.build(history.rows, run) if run.of_channels else of_jobs(history.events, run, tables)


def of_jobs(found: DataFrame, run: Run, tables: Path) -> Frames:
    """The frames of a job run."""
    all_events = events(found, run)
    parts = stored(apart(all_events), run, tables / "jobs.parquet")
    rest = parts.where(~F.col("plain")).select(all_events.columns)
    leases = kept(tokens(rest, run))
    named = kept(jobs(rest, run))
    plain = parts.where("plain")
    return Frames(
        run,
        all_events,
        leases.select(*TOKEN_COLUMNS).unionByName(plain_tokens(plain)),
        named.select(*JOB_COLUMNS).unionByName(plain_jobs(plain)),
        in_hand(leases, named, run),
        Eventful(rest, leases, named),
    )


def apart(events: DataFrame) -> DataFrame:
    """The events of the eventful jobs, and one row per plain job (see `reports.plain`)."""
    # A cluster's executors do not have this package.
    register_pickle_by_value(plain)
    more = from_arrow_schema(pa.schema(list(plain.MORE.items())))
    return events.repartition("job").mapInArrow(plain.set_apart, StructType([*events.schema, *more]))


def events(found: DataFrame, run: Run) -> DataFrame:
    """One row per job of an operation, effect or snapshot, as in `reports.convert`. The tick of a schedule is the enqueue of its
    job."""
    made = {
        **widened(run),
        "f": F.when(F.col("f") == "tick", "enqueue").otherwise(F.col("f")),
        # The era of the server is the replid of the last connection; where there was only one, it does not matter when it was.
        "era": era(run),
    }
    columns = [made[name].alias(name) if name in made else F.col(name) for name in (*ROW_COLUMNS, "position", "state", "era")]
    renamed = F.col("result").alias("answer"), F.col("name").alias("snapshot")
    # Jobs of several callers in one call each have an intended instant of their own.
    found = found.withColumn("intended_ns", F.coalesce("item.intended_ns", "intended_ns"))
    return found.select(*columns, *renamed, *(F.col(f"item.{name}") for name in ITEM_COLUMNS))


def era(run: Run) -> Column:
    """The era of the server in which an event happened."""
    if of_cluster(run):
        return era_of_cluster(run)
    return F.coalesce("replid", F.lit("")) if len(run.replids) > 1 else F.lit(next(iter(run.replids), ""))


def tokens(events: DataFrame, run: Run) -> DataFrame:
    """One row per lease, identified by its token (job, fence, nonce), with columns about other leases of the job.

    The lease was certainly held during [claim_done_ns, hold_end_ns), and may have been held longer. Columns that are called
    `kept` are about what no declared loss may have undone.
    """
    grouped = events.where(F.col("fence").isNotNull()).groupBy("job", "fence", "nonce").agg(*token_columns(run))
    claimed_ns = F.col("claim_done_ns")

    def held(extended_ns: Column) -> Column:
        return F.least("over_ns", "reap_sent_ns", F.coalesce(extended_ns, "claim_end_ns"))

    kept_ns = without_loss(run, claimed_ns)
    before = Window.partitionBy("job").orderBy("claim_done_ns", "fence", "nonce").rowsBetween(Window.unboundedPreceding, -1)
    newest_first = Window.partitionBy("job").orderBy(F.desc("fence"), F.desc("nonce"))
    newer = newest_first.rowsBetween(Window.unboundedPreceding, -1)
    older = newest_first.rowsBetween(1, Window.unboundedFollowing)
    holder = F.struct("hold_end_ns", "fence", "nonce", "proc", "claim_done_ns", "extend_done_ns")
    # Two leases with the same fence (rule 33): each counts as newer than the other.
    same, same_too = (F.coalesce(at("fence").over(newest_first) == F.col("fence"), F.lit(False)) for at in (F.lead, F.lag))

    def newer_ns(instant: Column) -> Column:
        return F.least(F.min(instant).over(newer), F.when(same, F.lead(instant).over(newest_first)))

    holds = {
        "hold_end_ns": F.when(claimed_ns.isNotNull(), held(F.col("extend_end_ns"))),
        "hold_kept_end_ns": F.when(kept_ns.isNotNull(), held(F.col("extend_kept_end_ns"))),
    }
    return grouped.withColumns(holds).withColumns(
        {
            "earlier": F.max(F.when(F.col("hold_end_ns") > claimed_ns, holder)).over(before),
            "earlier_kept_end_ns": F.max("hold_kept_end_ns").over(before),
            "shared_fence": same | same_too,
            "newer_claim_ns": newer_ns(claimed_ns),
            "newer_start_ns": F.min("start_ns").over(newer),
            "older_again": F.max("again").over(older),
            "before": F.lead(F.struct(*BEFORE)).over(newest_first),
            "replaced_ns": F.least(newer_ns(claimed_ns), "reap_done_ns"),
            "replaced_kept_ns": F.least(newer_ns(kept_ns), without_loss(run, F.col("reap_done_ns"))),
        }
    )


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
