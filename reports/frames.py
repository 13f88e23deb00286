"""The frames that every check reads: events (one row per job of an operation), tokens (per lease), jobs, and in_hand.

All are partitioned by job once, so the windows and groups over a job, a token or both need no further shuffle (rule 36).
Times are monotonic ns. A column that is null says that the history holds no such row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.facts import MS, Run
from reports.meaning import (
    BURYING_CRASHES,
    ENDS,
    ENQUEUE_NS,
    GIVE_UPS,
    NEVER_NS,
    accepted_finish,
    answered,
    changed,
    created_by_it,
    sent_enqueue,
    some,
    unanswered,
)
from reports.recovery import in_hand

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Rows this much after a snapshot's instant still count as before it: it was not taken in one instant.
SNAPSHOT_SLACK_NS = 1_000 * MS

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
    "lease_ms",
)
ITEM_COLUMNS = (
    "job",
    "fence",
    "nonce",
    "result",
    "outcome",
    "delay_ms",
    "due_ms",
    "deadline_ms",
    "class",
    "priority",
    "crc",
    "crashes",
)


@dataclass(frozen=True)
class Frames:
    """What the checks get. `run` holds the small facts."""

    run: Run
    events: DataFrame
    tokens: DataFrame
    jobs: DataFrame
    in_hand: DataFrame


def build(rows: DataFrame, run: Run) -> Frames:
    """All frames of a run, kept for later passes."""
    found = events(rows, run).persist()
    leases = tokens(found).persist()
    named = jobs(found, run).persist()
    return Frames(run, found, leases, named, in_hand(leases, named, run))


def events(rows: DataFrame, run: Run) -> DataFrame:
    """One row per job of an operation, effect or snapshot.

    An operation appears once: as its completion (type ok, fail or info), or as its invocation (type invoke) if it never had one.
    """
    usable = rows.where("readable").withColumn("era", era(run)).where(F.col("kind").isin("operation", "effect", "final"))
    invoked = F.coalesce(F.col("type") == "invoke", F.lit(False))
    answered = usable.where(~invoked & F.col("op").isNotNull()).select("proc", "op")
    unanswered = usable.where(invoked).join(answered, on=["proc", "op"], how="left_anti")
    single = usable.where(~invoked).unionByName(unanswered)
    exploded = single.select("*", F.explode("items").alias("item"))
    chosen = [F.col(name) for name in ROW_COLUMNS] + [F.col(f"item.{name}") for name in ITEM_COLUMNS]
    return exploded.select(*chosen, "state", F.col("name").alias("snapshot"), "era").repartition("job")


def era(run: Run) -> Column:
    """The era of the server that a row saw: the replid of its process's last connection row before it."""
    if len(run.replids) <= 1:
        return F.lit(next(iter(run.replids), ""))
    latest = Window.partitionBy("source").orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return F.coalesce(F.last("replid", ignorenulls=True).over(latest), F.lit(""))


def tokens(events: DataFrame) -> DataFrame:
    """One row per lease, the whole token (job, fence, nonce) being its identity, with what other leases of the job did.

    The hold of a lease is [claim_done_ns, hold_end_ns): it is definite, the lease may have been held longer.
    """
    grouped = events.where(F.col("fence").isNotNull()).groupBy("job", "fence", "nonce").agg(*token_columns())
    lease_end = F.coalesce("extend_end_ns", "claim_end_ns")
    held = F.when(F.col("claim_done_ns").isNotNull(), F.least("end_sent_ns", "reap_sent_ns", lease_end))
    by_claim = Window.partitionBy("job").orderBy("claim_done_ns", "fence", "nonce")
    before = by_claim.rowsBetween(Window.unboundedPreceding, -1)
    newest_first = Window.partitionBy("job").orderBy(F.desc("fence"), F.desc("nonce"))
    newer = newest_first.rowsBetween(Window.unboundedPreceding, -1)
    holder = F.struct("hold_end_ns", "fence", "nonce", "proc")
    # Two leases with one fence (rule 33): each is newer than the other, as neither is the older.
    twin = F.when(F.lead("fence").over(newest_first) == F.col("fence"), F.lead("claim_done_ns").over(newest_first))
    return (
        grouped.withColumn("hold_end_ns", held)
        .withColumn("earlier", F.max(F.when(F.col("hold_end_ns") > F.col("claim_done_ns"), holder)).over(before))
        .withColumn("newer_claim_ns", F.least(F.min("claim_done_ns").over(newer), twin))
        .withColumn("newer_start_ns", F.min("start_ns").over(newer))
    )


