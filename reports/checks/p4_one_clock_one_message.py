"""P4: a clock always belongs to one message, and a message has one clock until it expires. Clocks follow the order of publishes:
a message that was sent after another one's publish had been answered has the later clock.

A restore undoes publishes: an undone message may get another clock when it is published again, and its old clock may go to
another message (possible, not violated).
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.channels.plan import CLOCK_MAX
from reports.checks.base import Check, Flag, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Clocks with several messages, messages with several clocks, and invalid clocks."""
    given = kept(clocks(frames))
    names = F.array_join(F.slice(F.sort_array(F.collect_set("message")), 1, 3), ", ")
    firm = F.size(F.collect_set(F.when(~F.col("gone"), F.col("message"))))
    shared = given.groupBy("channel", "item_clock").agg(
        F.count_distinct("message").alias("n"), firm.alias("firm"), names.alias("names")
    )
    level = F.when(F.col("firm") > 1, "violated").otherwise("possible")
    words = sentence("gave clock ", F.col("item_clock"), " to ", F.col("n"), " messages: ", F.col("names"))
    moved = given.groupBy("channel", "message").agg(
        F.count_distinct("item_clock").alias("n"),
        F.max("excused").alias("excused"),
        F.min("item_clock").alias("low"),
        F.max("item_clock").alias("high"),
    )
    two = sentence("gave ", F.col("message"), " ", F.col("n"), " clocks, ", F.col("low"), " and ", F.col("high"))
    outside = F.abs("item_clock") > F.lit(CLOCK_MAX)
    none = sentence("gave ", F.col("message"), " clock ", F.col("item_clock"), ", which is none")
    behind = sentence("gave ", F.col("message"), " clock ", F.col("item_clock"), ", and an earlier publish a later one")
    counted = given.agg(F.count("*").alias("n")).withColumn("who", F.lit("every channel"))
    return [
        (shared, Flag("shared clock", F.col("n") > 1, words, False, level=level, subject="channel")),
        (moved, Flag("several clocks", (F.col("n") > 1) & ~F.col("excused"), two, absence=False, subject="channel")),
        (given, Flag("no clock", outside, none, absence=False, subject="channel")),
        (sent(frames), Flag("behind", F.col("item_at") < F.col("reached_at"), behind, absence=False, subject="channel")),
        (counted, Flag("thin", F.col("n") == 0, F.lit("told no clock"), absence=False, level="unknown", subject="who")),
    ]


def sent(frames: ChannelFrames) -> DataFrame:
    """Messages that a publish created, each with the furthest place that had been answered to a publish when it was sent."""
    names = ("channel", "restored", "order_ns", "turn", "message", "item_clock", "item_at")
    answered = frames.published.where((F.col("type") == "ok") & F.col("item_at").isNotNull() & F.col("restored").isNotNull())
    sends = answered.where(F.col("item_result") == "created").withColumns({"order_ns": F.col("first_send_ns"), "turn": F.lit(0)})
    answers = answered.withColumns({"order_ns": F.col("done_ns"), "turn": F.lit(1)})
    both = sends.select(*names).unionByName(answers.select(*names))
    before = Window.partitionBy("channel", "restored").orderBy("order_ns", "turn").rowsBetween(Window.unboundedPreceding, -1)
    reached = F.max(F.when(F.col("turn") == 1, F.col("item_at"))).over(before)
    return both.withColumn("reached_at", reached).where(F.col("turn") == 0)


def clocks(frames: ChannelFrames) -> DataFrame:
    """Every (message, clock) pair of an answer. `gone`: a restore may have undone the publish; `excused`: the message may have
    been published again."""
    answered = frames.published.where((F.col("type") == "ok") & F.col("item_result").isin("created", "duplicate"))
    given = frames.delivered.where(F.col("message").isNotNull())
    parts = [frame.select("channel", "message", "item_clock") for frame in (answered, given)]
    given = parts[0].unionByName(parts[1]).where(F.col("item_clock").isNotNull()).distinct()
    anew = F.col("sent_again_ns") >= F.col("over_ns")
    known = frames.messages.select("channel", "message", "gone", reduce(or_, (F.col("gone"), anew)).alias("excused"))
    filled = {name: F.coalesce(F.col(name), F.lit(False)) for name in ("gone", "excused")}
    return given.join(known, ["channel", "message"], "left").withColumns(filled)


CHECK = Check("P4", "one clock, one message", lambda run: [], channels=channels)
