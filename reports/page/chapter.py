"""A chapter of a page, its captions, the common input of all chapters, and the chapters that both kinds of run have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.errors import one_line
from reports.page import draw_evidence, draw_time, facts, ink, numbers
from reports.page.html import details, safe
from reports.page.samples import Samples
from reports.page.timeline import Axis, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The caption above each figure, and its alternative text for screen readers.


class Caption(NamedTuple):
    """A figure's title, an explanation of what it shows, and its alternative text."""

    title: str
    lead: str
    alt: str = ""


FAULTS = Caption(
    "What was broken on purpose",
    "Every fault needs a witness: something that looks at the world and could fail to see it. A fault that was not seen to "
    "bite, or not seen to heal, makes the run unknown.",
)
PHASES = Caption(
    "Latency by phase",
    "Exact percentiles for each phase of the run, by the time at which a job should have been sent. A percentile is left out "
    "when fewer than ten jobs lie beyond it, because it would be an accident. A job that never finished counts as endless.",
    "A row per phase and a panel per latency, with marks for p50, p90, p99, p99.9 and the longest, on a logarithmic scale.",
)
LATENCY = Caption(
    "Latency over time",
    "Each point sums up {width} of jobs, by the time at which they should have been sent. Shaded: a fault that was seen to "
    "bite and to heal; hatched: one that was not. Few jobs stand behind each p99 here, so read its shape; the percentiles that "
    "count are those of the phases. Jobs that never came to an end are marked at the upper edge.",
    "p50, p99 and the longest latency over time on a logarithmic scale, one panel for each kind of latency, faults shaded.",
)
LOAD = Caption(
    "Rates and backlog",
    "Jobs are offered by a schedule that does not wait for the system. What is finished must follow it, and the backlog must "
    "come back down after each fault. Re-sent: a call that needed more than one send. Repeated: the engine recognised a call "
    "that it had done already. Refused: a word about a lease that was no longer held. Unanswered: it may have happened and may "
    "not; the checks allow for both.",
    "Offered and finished jobs per second; waiting, delayed and active jobs; re-sent, repeated, refused and unanswered calls.",
)
RECOVERY = Caption(
    "Recovery after kills",
    "For every job that a killed worker held: the time from its death, as the kernel reported it, to the next start of the "
    "job's handler elsewhere. For a worker that is connected directly that takes about two seconds, because the server sees its "
    "connection close. Behind a proxy, which may keep it open, the lease must run out first: nine seconds by default. The bound "
    "allows two seconds more.",
    "A row per kill with one dot for each job in hand: seconds until it ran elsewhere, against the lease and the bound.",
)
LANES = Caption(
    "Who held what: {title}",
    "A lane for each worker. Above, grey: all its leases. Below: the jobs that were in hand when the fault came, one letter "
    "for each job, with the end of the fence of each lease. A job's next lease carries a higher fence, and by that the server "
    "knows whom to refuse.",
    "Lanes of {workers} workers with {leases} leases of {jobs} jobs: {title}.",
)
OFFENDERS = Caption(
    "The first jobs that broke a promise",
    "The first examples of the checks that found a violation, from their first lease to their last. One letter is one job; the "
    "end of the fence of each lease stands beside it.",
    LANES.alt,
)
EVIDENCE = Caption(
    "The first violation, row by row",
    "{check}: {example}. Each mark is a row of the history that is about it, in the lane of the process that wrote it, with its "
    "number in the table below; a bar lasts from the first send of a call to its answer, and a hollow mark had none. What the "
    "sentence names has a colour of its own, and is underlined in the table, which has file and line of each row.",
    "Lanes of processes with {rows} rows of the history that are about the first violation of {check}.",
)
MACHINE = Caption(
    "What the machine had to do",
    "Load, server and workers share one machine. Where all of its cores are in use, latencies say as much about it as about "
    "the engine.",
    "Cores in use by role, stacked, and the memory of the server's data, over time.",
)


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
    title, lead, _ = FAULTS
    return [Chapter("faults", title, f"<p>{safe(lead)}</p>", table=numbers.faults(lines, matter.windows))] if lines else []


def first_violation(matter: Common) -> list[Chapter]:
    """The rows of the first violation that has any, along time."""
    first = next((one for one in matter.evidence if one["level"] == "violated" and one["rows"]), None)
    if first is None:
        return []
    about = {"check": first["check"], "example": first["example"], "rows": len(first["rows"])}
    return [drawn("first-violation", EVIDENCE, draw_evidence.rows(first["rows"]), facts.rows_table(first), **about)]


def machine(matter: Common) -> list[Chapter]:
    if not matter.samples.memory_mib and not any(matter.samples.cores.values()):
        return []
    card = matter.decided["spec"].get("machine")
    cores = card.get("cores") if isinstance(card, dict) else None
    cores = cores if isinstance(cores, int) and 0 < cores < 10_000 else None
    figure = draw_time.machine(matter.samples, matter.axis, matter.windows, cores)
    return [drawn("machine", MACHINE, figure, numbers.machine(matter.samples, matter.axis))]
