"""Delivery latencies: from the intended instant of a publish to the message's first delivery to each subscriber."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from reports.channels.plan import planned
from reports.facts import MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames
    from reports.channels.plan import Planned

#: The group of channels that are not in the spec.
OTHERS = "others"


def meant(frames: ChannelFrames) -> DataFrame:
    """One row per message that was due for publishing, whatever the outcome, with its intended_ns."""
    return frames.published.groupBy("channel", "message").agg(F.min("intended_ns").alias("intended_ns"))


def first_deliveries(frames: ChannelFrames) -> DataFrame:
    """One row per message and subscriber that got it: first_ns, when the first fetch that delivered it was answered; `times`,
    the number of deliveries; latency_ms from its intended publish (null if the history has no publish of it)."""
    firsts = frames.firsts.select("channel", "subscriber", "message", F.col("done_ns").alias("first_ns"), "times")
    joined = firsts.join(frames.messages.select("channel", "message", "intended_ns"), on=["channel", "message"], how="left")
    return joined.withColumn("latency_ms", (F.col("first_ns") - F.col("intended_ns")) / MS)


def group_of(channels: Mapping[str, Planned], name: str = "channel") -> Column:
    """The group of a row's channel."""
    pairs = [F.lit(part) for one in channels.values() for part in (one.name, one.group)]
    known = F.try_element_at(F.create_map(*pairs), F.col(name)) if pairs else F.lit(None)
    return F.coalesce(known, F.lit(OTHERS))


def slow(channels: Mapping[str, Planned]) -> Column:
    """True for a row of a subscriber that the plan makes slow or absent."""
    pairs = [f"{one.name}\n{subscriber}" for one in channels.values() for subscriber in sorted(one.slow)]
    return F.concat_ws("\n", "channel", "subscriber").isin(pairs) if pairs else F.lit(False)


def timed(frames: ChannelFrames) -> DataFrame:
    """First deliveries to subscribers that are not slow by plan, each with its `group`. Latencies are measured on these."""
    channels = planned(frames.run)
    prompt = first_deliveries(frames).where(~slow(channels) & F.col("latency_ms").isNotNull())
    return prompt.withColumn("group", group_of(channels))
