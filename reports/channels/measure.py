"""The measures of a channel run: messages published, delivered and lost, the wraps and eras of each channel, and exact
percentiles of the latency from the intended publish to the answer of the fetch that delivered the message, by fan-out and
phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from reports import measure
from reports.channels.deliveries import OTHERS, meant, timed
from reports.channels.plan import Planned, planned
from reports.channels.turns import Era, eras
from reports.facts import ALL, MS, RANKS, Run
from reports.measure import NEVER_MS, shown, stated
from reports.verdict import NO_MEASURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from reports.channels.frames import ChannelFrames

#: Roles of the processes that put load on the channels, and of the second witness inside them.
ROLES = ("publisher", "subscriber", "sink")

RANK_SHARES = [rank / 1_000 for rank in RANKS.values()]


def measures(frames: ChannelFrames) -> dict[str, Any]:
    """All `measures` of a channel run's verdict.json except `lost`, which a check counts."""
    run = frames.run
    sent, got = totals(frames), received(frames)
    lines = channels(frames)
    return {
        **NO_MEASURES,
        "published": sent["published"],
        "offered": sent["offered"],
        "deliveries": got["deliveries"],
        "redelivered": got["redelivered"],
        "subscribers": got["subscribers"],
        "lost_declared": sum(line["lost"] for line in lines),
        "wraps_crossed": sum(1 for line in lines if line["crossings"]),
        "wrap_channels": sum(1 for one in planned(run).values() if one.wraps),
        "era_changes": sum(line["era_changes"] for line in lines),
        "channels": lines,
        "dropped": run.dropped,
        "percentiles": percentiles(frames),
        "faults": measure.faults(run),
        "rates": {
            "offered_per_s": measure.per_s(sent["offered"] + run.dropped, sent["first_ns"], sent["last_ns"]),
            "published_per_s": measure.per_s(sent["published"], sent["first_ns"], sent["done_ns"]),
            "delivered_per_s": measure.per_s(got["deliveries"], got["first_ns"], got["last_ns"]),
        },
        "send_lag": dict(zip(("p50_ms", "p99_ms"), shown(sent["lag_ms"] or [NEVER_MS] * 2), strict=True)),
        "recorder_share": measure.recorder_share(run, ROLES),
        "hosts": measure.hosts(run),
    }


def totals(frames: ChannelFrames) -> Row:
    """Totals of the publishers. `offered`: messages that were due; `published`: those whose publish was answered."""
    offered = meant(frames).agg(
        F.count("*").alias("offered"), F.min("intended_ns").alias("first_ns"), F.max("intended_ns").alias("last_ns")
    )
    published = frames.messages.agg(
        F.count("confirmed_ns").alias("published"),
        F.percentile((F.col("sent_ns") - F.col("intended_ns")) / MS, list(measure.LAG_RANKS)).alias("lag_ms"),
        F.max("confirmed_ns").alias("done_ns"),
    )
    return offered.crossJoin(published).collect()[0]


def received(frames: ChannelFrames) -> Row:
    """Totals of the subscribers. A message counts once for each subscriber; `redelivered` counts each further delivery."""
    named = frames.calls.where(F.col("subscriber").isNotNull()).select("channel", "subscriber").distinct()
    subscribers = named.agg(F.count("*").alias("subscribers"))
    counted = frames.firsts.agg(
        F.count("*").alias("deliveries"),
        F.coalesce(F.sum(F.col("times") - 1), F.lit(0)).alias("redelivered"),
        F.min("done_ns").alias("first_ns"),
        F.max("done_ns").alias("last_ns"),
    )
    return counted.crossJoin(subscribers).collect()[0]


def channels(frames: ChannelFrames) -> list[dict[str, Any]]:
    """One line per channel of the spec or of the history, by fan-out and name."""
    plan, turned = by_fan_out(frames.run), eras(frames)
    sent = by_channel(frames.messages.groupBy("channel").agg(F.count("confirmed_ns").alias("published")))
    got = by_channel(frames.firsts.groupBy("channel").agg(F.count("*").alias("n"), F.sum("times").alias("times")))
    lost = by_channel(declared_lost(frames).groupBy("channel").agg(F.sum("lost").alias("lost")))
    names = [*plan, *sorted({*sent, *got, *turned} - {*plan})]
    return [line(name, plan.get(name), sent.get(name), got.get(name), lost.get(name), turned.get(name, [])) for name in names]


def declared_lost(frames: ChannelFrames) -> DataFrame:
    """Messages that fetches reported as lost, with the first `done_ns`. Without an acknowledgement the next fetch reports the
    same ones again, so per cursor only the largest count is used."""
    losing = (F.col("type") == "ok") & (F.col("f") == "fetch") & (F.col("lost") > 0)
    by_cursor = frames.calls.where(losing).groupBy("channel", "subscriber", "era", "cursor")
    return by_cursor.agg(F.max("lost").alias("lost"), F.min("done_ns").alias("done_ns"))


def by_channel(frame: DataFrame) -> dict[str, Row]:
    """The rows of a frame by channel; the frame has one row per channel."""
    return {row["channel"]: row for row in frame.collect()}


def line(
    name: str, one: Planned | None, sent: Row | None, got: Row | None, lost: Row | None, turned: Sequence[Era]
) -> dict[str, Any]:
    """The line of one channel. `lost`: messages that its fetches reported as lost, once for each subscriber."""
    return {
        "channel": name,
        "group": one.group if one else OTHERS,
        "fan_out": one.fan_out if one else None,
        "published": sent["published"] if sent else 0,
        "delivered": got["n"] if got else 0,
        "redelivered": got["times"] - got["n"] if got else 0,
        "lost": (lost["lost"] or 0) if lost else 0,
        "wraps": one is not None and one.wraps,
        "crossings": sum(1 for era in turned if era.crossed_ns is not None),
        "era_changes": max(0, len(turned) - 1),
    }


def percentiles(frames: ChannelFrames) -> list[dict[str, Any]]:
    """One line per phase and group, and one per group over all phases, in the order of the phases."""
    phases = frames.run.phases
    summed = (
        timed(frames)
        .withColumn("phase", measure.phase_of(F.col("intended_ns"), phases))
        .rollup("group", "phase")
        .agg(F.count("*").alias("n"), F.percentile("latency_ms", RANK_SHARES).alias("values_ms"))
        .where(F.col("group").isNotNull())
    )
    rows = {(row["phase"], row["group"]): row for row in summed.collect()}
    names = [*measure.phase_names(phases), None]
    groups = in_order(frames.run, {group for _, group in rows})
    return [
        {"phase": phase or ALL, "series": group, "n": row["n"], **stated(row["n"], row["values_ms"])}
        for phase in names
        for group in groups
        if (row := rows.get((phase, group)))
    ]


def by_fan_out(run: Run) -> dict[str, Planned]:
    """The channels of the spec, by fan-out and name."""
    return dict(sorted(planned(run).items(), key=lambda pair: (pair[1].fan_out, pair[0])))


def in_order(run: Run, groups: set[str]) -> list[str]:
    """Groups by fan-out; those that are not in the spec come last."""
    known = [one.group for one in by_fan_out(run).values()]
    return [*dict.fromkeys(group for group in known if group in groups), *sorted(groups - set(known))]
