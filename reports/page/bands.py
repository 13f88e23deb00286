"""Fault bands: the time in which each fault was in force, shaded behind every figure over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports.page import ink
from reports.page.timeline import Window

#: Approximate width of a character of a band's name, and height of a row of names, in inches.
CHARACTER_IN = 0.072
ROW_IN = 0.165

#: At most this many rows of names; names that need a further row are left out. The table of faults has all.
ROWS_MAX = 5


def shade(panels: Sequence[Axes], windows: Sequence[Window]) -> None:
    """Shade the windows in every panel: plain where the fault was verified, hatched where it was not."""
    for panel in panels:
        for window in windows:
            span = (window.start_s, window.end_s)
            if window.verified:
                panel.axvspan(*span, facecolor=ink.BAND, edgecolor="none", alpha=0.75, zorder=0)
            else:
                panel.axvspan(*span, facecolor="none", edgecolor=ink.EDGE, hatch="////", linewidth=0.0, zorder=0)


def placed(windows: Sequence[Window], width_in: float, span_s: float) -> list[tuple[Window, float, int]]:
    """The position of each window's name: its middle on an axis of this width and span, and its row, so that names do not
    overlap."""
    ends_s: list[float] = []
    found: list[tuple[Window, float, int]] = []
    for window in sorted(windows, key=lambda window: window.start_s):
        half_s = (len(ink.plain(window.label)) * CHARACTER_IN / 2 + 0.06) * span_s / width_in
        middle_s = min(max((window.start_s + window.end_s) / 2, half_s), max(span_s - half_s, half_s))
        row = next((row for row, end_s in enumerate(ends_s) if end_s <= middle_s - half_s), len(ends_s))
        ends_s[row : row + 1] = [middle_s + half_s]
        found.append((window, middle_s, row))
    return [place for place in found if place[2] < ROWS_MAX]


def height_in(names: Sequence[tuple[Window, float, int]]) -> float:
    """The height, in inches, that the names need above their panel."""
    return ROW_IN * (1 + max((row for _, _, row in names), default=-1))


def write(panel: Axes, names: Sequence[tuple[Window, float, int]]) -> None:
    """Write the faults' names above a panel, each over its band."""
    for window, middle_s, row in names:
        panel.annotate(
            ink.plain(window.label),
            xy=(middle_s, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + row * ROW_IN * 72),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
            color=ink.SOFT,
            weight="bold",
            annotation_clip=False,
        )
