"""P8: callers of `fetch` are handed what the server answered: every message of an answered fetch once, in order and with the same
content, nothing else, the same number of lost ones, and none that had been acknowledged before it was handed out.

The recorder writes what the server answered, the second witness what a subscriber's call returned. Excused is what a kill or the
end of a process cut off: messages of a last fetch whose call did not return. The check cannot see a defect that changes both
records alike, nor what a client does with its caller's copy after the call has returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.caching import kept
from reports.channels.witness import ACKNOWLEDGE, FETCH, MESSAGE, READER, SAID_SINCE, cut_off, paired, unwitnessed, within
from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to
from reports.facts import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reports.channels.frames import ChannelFrames


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Messages that only one of the two records has, or that they have differently."""
    if frames.run.version < SAID_SINCE:
        return []
    pairs = kept(paired(frames))
    seen = kept(compared(frames, pairs).withColumn("who", to()))
    message, both = F.col("message"), (F.col("fetched") > 0) & (F.col("handed") > 0)
    clocks = sentence("was handed ", message, " at clock ", F.col("handed_clock"), " and not ", F.col("fetched_clock"))
    moved = sentence("was handed ", message, " before ", F.col("overtaken"), ", and a fetch had brought it after that")
    found = {
        "kept back": (F.col("fetched") > F.col("handed"), sentence("was not handed ", message, ", which a fetch brought"), True),
        "not fetched": (F.col("fetched") == 0, sentence("was handed ", message, ", which no fetch of the call brought"), True),
        "handed twice": (
            both & (F.col("handed") > F.col("fetched")),
            sentence("was handed ", message, " ", F.col("handed"), " times by one call"),
            True,
        ),
        "other content": (both & F.col("other_content"), sentence("was handed ", message, " with other content"), False),
        "other clock": (both & (F.col("handed_clock") != F.col("fetched_clock")), clocks, False),
        "other order": (F.col("overtaken").isNotNull(), moved, False),
    }
    counted = frames.handed.agg(F.count_if(F.size("items") > 0).alias("n")).withColumn("who", F.lit("every subscriber"))
    thin = F.lit("was handed nothing")
    return [
        *((seen, Flag(kind, *flag, subject="who")) for kind, flag in found.items()),
        acknowledged_first(pairs),
        lost_otherwise(frames, pairs),
        (counted, Flag("thin", F.col("n") == 0, thin, absence=False, level="unknown", subject="who")),
    ]


def compared(frames: ChannelFrames, pairs: DataFrame) -> DataFrame:
    """One row per message and call: how often a fetch of the call brought it (`fetched`) and its caller got it (`handed`), with
    the clocks of both. `overtaken`: a message that came before it in the fetch and after it in the caller's hands."""
    given = pairs.where((F.col("turn") == MESSAGE) & ~cut_off(frames.run)).select(
        *READER,
        F.when(within(), F.col("call.number")).alias("number"),
        "message",
        F.struct("at_ns", "position", F.col("item_clock").alias("clock"), "crc").alias("fetch"),
    )
    each = frames.handed.select(*READER, "number", F.posexplode("items").alias("position", "item"))
    got = each.select(
        *READER,
        "number",
        F.col("item.message").alias("message"),
        F.struct("position", F.col("item.clock").alias("clock"), F.col("item.crc").alias("crc")).alias("hand"),
    )
    grouped = given.unionByName(got, allowMissingColumns=True).groupBy(*READER, "number", "message")
    seen = grouped.agg(
        F.count("fetch").alias("fetched"),
        F.count("hand").alias("handed"),
        F.min("fetch").alias("fetch"),
        F.min("hand").alias("hand"),
        (F.min("fetch.crc") != F.min("hand.crc")).alias("low"),
        (F.max("fetch.crc") != F.max("hand.crc")).alias("high"),
    )
    there = F.col("fetch").isNotNull() & F.col("hand").isNotNull()
    # In the order of the fetch: the one before it that the caller got last.
    before = Window.partitionBy(*READER, "number").orderBy("fetch").rowsBetween(Window.unboundedPreceding, -1)
    latest = F.max(F.when(there, F.struct(F.col("hand.position").alias("position"), "message"))).over(before)
    return seen.withColumns(
        {
            "overtaken": F.when(there & (latest["position"] > F.col("hand.position")), latest["message"]),
            "other_content": F.coalesce(F.col("low") | F.col("high"), F.lit(True)),
            "fetched_clock": F.col("fetch.clock"),
            "handed_clock": F.col("hand.clock"),
        }
    )


def acknowledged_first(pairs: DataFrame) -> tuple[DataFrame, Flag]:
    """Acknowledgements that were sent while the subscriber's call of `fetch` had not returned: whoever dies then never gets what
    it covers."""
    sent = pairs.where(F.col("turn") == ACKNOWLEDGE).withColumn("who", to())
    words = F.lit("had messages acknowledged by a call that had not handed them out yet")
    return sent, Flag("acknowledged first", within(), words, absence=False, subject="who")


def lost_otherwise(frames: ChannelFrames, pairs: DataFrame) -> tuple[DataFrame, Flag]:
    """Calls that told their caller another number of lost messages than their last fetch had."""
    fetches = pairs.where((F.col("turn") == FETCH) & within()).groupBy(*READER, F.col("call.number").alias("number"))
    found = fetches.agg(F.max_by("lost", "at_ns").alias("lost"))
    told = frames.handed.select(*READER, "number", F.col("lost").alias("told")).join(found, [*READER, "number"])
    words = sentence("was told of ", F.col("told"), " lost messages by a call whose fetch had found ", F.col("lost"))
    return told.withColumn("who", to()), Flag("other loss", F.col("told") != F.col("lost"), words, absence=False, subject="who")


def doubts(run: Run) -> list[str]:
    """The check needs a witness of every process that was given messages."""
    missing = unwitnessed(run) if run.version >= SAID_SINCE else []
    return [f"the manifest declares no sink of {name}: its fetches have no second witness" for name in missing]


def not_judged(run: Run) -> list[str]:
    """Everything, where subscribers had no witness."""
    if run.version >= SAID_SINCE:
        return []
    return [f"what callers of fetch were handed: a history of version {run.version} has no second witness of it"]


CHECK = Check("P8", "callers are handed what was fetched", doubts, channels=channels, not_judged=not_judged)
