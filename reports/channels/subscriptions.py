"""Subscriptions: when each one started and ended, and why it ended."""

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

#: A key may expire on the server this much before it does by this machine's clock.
EARLY_NS = 5 * MS

NOT_FOUND = ("channel-not-found", "subscription-not-found")


def subscriptions(frames: ChannelFrames) -> DataFrame:
    """One row per subscription period: start_ns, ended_ns, ended, rightly (true when its end is explained).

    `ended`: left (it was deleted), gone (a call did not find it), created (it was created again without either), or null (it
    lasted to the end).
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
    changes = marks.where(~((F.col("mark") == "exists") & known))
    ended = {"ended": F.lead("mark").over(by_time), "ended_ns": F.lead("mark_ns").over(by_time)}
    lives = {name: F.lead(name).over(by_time) for name in ("over_ns", "kept_ns")}
    ends = changes.withColumns({**ended, **lives})
    starts = ends.where(F.col("mark").isin("created", "exists")).withColumnRenamed("mark_ns", "start_ns")
    rightly = F.coalesce(F.col("over_ns") <= F.col("ended_ns") + EARLY_NS, F.lit(False)) | gone_with_restore(frames)
    return starts.select("channel", "subscriber", "start_ns", "ended_ns", "ended", rightly.alias("rightly"))


def gone_with_restore(frames: ChannelFrames) -> Column:
    """True when a restore explains that a subscription is gone: it was created after the snapshot, or its lifetime as last
    renewed before the snapshot has expired. A subscription that is in the snapshot and not expired must come back with it."""
    over = F.coalesce(F.col("kept_ns") <= F.col("ended_ns") + EARLY_NS, F.lit(True))
    spans = (
        (F.col("start_ns") <= one.heal_ns) & (F.col("ended_ns") >= one.inject_ns) & ((F.col("start_ns") >= one.saved_ns) | over)
        for one in restores(frames.run)
    )
    return F.coalesce(reduce(or_, spans, F.lit(False)), F.lit(False))
