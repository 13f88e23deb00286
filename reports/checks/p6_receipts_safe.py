"""P6: only receipts move cursors, and only forward. A receipt that was tampered with, truncated, of another subscriber, already
used or beyond the channel's end moves nothing. A new subscriber begins at the channel's clock. Only a restore moves a cursor
back. A cursor is never beyond both its start and the acknowledgements that were sent for it, answered or not. And only delivered
messages are acknowledged."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from reports.channels.plan import CLOCK_MAX, restores
from reports.checks.base import Check, Flag, sentence
from reports.checks.p1_all_delivered import to
from reports.checks.p5_ack_is_final import LIFE, ends

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reports.channels.frames import ChannelFrames

#: Kinds of bad receipt that a run must have tried.
TRIED = ("tampered", "truncated", "foreign", "old")

#: Allowed answers to a bad receipt.
REFUSED = ("malformed", "stale", "not-found")


def channels(frames: ChannelFrames) -> list[tuple[DataFrame, Flag]]:
    """Accepted bad receipts, cursors that moved back or moved without an acknowledgement, acknowledgements of undelivered
    clocks."""
    misused = frames.misuses.where(~during_restore(frames)).withColumn("who", to())
    accepted = sentence("was told OK for a receipt that was ", F.col("name"), ", of clock ", F.col("clock"))
    back = sentence("had its cursor at ", F.col("cursor"), " after it had been further")
    ahead = sentence("had its cursor at ", F.col("cursor"), ", and nobody had acknowledged that much")
    elsewhere = sentence("was created at ", F.col("cursor"), ", and its channel was at ", F.col("clock"))
    unseen = sentence("acknowledged clock ", F.col("clock"), ", of which no fetch gave it a receipt")
    untried = sentence("moved no cursor, but nobody has handed one in and was refused")
    return [
        (misused, Flag("accepted", F.col("result") == "OK", accepted, absence=False, subject="who")),
        (
            cursors(frames).withColumn("who", to()),
            Flag("back", F.col("cursor_at") < F.col("reached_at"), back, False, subject="who"),
        ),
        (
            moved(frames).withColumn("who", to()),
            Flag("ahead", F.col("cursor_at") > F.col("allowed_at"), ahead, absence=True, subject="who"),
        ),
        (
            created(frames).withColumn("who", to()),
            Flag("begins elsewhere", F.col("cursor") != F.col("clock"), elsewhere, absence=False, subject="who"),
        ),
        (strange(frames).withColumn("who", to()), Flag("no receipt", F.lit(True), unseen, absence=True, subject="who")),
        (missing(frames), Flag("thin", F.lit(True), untried, absence=False, level="unknown", subject="who")),
    ]


def during_restore(frames: ChannelFrames) -> Column:
    """True for an attempt during a restore, which can make a receipt valid again that had been used before."""
    spans = ((F.col("done_ns") >= one.saved_ns) & (F.col("first_send_ns") <= one.heal_ns) for one in restores(frames.run))
    return reduce(or_, spans, F.lit(False))


def missing(frames: ChannelFrames) -> DataFrame:
    """Kinds of bad receipt without an answered attempt."""
    decided = F.when(F.col("result").isin(*REFUSED, "OK"), F.col("name"))
    tried = frames.misuses.agg(F.collect_set(decided).alias("tried"))
    lacking = F.array_except(F.array(*(F.lit(name) for name in TRIED)), "tried")
    return tried.select(F.explode(lacking).alias("name")).withColumn("who", F.concat(F.col("name"), F.lit(" receipts")))


def cursors(frames: ChannelFrames) -> DataFrame:
    """Answers with a cursor, each with the furthest cursor that had been answered before its call was sent."""
    ok = (F.col("type") == "ok") & F.col("cursor").isNotNull() & F.col("restored").isNotNull()
    answered = frames.calls.where(ok)
    at_answer = {"order_ns": F.col("done_ns"), "turn": F.lit(1), "known_at": F.col("cursor_at")}
    at_send = {"order_ns": F.col("first_send_ns"), "turn": F.lit(0), "known_at": F.lit(None).cast("bigint")}
    columns = (*LIFE, "order_ns", "turn", "known_at", "cursor", "cursor_at")
    answers, sends = (answered.withColumns(at).select(*columns) for at in (at_answer, at_send))
    earlier = Window.partitionBy(*LIFE).orderBy("order_ns", "turn").rowsBetween(Window.unboundedPreceding, -1)
    both = answers.unionByName(sends).withColumn("reached_at", F.max("known_at").over(earlier))
    return both.where(F.col("turn") == 0)


def moved(frames: ChannelFrames) -> DataFrame:
    """Answers with a cursor, each with the furthest place that the cursor may have reached: the start of the subscriber as
    answered, and the acknowledgements sent by then. After an unanswered subscribe the start may be anywhere."""
    f, ok = F.col("f"), F.col("type") == "ok"
    begun = F.when(ok, F.col("cursor_at")).when(F.col("type") != "fail", F.lit(CLOCK_MAX))
    may_be_at = F.when(f == "subscribe", begun).when((f == "acknowledge") & (F.col("type") != "fail"), F.col("at"))
    calls = frames.calls.where(F.col("subscriber").isNotNull())
    sends = calls.where(may_be_at.isNotNull()).select(
        "channel", "subscriber", F.col("first_send_ns").alias("order_ns"), may_be_at.alias("may_be_at")
    )
    answers = calls.where(ok & F.col("cursor").isNotNull()).select(
        "channel", "subscriber", F.col("done_ns").alias("order_ns"), "cursor", "cursor_at"
    )
    so_far = Window.partitionBy("channel", "subscriber").orderBy("order_ns")
    both = sends.unionByName(answers, allowMissingColumns=True).withColumn("allowed_at", F.max("may_be_at").over(so_far))
    return both.where(F.col("cursor").isNotNull())


def created(frames: ChannelFrames) -> DataFrame:
    """Answers that a subscriber was created. A copy of a call learns where the cursor has come to since the first one."""
    made = (F.col("f") == "subscribe") & (F.col("type") == "ok") & (F.col("result") == "created")
    return frames.calls.where(made & (F.coalesce("sends", F.lit(1)) == 1))


def strange(frames: ChannelFrames) -> DataFrame:
    """Acknowledgements that moved a cursor to a clock for which the subscriber had no receipt."""
    names = ["channel", "subscriber", "clock"]
    acked = frames.calls.where((F.col("f") == "acknowledge") & (F.col("result") == "OK")).select(*names).distinct()
    given = frames.delivered.select("channel", "subscriber", F.col("item_clock").alias("clock"))
    return acked.join(ends(frames).unionByName(given).distinct(), names, "left_anti")


CHECK = Check("P6", "only receipts move cursors", lambda run: [], channels=channels)
