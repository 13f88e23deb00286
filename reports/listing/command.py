"""The command `list`: its arguments, what it reads of each run, the table as plain text, and the page `index.html`."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from reports import models_table
from reports.errors import JudgeError
from reports.page import FILE as REPORT
from reports.page import words
from reports.page.facts import laid
from reports.page.html import NO_VALUE, Section, cell, header, marked_up, page, safe, spark, thinned
from reports.page.words import milliseconds
from reports.table import cut, grid, number, seconds
from reports.verdict import FILE as VERDICT
from reports.verdict import place

# What the list shows of each run, read from its spec.json, its verdict.json and its samples.

VERDICTS = ("valid", "violated", "unknown")

#: Instead of a verdict: a run that nobody judged, one that is broken, and a folder of `chaos compare`, whose drills are runs.
NOT_JUDGED, BROKEN, TABLE = "not judged", "broken", "table of models"

STATES = (*VERDICTS, NOT_JUDGED, BROKEN, TABLE)

#: Names of run folders: date and time in UTC, scenario, seed, and an optional label.
RUN_NAME = re.compile(r"(?P<date>\d{8}-\d{6})-(?P<scenario>[a-z0-9]+)-seed(?P<seed>\d+)(-(?P<label>.+))?")

#: A row of samples/queue.jsonl: when, and how many jobs were finished by then. Matching is much faster than reading JSON.
FINISHED = re.compile(rb'^\{"t_ns":(\d+),.*?"finished":(\d+)[,}]', re.MULTILINE)

SECOND_NS = 1_000_000_000

#: The series whose p99 is shown, over all phases.
SERIES, ALL = "end_to_end", "all"

#: A commit is cut to this many characters.
COMMIT_MAX = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One run. None and empty texts: not known."""

    name: str
    state: str
    #: Why it is broken or was not judged, or the first reason of its verdict.
    reason: str = ""
    date: str = ""
    scenario: str = ""
    model: str = ""
    #: Topology and durability.
    servers: str = ""
    seed: int | None = None
    label: str = ""
    commit: str = ""
    violations: int | None = None
    recovery_ms: float | None = None
    p99_ms: float | None = None
    jobs: int | None = None
    slo: str = ""
    #: A valid run in which declared losses were seen.
    lossy: bool = False
    #: Finished jobs per second along the run.
    finished_per_s: Sequence[float] = field(default_factory=list)
    #: The page of the run, relative to the folder of all runs; empty when there is none.
    page: str = ""


class Broken(Exception):
    """A file of a run cannot be used; the message names it and why."""


def entries(runs: Path) -> list[Entry]:
    """The runs of a folder, newest first. Raises OSError when the folder cannot be read."""
    folders = [path for path in runs.iterdir() if not path.is_symlink() and path.is_dir()]
    found = [entry(path) for path in folders if is_run(path)]
    return sorted(found, key=lambda one: (one.date, one.name), reverse=True)


def is_run(path: Path) -> bool:
    """True for the folder of a run, complete or not; false for the results of other commands."""
    return RUN_NAME.fullmatch(path.name) is not None or (path / "spec.json").exists() or (path / "history").is_dir()


def entry(path: Path) -> Entry:
    """One run, whatever state its folder is in."""
    if (path / models_table.FILE).exists():
        return Entry(path.name, TABLE, page=page_of(path, models_table.PAGE_FILE), **named(path.name))
    known: dict[str, Any] = named(path.name)
    try:
        spec = read(path / "spec.json")
        known = described(path.name, spec)
        if not (path / VERDICT).exists():
            reason = "" if spec.get("ended_utc") else "it goes on, or its harness was killed: spec.json has no ended_utc"
            return Entry(path.name, NOT_JUDGED, reason, page=page_of(path, REPORT), finished_per_s=finished(path), **known)
        verdict = read(path / VERDICT)
        return Entry(path.name, page=page_of(path, REPORT), finished_per_s=finished(path), **known, **judged(verdict))
    except Broken as error:
        return Entry(path.name, BROKEN, str(error), **known)


