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
from reports.recovery import in_hand

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Operations that end a lease.
ENDS = ("finish", "retry", "bury", "release")

#: Later than any time: an operation that was never answered may still take effect.
NEVER_NS = 2**62

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
ITEM_COLUMNS = ("job", "fence", "nonce", "result", "outcome", "delay_ms", "due_ms", "deadline_ms", "class", "priority", "crc")


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
    return Frames(run, found, leases, jobs(found, run).persist(), in_hand(leases, run))


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
    accepted = accepted_finish()
    return [
        F.min(F.when(claim, done_ns)).alias("claim_done_ns"),
        F.min(F.when(claim, lease_end)).alias("claim_end_ns"),
        F.max_by(F.when(extended, lease_end), F.when(extended, first_ns)).alias("extend_end_ns"),
        F.max(F.when(claim, F.col("proc"))).alias("proc"),
        F.min(F.when(end, first_ns)).alias("end_sent_ns"),
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
    """What all rows of a job say about it; changed_ns: the last instant before the deadline snapshot that may have moved it."""
    f, result, reply = F.col("f"), F.col("result"), F.col("type")
    first_ns, done_ns, delay_ns = F.col("first_send_ns"), F.col("done_ns"), F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    enqueue = f == "enqueue"
    sent = enqueue & (reply != "fail") & ~F.coalesce(result.isin("duplicate", "refused"), F.lit(False))
    created = enqueue & (reply == "ok") & result.isin("created", "repeated")
    claim = (f == "claim") & (reply == "ok")
    end = f.isin(*ENDS)
    final, state = F.col("kind") == "final", F.col("state")
    at_end, at_deadline = final & (F.col("snapshot") == "end"), final & (F.col("snapshot") == "deadline")
    return [
        F.min(F.when(sent, first_ns)).alias("enqueue_sent_ns"),
        some(created).alias("created"),
        F.min(F.when(sent, F.coalesce("intended_ns", "first_send_ns"))).alias("intended_ns"),
        F.max(F.when(sent, delay_ns)).alias("delay_ns"),
        F.min(F.when(claim, done_ns)).alias("claim_done_ns"),
        F.collect_set(F.when(accepted_finish(), F.struct("era", "fence", "nonce"))).alias("finishes"),
        F.min(F.when(accepted_finish(), done_ns)).alias("accepted_done_ns"),
        some(end & unanswered()).alias("end_unanswered"),
        F.count_if((f == "finish") & (result == "stale")).alias("stale_finishes"),
        some((f == "bury") & (reply == "ok") & (result == "ok")).alias("buried"),
        some(f == "handle").alias("started"),
        F.sort_array(F.collect_set(F.when(at_end, state))).alias("end_states"),
        some(at_deadline & (state == "waiting")).alias("waiting_at_deadline"),
        F.max(F.when(at_deadline & (state == "delayed"), F.col("due_ms"))).alias("due_at_deadline_ms"),
        F.max(F.when(at_deadline & (state == "active"), F.col("due_ms"))).alias("lease_at_deadline_ms"),
        F.max(F.when(before_deadline(run), changed(created | claim | (f == "reap")))).alias("changed_ns"),
    ]


def changed(answered: Column) -> Column:
    """The latest instant at which an event can have made its job claimable; NEVER_NS while it was not answered."""
    done_ns = F.col("done_ns") + F.coalesce(F.col("delay_ms"), F.lit(0)) * MS
    given_back = F.col("f").isin("retry", "release") & (F.col("type") != "fail")
    return F.when(answered, done_ns).when(given_back & unanswered(), F.lit(NEVER_NS)).when(given_back, done_ns)


def before_deadline(run: Run) -> Column:
    """True for events that can have happened before the deadline snapshot was taken."""
    deadline = run.snapshots.get("deadline")
    return F.col("first_send_ns") < F.lit(deadline.t_ns + SNAPSHOT_SLACK_NS if deadline else NEVER_NS)


def accepted_finish() -> Column:
    """The server said that this lease finished its job: by ok, or by repeating that outcome (rule 5)."""
    f, result = F.col("f"), F.col("result")
    finished = (f == "finish") & (result == "ok")
    repeated = f.isin(*ENDS) & (result == "repeated") & (F.col("outcome") == "finished")
    return (F.col("type") == "ok") & (finished | F.coalesce(repeated, F.lit(False)))


def answered() -> Column:
    """The server decided about this job of the call."""
    return F.coalesce((F.col("type") == "ok") & F.col("result").isNotNull() & (F.col("result") != "unknown"), F.lit(False))


def unanswered() -> Column:
    """It may have happened and may not: no completion, an unknown one, or one that says nothing about this job."""
    return ~answered() & F.coalesce(F.col("type") != "fail", F.lit(True))


def some(condition: Column) -> Column:
    """True when the condition holds for some row of the group; never null."""
    return F.coalesce(F.max(condition), F.lit(False))
