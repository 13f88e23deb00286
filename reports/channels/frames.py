"""The frames that the checks and the page of a channel run read: calls, and published and delivered messages.

Clocks are compared as **places**: the number of steps from the channel's first clock to a clock, negative for clocks before it.
The circle of clocks is so large that no run gets half around it, so places keep growing when clocks wrap. Times are monotonic
ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.channels.messages import first_deliveries, life_ns, may_be_undone, messages
from reports.channels.plan import CLOCK_MAX, CLOCKS, planned, restores
from reports.facts import MS, Run
from reports.meaning import widened

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OPERATIONS = ("publish", "subscribe", "unsubscribe", "fetch", "acknowledge")

CALL_COLUMNS = (
    *("proc", "f", "type", "op", "channel", "subscriber", "clock", "cursor", "era", "turned", "upto", "lost", "more", "most"),
    *("waited_ms", "ttl_s", "result", "sends", "intended_ns", "first_send_ns", "last_send_ns", "done_ns", "srv_us"),
)


@dataclass(frozen=True)
class ChannelFrames:
    """The input of the checks. `run` holds the small facts.

    - `calls`: one row per operation: its completion, or its invocation (type invoke) if it never had one. With the places `at`
      (of `clock`), `cursor_at` and `upto_at`; `answers`: number of completions; `generation`: how often its subscriber had been
      created by then; `restored`: number of restores before it, null for a call during one.
    - `published`: one row per message of a publish: the columns of its call, and message, item_clock, item_result, item_at,
      crc, position.
    - `delivered`: one row per message of an answered fetch, with the same columns.
    - `messages`: one row per message (see `reports.channels.messages`); `firsts`: its first delivery to each subscriber.
    - `misuses`: deliberately bad receipts that were used.
    - `handed`: one row per call of `fetch` that brought its caller something, as the caller saw it (the second witness): number
      (unique in its file), proc, channel, subscriber, begun_ns, done_ns, lost, items. Empty for histories before version 8.
    """

    run: Run
    calls: DataFrame
    published: DataFrame
    delivered: DataFrame
    messages: DataFrame
    firsts: DataFrame
    misuses: DataFrame
    handed: DataFrame


def build(rows: DataFrame, run: Run) -> ChannelFrames:
    """All frames of a run, cached for several passes."""
    rows = rows.withColumns(widened(run))
    whole = kept(whole_calls(rows, run))
    published = kept(per_message(whole.where(F.col("f") == "publish"), run))
    answered = (F.col("f") == "fetch") & (F.col("type") == "ok")
    delivered = kept(per_message(whole.where(answered), run))
    known = kept(messages(published, run))
    misused = rows.where("readable").where(F.col("kind") == "misuse")
    misuses = misused.select("proc", "channel", "subscriber", "name", "clock", "result", "first_send_ns", "done_ns")
    firsts = kept(first_deliveries(delivered))
    return ChannelFrames(run, whole.drop("items"), published, delivered, known, firsts, misuses, handed(rows))


def handed(rows: DataFrame) -> DataFrame:
    """What the second witness wrote."""
    written = rows.where("readable").where((F.col("kind") == "handed") & F.col("done_ns").isNotNull())
    place = F.col("seq").alias("number"), F.col("first_send_ns").alias("begun_ns")
    return written.select(*place, "proc", "channel", "subscriber", "done_ns", "lost", "items")


def whole_calls(rows: DataFrame, run: Run) -> DataFrame:
    """One row per operation, with its items."""
    usable = rows.where("readable").where((F.col("kind") == "operation") & F.col("f").isin(*OPERATIONS) & F.col("op").isNotNull())
    completed = F.coalesce(F.col("type") != "invoke", F.lit(True))
    row = F.struct(*(F.col(name) for name in CALL_COLUMNS), "items")
    grouped = usable.groupBy(F.col("proc").alias("by"), F.col("op").alias("of")).agg(
        F.max_by(row, completed).alias("row"), F.count_if(completed).alias("answers")
    )
    calls = grouped.select("row.*", "answers")
    places = {"at": place(run, "clock"), "cursor_at": place(run, "cursor"), "upto_at": place(run, "upto")}
    return calls.withColumns({**places, "restored": restored(run)}).withColumn("generation", generation())


def per_message(calls: DataFrame, run: Run) -> DataFrame:
    """One row per item of a call."""
    each = calls.select("*", F.posexplode("items").alias("position", "item")).drop("items")
    fields = ("message", "crc")
    named = each.withColumns(
        {name: F.col(f"item.{name}") for name in fields}
        | {"item_clock": F.col("item.clock"), "item_result": F.col("item.result"), "item_at": place(run, "item.clock")}
    )
    return named.drop("item")


def place(run: Run, clock: str) -> Column:
    """The place of a clock, from -M to M."""
    presets = [F.lit(part) for one in planned(run).values() for part in (one.name, F.lit(one.preset).cast("bigint"))]
    start = F.coalesce(F.try_element_at(F.create_map(*presets), F.col("channel")), F.lit(0)) if presets else F.lit(0)
    middle = F.lit(CLOCK_MAX).cast("bigint")
    return F.pmod(F.col(clock) - start.cast("bigint") + middle, F.lit(CLOCKS).cast("bigint")) - middle


def restored(run: Run) -> Column:
    """Number of restores before a call; null for a call that the server before or after a restore may have answered."""
    found = restores(run)
    if not found:
        return F.lit(0)
    during = reduce(or_, ((F.col("done_ns") >= one.inject_ns) & (F.col("first_send_ns") <= one.heal_ns) for one in found))
    count = reduce(add, (F.when(F.col("first_send_ns") > one.heal_ns, 1).otherwise(0) for one in found))
    return F.when(~F.coalesce(during, F.lit(False)), count)


def generation() -> Column:
    """How often the subscriber of a call had been created by the time of its answer."""
    earlier = Window.partitionBy("channel", "subscriber").orderBy("done_ns").rowsBetween(Window.unboundedPreceding, 0)
    made = (F.col("f") == "subscribe") & (F.col("type") == "ok") & (F.col("result") == "created")
    return F.count_if(F.coalesce(made, F.lit(False))).over(earlier)


# Subscriptions: when each one started and ended, and why it ended.


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
