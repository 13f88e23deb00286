"""Recovery time of the jobs leased by a killed process: from waitpid to the next handler start elsewhere (rule 37)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.facts import MS, Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def in_hand(tokens: DataFrame, jobs: DataFrame, run: Run) -> DataFrame:
    """One row per lease held at a witnessed kill: fault, target, job, witness_ns, recovery_ns (null: never ran again),
    allowed_ns, ended.

    Held: claimed by the killed process, or reaped under one of its incarnations, and neither ended by an answered call nor lost
    to another worker before the kill. `ended`: the job had no reason to run again. Either a call that ends the lease was sent
    and not answered, and took effect (not if the lease was reaped: a reap shows that it still existed); or the reap buried the
    job as poison (rule 12; J4 checks whether it had enough crashes for that).
    """
    hits = tokens.withColumn("holder", F.coalesce("proc", holder_of(run.incarnations)))
    hits = hits.withColumn("kill", F.explode(F.array(*(kill_struct(*fields) for fields in kill_fields(run)))))
    hits = hits.where((F.col("holder") == F.col("kill.target")) & ~F.col("end_answered"))
    inject_ns, witness_ns = F.col("kill.inject_ns"), F.col("kill.witness_ns")
    lost_before = F.coalesce((F.col("reap_done_ns") <= inject_ns) | (F.col("newer_start_ns") <= inject_ns), F.lit(False))
    allowed_ns = (F.lit(run.recovery_bound_ms) + F.coalesce("unanswered_delay_ms", F.lit(0))) * MS
    never_again = F.col("newer_start_ns").isNull()
    reaped = F.col("reap_done_ns").isNotNull()
    buried = reaped & F.array_contains("states", "dead")
    return (
        hits.where(~lost_before)
        .join(jobs.select("job", "states"), "job")
        .select(
            F.col("kill.fault").alias("fault"),
            F.col("kill.target").alias("target"),
            "job",
            witness_ns.alias("witness_ns"),
            F.greatest(F.col("newer_start_ns") - witness_ns, F.when(F.col("newer_start_ns").isNotNull(), 0)).alias("recovery_ns"),
            allowed_ns.alias("allowed_ns"),
            (never_again & ((F.col("end_unanswered") & ~reaped) | buried)).alias("ended"),
        )
    )


def kill_fields(run: Run) -> list[tuple[str, str, int, int]]:
    """The witnessed kills. Without any, one dummy that matches nothing, so that the frame has its columns."""
    kills = [(kill.fault, kill.target, kill.inject_ns, kill.witness_ns) for kill in run.kills]
    return kills or [("", "", 0, 0)]


def kill_struct(fault: str, target: str, inject_ns: int, witness_ns: int) -> Column:
    """A kill as a struct of literals."""
    return F.struct(
        F.lit(fault).alias("fault"),
        F.lit(target).alias("target"),
        F.lit(inject_ns).cast("bigint").alias("inject_ns"),
        F.lit(witness_ns).cast("bigint").alias("witness_ns"),
    )


def holder_of(incarnations: Mapping[str, str]) -> Column:
    """The process that a nonce (`incarnation:counter`) belongs to, for claims whose reply never came."""
    return value_of(incarnations, F.split("nonce", ":")[0], "string")


def value_of(known: Mapping[str, str | int], key: Column, kind: str = "bigint") -> Column:
    """What a small mapping has for a key; null for another one."""
    if not known:
        return F.lit(None).cast(kind)
    words = F.create_map(*(F.lit(word) for pair in known.items() for word in pair))
    return F.try_element_at(words, key).cast(kind)