def read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises Broken."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Broken(f"{path.name} is missing") from None
    except OSError as error:
        raise Broken(f"{path.name} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Broken(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Broken(f"{path.name} is not a JSON object")
    return found


def named(name: str) -> dict[str, Any]:
    """What the name of a run says."""
    found = RUN_NAME.fullmatch(name)
    if not found:
        return {}
    date = found["date"]
    when = f"{date[:4]}-{date[4:6]}-{date[6:8]} {date[9:11]}:{date[11:13]}:{date[13:]}"
    return {"date": when, "scenario": found["scenario"], "seed": int(found["seed"]), "label": found["label"] or ""}


def described(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """What spec and name say of a run. The label is what the name says beside the model, or else the mutant."""
    found = named(name)
    model, mutant = text(spec.get("model")), text(spec.get("mutant"))
    label = found.get("label", "")
    label = "" if label == model else label.removeprefix(f"{model}-")
    label = label.removesuffix("-".join(filter(None, (text(spec.get("topology")), text(spec.get("durability")))))).rstrip("-")
    started = text(spec.get("started_utc")).replace("T", " ").removesuffix("Z")
    return {
        **found,
        "date": started or found.get("date", ""),
        "scenario": text(spec.get("scenario")) or found.get("scenario", ""),
        "model": model,
        "servers": words.servers(spec),
        "seed": spec["seed"] if isinstance(spec.get("seed"), int) else found.get("seed"),
        "label": label or mutant,
        "commit": commit(text(spec.get("git_commit"))),
    }


def text(value: object) -> str:
    """A text, empty for anything else."""
    return value if isinstance(value, str) else ""


def commit(full: str) -> str:
    """The beginning of a commit, with a plus when the working tree had changes."""
    return full[:COMMIT_MAX] + ("+" if "+" in full else "")


def judged(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """What a verdict says. Raises Broken when it is not one."""
    try:
        measures, state, checks = verdict["measures"], verdict["verdict"], verdict["checks"]
        jobs = measures["enqueued"]
        if state not in VERDICTS:
            raise Broken(f"{VERDICT} has the verdict {state!r}")
        return {
            "state": state,
            "lossy": bool(words.lost(verdict)),
            "reason": next(iter(verdict["reasons"]), ""),
            "violations": sum(check["violations"] for check in checks) if checks else None,
            "recovery_ms": words.slowest_ms(measures["recovery"], ""),
            "p99_ms": p99_ms(measures["percentiles"]),
            "jobs": measures.get("published") if jobs is None else jobs,
            "slo": objectives(verdict.get("slo") or []),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise Broken(f"{VERDICT} is not a verdict: {error!r}") from error


def p99_ms(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """The p99 of a job from when it was due to its end; of a run of channels that of its slowest group."""
    whole = {line["series"]: line["p99_ms"] for line in lines if line["phase"] == ALL}
    if SERIES in whole:
        return whole[SERIES]
    return max((value for value in whole.values() if value is not None), default=None)


def objectives(lines: Sequence[Mapping[str, Any]]) -> str:
    """The service-level objectives of a verdict in a word or two; empty when it has none."""
    results = [str(line["result"]) for line in lines]
    missed, unknown = results.count("missed"), results.count("unknown")
    if missed:
        return f"{missed} of {len(results)} missed"
    return f"{unknown} of {len(results)} unknown" if unknown else "met" if results else ""


def finished(path: Path) -> list[float]:
    """Finished jobs per second along the run, from the samples of its queue; empty without samples."""
    try:
        content = (path / "samples" / "queue.jsonl").read_bytes()
    except OSError:
        return []
    points = [(int(at_ns), int(count)) for at_ns, count in FINISHED.findall(content)]
    steps = [(later - at, count - before) for (at, before), (later, count) in pairwise(points) if later > at]
    return thinned([max(0, count) * SECOND_NS / width_ns for width_ns, count in steps])


def page_of(path: Path, name: str) -> str:
    """The page of a run, relative to the folder of all runs."""
    return f"{path.name}/{name}" if (path / name).exists() else ""


# The page of all runs: how the p99 of each kind of run went over time, and one row per run.

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
    numbers = [cell(len(runs)), cell(valid), spark(thinned(values), words)]
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
    return spark(per_s, words) or NO_VALUE


PAGE_FILE = "index.html"

TEXT_HEADS = ("date", "scenario", "model", "seed", "label", "commit", "verdict", "violations", "recovery", "p99 ms", "jobs")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    command.add_argument("runs", type=Path, nargs="?", default=Path("runs"), help="folder of all runs (default: %(default)s)")


def list_runs(options: argparse.Namespace) -> tuple[str, int]:
    """The table of all runs and exit code 0. Writes the page into the folder.

    Raises JudgeError when the folder cannot be read or the page cannot be written.
    """
    try:
        found = entries(options.runs)
    except OSError as error:
        raise JudgeError(f"folder {options.runs}: {error.strerror or error}") from error
    page = options.runs / PAGE_FILE
    place(page, document(found))
    return render(found, page), 0


def render(found: Sequence[Entry], page: Path) -> str:
    """The table, and a last line that counts the runs by verdict."""
    with_slo = any(one.slo for one in found)
    heads = (*TEXT_HEADS, *(("objectives",) if with_slo else ()), "run")
    body = [[*text_row(one), *((one.slo,) if with_slo else ()), one.name] for one in found]
    table = grid("runs", heads, body, right=(3, 7, 8, 9, 10))
    reasons = [f"  {one.name}: {cut(one.reason)}" for one in found if one.reason]
    sections = [table, ["reasons", *reasons] if reasons else [], [last_line(found, page)]]
    return "\n\n".join("\n".join(section) for section in sections if section)


def text_row(one: Entry) -> list[str]:
    """The cells of a run."""
    head = [one.date, one.scenario, one.model, number(one.seed), one.label, one.commit, one.state]
    return [*head, number(one.violations), seconds(one.recovery_ms), number(one.p99_ms), number(one.jobs)]


def last_line(found: Sequence[Entry], page: Path) -> str:
    """The line for scripts."""
    states = Counter(one.state for one in found)
    counts = " ".join(f"{state.replace(' ', '_')}={states[state]}" for state in STATES)
    return f"list: runs={len(found)} {counts} page={page}"