def token_columns() -> list[Column]:
    """What a lease's own rows say about it."""
    f, result, reply = F.col("f"), F.col("result"), F.col("type")
    first_ns, done_ns = F.col("first_send_ns"), F.col("done_ns")
    claim = (f == "claim") & (reply == "ok")
    extended = (f == "extend") & (reply == "ok") & (result == "ok")
    # A claim that is repeated by a later call has less than its lease left; the reply says how much.
    left_ms = F.least("lease_ms", F.col("deadline_ms") - F.expr("srv_us div 1000"))
    lease_end = first_ns + left_ms * MS
    end = f.isin(*ENDS)
    given_up = f.isin(*GIVE_UPS) & (reply == "ok") & (result == "ok")
    accepted = accepted_finish()
    return [
        F.min(F.when(claim, done_ns)).alias("claim_done_ns"),
        F.min(F.when(claim, lease_end)).alias("claim_end_ns"),
        F.max_by(F.when(extended, lease_end), F.when(extended, first_ns)).alias("extend_end_ns"),
        F.max(F.when(claim, F.col("proc"))).alias("proc"),
        F.min(F.when(end, first_ns)).alias("end_sent_ns"),
        F.max(F.when(given_up, first_ns)).alias("given_up_sent_ns"),
        F.max_by(F.when(given_up, f), F.when(given_up, first_ns)).alias("given_up_by"),
        F.max(F.when(extended, first_ns)).alias("extend_sent_ns"),
        F.max(F.when((f == "handle") | (F.col("kind") == "effect") | accepted, F.col("proc"))).alias("ran_by"),
        F.min(F.when(f == "reap", first_ns)).alias("reap_sent_ns"),
        F.min(F.when(f == "reap", done_ns)).alias("reap_done_ns"),
        F.min(F.when(f == "handle", first_ns)).alias("start_ns"),
        some(end & answered()).alias("end_answered"),
        some(end & unanswered()).alias("end_unanswered"),
        F.max(F.when(end & unanswered(), F.col("delay_ms"))).alias("unanswered_delay_ms"),
        some(accepted).alias("accepted"),
        F.min(F.when(accepted | ((f == "finish") & unanswered()), first_ns)).alias("finish_sent_ns"),
        F.count_if(F.col("kind") == "effect").alias("effects"),
    ]


def jobs(events: DataFrame, run: Run) -> DataFrame:
    """One row per job that is named anywhere in the history."""
    return events.groupBy("job").agg(*job_columns(run)).withColumn("accepted", F.size("finishes") > 0)


def job_columns(run: Run) -> list[Column]:
    """What all rows of a job say about it.

    changed_ns: the last instant before the deadline snapshot at which it may have become claimable or was claimed; moved_ns: the
    last one at all at which it may have changed its state; due_ns: when its enqueue wanted it to be claimable at the latest.
    """
    f, result, reply = F.col("f"), F.col("result"), F.col("type")
    first_ns, done_ns, delay_ns = F.col("first_send_ns"), F.col("done_ns"), F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    created, claim, end = created_by_it(), (f == "claim") & (reply == "ok"), f.isin(*ENDS)
    enqueued_ns = F.when(created, done_ns).when(sent_enqueue(), first_ns + ENQUEUE_NS)
    finish_ok = (f == "finish") & (reply == "ok") & (result == "ok")
    buried = end & (reply == "ok") & (((f == "bury") & (result == "ok")) | (F.col("outcome") == "buried"))
    may_bury = (f.isin("retry", "bury") & unanswered()) | ((f == "reap") & (F.col("crashes") >= BURYING_CRASHES))
    moving_ns = F.when(f == "enqueue", enqueued_ns).when(end & (result == "stale"), None).otherwise(F.coalesce(done_ns, first_ns))
    before = before_deadline(run)
    return [
        F.min(F.when(sent_enqueue(), first_ns)).alias("enqueue_sent_ns"),
        some(created).alias("created"),
        F.min(F.when(created, done_ns)).alias("created_done_ns"),
        F.min(F.when(sent_enqueue(), F.coalesce("intended_ns", "first_send_ns"))).alias("intended_ns"),
        F.max(F.when(sent_enqueue(), delay_ns)).alias("delay_ns"),
        F.max(enqueued_ns + delay_ns).alias("due_ns"),
        F.min(F.when(claim, done_ns)).alias("claim_done_ns"),
        F.max(F.when(claim & before, done_ns)).alias("last_claim_ns"),
        F.collect_set(F.when(accepted_finish(), F.struct("era", "fence", "nonce"))).alias("finishes"),
        F.collect_set(F.when(finish_ok, F.struct("era", "fence", "nonce", "op"))).alias("finish_calls"),
        F.min(F.when(accepted_finish(), done_ns)).alias("accepted_done_ns"),
        some(end & unanswered()).alias("end_unanswered"),
        some((f == "finish") & unanswered()).alias("finish_unanswered"),
        F.count_if((f == "finish") & (result == "stale")).alias("stale_finishes"),
        some(buried).alias("buried"),
        some(buried | may_bury).alias("may_be_buried"),
        some(f == "handle").alias("started"),
        F.max(F.when(before, changed(created | claim | (f == "reap")))).alias("changed_ns"),
        F.max(F.when(end | f.isin("enqueue", "claim", "reap"), moving_ns)).alias("moved_ns"),
        *listed_columns(),
    ]


def listed_columns() -> list[Column]:
    """Where the snapshots list a job."""
    final, state, due_ms = F.col("kind") == "final", F.col("state"), F.col("due_ms")
    at_end, at_deadline = final & (F.col("snapshot") == "end"), final & (F.col("snapshot") == "deadline")
    return [
        F.sort_array(F.collect_set(F.when(final, state))).alias("states"),
        F.sort_array(F.collect_set(F.when(at_end, state))).alias("end_states"),
        some(at_deadline & (state != "done")).alias("at_deadline"),
        some(at_deadline & (state == "waiting")).alias("waiting_at_deadline"),
        F.max(F.when(at_deadline & (state == "delayed"), due_ms)).alias("due_at_deadline_ms"),
        F.max(F.when(at_deadline & (state == "active"), due_ms)).alias("lease_at_deadline_ms"),
    ]


def before_deadline(run: Run) -> Column:
    """True for events that can have happened before the deadline snapshot was taken."""
    deadline = run.snapshots.get("deadline")
    return F.col("first_send_ns") < F.lit(deadline.t_ns + SNAPSHOT_SLACK_NS if deadline else NEVER_NS)
