"""P7: subscribers agree on the order of messages: no two subscribers get two messages in different orders.

Per channel, the subscriber that got most messages is the reference for the others. Messages that were published again (with
other clocks, see P4) are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to
from reports.checks.p4_one_clock_one_message import clocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Messages that a subscriber got after a message that the reference subscriber got later."""
    held = compared(frames)
    words = sentence("got ", F.col("message"), " after ", F.col("overtaken.message"), ", and ", F.col("first"), " before it")
    wrong = F.col("overtaken.rank") > F.col("rank")
    counted = held.agg(F.count("overtaken").alias("n")).withColumn("who", F.lit("every channel"))
    thin = F.lit("had fewer than two messages that two subscribers got")
    return [
        (held.withColumn("who", to()), Flag("other order", wrong, words, absence=False, subject="who")),
        (counted, Flag("thin", F.col("n") == 0, thin, absence=False, level="unknown", subject="who")),
    ]


def compared(frames: ChannelFrames) -> DataFrame:
    """First deliveries of all subscribers but the reference one, in order: the message's rank at the reference subscriber, and
    the highest rank delivered before."""
    anew = clocks(frames).groupBy("channel", "message").agg(F.count_distinct("item_clock").alias("n")).where(F.col("n") > 1)
    firsts = frames.firsts.join(anew.select("channel", "message"), ["channel", "message"], "left_anti")
    counted = firsts.groupBy("channel", "subscriber").agg(F.count("*").alias("n"))
    first = counted.groupBy("channel").agg(F.max_by("subscriber", F.struct("n", "subscriber")).alias("first"))
    named = firsts.join(first, "channel")
    by_order = Window.partitionBy("channel", "subscriber").orderBy("done_ns", "position")
    theirs = named.where(F.col("subscriber") == F.col("first"))
    ranks = theirs.select("channel", "message", F.row_number().over(by_order).alias("rank"))
    others = named.where(F.col("subscriber") != F.col("first")).join(ranks, ["channel", "message"])
    earlier = by_order.rowsBetween(Window.unboundedPreceding, -1)
    return others.withColumn("overtaken", F.max(F.struct("rank", "message")).over(earlier))


CHECK = Check("P7", "subscribers agree on the order", lambda run: [], channels=channels)
