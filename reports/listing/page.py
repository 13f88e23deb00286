"""The page of all runs: how the p99 of each kind of run went over time, and one row per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from urllib.parse import quote

from reports.listing.entries import BROKEN, STATES, TABLE, VERDICTS, Entry
from reports.page.facts import laid
from reports.page.spark import line, thinned
from reports.page.tables import NO_VALUE, Section, cell, header, marked_up, page, safe
from reports.page.words import milliseconds

TITLE = "All runs"

#: The columns, the most important ones first: a phone shows no more at once.
HEADS = ("date", "verdict", "scenario", "model", "servers", "seed", "label", "commit")
MEASURED = ("finished a second", "p99", "slowest recovery", "jobs", "violations")
OBJECTIVES, WHY = "objectives", "why"


def document(found: Sequence[Entry]) -> str:
    """The whole page. `found`: the runs, newest first."""
    sections = [Section("kinds", "Over time", kinds(found)), Section("runs", "Every run", every(found))]
    states = Counter(one.state for one in found)
    tiles = [("runs", cell(len(found)), "")]
    tiles += [(state, cell(states[state]), ' class="bad"' if state == "violated" else "") for state in STATES if states[state]]
    newest = f"newest: {found[0].date or found[0].name}" if found else "there is none yet: make bench"
    return page(TITLE, header("plain", newest, TITLE, laid(tiles)), sections, main="wide")


def kinds(found: Sequence[Entry]) -> str:
    """One row per scenario, model, servers and label that has several measured runs: their p99 from the oldest to the newest."""
    groups: dict[tuple[str, str, str, str], list[Entry]] = {}
    for one in reversed(found):
        groups.setdefault((one.scenario, one.model, one.servers, one.label), []).append(one)
    rows = [row for (names, runs) in groups.items() if (row := kind(names, runs))]
    if not rows:
        return ""
    heads = ("scenario", "model", "servers", "label", "runs", "valid", "p99 from the oldest to the newest", "median", "newest")
    note = "<p>The p99 of a job from when it was due to its end, over all phases of a run, faults included.</p>"
    return note + marked_up("Runs of the same kind", heads, rows, words=(1, 2, 3))


def kind(names: tuple[str, str, str, str], runs: Sequence[Entry]) -> list[str]:
    """The cells of a kind of run; empty when fewer than two have a p99."""
    values = [one.p99_ms for one in runs if one.p99_ms is not None]
    if len(values) < 2:
        return []
    words = f"p99 of {len(values)} runs: median {milliseconds(median(values))}, newest {milliseconds(values[-1])}"
    valid = sum(one.state == "valid" for one in runs)
    numbers = [cell(len(runs)), cell(valid), line(thinned(values), words)]
    return [*map(known, names), *numbers, *map(milliseconds, (median(values), values[-1]))]


def every(found: Sequence[Entry]) -> str:
    """One row per run."""
    with_slo = any(one.slo for one in found)
    heads = (*HEADS, *MEASURED, *((OBJECTIVES,) if with_slo else ()), WHY)
    rows = [[*row(one), *((known(one.slo),) if with_slo else ()), known(one.reason)] for one in found]
    words = [place for place, head in enumerate(heads) if head not in (*MEASURED, "seed")]
    return marked_up("Newest first", heads, rows, words=words) if rows else ""


def row(one: Entry) -> list[str]:
    """The cells of a run, as HTML."""
    when = f'<span title="{safe(one.name)}">{safe(one.date or one.name)}</span>'
    first = f'<a href="{safe(quote(one.page))}">{when}</a>' if one.page else when
    durations = (NO_VALUE if value is None else milliseconds(value) for value in (one.p99_ms, one.recovery_ms))
    about = (one.scenario, one.model, one.servers, "" if one.seed is None else str(one.seed), one.label, one.commit)
    counts = (cell(one.jobs), cell(one.violations))
    return [first, badge(one.state, lossy=one.lossy), *map(known, about), rate(one.finished_per_s), *durations, *counts]


def known(text: str) -> str:
    """A text; a dash for an empty one."""
    return safe(text) if text else NO_VALUE


def badge(state: str, *, lossy: bool = False) -> str:
    """The state of a run; what is not a verdict is grey, and a valid run with declared losses is not green."""
    if lossy and state == "valid":
        return '<span class="badge lossy">valid, with loss</span>'
    tone = state if state in VERDICTS else "unknown" if state == BROKEN else "plain"
    return safe(state) if state == TABLE else f'<span class="badge {tone}">{safe(state)}</span>'


def rate(per_s: Sequence[float]) -> str:
    """Finished jobs per second along a run, drawn."""
    words = f"finished jobs a second along the run: at most {max(per_s):.0f}, at the end {per_s[-1]:.0f}" if per_s else ""
    return line(per_s, words) or NO_VALUE
