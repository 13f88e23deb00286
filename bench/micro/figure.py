"""Draws the numbers of one run as one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.micro.scale_calls import BOUND_MS, FLAT_BELOW, SMALL_MS
from bench.micro.targets import TARGETS, Numbers, verdict

# Colours of Okabe and Ito, distinguishable with any colour vision; no information is given by colour alone.
BLUE, ORANGE, GREEN, GREY, INK, SOFT = "#0072b2", "#c04e00", "#00805d", "#8c959f", "#1b1f24", "#57606a"
#: Colours and styles of lines that are told apart.
LINES = ((BLUE, "-"), (GREEN, "--"), (INK, ":"), ("#a0487f", "-."), ("#8a6d00", "-"))
SETTINGS: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#d8dee4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": SOFT,
}
_STATES = ("waiting", "active", "finished", "tombstone")


def draw(parts: Mapping[str, Any], numbers: Numbers, subtitle: str, path: Path) -> None:
    """Write the figure of what was measured; a panel without numbers is labelled `not measured`."""
    with rc_context(SETTINGS):
        drawn = Figure(figsize=(13.5, 14), dpi=110, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12))
        drawn.suptitle("Ironclaim next to its floor", x=0.012, ha="left", fontsize=16, fontweight="bold")
        grid = drawn.add_gridspec(4, 2, height_ratios=[0.04, 1, 0.9, 0.9])
        note = drawn.add_subplot(grid[0, :])
        note.axis("off")
        note.text(0, 1, "\n".join(wrap(subtitle, 190)), va="top", fontsize=9.5, color=SOFT)
        places: dict[str, tuple[Any, Callable[[Axes, Any], None]]] = {
            "drain": (grid[1, 0], _drain),
            "claim_cost": (grid[2, :], _claim_cost),
            "memory": (grid[3, 0], _memory),
            "pickup": (grid[3, 1], _pickup),
        }
        _targets(drawn.add_subplot(grid[1, 1]), numbers)
        for name, (place, plot) in places.items():
            panel = drawn.add_subplot(place)
            if parts.get(name):
                plot(panel, parts[name])
            else:
                panel.axis("off")
                panel.text(0.5, 0.5, f"{name.replace('_', ' ')}: not measured", ha="center", color=SOFT)
        drawn.savefig(path)


def _drain(panel: Axes, part: Mapping[str, Any]) -> None:
    rates = {name: median(values) / 1000 for name, values in part["jobs_per_s"].items()}
    names = list(rates)
    spread = [[abs(edge(part["jobs_per_s"][name]) / 1000 - rates[name]) for name in names] for edge in (min, max)]
    colours = [GREY if name.startswith("floor") else BLUE if name.startswith("inline") else GREEN for name in names]
    panel.barh(names, [rates[name] for name in names], color=colours, xerr=spread, error_kw={"ecolor": INK, "lw": 1})
    panel.invert_yaxis()
    for at, name in enumerate(names):
        edge = rates[name] + spread[1][at]
        words = panel.annotate(f"{rates[name]:.1f}", (edge, at), xytext=(4, 0), textcoords="offset points", fontsize=9)
        words.set(va="center", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    floor = rates[next(name for name in reversed(names) if name.startswith("floor"))]
    for share, style, label in ((1.0, "-", "the floor"), (0.7, "--", "target: 70 % of it")):
        panel.axvline(share * floor, color=ORANGE, ls=style, lw=1.5, label=label)
    panel.set_xlim(0, 1.15 * max(max(values) for values in part["jobs_per_s"].values()) / 1000)
    panel.set_title("Drain of one worker process, by path and batch")
    panel.set_xlabel("1,000 jobs per second; median, whiskers: least and most")
    panel.legend(loc="upper right", fontsize=9, facecolor="white", framealpha=0.9, frameon=True, edgecolor="none")
    panel.grid(axis="x")


def _claim_cost(panel: Axes, part: Mapping[str, Any]) -> None:
    at, ticks, labels = 0, [], []
    for (name, cells), colour in zip(part["redis_us_per_job"].items(), (BLUE, GREEN, GREY), strict=False):
        middles = [median(values) for values in cells.values()]
        spread = [[abs(edge(values) - median(values)) for values in cells.values()] for edge in (min, max)]
        places = list(range(at, at + len(cells)))
        bars = panel.bar(places, middles, 0.7, color=colour, yerr=spread, error_kw={"ecolor": INK, "lw": 1})
        panel.bar_label(bars, [f"{middle:.1f}" for middle in middles], label_type="center", color="white", fontsize=9)
        bound = 1.5 * min(middles)
        panel.hlines(bound, places[0] - 0.45, places[-1] + 0.45, color=ORANGE, ls="--", lw=1.5)
        words = f"{name}: max / min {part['ratios'][name]:.2f}"
        # At the top, where no whisker reaches.
        panel.text(places[0] - 0.45, 0.95, words, transform=panel.get_xaxis_transform(), fontsize=9.5)
        ticks += places
        labels += ["\n".join(wrap(title, 10)) for title in cells]
        at = places[-1] + 2
    panel.set_xticks(ticks, labels, fontsize=9.5)
    panel.set_ylim(0, 1.15 * panel.get_ylim()[1])
    panel.set_xlim(-0.7, at - 1.3)
    panel.set_title("Claim cost in batches of 10; dashed: target, half as much again as the cheapest of the group")
    panel.set_ylabel("µs of the server per claimed job")
    panel.grid(axis="y")


def _memory(panel: Axes, part: Mapping[str, Any]) -> None:
    servers = {name: states for name, states in part["bytes_per_job"].items() if states}
    bounds = {target.key.removeprefix("bytes_"): target.bound for target in TARGETS if target.key.startswith("bytes_")}
    for at, (server, states) in enumerate(servers.items()):
        left = [place + (at - 0.5) * 0.4 for place in range(len(_STATES))]
        bars = panel.bar(left, [states[state] for state in _STATES], 0.38, color=(BLUE, GREEN)[at % 2], label=server.capitalize())
        panel.bar_label(bars, fmt="%.0f", padding=2, fontsize=9)
        panel.hlines(bounds[server], left[0] - 0.22, left[0] + 0.22, color=ORANGE, lw=2.5, label="" if at else "target")
    panel.set_xticks(range(len(_STATES)), _STATES)
    panel.set_title("Memory of a job with a 200-byte payload, by state")
    panel.set_ylabel("bytes of used_memory per job")
    panel.set_ylim(0, 1.12 * panel.get_ylim()[1])
    panel.legend(loc="upper right")
    panel.grid(axis="y")


def _pickup(panel: Axes, part: Mapping[str, Any]) -> None:
    for role, colour, style in (("bare", GREY, "--"), ("worker", BLUE, "-")):
        samples = sorted(value for slice_ in part["samples_ms"][role] for value in slice_)
        shares = [(at + 1) / len(samples) for at in range(len(samples))]
        quantiles = part["pickup_ms"]
        words = ", ".join(f"{name} {quantiles[name][role]:.2f} ms" for name in quantiles)
        label = f"{'engine' if role == 'worker' else 'bare loop'}: {words}"
        panel.plot(samples, shares, color=colour, ls=style, lw=1.8, label=label)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:g}"[-1] in "25" else ""))
    panel.set_title("Pickup at 100 jobs per second, from enqueue to handler")
    panel.set_xlabel("ms")
    panel.set_ylabel("share of the jobs")
    panel.set_ylim(0, 1.02)
    panel.legend(loc="lower right", fontsize=9)
    panel.grid(axis="both")


def _targets(panel: Axes, numbers: Numbers) -> None:
    known = [(target, value) for target in TARGETS if (value := numbers.get(target.key)) is not None]
    for at, (target, value) in enumerate(known):
        met = verdict(target, numbers) == "met"
        reach = target.reach(value)
        panel.plot([1, reach], [at, at], color=GREY, lw=1)
        panel.plot([reach], [at], marker="o" if met else "X", ms=9, color=GREEN if met else ORANGE)
        panel.annotate(
            f"{target.shown(value)} {'met' if met else 'missed'}",
            # To the right of the bar, where it does not cover the name of a row.
            (max(1.0, reach), at),
            xytext=(9, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    panel.axvline(1, color=INK, lw=1.2)
    sides = ("≥", "≤")
    names = [f"{target.key} {sides[0] if target.at_least else sides[1]} {target.bound:g}" for target, _ in known]
    panel.set_yticks(range(len(known)), names)
    panel.invert_yaxis()
    panel.set_xlim(0, 0.4 + max([1.0, *(target.reach(value) for target, value in known)]))
    panel.set_title("The numbers against their targets")
    panel.set_xlabel("share of the target that is reached (right of 1: better)")
    panel.grid(axis="x")


# Draws what `python -m bench scale` found as one figure, and writes its page.


#: Calls of a panel that have a colour and a name: the slowest ones at the largest size.
_NAMED = 5
_COLUMNS = 2
Row = Mapping[str, Any]


def draw_scale(table: Sequence[Row], subtitle: str, path: Path) -> None:
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
