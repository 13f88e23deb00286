"""The rows of plain jobs (see `reports.plain`) in the frames `jobs` and `tokens`: the columns that checks compare jobs by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.columns import first_claim, srv_ms
from reports.facts import MS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns of `jobs` that are known of every job.
JOB_COLUMNS = (
    *("job", "enqueue_sent_ns", "created", "created_done_ns", "intended_ns", "delay_ns", "claim_done_ns", "first_claim"),
    *("started_ns", "accepted", "accepted_done_ns", "ended_ns", "key_free_ns", "dropped", "buried", "failed_for_good"),
    *("stale_finishes", "unique", "needs", "on_parent_failure", "wants", "schedule", "tick_ms", "ticked", "claim_srv_us"),
    *("claimable_ms", "states", "end_states"),
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
