"""The command `soak`: draw what a soak has left as its page."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from reports import verdict
from reports.page import ink
from reports.page.html import Section, header, page, safe, table

SCHEMA = 1
FILE = "soak.json"
PAGE_FILE = "soak.html"


def drawn(options: argparse.Namespace) -> tuple[str, int]:
    """Where the page is, and exit code 0. Raises JudgeError."""
    found = verdict.content(options.run, FILE, SCHEMA)
    page = options.run / PAGE_FILE
    verdict.place(page, document(found))
    return f"page: {page}", 0


# The page: a figure for each unit, with the samples, the line through them, and its interval; and the lines
# as a table.


#: Unit of lines -> title of their section, and label of the axis.
UNITS = {"MB": ("Memory", "MB"), "ms": ("Latency, from due until the end was accepted", "ms")}

COLOURS = (ink.BLUE, ink.VERMILLION)

NOTE = (
    "A line is fitted from the end of the warm-up on, by least squares. Its interval of 95 % counts only as many samples as are "
    "independent of each other; the line may turn within it about its middle. Percentiles are those of the jobs due in each "
    "10 s, and faults come every 10 s."
)


def document(found: Mapping[str, Any]) -> str:
    """The whole page."""
    title = f"Soak of {found['total_s'] / 60:,.0f} minutes"
    with ink.drawing():
        sections = [
            Section(f"of-{unit}", heading, figure(found, unit, heading))
            for unit, (heading, _) in UNITS.items()
            if any(line["points"] for line in lines_of(found, unit))
        ]
    sections.append(Section("lines", "The lines", f"<p>{safe(NOTE)}</p>{lines(found)}"))
    return page(title, header("plain", found["id"], title), sections, main="wide wraps")


def lines_of(found: Mapping[str, Any], unit: str) -> Sequence[Mapping[str, Any]]:
    """The lines in this unit."""
    return [line for line in found["lines"] if line["unit"] == unit]


def figure(found: Mapping[str, Any], unit: str, heading: str) -> str:
    """The figure of a unit."""
    alt = f"{heading} over time: {', '.join(line['what'] for line in lines_of(found, unit))}"
    svg = ink.svg(draw(found, unit), f"of-{unit}", safe(alt))
    return f'<figure class="scroll" tabindex="0" role="region" aria-label="{safe(alt)}">{svg}</figure>'


def draw(found: Mapping[str, Any], unit: str) -> Figure:
    """The samples and lines of a unit, over minutes."""
    drawn = ink.figure(3.4)
    ink.margins(drawn, left=0.9, right=0.3, top=0.5, bottom=0.55)
    panel = drawn.subplots()
    begin_s, end_s = found["warm_up_s"], found["total_s"]
    panel.axvspan(0, begin_s / 60, color=ink.BAND, lw=0, zorder=0, label="warm-up")
    for line, colour in zip(lines_of(found, unit), COLOURS, strict=False):
        at_min = [at_s / 60 for at_s, _ in line["points"]]
        panel.plot(at_min, [value for _, value in line["points"]], color=colour, lw=0.8, alpha=0.6, label=ink.plain(line["what"]))
        if line["interval"] is None:
            continue
        along = [begin_s / 60, (begin_s + end_s) / 120, end_s / 60]
        half = (end_s - begin_s) / 120
        middle = (line["first"] + line["last"]) / 2
        low, high = line["interval"]
        panel.plot(along, [middle + line["per_minute"] * half * side for side in (-1, 0, 1)], color=colour, lw=1.8)
        panel.fill_between(
            along,
            [middle + min(low * side, high * side) * half for side in (-1, 0, 1)],
            [middle + max(low * side, high * side) * half for side in (-1, 0, 1)],
            color=colour,
            alpha=0.2,
            lw=0,
        )
    if unit == "ms":
        ink.logarithmic(panel)
    else:
        panel.set_ylim(bottom=0)
    panel.set_xlabel("minutes of load")
    panel.set_ylabel(UNITS[unit][1])
    ink.legend(drawn, panel)
    return drawn


def lines(found: Mapping[str, Any]) -> str:
    """The lines as a table."""
    rows = [
        [line["what"], line["unit"], line["per_minute"], *(line["interval"] or (None, None)), line["first"], line["last"],
         line["samples"], line["complaint"]]
        for line in found["lines"]
    ]  # fmt: skip
    heads = ("figure", "unit", "a minute", "at least", "at most", "first", "last", "samples", "not measured")
    return table("Growth, with its interval of 95 %", heads, rows, words=(1, 8))
