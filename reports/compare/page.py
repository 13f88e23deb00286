"""A comparison as a page of its own: the answer, the metrics with their intervals, every repetition, and how it was decided."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from reports.compare.decide import FASTER, SLOWER, Comparison, Line
from reports.compare.sides import MACHINE, Repetition
from reports.compare.words import answer, chance, claim, last_line, method, noise, percent, quantity, spread
from reports.page import FILE as REPORT
from reports.page.facts import fields, machine_fact, reasons
from reports.page.html import NO_VALUE, Section, details, header, marked_up, page, safe, span

#: The axis of the drawings reaches at least this far, and at most that far: a factor to either side.
AXIS_LEAST, AXIS_MOST = 1.1, 4.0


def document(found: Comparison, folder: Path) -> str:
    """The whole page. `folder`: where it will lie, which links to the runs begin at."""
    others = [line for line in found.lines if not line.tested]
    sections = [
        Section("metrics", "The metrics", table("What was tested", found.tested, found)),
        Section("others", "Beside them", beside(others, found)),
        Section("method", "How this was decided", "<ul>" + "".join(f"<li>{safe(text)}</li>" for text in method(found)) + "</ul>"),
        Section("runs", "The repetitions", repetitions(found, folder)),
        Section("sides", "A and B", cards(found)),
    ]
    title = answer(found)
    told = f'<p class="headline">{safe(found.too_few)}</p>' if found.too_few else claims(found)
    head = header(tone(found), last_line(found), title[:1].upper() + title[1:], told, reasons(found.warnings))
    return page(title, head, sections, main="wide wraps")


def tone(found: Comparison) -> str:
    """The class of the head: green for faster alone, red when anything is slower, grey when nothing was shown."""
    counts = found.counts
    return "plain violated" if counts[SLOWER] else "plain valid" if counts[FASTER] else "plain"


def claims(found: Comparison) -> str:
    """What differs, one line per metric."""
    shown = [line for line in found.tested if line.outcome in (FASTER, SLOWER)]
    items = "".join(f"<li>{safe(line.metric.title)}: {safe(claim(line, found))} ({spread(line)})</li>" for line in shown)
    return f'<ul class="story">{items}</ul>' if items else ""


def axis(lines: Sequence[Line]) -> float:
    """The factor that the drawings reach to either side of 1."""
    factors = [value for line in lines for value in (line.high, line.floor) if value]
    factors += [1 / line.low for line in lines if line.low]
    return min(AXIS_MOST, max(AXIS_LEAST, *factors)) if factors else AXIS_LEAST


def key(most: float) -> str:
    """What the drawings of an axis show."""
    return (
        f'<p class="key">Drawn from {percent(1 / most)} on the left to {percent(most)} on the right: the dot is B against A, '
        "the line its interval, the band the noise of A. What reaches further is cut off.</p>"
    )


def beside(lines: Sequence[Line], found: Comparison) -> str:
    """The metrics that were not tested."""
    if not lines:
        return ""
    note = "<p>No claim rests on these: each further metric that is tested needs more repetitions to show anything.</p>"
    return note + details(f"{len(lines)} more metrics", table("What was measured and not tested", lines, found))


def table(caption: str, lines: Sequence[Line], found: Comparison) -> str:
    """One row per metric, and what the drawings in it show."""
    heads = ("metric", "outcome", "A", "B", "B against A", "drawn", "95% interval", "noise of A", "p", "corrected p")
    most = axis(lines)
    return key(most) + marked_up(caption, heads, (row(line, found, most) for line in lines), words=(1,))


def row(line: Line, found: Comparison, most: float) -> list[str]:
    """The cells of a metric, as HTML. `most`: how far the axis of its drawing reaches."""
    of_a, of_b = (safe(quantity(value)) if value is not None else NO_VALUE for value in line.medians)
    head = [safe(line.metric.title), safe(claim(line, found)), of_a, of_b]
    if line.ratio is None or line.low is None or line.high is None:
        return [*head, *[NO_VALUE] * 6]
    change = percent(line.ratio)
    floor = line.floor or 1.0
    drawing = span(line.ratio, line.low, line.high, floor, most, f"{line.metric.title}: {change}, {spread(line)}")
    return [*head, change, drawing, spread(line), safe(noise(line)), chance(line.p), chance(line.corrected_p)]


def repetitions(found: Comparison, folder: Path) -> str:
    """The value of each run, in the order in which they ran."""
    sides = [*(("A", run) for run in found.a), *(("B", run) for run in found.b)]
    rows = [
        [link(run, folder), side, safe(run.verdict), safe(run.spec.get("seed")), *(cell(run, line) for line in found.tested)]
        for side, run in sorted(sides, key=lambda pair: pair[1].started)
    ]
    heads = ("run", "side", "verdict", "seed", *(line.metric.title for line in found.tested))
    return marked_up("Every repetition, in the order of their start", heads, rows, words=(1, 2))


def cell(run: Repetition, line: Line) -> str:
    """One value of a run."""
    value = run.values.get(line.metric)
    return NO_VALUE if value is None else safe(quantity(value))


def link(run: Repetition, folder: Path) -> str:
    """The name of a run, linked to its report if there is one."""
    report = run.path / REPORT
    if not report.exists():
        return safe(run.name)
    return f'<a href="{safe(quote(os.path.relpath(report, folder.resolve())))}">{safe(run.name)}</a>'


def cards(found: Comparison) -> str:
    """What makes B another variant, and the machine that both ran on."""
    pairs = [tuple(text.split(": ", 1)) for text in found.variant] or [("recorded differences", "none")]
    card = found.a[0].card("machine")
    on = [(name, machine_fact(name, card[name])) for name in MACHINE if name in card]
    return f'<div class="cards">{fields("A / B", [(name, value) for name, value in pairs])}{fields("Machine", on)}</div>'
