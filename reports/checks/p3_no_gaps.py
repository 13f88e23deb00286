"""P3: each subscriber gets the messages in the order of their clocks and without gaps: the clock of every first delivery is the
successor of the previous one's, in the circle of clocks.

A gap is allowed if the messages in it had expired by then, or if the clock went back between the two deliveries (a new era, a
restored server, a recreated subscriber). A message whose publish was never answered expires counting from its first send; as
its clock is unknown, it may fill any gap. After a restore the channel goes on behind the highest clock that a caller has seen,
so clocks up to that one may be missing; messages that were not undone may not. The era of a channel that crosses the wrap must
not rise before a server was restored.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from reports.channels.frames import EARLY_NS
from reports.channels.messages import first_deliveries
from reports.channels.plan import planned, restores
from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """First deliveries that do not follow the previous one, and eras that rose without a restore."""
    followed = steps(frames)
    jumps = followed.where(F.col("step") > 1)
    words = sentence("got ", F.col("message"), " at clock ", F.col("item_clock"), " after ", F.col("item_before"))
    counted = followed.agg(F.count("step").alias("n")).withColumn("who", F.lit("every subscriber"))
    gap = sentence(
        "got ", F.col("message"), " at clock ", F.col("item_clock"), " right after ", F.col("item_before"), " and not ", skipped()
    )
    era = sentence("was said to have gone back ", F.col("era"), " times before any server did")
    return [
        (followed.withColumn("who", to()), Flag("back", F.col("step") < 1, words, absence=False, subject="who")),
        (unexplained(frames, jumps).withColumn("who", to()), Flag("gap", F.lit(True), gap, absence=True, subject="who")),
        (unfounded(frames), Flag("era", F.lit(True), era, absence=False, subject="channel")),
        (counted, Flag("thin", F.col("n") == 0, F.lit("got fewer than two messages"), False, level="unknown", subject="who")),
    ]


def steps(frames: ChannelFrames) -> DataFrame:
    """First deliveries in order, each with the step from the previous one; null where any step is allowed."""
    by_order = Window.partitionBy("channel", "subscriber").orderBy("done_ns", "position")
    same = [F.lag(name).over(by_order) == F.col(name) for name in ("era", "restored", "generation")]
    step = F.when(same[0] & same[1] & same[2], F.col("item_at") - F.lag("item_at").over(by_order))
    before = {"before_at": F.lag("item_at").over(by_order), "item_before": F.lag("item_clock").over(by_order)}
    # A message that a restore undid and that was published again is delivered again, at another clock.
    return first_deliveries(frames.delivered, "item_at").withColumns({"step": step, **before})


def unexplained(frames: ChannelFrames, jumps: DataFrame) -> DataFrame:
    """Gaps that expired messages do not explain: a message in it had not expired (`alive`), or more clocks are missing than
    messages had expired."""
    known = frames.messages.select(
        "channel", F.col("message").alias("other"), F.col("place_at").alias("other_at"), "over_ns", "gone"
    )
    names = ["channel", "subscriber", "message", "item_clock", "item_before", "item_at", "before_at", "step", "done_ns", "undone"]
    inside = (F.col("other_at") > F.col("before_at")) & (F.col("other_at") < F.col("item_at"))
    over = F.col("over_ns") <= F.col("done_ns") + EARLY_NS
    fills = F.col("other").isNotNull() & (inside | F.col("other_at").isNull()) & (over | F.col("gone"))
    alive = F.when(inside & ~over & ~F.col("gone"), F.col("other"))
    # Without an earlier restore nothing was undone; `least` would take a null for no bound.
    undone = F.when(F.col("seen_at").isNotNull(), F.least(F.col("item_at") - 1, F.col("seen_at")) - F.col("before_at"))
    passed = jumps.join(seen_before_restores(frames), ["channel", "restored"], "left")
    passed = passed.withColumn("undone", F.greatest(F.coalesce(undone, F.lit(0)), F.lit(0)))
    grouped = passed.select(*names).join(known, "channel", "left").groupBy(*names)
    summed = grouped.agg(F.count_if(fills).alias("filled"), F.min(alive).alias("alive"))
    return summed.where(F.col("alive").isNotNull() | (F.greatest("filled", "undone") < F.col("step") - 1))


def seen_before_restores(frames: ChannelFrames) -> DataFrame:
    """`seen_at`: the highest place that any answer showed before the server of this restore came back; per channel and number of
    restores, `restored`."""
    answered = frames.calls.where(F.col("type") == "ok")
    found = [
        answered.where(F.col("done_ns") <= one.heal_ns)
        .groupBy("channel")
        .agg(F.max("at").alias("seen_at"))
        .withColumn("restored", F.lit(number))
        for number, one in enumerate(sorted(restores(frames.run), key=lambda one: one.heal_ns), 1)
    ]
    empty = answered.where(F.lit(False)).select("channel", F.col("at").alias("seen_at"), F.lit(0).alias("restored"))
    return reduce(DataFrame.unionByName, found, empty)


def unfounded(frames: ChannelFrames) -> DataFrame:
    """Channels that cross the wrap and whose era rose before the first restore began. Without a restore their clock is never
    lost, because it expires later than any idle time of a run."""
    crossing = [one.name for one in planned(frames.run).values() if one.wraps]
    began_ns = min((one.inject_ns for one in restores(frames.run)), default=NEVER_NS)
    early = F.col("channel").isin(crossing) & (F.col("type") == "ok") & (F.col("done_ns") < began_ns) & (F.col("era") > 0)
    return frames.calls.where(early).groupBy("channel").agg(F.max("era").alias("era"))


def skipped() -> Column:
    """The missing message or clocks, as text."""
    clocks = sentence("the ", F.col("step") - 1, " between")
    return F.when(F.col("alive").isNotNull(), sentence("the living ", F.col("alive"))).otherwise(clocks)


CHECK = Check("P3", "deliveries follow the clock without gaps", lambda run: [], channels=channels)
