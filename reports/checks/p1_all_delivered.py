"""P1: no message is lost. An answered publish is delivered to every subscriber that was subscribed before it was sent.

Excused are: messages that a fetch of that subscriber reported as lost after they had expired; messages published between a
snapshot and its restore; subscribers that were deleted or had expired. A subscriber that has not read that far is unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.caching import kept
from reports.channels.frames import EARLY_NS, subscriptions
from reports.channels.plan import planned
from reports.checks.base import Check, Flag, sentence
from reports.facts import Run
from reports.meaning import NEVER_NS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Messages that were not delivered, subscriptions that were lost, and subscribers of the spec that were never
    subscribed."""
    subscribed = kept(subscriptions(frames))
    required = wanted(frames, subscribed)
    return [
        *missing(frames, required),
        broken_off(subscribed),
        unheard_of(frames.run, subscribed),
        (
            required.agg(F.count("*").alias("n")).withColumn("who", F.lit("every subscriber")),
            Flag("thin", F.col("n") == 0, F.lit("had no message to wait for"), absence=False, level="unknown", subject="who"),
        ),
    ]


def wanted(frames: ChannelFrames, subscribed: DataFrame) -> DataFrame:
    """One row per message and subscriber that it must reach."""
    there = frames.messages.where(F.col("kept_ns").isNotNull())
    meant = (F.col("start_ns") <= F.col("sent_ns")) & (F.coalesce("ended_ns", F.lit(NEVER_NS)) > F.col("sent_ns"))
    stayed = subscribed.where(F.coalesce(F.col("ended") != "left", F.lit(True)))
    pairs = there.join(stayed, "channel").where(meant)
    return pairs.select("channel", "subscriber", "message", "sent_ns", "kept_ns", "over_ns", "place_at", "ended")


def missing(frames: ChannelFrames, required: DataFrame) -> list[tuple[DataFrame, Flag]]:
    """Required deliveries that no answered fetch brought: lost if a later fetch skipped the message, else not read yet."""
    names = ["channel", "subscriber", "message"]
    absent = required.where(F.col("ended").isNull()).join(frames.firsts.select(*names), names, "left_anti")
    fetches = frames.calls.where((F.col("f") == "fetch") & (F.col("type") == "ok") & (F.coalesce("most", F.lit(1)) > 0)).select(
        "channel",
        "subscriber",
        F.col("first_send_ns").alias("fetch_ns"),
        F.col("done_ns").alias("fetched_ns"),
        "cursor_at",
        "upto_at",
        "lost",
        (F.coalesce("more", F.lit(0)) == 0).alias("whole"),
    )
    looked = absent.join(fetches, ["channel", "subscriber"], "left")
    inside = (F.col("cursor_at") < F.col("place_at")) & (F.col("place_at") <= F.col("upto_at"))
    over = F.col("fetched_ns") + EARLY_NS >= F.col("over_ns")
    declared = inside & over & (F.col("lost") > 0)
    passed = (F.col("fetch_ns") > F.col("kept_ns")) & (F.col("whole") | (F.col("upto_at") >= F.col("place_at")))
    judged = looked.groupBy(*names).agg(
        F.coalesce(F.max(declared), F.lit(False)).alias("declared"), F.coalesce(F.max(passed), F.lit(False)).alias("passed")
    )
    open_ = judged.where(~F.col("declared") & ~excused(frames.run)).withColumn("who", to())
    words = sentence("never got ", F.col("message"), ", which was published while it was subscribed")
    unread = sentence("did not read so far as to get ", F.col("message"))
    return [
        (open_, Flag("lost", F.col("passed"), words, absence=True, subject="who")),
        (open_, Flag("unread", ~F.col("passed"), unread, absence=False, level="unknown", subject="who")),
    ]


def excused(run: Run) -> Column:
    """Rows of subscribers that need not read to the end, unless one of their fetches has skipped the message."""
    names = [f"{one.name}\n{subscriber}" for one in planned(run).values() for subscriber in one.absent]
    return F.concat_ws("\n", "channel", "subscriber").isin(names) & ~F.col("passed")


def to() -> Column:
    """The subject of a row, as `channel/subscriber`."""
    return F.concat_ws("/", "channel", "subscriber")


def broken_off(subscribed: DataFrame) -> tuple[DataFrame, Flag]:
    """Subscriptions that had disappeared without an unsubscribe and before they expired."""
    gone = F.col("ended").isin("gone", "created") & ~F.col("rightly")
    words = F.lit("was not subscribed any more, and nobody had ended that")
    return subscribed.withColumn("who", to()), Flag("subscription lost", gone, words, absence=True, subject="who")


def unheard_of(run: Run, subscribed: DataFrame) -> tuple[DataFrame, Flag]:
    """Subscribers of the spec that no answer shows as subscribed."""
    wanted = [f"{one.name}/{subscriber}" for one in planned(run).values() for subscriber in one.subscribers]
    seen = subscribed.agg(F.collect_set(to()).alias("seen"))
    names = F.array(*(F.lit(name) for name in wanted)).cast("array<string>")
    lacking = seen.select(F.explode(F.array_except(names, "seen")).alias("who"))
    words = F.lit("was never seen to be subscribed")
    return lacking, Flag("unheard of", F.lit(True), words, absence=False, level="unknown", subject="who")


def doubts(run: Run) -> list[str]:
    """The check needs a spec with channels: without them no delivery is required."""
    return [] if planned(run) else ["the spec names no channel"]


CHECK = Check("P1", "every message is delivered", doubts, channels=channels)
