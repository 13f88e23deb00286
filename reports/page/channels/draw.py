"""Figures of a channel run over time: clocks and the wrap, latency by fan-out, lag by group, rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.page import ink
from reports.page.channels.series import TROUBLES, ChannelSeries, Clock, Fall
from reports.page.draw_time import key, latency_panel, scale, stack, stacked
from reports.page.series import per_second
from reports.page.timeline import Axis, Window

#: At most this many clocks of one panel are labelled; the table has the names of all.
NAMED_MAX = 3

MANY_IN, FEW_IN = 2.6, 1.5

#: A second, and steps past the wrap.
Point = tuple[float, float]


def clocks(series: ChannelSeries, falls: Sequence[Fall], axis: Axis, windows: Sequence[Window]) -> Figure:
    """A panel per group with the clocks that are near the wrap, and one for those that are far from it."""
    panels = {group: [one for one in series.clocks if one.near and one.group == group] for group in series.groups}
    shown = [(group, found) for group, found in panels.items() if found]
    far = [one for one in series.clocks if not one.near]
    heights_in = [MANY_IN if len(found) > NAMED_MAX else FEW_IN for _, found in shown]
    drawn, axes = stack(axis, windows, [*heights_in, *([FEW_IN] if far else [])], legend=True)
    for panel, (group, found) in zip(axes, shown, strict=False):
        names = {one.channel for one in found}
        clock_panel(panel, found, [fall for fall in falls if fall.channel in names])
        panel.set_title(f"{ink.plain(group)}: {counted(len(found))}, messages before (-) and after (+) the wrap")
    if far:
        far_panel(axes[-1], far)
    keys(drawn, bool(falls))
    return drawn


def counted(channels: int) -> str:
    """The number of channels as text."""
    return "one channel" if channels == 1 else f"{channels} channels"


def clock_panel(panel: Axes, found: Sequence[Clock], falls: Sequence[Fall]) -> None:
    """Clocks that come near the wrap, blue before it and green after it."""
    thin = 1.1 if len(found) > NAMED_MAX else 1.8
    for one in found:
        for points in one.eras:
            before, after = halves(points, one.crossed_s)
            panel.plot(*line(before), color=ink.BLUE, lw=thin, zorder=3)
            panel.plot(*line(after), color=ink.GREEN, lw=thin, zorder=3)
        for old, new in zip(one.eras, one.eras[1:], strict=False):
            turn(panel, old[-1], new[0])
        if len(found) <= NAMED_MAX:
            name(panel, one, 0)
    for fall in falls:
        panel.plot([fall.at_s] * 2, [fall.high, fall.low], color=ink.VERMILLION, lw=1.4, zorder=5)
    crossings = [at_s for one in found for at_s in one.crossed_s]
    panel.axhline(0, color=ink.INK, lw=1.4, zorder=4)
    panel.plot(crossings, [0] * len(crossings), ls="none", marker="o", ms=6, color=ink.AMBER, mec=ink.INK, mew=0.9, zorder=6)
    panel.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.yaxis.set_major_formatter(FuncFormatter(signed))
    low, high = panel.get_ylim()
    panel.set_ylim(min(low, -high * 0.15), max(high, -low * 0.15))


def halves(points: Sequence[tuple[float, int]], crossed_s: Sequence[float]) -> tuple[list[Point], list[Point]]:
    """The points of an era up to the wrap, and those beyond it; both lines meet where the wrap was crossed."""
    before: list[Point] = [point for point in points if point[1] <= 0]
    after: list[Point] = [point for point in points if point[1] > 0]
    if before and after:
        meeting = (next((at_s for at_s in crossed_s if before[-1][0] <= at_s <= after[0][0]), after[0][0]), 0)
        before, after = [*before, meeting], [meeting, *after]
    return before, after


def line(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Points as separate lists of x and y, for matplotlib."""
    return [at_s for at_s, _ in points], [steps for _, steps in points]


def turn(panel: Axes, old: tuple[float, int], new: tuple[float, int]) -> None:
    """Draw the connection from the last clock of an era to the first of the next."""
    panel.plot([old[0], new[0]], [old[1], new[1]], color=ink.PURPLE, lw=0.9, ls=(0, (2, 1.5)), zorder=3)
    panel.plot(*new, ls="none", marker="v", ms=5, color=ink.PURPLE, mec=ink.PAPER, mew=0.4, zorder=5)


def name(panel: Axes, one: Clock, start: int) -> None:
    """Write the name of a channel at the end of its line."""
    at_s, _, steps = one.points[-1]
    look: Any = {"textcoords": "offset points", "fontsize": 8, "color": ink.SOFT, "ha": "right", "va": "bottom"}
    panel.annotate(ink.plain(one.channel), (at_s, steps - start), (0, 3), **look)


