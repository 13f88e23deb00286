"""J14: while a job with a unique key has not ended, no other job with that key is created (rule 23).

A job certainly holds its key from the answer to its enqueue until the first call is sent that may end it: a finish, a bury, a
last retry, a reap. A call that was refused, or that gave the job back, ends nothing: leases that run out on a slow machine do not
hide who else took the key. Nor may a key keep others out once the end of the job that a duplicate names was answered: the same
script frees it. The time window of a dedup key is not judged here, and a job that has both keys neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, milliseconds, sentence
from reports.facts import Run
from reports.meaning import NEVER_NS
from reports.windows import in_loss

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.frames import Frames


def doubts(run: Run) -> list[str]:
    """The check needs at least one created job."""
    return [] if run.has("created") else ["no enqueue ever succeeded"]


def more(frames: Frames) -> list[tuple[DataFrame, Flag]]:
    """Jobs created while another job certainly held their key; and, when no enqueue was ever refused for its key, an
    unknown."""
    keyed = frames.jobs.where(F.col("unique").isNotNull() & F.col("created"))
    before = Window.partitionBy("unique").orderBy("created_done_ns", "job").rowsBetween(Window.unboundedPreceding, -1)
    holder = F.struct(F.coalesce("key_free_ns", F.lit(NEVER_NS)).alias("free_ns"), "created_done_ns", F.col("job").alias("job"))
    pairs = keyed.withColumn("held", F.max(holder).over(before))
    # A holder that the servers lost, as declared, holds nothing.
    sure = ~in_loss(frames.run, F.col("held.created_done_ns"))
    both = sure & (F.col("held.created_done_ns") < F.col("enqueue_sent_ns")) & (F.col("created_done_ns") < F.col("held.free_ns"))
    text = sentence("was created while ", F.col("held.job"), " had the unique key ", F.col("unique"))
    turned_away = frames.events.agg(
        F.count_if((F.col("f") == "enqueue") & (F.col("result") == "duplicate") & F.col("holder").isNotNull()).alias("away")
    ).select("away", F.lit("every unique key").alias("job"))
    idle = Flag("nobody kept out", F.col("away") == 0, sentence("kept nobody out"), absence=False, level="unknown")
    kept = Flag(
        "key kept",
        (F.col("first_send_ns") > F.col("ended_ns")) & ~in_loss(frames.run, F.col("ended_ns")),
        sentence("was a duplicate of ", F.col("holder"), ", which had ended ", late_ms(), " ms before"),
        absence=False,
    )
    return [(pairs, Flag("key taken twice", both, text, absence=True)), (refusals(frames), kept), (turned_away, idle)]


def refusals(frames: Frames) -> DataFrame:
    """The enqueues that a unique key refused, with the first answered end of the job that they name."""
    duplicate = (F.col("f") == "enqueue") & (F.col("type") == "ok") & (F.col("result") == "duplicate")
    refused = frames.events.where(duplicate & F.col("unique").isNotNull() & F.col("dedup").isNull() & F.col("holder").isNotNull())
    ends = frames.jobs.select(F.col("job").alias("ended_job"), "ended_ns")
    return refused.join(ends, F.col("holder") == F.col("ended_job")).select("job", "holder", "first_send_ns", "ended_ns")


def late_ms() -> Column:
    """For how long the job that a duplicate names had ended."""
    return milliseconds(F.col("first_send_ns") - F.col("ended_ns"))


CHECK = Check("J14", "unique keys keep others out", doubts, more=more, applies=lambda run: bool(run.spec.get("unique_keys")))
