"""Subscriptions: from when to when each subscriber was known to its channel, and why it was not any more."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.channels.messages import life_ns, may_be_undone
from reports.channels.plan import restores
from reports.facts import MS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames

#: A key may end that much before its life is over as this machine counts it.
EARLY_NS = 5 * MS

NOT_FOUND = ("channel-not-found", "subscription-not-found")


def subscriptions(frames: ChannelFrames) -> DataFrame:
    """One row per time that a subscriber was there: start_ns, ended_ns, ended, rightly (it may have been gone by then).

    `ended`: left (it was deleted), gone (a call did not find it), created (it was made anew without either), or null: it was
    there to the end.
    """
    calls = frames.calls.where(F.col("subscriber").isNotNull())
    f, result = F.col("f"), F.col("result")
    ok = F.col("type") == "ok"
    mark = (
        F.when(ok & (f == "subscribe"), result)
        .when((f == "unsubscribe") & (F.col("type") != "fail"), F.lit("left"))
        .when((F.col("type") == "fail") & result.isin(*NOT_FOUND), F.lit("gone"))
    )
    at_ns = F.when(f == "unsubscribe", F.col("first_send_ns")).otherwise(F.col("done_ns"))
    renewed = ok & (f.isin("fetch", "subscribe") | ((f == "acknowledge") & (result == "OK")))
    by_time = Window.partitionBy("channel", "subscriber").orderBy("mark_ns")
    kept = renewed & ~may_be_undone(frames.run, answered=ok)
    until_ns, earlier = F.col("first_send_ns") + life_ns(frames.run), by_time.rowsBetween(Window.unboundedPreceding, -1)
    lives = {name: F.max(F.when(one, until_ns)).over(earlier) for name, one in (("over_ns", renewed), ("kept_ns", kept))}
    marked = calls.withColumns({"mark": mark, "mark_ns": at_ns}).withColumns(lives)
    marks = marked.where(F.col("mark").isin("created", "exists", "left", "gone")).withColumn(
        "before", F.lag("mark").over(by_time)
    )
    known = F.coalesce(F.col("before").isin("created", "exists"), F.lit(False))
    told = marks.where(~((F.col("mark") == "exists") & known))
    ended = {"ended": F.lead("mark").over(by_time), "ended_ns": F.lead("mark_ns").over(by_time)}
    lives = {name: F.lead(name).over(by_time) for name in ("over_ns", "kept_ns")}
    ends = told.withColumns({**ended, **lives})
    starts = ends.where(F.col("mark").isin("created", "exists")).withColumnRenamed("mark_ns", "start_ns")
    rightly = F.coalesce(F.col("over_ns") <= F.col("ended_ns") + EARLY_NS, F.lit(False)) | gone_with_restore(frames)
    return starts.select("channel", "subscriber", "start_ns", "ended_ns", "ended", rightly.alias("rightly"))


def gone_with_restore(frames: ChannelFrames) -> Column:
    """True where a restore explains that a subscription is gone: it was made after the snapshot, or its life, as far as it was
    renewed before that, is over. What is in the snapshot and alive must come back with it."""
    over = F.coalesce(F.col("kept_ns") <= F.col("ended_ns") + EARLY_NS, F.lit(True))
    spans = (
        (F.col("start_ns") <= one.heal_ns) & (F.col("ended_ns") >= one.inject_ns) & ((F.col("start_ns") >= one.saved_ns) | over)
        for one in restores(frames.run)
    )
    return F.coalesce(reduce(or_, spans, F.lit(False)), F.lit(False))