def far_panel(panel: Axes, far: Sequence[Clock]) -> None:
    """Clocks that never come near the wrap, relative to their first value."""
    panel.set_title(f"{counted(len(far)).capitalize()} far from the wrap: messages since the first answer")
    for one in far:
        start = min(steps for _, _, steps in one.points)
        for points in one.eras:
            panel.plot(*line([(at_s, steps - start) for at_s, steps in points]), color=ink.BLUE, lw=1.2)
        for old, new in zip(one.eras, one.eras[1:], strict=False):
            turn(panel, (old[-1][0], old[-1][1] - start), (new[0][0], new[0][1] - start))
        if len(far) <= NAMED_MAX:
            name(panel, one, start)
    panel.set_ylim(bottom=0)
    panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def signed(value: float, _: object = None) -> str:
    """A tick label, such as -100, wrap or +100."""
    return "wrap" if value == 0 else f"{value:+,.0f}"


def keys(drawn: Figure, fell: bool) -> None:
    """The legend of lines and marks, in one line."""
    entries = [
        (Line2D([], [], color=ink.BLUE, lw=1.8), "clock before the wrap"),
        (Line2D([], [], color=ink.GREEN, lw=1.8), "clock after the wrap"),
        (Line2D([], [], color=ink.AMBER, mec=ink.INK, marker="o", ms=6, ls="none"), "crossing"),
        (Line2D([], [], color=ink.PURPLE, marker="v", ms=5, lw=0.9, ls=(0, (2, 1.5))), "new era: the clock went back"),
    ]
    if fell:
        entries.append((Line2D([], [], color=ink.VERMILLION, lw=1.4), "fall on the server"))
    handles, labels = zip(*entries, strict=True)
    place: Any = {"loc": "upper left", "bbox_to_anchor": (0.045, 1.0), "handlelength": 1.6, "columnspacing": 1.6}
    drawn.legend(handles, labels, ncols=len(entries), **place)


def latency(series: ChannelSeries, axis: Axis, windows: Sequence[Window]) -> Figure:
    """p50, p99 and the maximum per bucket for each fan-out, on one logarithmic scale."""
    shown = [group for group in series.groups if group in series.latencies]
    drawn, panels = stack(axis, windows, [1.35] * len(shown), legend=True)
    spreads = [spread for group in shown for spread in series.latencies[group].values()]
    low = min((spread.p50_ms for spread in spreads if spread.p50_ms), default=1.0)
    high = max((spread.max_ms for spread in spreads if spread.max_ms), default=1_000.0)
    for panel, group in zip(panels, shown, strict=True):
        panel.set_title(f"{ink.plain(group)}: from the intended publish to the receipt")
        latency_panel(panel, series.latencies[group], axis, endless=False, dots=".")
        scale(panel, low, high)
    ink.legend(drawn, *panels)
    return drawn


def lag(series: ChannelSeries, axis: Axis, windows: Sequence[Window]) -> Figure:
    """The lag of the subscribers of each group, in messages."""
    shown = [group for group in (*series.groups, *series.lags) if group in series.lags]
    shown = list(dict.fromkeys(shown))
    drawn, panels = stack(axis, windows, [1.15] * len(shown), legend=True)
    ends_s = [min(start + axis.width_s, axis.end_s) for start in axis.starts_s]
    for panel, group in zip(panels, shown, strict=True):
        found = sorted(series.lags[group].items())
        at_s = [ends_s[number] for number, _ in found]
        subscribers = max(one.subscribers for _, one in found)
        whose = "one subscriber" if subscribers == 1 else f"{subscribers} subscribers"
        panel.set_title(f"{ink.plain(group)}, {whose}: messages not acknowledged")
        panel.fill_between(at_s, [one.most for _, one in found], color=ink.VERMILLION, alpha=0.12, lw=0)
        panel.plot(at_s, [one.most for _, one in found], color=ink.VERMILLION, lw=1.3, label="the one furthest behind")
        panel.plot(at_s, [one.half for _, one in found], color=ink.BLUE, lw=1.8, label="half of them at most")
        panel.set_ylim(0, max(4.0, 1.12 * max(one.most for _, one in found)))
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    ink.legend(drawn, *panels)
    return drawn


def rates(series: ChannelSeries, axis: Axis, windows: Sequence[Window]) -> Figure:
    """Messages published, deliveries, and troubled calls, per second."""
    drawn, (published, delivered, trouble) = stack(axis, windows, [1.3, 1.5, 1.1])
    edges_s = [*axis.starts_s, axis.buckets * axis.width_s]

    def rate(name: str) -> list[float]:
        return per_second(series.count(name, axis.buckets), axis)

    published.set_title("Messages published per second")
    for name, colour, style in (("offered", ink.BLUE, "-"), ("published", ink.GREEN, (0, (4, 1.2)))):
        published.stairs(rate(name), edges_s, color=colour, ls=style, lw=1.5, label=name)
    delivered.set_title("Deliveries per second, one for each subscriber")
    stacked(delivered, {"first": rate("delivered"), "again": rate("redelivered"), "told as lost": rate("lost")}, edges_s)
    trouble.set_title("Answers that show trouble, per second")
    stacked(trouble, {name: rate(name) for name in TROUBLES}, edges_s)
    for panel in (published, delivered, trouble):
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        key(panel)
    return drawn
