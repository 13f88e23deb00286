"""Figures over time: latencies; rates, backlog and troubled calls; CPU and memory. Their panels share one axis of seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from reports.page import ink, timeline
from reports.page.samples import ROLES, STATES, Samples
from reports.page.series import TROUBLES, Series, Spread, per_second
from reports.page.timeline import Axis, Window
from reports.page.words import LATENCY_TITLES

LEFT_IN, RIGHT_IN, BOTTOM_IN = 0.75, 0.15, 0.45
AXES_IN = ink.WIDTH_IN - LEFT_IN - RIGHT_IN
LEGEND_IN = 0.3
TITLE_IN = 0.26

TROUBLE_COLOURS = (ink.BLUE, ink.SKY, ink.AMBER, ink.VERMILLION)
TROUBLE_HATCHES = ("", "", "", "xxxx")
ROLE_COLOURS = (ink.VERMILLION, ink.BLUE, ink.GREEN, ink.BLUE, ink.GREEN, ink.GREY, ink.OTHER)


def stack(
    axis: Axis, windows: Sequence[Window], heights_in: Sequence[float], *, legend: bool = False
) -> tuple[Figure, list[Axes]]:
    """A figure of panels over the run's seconds, faults shaded and named; `legend`: reserve room for a legend at the top."""
    names = timeline.placed(windows, AXES_IN, axis.end_s)
    above_in = LEGEND_IN * legend + timeline.height_in(names) + TITLE_IN + 0.05
    gap_in = TITLE_IN + 0.12
    total_in = above_in + sum(heights_in) + gap_in * (len(heights_in) - 1) + BOTTOM_IN
    drawn = ink.figure(total_in)
    panels: list[Axes] = []
    top_in = above_in
    for number, height_in in enumerate(heights_in):
        place = (LEFT_IN / ink.WIDTH_IN, 1 - (top_in + height_in) / total_in, AXES_IN / ink.WIDTH_IN, height_in / total_in)
        panel = drawn.add_axes(place)
        panel.set_xlim(0, axis.end_s)
        panel.tick_params(labelbottom=number == len(heights_in) - 1)
        panels.append(panel)
        top_in += height_in + gap_in
    panels[-1].set_xlabel("seconds since the load began")
    timeline.shade(panels, windows)
    timeline.write(panels[0], [(window, middle_s, row + 1) for window, middle_s, row in names])
    return drawn, panels


def latency(series: Series, axis: Axis, windows: Sequence[Window]) -> Figure:
    """p50, p99 and the maximum per bucket of each latency, on one logarithmic scale."""
    shown = [name for name in LATENCY_TITLES if name in series.latencies]
    drawn, panels = stack(axis, windows, [1.35] * len(shown), legend=True)
    ends = [spread.max_ms for name in shown for spread in series.latencies[name].values() if spread.max_ms]
    starts = [spread.p50_ms for name in shown for spread in series.latencies[name].values() if spread.p50_ms]
    low, high = min(starts, default=1.0), max(ends, default=1_000.0)
    for panel, name in zip(panels, shown, strict=True):
        panel.set_title(LATENCY_TITLES[name])
        latency_panel(panel, series.latencies[name], axis)
        scale(panel, low, high)
    ink.legend(drawn, *panels)
    return drawn


def latency_panel(panel: Axes, spreads: Mapping[int, Spread], axis: Axis, *, endless: bool = True, dots: str = "") -> None:
    """One latency. Buckets with infinite values are marked at the upper edge if `endless`. `dots`: a marker for each p50, for a
    series with gaps, in which a line alone would not be visible."""
    middles_s = [start + axis.width_s / 2 for start in axis.starts_s]

    def line(name: str) -> list[float]:
        values = (getattr(spreads.get(bucket), name, None) for bucket in range(axis.buckets))
        return [math.nan if value is None or value <= 0 else value for value in values]

    panel.plot(middles_s, line("max_ms"), ls="none", marker="_", ms=5, mew=1.2, color=ink.GREY, label="longest")
    panel.plot(middles_s, line("p99_ms"), color=ink.VERMILLION, lw=1.3, marker=".", ms=3.5, label="99 in 100 (p99)")
    panel.plot(middles_s, line("p50_ms"), color=ink.BLUE, lw=1.8, marker=dots, ms=4.5, label="half (p50)")
    if not endless:
        return
    never = [middles_s[bucket] for bucket, spread in spreads.items() if spread.unfinished]
    across = panel.get_xaxis_transform()
    panel.plot(
        never, [0.93] * len(never), ls="none", marker="v", ms=5, color=ink.PURPLE, transform=across, label="some without end"
    )


