"""The tables of a channel run: its channels, and the numbers under each of its figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.channels.plan import clock_at
from reports.page.channels.series import RATES, TROUBLES, ChannelSeries
from reports.page.html import table
from reports.page.timeline import Axis


def channels(lines: Sequence[Mapping[str, Any]]) -> str:
    """A line per channel."""
    names = ("channel", "fan_out", "published", "delivered", "redelivered", "lost")
    rows = [
        (*(line[name] for name in names), line["crossings"] if line["wraps"] or line["crossings"] else None, line["era_changes"])
        for line in lines
    ]
    heads = ("channel", "fan-out", "published", "delivered", "again", "told as lost", "crossings", "era changes")
    return table("Channels: messages, crossings of the wrap, changes of the era", heads, rows)


def clocks(series: ChannelSeries) -> str:
    """A line per channel and era. A clock is a position, not a quantity, so it has no thousands separators."""
    rows = [
        (
            one.channel, one.group, number, points[0][0], str(clock_at(points[0][1])), points[-1][0],
            str(clock_at(points[-1][1])), next((at_s for at_s in one.crossed_s if points[0][0] <= at_s <= points[-1][0]), None),
        )
        for one in series.clocks
        for number, points in enumerate(one.eras)
    ]  # fmt: skip
    heads = ("channel", "group", "era", "first seen at s", "clock", "last seen at s", "clock", "crossed at s")
    return table("Clocks of the channels, one line for each era", heads, rows, words=(1,))


def latency(series: ChannelSeries, axis: Axis) -> str:
    """A line per bucket that has deliveries."""
    shown = [group for group in series.groups if group in series.latencies]
    heads = ["second"]
    for group in shown:
        heads += [f"{group} deliveries", "p50", "p99", "longest"]
    rows: list[list[object]] = []
    for bucket, start_s in enumerate(axis.starts_s):
        spreads = [series.latencies[group].get(bucket) for group in shown]
        cells: list[object] = [start_s]
        for spread in spreads:
            cells += [None] * 4 if spread is None else [spread.n, spread.p50_ms, spread.p99_ms, spread.max_ms]
        if any(spreads):
            rows.append(cells)
    return table(f"Latency in ms, {axis.width_s} s to a line", heads, rows)


def lag(series: ChannelSeries, axis: Axis) -> str:
    """A line per bucket."""
    heads = ["at s"]
    for group in series.lags:
        heads += [f"{group}, half", "furthest"]
    rows: list[list[object]] = []
    for bucket, start_s in enumerate(axis.starts_s):
        cells: list[object] = [start_s + axis.width_s]
        for lags in series.lags.values():
            one = lags.get(bucket)
            cells += [None] * 2 if one is None else [one.half, one.most]
        rows.append(cells)
    return table(f"Messages not acknowledged, {axis.width_s} s to a line", heads, rows)


def rates(series: ChannelSeries, axis: Axis) -> str:
    """A line per bucket."""
    counts = [series.count(name, axis.buckets) for name in (*RATES, *TROUBLES)]
    rows = [[start_s, *(values[bucket] for values in counts)] for bucket, start_s in enumerate(axis.starts_s)]
    heads = ("second", "offered", "published", "delivered", "again", "told as lost", *TROUBLES)
    return table(f"Messages, deliveries and calls, {axis.width_s} s to a line", heads, rows)
