"""P5: acknowledged messages are not delivered again: a fetch that was sent after an answered acknowledgement brings nothing at
or before its clock, and an acknowledgement covers all messages of the fetch whose receipt it uses.

A restore moves cursors back, so acknowledgements before it do not count for fetches after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames

#: Key of the calls of one subscriber that share one cursor.
LIFE = ("channel", "subscriber", "generation", "restored")


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Messages delivered after their acknowledgement, and acknowledgements of only a part of a fetch."""
    compared = again(frames)
    words = sentence("was given ", F.col("message"), " again, at clock ", F.col("item_clock"), ", after it had been acknowledged")
    cut = sentence("acknowledged clock ", F.col("clock"), " with the receipt of a fetch that went on to ", F.col("end_clock"))
    counted = compared.agg(F.count("acked_at").alias("n")).withColumn("who", F.lit("every subscriber"))
    thin = F.lit("was given nothing after an acknowledgement")
    return [
        (
            compared.withColumn("who", to()),
            Flag("again", F.col("item_at") <= F.col("acked_at"), words, absence=False, subject="who"),
        ),
        (cut_receipts(frames).withColumn("who", to()), Flag("cut receipt", F.lit(True), cut, absence=True, subject="who")),
        (counted, Flag("thin", F.col("n") == 0, thin, absence=False, level="unknown", subject="who")),
    ]


def again(frames: ChannelFrames) -> DataFrame:
    """Deliveries, each with the furthest place that had been acknowledged when its fetch was sent."""
    acked = frames.calls.where((F.col("f") == "acknowledge") & (F.col("type") == "ok") & F.col("restored").isNotNull())
    # When a resent acknowledgement is answered as stale, the cursor in the reply shows whether the first copy moved it.
    acked_at = F.when(F.col("result") == "OK", F.col("at")).otherwise(F.col("cursor_at"))
    empty = {
        name: F.lit(None).cast(kind) for name, kind in (("message", "string"), ("item_clock", "bigint"), ("item_at", "bigint"))
    }
    order = F.col("done_ns").alias("order_ns")
    acks = acked.select(*LIFE, order, F.lit(1).alias("turn"), acked_at.alias("acks_at"), *(c.alias(n) for n, c in empty.items()))
    delivered = frames.delivered.where(F.col("restored").isNotNull() & F.col("message").isNotNull())
    sent = F.col("first_send_ns").alias("order_ns")
    gets = delivered.select(*LIFE, sent, F.lit(0).alias("turn"), F.lit(None).cast("bigint").alias("acks_at"), *empty)
    earlier = Window.partitionBy(*LIFE).orderBy("order_ns", "turn").rowsBetween(Window.unboundedPreceding, -1)
    both = acks.unionByName(gets).withColumn("acked_at", F.max("acks_at").over(earlier))
    return both.where(F.col("message").isNotNull())


def cut_receipts(frames: ChannelFrames) -> DataFrame:
    """Acknowledgements of a clock inside a fetch at which no fetch of that subscriber ended."""
    names = ["channel", "subscriber", "clock"]
    acked = frames.calls.where((F.col("f") == "acknowledge") & (F.col("result") == "OK")).select(*names).distinct()
    per_fetch = Window.partitionBy("proc", "op")
    last = F.max_by("item_clock", "position").over(per_fetch)
    given = frames.delivered.withColumn("end_clock", last).select(
        "channel", "subscriber", F.col("item_clock").alias("clock"), "end_clock"
    )
    inside = given.where(F.col("clock") != F.col("end_clock")).groupBy(*names).agg(F.min("end_clock").alias("end_clock"))
    return acked.join(ends(frames), names, "left_anti").join(inside, names)


def ends(frames: ChannelFrames) -> DataFrame:
    """Clocks in the receipts of a subscriber: that of the last message of a fetch, or, without one, the clock read up to. A fetch
    without a message that read no further than its cursor gives no receipt."""
    last = frames.delivered.groupBy("channel", "subscriber", "proc", "op").agg(F.max_by("item_clock", "position").alias("clock"))
    fetched = frames.calls.where((F.col("f") == "fetch") & (F.col("type") == "ok") & (F.col("upto") != F.col("cursor")))
    names = ("channel", "subscriber", "clock")
    read = fetched.join(last.select("proc", "op"), ["proc", "op"], "left_anti").select(
        "channel", "subscriber", F.col("upto").alias("clock")
    )
    return last.select(*names).unionByName(read).distinct()


CHECK = Check("P5", "an acknowledgement is final", lambda run: [], channels=channels)
