"""A chapter of a page, the common input of all chapters, and the chapters that both kinds of run have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reports.errors import one_line
from reports.page import captions, draw_evidence, draw_time, ink, numbers, rows
from reports.page.captions import Caption
from reports.page.samples import Samples
from reports.page.tables import details, safe
from reports.page.timeline import Axis, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chapter:
    """A part of the page. `name` is its anchor and the file name of its picture; `lead`, `figure` and `table` are HTML."""

    name: str
    title: str
    lead: str
    figure: str = ""
    table: str = ""
    png: bytes = b""


@dataclass(frozen=True)
class Common:
    """The input of the chapters of every run."""

    decided: Mapping[str, Any]
    axis: Axis
    windows: list[Window]
    samples: Samples
    #: The violations of evidence.json.
    evidence: Sequence[Mapping[str, Any]]


def guarded(maker: Callable[[Any], list[Chapter]], matter: Common) -> list[Chapter]:
    """The chapters that `maker` draws; if it fails, one chapter with the error, so that the other chapters are still drawn."""
    try:
        return maker(matter)
    except Exception as error:
        name = maker.__name__
        return [Chapter(name, f"Missing: {name}", f"<p>This could not be drawn: {safe(one_line(error))}</p>")]


def drawn(name: str, caption: Caption, figure: Figure, table: str, **more: object) -> Chapter:
    """A chapter with its figure as SVG and PNG. `more` fills the placeholders of the caption."""
    title, lead, alt = (safe(words.format(**more)) for words in caption)
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="Figure: {title}">{ink.svg(figure, name, alt)}</div>'
    numbered = details("The numbers of this figure", table)
    return Chapter(name, caption.title.format(**more), f"<p>{lead}</p>", f"<figure>{region}</figure>", numbered, ink.png(figure))


def faults(matter: Common) -> list[Chapter]:
    """A table of the faults, their times, and what their witnesses recorded; no figure."""
    lines = matter.decided["measures"]["faults"]
    title, lead, _ = captions.FAULTS
    return [Chapter("faults", title, f"<p>{safe(lead)}</p>", table=numbers.faults(lines, matter.windows))] if lines else []


def first_violation(matter: Common) -> list[Chapter]:
    """The rows of the first violation that has any, along time."""
    first = next((one for one in matter.evidence if one["level"] == "violated" and one["rows"]), None)
    if first is None:
        return []
    about = {"check": first["check"], "example": first["example"], "rows": len(first["rows"])}
    return [drawn("first-violation", captions.EVIDENCE, draw_evidence.rows(first["rows"]), rows.table(first), **about)]


def machine(matter: Common) -> list[Chapter]:
    if not matter.samples.memory_mib and not any(matter.samples.cores.values()):
        return []
    card = matter.decided["spec"].get("machine")
    cores = card.get("cores") if isinstance(card, dict) else None
    cores = cores if isinstance(cores, int) and 0 < cores < 10_000 else None
    figure = draw_time.machine(matter.samples, matter.axis, matter.windows, cores)
    return [drawn("machine", captions.MACHINE, figure, numbers.machine(matter.samples, matter.axis))]
