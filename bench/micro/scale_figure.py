"""Draws what `python -m bench scale` found as one figure, and writes its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.micro.figure import GREY, INK, LINES, ORANGE, SETTINGS, SOFT
from bench.micro.scale_bounds import BOUND_MS, FLAT_BELOW, SMALL_MS

#: Calls of a panel that have a colour and a name: the slowest ones at the largest size.
_NAMED = 5
_COLUMNS = 2
Row = Mapping[str, Any]


def draw(table: Sequence[Row], subtitle: str, path: Path) -> None:
    """Write the figure: one panel for each dimension, one line for each call."""
    dimensions = list(dict.fromkeys(row["dimension"] for row in table))
    lines = -(-len(dimensions) // _COLUMNS)
    with rc_context(SETTINGS):
        drawn = Figure(figsize=(13.5, 1 + 4.2 * lines), dpi=90, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12))
        drawn.suptitle("Time of each script while a queue grows", x=0.012, ha="left", fontsize=16, fontweight="bold")
        grid = drawn.add_gridspec(lines + 1, _COLUMNS, height_ratios=[0.06, *[1] * lines])
        note = drawn.add_subplot(grid[0, :])
        note.axis("off")
        note.text(0, 1, "\n".join(wrap(subtitle, 190)), va="top", fontsize=9.5, color=SOFT)
        for at, dimension in enumerate(dimensions):
            panel = drawn.add_subplot(grid[1 + at // _COLUMNS, at % _COLUMNS])
            _panel(panel, dimension, [row for row in table if row["dimension"] == dimension])
        drawn.savefig(path)


def _panel(panel: Axes, dimension: str, table: Sequence[Row]) -> None:
    slowest = sorted(table, key=lambda row: -_last(row))
    styles = dict(zip([row["call"] for row in slowest[:_NAMED]], LINES, strict=False))
    for row in reversed(slowest):
        sizes = sorted(row["medians"])
        values = [row["medians"][size] for size in sizes]
        colour, style = styles.get(row["call"], (GREY, "-"))
        named = row["call"] in styles
        label = f"{row['call']}: {_last(row):.2g} ms" if named else None
        panel.plot(
            sizes, values, color=colour, ls=style, lw=1.8 if named else 0.8, marker="o", ms=3.5 if named else 2, label=label
        )
    panel.axhline(BOUND_MS, color=ORANGE, ls="--", lw=1.5)
    panel.text(1.0, BOUND_MS * 1.1, f"{BOUND_MS:g} ms", color=INK, fontsize=9, ha="right", transform=panel.get_yaxis_transform())
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(0.003, 300)
    panel.xaxis.set_major_locator(LogLocator(10))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_title(dimension)
    panel.set_xlabel(f"{dimension}; the thin lines are the other {len(table) - len(styles)} calls")
    panel.set_ylabel("ms of the server, median")
    handles, labels = panel.get_legend_handles_labels()
    panel.legend(handles[::-1], labels[::-1], loc="upper left", fontsize=8.5, ncols=2)
    panel.grid(axis="y")


def _last(row: Row) -> float:
    return row["medians"][max(row["medians"])]


def markdown(table: Sequence[Row], card: str) -> str:
    """The page: what was measured, the figure, and a table for each dimension."""
    page = [
        "# Scale",
        "",
        "A script runs alone on the server, so one that takes long holds up everybody. `python -m bench scale --docs` wrote this",
        "page. It fills a queue with one thing after the other, each in decades, and measures at each size how long the server",
        f"takes for each call of the engine. Of 100 calls 95 must take at most {BOUND_MS:g} ms at any size, but for an enqueue",
        "of a caller's own bulk of 1,000. The slowest call is told, too: another program may have had the core meanwhile. And",
        f"over the last step no median above {SMALL_MS:g} ms may grow faster than the size to the power of {FLAT_BELOW:g}, where",
        "0 is flat and 1 is linear. What a call moves is bounded, so much work takes many calls.",
        "",
        f"{card}.",
        "",
        "![Time of each script while a queue grows](scale.png)",
        "",
    ]
    for dimension in dict.fromkeys(row["dimension"] for row in table):
        mine = sorted((row for row in table if row["dimension"] == dimension), key=lambda row: -row["p95_ms"])
        sizes = sorted(mine[0]["medians"])
        page += [
            f"## {dimension.capitalize()}",
            "",
            f"| call | ms at {sizes[0]:,} | ms at {sizes[-1]:,} | largest p95 | slowest call | growth | |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in mine:
            numbers = [row["medians"][sizes[0]], row["medians"][sizes[-1]], row["p95_ms"], row["most_ms"], row["growth"]]
            words = [row["call"], *(f"{number:.2f}" for number in numbers), "met" if row["met"] else "**missed**"]
            page.append(f"| {' | '.join(words)} |")
        page.append("")
    return "\n".join(page)
