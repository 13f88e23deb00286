"""The rows that prove one violation, along time: a lane for each process that wrote one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.page import ink

#: Heights in inches of a row of marks, and margins. A label is about CHARACTER_IN wide for each character.
ROW_IN, AIR_IN, CHARACTER_IN = 0.24, 0.12, 0.068
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.95, 0.2, 0.15, 0.45
AXES_IN = ink.WIDTH_IN - LEFT_IN - RIGHT_IN


def rows(lines: Sequence[Mapping[str, Any]]) -> Figure:
    """A mark for each row, with its number in the table; a bar from the first send of a call to its answer."""
    ends = [at for line in lines for at in (line["at_s"], line["done_s"]) if at is not None]
    span_s = max(max(ends) - min(ends), 0.001)
    left_s, right_s = min(ends) - 0.02 * span_s, max(ends) + 0.16 * span_s
    lanes = {process: packed(process, lines, right_s - left_s) for process in sorted({line["process"] for line in lines})}
    heights_in = {process: ROW_IN * len(lane) + AIR_IN for process, lane in lanes.items()}
    drawn = ink.figure(TOP_IN + sum(heights_in.values()) + BOTTOM_IN)
    ink.margins(drawn, left=LEFT_IN, right=RIGHT_IN, top=TOP_IN, bottom=BOTTOM_IN)
    panel: Axes = drawn.subplots()
    panel.set_xlim(left_s, right_s)
    panel.set_ylim(sum(heights_in.values()), 0)
    panel.grid(axis="y", visible=False)
    top_in = 0.0
    middles_in: list[float] = []
    for number, (process, high_in) in enumerate(heights_in.items()):
        middles_in.append(top_in + high_in / 2)
        if number % 2 == 0:
            panel.axhspan(top_in, top_in + high_in, color=ink.GRID, alpha=0.3, lw=0, zorder=0)
        for place, row in enumerate(lanes[process]):
            for index in row:
                mark(panel, index, lines[index], top_in + AIR_IN / 2 + ROW_IN * (place + 0.5))
        top_in += high_in
    panel.set_yticks(middles_in, [ink.plain(process) for process in lanes])
    panel.tick_params(axis="y", length=0, labelcolor=ink.INK)
    panel.set_xlabel("seconds since the load began")
    return drawn


def label(index: int, line: Mapping[str, Any]) -> str:
    """The number of a row in the table, and what it records."""
    return ink.plain(f"{index + 1} {line['what']} {line['answer']}".strip())


def packed(process: str, lines: Sequence[Mapping[str, Any]], span_s: float) -> list[list[int]]:
    """The rows of a process in as few lines as possible, without overlap of marks and labels."""
    found: list[list[int]] = []
    free_s: list[float] = []
    for index, line in enumerate(lines):
        if line["process"] != process:
            continue
        place = next((place for place, at_s in enumerate(free_s) if at_s <= line["at_s"]), len(found))
        if place == len(found):
            found.append([])
            free_s.append(0.0)
        found[place].append(index)
        width_s = (len(label(index, line)) * CHARACTER_IN + 0.25) * span_s / AXES_IN
        free_s[place] = max(line["at_s"], line["done_s"] or 0.0) + width_s
    return found


def mark(panel: Axes, index: int, line: Mapping[str, Any], middle_in: float) -> None:
    """One row: red where the sentence of the violation names it, hollow where the call had no answer."""
    colour = ink.VERMILLION if line["named"] else ink.BLUE
    end_s = line["at_s"] if line["done_s"] is None else max(line["at_s"], line["done_s"])
    panel.plot([line["at_s"], end_s], [middle_in] * 2, color=colour, lw=3, solid_capstyle="butt", zorder=3)
    fill = ink.PAPER if line["answer"] == "no answer" else colour
    panel.plot(line["at_s"], middle_in, marker="o", ms=5.5, color=fill, mec=colour, mew=1.2, zorder=4)
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8, "annotation_clip": True}
    panel.annotate(label(index, line), (end_s, middle_in), (7, 0), color=ink.INK, **place)
