"""One row per message, from its publishes; and its first delivery to each subscriber."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.channels.plan import VOID_NS, planned, restores
from reports.facts import MS, Run

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

S = 1_000 * MS


def messages(published: DataFrame, run: Run) -> DataFrame:
    """One row per message of a publish that may have happened.

    intended_ns: when its publish was due; sent_ns and sent_again_ns: its first and last send; confirmed_ns: the first answer that
    confirms it (null without one), place_at: its place in that answer; kept_ns: as confirmed_ns, but only answers that no restore
    may have undone; over_ns: it may have expired from then on; dead_ns: it must have expired by then (null when a call of it had
    no answer); crcs: of its contents; gone: a restore may have undone it.
    """
    happened = published.where((F.col("type") != "fail") & F.coalesce(F.col("item_result") != "refused", F.lit(True)))
    there = (F.col("type") == "ok") & F.col("item_result").isin("created", "duplicate")
    undone = may_be_undone(run, answered=there)
    ends_ns = F.when(F.col("item_result") == "created", F.col("done_ns") + F.col("ttl_s") * S)
    return happened.groupBy("channel", "message").agg(
        F.min("intended_ns").alias("intended_ns"),
        F.min("first_send_ns").alias("sent_ns"),
        F.max("first_send_ns").alias("sent_again_ns"),
        F.min(F.when(there, F.col("done_ns"))).alias("confirmed_ns"),
        F.min_by(F.when(there, F.col("item_at")), F.when(there, F.col("done_ns"))).alias("place_at"),
        F.min(F.when(there & ~undone, F.col("done_ns"))).alias("kept_ns"),
        F.min(F.col("first_send_ns") + life_ns(run)).alias("over_ns"),
        F.when(F.count_if(~there) == 0, F.max(ends_ns)).alias("dead_ns"),
        F.collect_set("crc").alias("crcs"),
        F.coalesce(F.max(undone | may_be_twice(run)), F.lit(False)).alias("gone"),
    )


def life_ns(run: Run) -> Column:
    """The least lifetime in ns of what a call writes: as the spec says for its channel, else as the call asked for."""
    lives = [F.lit(part) for one in planned(run).values() for part in (one.name, F.lit(one.life_ns).cast("bigint"))]
    planned_ns = F.try_element_at(F.create_map(*lives), F.col("channel")) if lives else F.lit(None).cast("bigint")
    return F.coalesce(planned_ns, F.col("ttl_s") * S, F.lit(0))


def may_be_undone(run: Run, *, answered: Column) -> Column:
    """True for a call whose effect a restore may have undone: it lies between the snapshot and the start of the new server. An
    unanswered call may have taken effect at any time until it was void."""
    found = restores(run)
    if not found:
        return F.lit(False)
    sent_ns = F.coalesce("last_send_ns", "first_send_ns")
    latest_ns = F.when(answered, F.col("done_ns")).otherwise(F.col("first_send_ns") + VOID_NS)
    return F.coalesce(reduce(or_, ((latest_ns >= one.saved_ns) & (sent_ns <= one.heal_ns) for one in found)), F.lit(True))


def may_be_twice(run: Run) -> Column:
    """True for a call that was sent before and after a restore: its first copy may have been applied and undone, and a later
    copy applied again."""
    found = [
        F.lit(False),
        *((F.col("first_send_ns") <= one.heal_ns) & (F.col("last_send_ns") > one.heal_ns) for one in restores(run)),
    ]
    return F.coalesce(reduce(or_, found), F.lit(False))


def first_deliveries(delivered: DataFrame, *by: str) -> DataFrame:
    """The first delivery of each message to each subscriber, with the columns of `delivered` and the number of deliveries,
    `times`.

    `by`: further columns that identify a message.
    """
    group = Window.partitionBy("channel", "subscriber", "message", *by)
    numbered = delivered.where(F.col("message").isNotNull()).withColumns(
        {"number": F.row_number().over(group.orderBy("done_ns", "position")), "times": F.count("*").over(group)}
    )
    return numbered.where(F.col("number") == 1).drop("number")