def scale(panel: Axes, low: float, high: float) -> None:
    """A logarithmic scale labelled with durations instead of powers of ten."""
    panel.set_yscale("log")
    panel.set_ylim(10 ** math.floor(math.log10(low)), 10 ** (math.ceil(math.log10(high)) + 0.7))
    panel.yaxis.set_major_locator(LogLocator(10, numticks=6))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))


def duration(value_ms: float) -> str:
    """1 µs, 10 ms, 1 s."""
    for limit, divisor, unit in ((1, 1e-3, "µs"), (1_000, 1, "ms"), (math.inf, 1_000, "s")):
        if value_ms < limit * 0.9999:
            return f"{value_ms / divisor:g} {unit}"
    return ""


def load(series: Series, samples: Samples, axis: Axis, windows: Sequence[Window]) -> Figure:
    """Offered and finished jobs per second, the sampled backlog, and troubled calls."""
    drawn, (rates, backlog, trouble) = stack(axis, windows, [1.5, 1.5, 1.1])
    edges_s = [*axis.starts_s, axis.buckets * axis.width_s]
    rates.set_title("Jobs per second")
    for name, colour, style in (("offered", ink.BLUE, "-"), ("finished", ink.GREEN, (0, (4, 1.2)))):
        rates.stairs(per_second(series.count(name, axis.buckets), axis), edges_s, color=colour, ls=style, lw=1.5, label=name)
    rates.set_ylim(bottom=0)
    backlog.set_title("Backlog, sampled once a second")
    for state, colour, style in zip(STATES, (ink.VERMILLION, ink.GREY, ink.BLUE), ("-", (0, (1, 1)), (0, (4, 1.2))), strict=True):
        points = sorted(samples.backlog[state].items())
        at_s = [bucket * axis.width_s for bucket, _ in points]
        backlog.plot(at_s, [count for _, count in points], color=colour, ls=style, label=state)
    backlog.set_ylim(bottom=0)
    trouble_panel(trouble, series, axis, edges_s)
    for panel in (rates, backlog, trouble):
        panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        key(panel)
    return drawn


def trouble_panel(panel: Axes, series: Series, axis: Axis, edges_s: Sequence[float]) -> None:
    """Answers that show trouble, per second."""
    panel.set_title("Answers that show trouble, per second")
    stacked(panel, {name: per_second(series.count(name, axis.buckets), axis) for name in TROUBLES}, edges_s)


def stacked(panel: Axes, parts: Mapping[str, Sequence[float]], edges_s: Sequence[float]) -> None:
    """Up to four series, stacked."""
    floor = [0.0] * (len(edges_s) - 1)
    for (name, heights), colour, hatch in zip(parts.items(), TROUBLE_COLOURS, TROUBLE_HATCHES, strict=False):
        top = [below + height for below, height in zip(floor, heights, strict=True)]
        look: Any = {"fill": True, "facecolor": colour, "edgecolor": ink.PAPER, "hatch": hatch, "lw": 0.0}
        panel.stairs(top, edges_s, baseline=floor, label=name, **look)
        floor = top
    panel.set_ylim(0, max(1.0, max(floor) * 1.1))


def machine(samples: Samples, axis: Axis, windows: Sequence[Window], cores: int | None) -> Figure:
    """CPU cores used by each role, stacked, and the memory of the server's data."""
    drawn, (cpu, memory) = stack(axis, windows, [1.5, 1.0])
    cpu.set_title("Cores in use" if cores is None else f"Cores in use, of {cores}")
    at_s = axis.starts_s
    floor = [0.0] * axis.buckets
    for role, colour in zip(ROLES, ROLE_COLOURS, strict=True):
        used = samples.cores[role]
        if used:
            top = [below + used.get(bucket, 0.0) for bucket, below in enumerate(floor)]
            cpu.fill_between(at_s, floor, top, color=colour, alpha=0.75, lw=0, step="mid", label=ROLE_NAMES[role])
            floor = top
    if cores is not None:
        cpu.axhline(cores, color=ink.INK, lw=1, ls=(0, (4, 2)), label="all cores")
    cpu.set_ylim(0, max(cores or 0, *floor, 0.1) * 1.15)
    memory.set_title("Memory of the server's data, MiB")
    points = sorted(samples.memory_mib.items())
    memory.plot(
        [bucket * axis.width_s for bucket, _ in points], [mib for _, mib in points], color=ink.PURPLE, label="used_memory"
    )
    memory.set_ylim(bottom=0)
    memory.yaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    key(cpu)
    return drawn


ROLE_NAMES = {
    "server": "server",
    "worker": "workers",
    "producer": "producers",
    "subscriber": "subscribers",
    "publisher": "publishers",
    "harness": "harness",
    "other": "others",
}


def key(panel: Axes) -> None:
    """The legend of one panel, on the line of its title."""
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=6, borderaxespad=0.0, handlelength=1.6, columnspacing=1.4)
