"""Percentiles by phase, and recovery times: figures with one row per phase or kill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from pyspark.sql import functions as F

from reports.page import ink
from reports.page.draw_time import duration
from reports.page.words import LATENCY_NAMES

if TYPE_CHECKING:
    from reports.frames import Frames

ROW_IN = 0.24

#: Approximate width of a character of a row's name, and the maximum width of the names, in inches.
CHARACTER_IN, NAMES_MAX_IN = 0.072, 3.0
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 1.45, 0.2, 0.62, 0.35

#: Percentile -> its marker, colour and size, and its legend text.
MARKS = (
    ("p50_ms", "o", ink.BLUE, 5.0, "half (p50)"),
    ("p90_ms", "s", ink.GREEN, 4.0, "p90"),
    ("p99_ms", "D", ink.VERMILLION, 4.5, "p99"),
    ("p99_9_ms", "^", ink.PURPLE, 5.0, "p99.9"),
    ("max_ms", "|", ink.SOFT, 8.0, "longest"),
)


def phases(lines: Sequence[Mapping[str, Any]], titles: Mapping[str, str] = LATENCY_NAMES) -> Figure:
    """A panel per latency and a row per phase, with a mark for each known percentile. `titles`: by series."""
    names = list(dict.fromkeys(str(line["phase"]) for line in lines))
    series = [name for name in titles if any(line["series"] == name for line in lines)]
    drawn = ink.figure(TOP_IN + BOTTOM_IN + ROW_IN * max(3, len(names)))
    ink.margins(drawn, left=room_in(names), right=RIGHT_IN, top=TOP_IN, bottom=BOTTOM_IN, wspace=0.16)
    panels = drawn.subplots(1, len(series), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, series, strict=True):
        panel.set_title(ink.plain(titles[name]))
        phase_panel(panel, [line for line in lines if line["series"] == name], names)
    panels[0].set_yticks(range(len(names)), [ink.plain(name) for name in names])
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    ink.legend(drawn, *panels)
    return drawn


def room_in(names: Sequence[str]) -> float:
    """The width, in inches, that the names of the rows need at the left."""
    longest = max((len(ink.plain(name)) for name in names), default=0)
    return min(max(LEFT_IN, longest * CHARACTER_IN + 0.25), NAMES_MAX_IN)


def phase_panel(panel: Axes, lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """The marks of one latency."""
    known = [line[name] for line in lines for name, *_ in MARKS if line[name]]
    for line in lines:
        row, values = names.index(str(line["phase"])), [line[name] for name, *_ in MARKS if line[name]]
        if values:
            panel.plot([min(values), max(values)], [row, row], color=ink.OTHER, lw=2.2, zorder=1, solid_capstyle="round")
    for name, marker, colour, size, label in MARKS:
        points = [(line[name], names.index(str(line["phase"]))) for line in lines if line[name]]
        panel.plot(
            [value for value, _ in points],
            [row for _, row in points],
            ls="none",
            marker=marker,
            ms=size,
            mew=1.8 if marker == "|" else 0.6,
            mec=colour if marker == "|" else ink.PAPER,
            color=colour,
            label=label if points else None,
            zorder=2,
        )
    endless = [names.index(str(line["phase"])) for line in lines if line["n"] and line["max_ms"] is None]
    edge = panel.get_yaxis_transform()
    label = "some without end" if endless else None
    panel.plot([0.97] * len(endless), endless, ls="none", marker=">", ms=5, color=ink.PURPLE, transform=edge, label=label)
    panel.set_xscale("log")
    panel.set_xlim(min(known, default=1.0) / 1.6, max(known, default=1_000.0) * 2.2)
    panel.xaxis.set_major_locator(LogLocator(10, numticks=3))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)


def recovery(found: Sequence[Recovery], bounds_s: Mapping[str, float], lease_s: float) -> Figure:
    """A row per kill, a dot per job leased at the kill: the time until it ran elsewhere, against the bound."""
    kills = list(dict.fromkeys(one.fault for one in found))
    ways = {one.fault: one.connected for one in found}
    labels = [ink.plain(f"{kill}, {ways[kill]}" if ways[kill] else kill) for kill in kills]
    drawn = ink.figure(TOP_IN + BOTTOM_IN + 0.25 + 0.7 * len(kills))
    ink.margins(drawn, left=room_in(labels), right=RIGHT_IN, top=TOP_IN - 0.2, bottom=BOTTOM_IN + 0.2)
    panel: Axes = drawn.subplots()
    longest_s = max([*bounds_s.values(), lease_s, *(one.seconds or 0.0 for one in found)])
    for row, fault in enumerate(kills):
        jobs = [one for one in found if one.fault == fault and not one.ended]
        kill_row(panel, row, jobs, bounds_s.get(fault, longest_s), longest_s)
    panel.axvline(lease_s, color=ink.GREY, lw=1.2, ls=(0, (3, 2)), label="lease", zorder=1)
    panel.set_yticks(range(len(kills)), labels)
    panel.set_ylim(len(kills) - 0.45, -0.55)
    panel.set_xlim(0, longest_s * 1.08)
    panel.set_xlabel("seconds from the death of the worker to the next start of the job's handler")
    panel.grid(axis="y", visible=False)
    ink.legend(drawn, panel)
    return drawn


def kill_row(panel: Axes, row: int, jobs: Sequence[Recovery], bound_s: float, longest_s: float) -> None:
    """The jobs of one kill, the fastest at the bottom; those that never ran again are drawn to the right of all others."""
    ran = sorted(one.seconds for one in jobs if one.seconds is not None)
    heights = [row + 0.28 - 0.56 * (place + 0.5) / len(ran) for place in range(len(ran))]
    keyed = row == 0
    dots: Any = {"ls": "none", "marker": "o", "ms": 5.5, "color": ink.BLUE, "mec": ink.PAPER, "mew": 0.5}
    panel.plot(ran, heights, label="ran elsewhere" if keyed else None, **dots)
    panel.plot([bound_s] * 2, [row - 0.42, row + 0.42], color=ink.VERMILLION, lw=2.2, label="bound" if keyed else None)
    beside: Any = {"textcoords": "offset points", "weight": "bold"}
    if ran:
        panel.annotate(f"slowest {ran[-1]:.2f} s", (ran[-1], heights[-1]), (8, 0), va="center", **beside)
    if never := sum(1 for one in jobs if one.seconds is None):
        edge_s = longest_s * 1.06
        panel.plot(edge_s, row, ls="none", marker="X", ms=9, color=ink.VERMILLION, clip_on=False)
        panel.annotate(f"{never} never", (edge_s, row), (0, 9), ha="right", color=ink.VERMILLION, **beside)


# The recovery time of each job leased at a kill.


#: At most this many jobs of one kill are drawn: the slowest.
JOBS_MAX = 500


@dataclass(frozen=True, slots=True)
class Recovery:
    """One job leased at a kill. `connected`: how the worker was (see `Run.connected`). `seconds`: until it ran elsewhere, None =
    never; `ended`: it never ran again because the call that ended its lease took effect, or because it was buried."""

    fault: str
    target: str
    connected: str
    job: str
    seconds: float | None
    ended: bool


def recoveries(frames: Frames) -> list[Recovery]:
    """Every job leased at a witnessed kill, by kill, the slowest first."""
    rows = frames.in_hand.where(F.col("fault") != "").orderBy("fault", F.desc_nulls_first("recovery_ns"), "job")
    found: list[Recovery] = []
    seen: dict[str, int] = {}
    for row in rows.limit(JOBS_MAX * max(1, len(frames.run.kills))).collect():
        seen[row["fault"]] = seen.get(row["fault"], 0) + 1
        if seen[row["fault"]] <= JOBS_MAX:
            took_s = None if row["recovery_ns"] is None else row["recovery_ns"] / 1e9
            way = frames.run.connected(row["target"])
            found.append(Recovery(row["fault"], row["target"], way, row["job"], took_s, bool(row["ended"])))
    return found
