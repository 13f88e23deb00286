"""The page of a run of another job queue: `report.html`, with what it promises, what became of its jobs, and the faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports import page
from reports.page import facts
from reports.page.html import SIGNS, Section, cell, marked_up, safe, table
from reports.page.html import page as whole
from reports.page.words import milliseconds
from reports.targets.promise import promise_of
from reports.verdict import place


def write_report(run: Path, decided: Mapping[str, Any]) -> None:
    """Write the page. Raises JudgeError when it cannot be written."""
    page.withdraw(run)
    place(run / page.FILE, document(run, decided))


def document(run: Path, decided: Mapping[str, Any]) -> str:
    """The whole page. A run that could not be judged has its reasons alone."""
    spec, measures = decided["spec"], decided["measures"]
    judged = bool(decided["checks"])
    sections = [
        Section("promise", "What it promises", promised(spec) if judged else ""),
        Section("checks", "The checks", facts.checks(decided["checks"])),
        Section("findings", "What happened that the promise allows", findings(decided["findings"])),
        Section("kills", "What SIGKILL cost", kills(measures) if judged else ""),
        Section("faults", "The faults", faults(measures["faults"])),
        Section("unknown", "What cannot be known", cannot_be_known(decided.get("cannot_be_known", ()))),
        Section("run", "What the run was", facts.particulars({**spec, "promise": "see above"}, measures) if judged else ""),
        Section("again", "How to run it again", again(run, spec)),
    ]
    name, verdict = str(spec.get("id") or run.name), str(decided["verdict"])
    title = f"{spec.get('target', 'a job queue')}: {verdict}"
    head = [
        f'<header class="{safe(verdict)}"><p class="run">{safe(name)}</p>',
        f'<h1><span class="sign" aria-hidden="true">{SIGNS.get(verdict, "?")}</span> {safe(title)}</h1>',
        facts.reasons(decided["reasons"]),
        tiles(measures) if judged else "",
        "</header>",
    ]
    return whole(title, "\n".join(head), sections)


def tiles(measures: Mapping[str, Any]) -> str:
    """The key numbers. What the promise allows is not marked as bad here: the checks say what broke it."""
    names = {"enqueued": "acknowledged", "finished": "ran", "exits": "worker exits"}
    shown = ("enqueued", "finished", "lost", "doubled", "late", "stranded", "exits")
    return facts.laid([(names.get(name, name), cell(measures[name]), "") for name in shown])


def promised(spec: Mapping[str, Any]) -> str:
    """The promise, declared before the run."""
    promise = spec["promise"]
    rows = [
        ("a job runs", promise["delivery"]),
        ("recovery", promise_of(spec).words.partition(", ")[2]),
        ("defaults that this follows from", promise["defaults"]),
        ("source", promise["source"]),
    ]
    note = "<p>It was declared before the run, from the library's own documents; the verdict says whether it was kept.</p>"
    return note + table("The promise", ("", ""), rows, words=(1,))


def findings(lines: Sequence[Mapping[str, Any]]) -> str:
    """What happened that breaks no promise, with its examples."""
    rows = [
        [safe(one["name"]), cell(one["rows"]), safe(one["text"]), "<br>".join(safe(example) for example in one["examples"])]
        for one in lines
    ]
    return (
        marked_up("Findings", ("finding", "how often", "why it is no violation", "the first"), rows, words=(2, 3)) if rows else ""
    )


def kills(measures: Mapping[str, Any]) -> str:
    """One line per kill, and what became of all jobs in hand."""
    lines = measures["recovery"]
    if not lines:
        return ""
    kill = measures["kill"]
    told = (
        f"<p>Of {kill['in_hand']} jobs that were being run when their worker got SIGKILL, {kill['again']} ran to their end "
        f"afterwards, {kill['lost']} are lost, and {kill['stranded']} are still in the server's keys.</p>"
    )
    rows = [
        [
            safe(one["fault"]),
            safe(one["target"]),
            cell(one["jobs"]),
            milliseconds(one["recovery_ms"]),
            milliseconds(one["bound_ms"]),
        ]
        for one in lines
    ]
    heads = ("kill", "worker", "in hand", "slowest to start again", "bound")
    return told + marked_up("Each kill", heads, rows, words=(1,))


def faults(lines: Sequence[Mapping[str, Any]]) -> str:
    """Each fault, and what its witnesses saw."""
    rows = [(one["fault"], one["target"], one["witnessed"], one["healed"], one["detail"]) for one in lines]
    heads = ("fault", "target", "witnessed", "healed", "what was seen")
    return table("The faults of the plan", heads, rows, words=(1, 2, 3, 4)) if rows else "<p>The plan has none.</p>"


def cannot_be_known(lines: Sequence[Mapping[str, str]]) -> str:
    """Guarantees of the engine that nobody can judge here."""
    note = "<p>These need what the library does not tell. They are no part of the verdict, and count as passed nowhere.</p>"
    rows = [(one["check"], one["why"]) for one in lines]
    return note + table("Not judged", ("check of the engine", "why"), rows, words=(1,)) if rows else ""


def again(run: Path, spec: Mapping[str, Any]) -> str:
    """The commands that judge the run and that repeat it."""
    lines = [f"python -m reports judge runs/{run.name}", *([str(spec["again"])] if spec.get("again") else [])]
    return "<pre>" + "\n".join(map(safe, lines)) + "</pre>"
