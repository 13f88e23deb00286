"""verdict.json: what the checks and measures come to, and how it gets to disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.errors import CannotJudge
from reports.found import DECLARED, EXAMPLES_MAX, Found

SCHEMA = 1
FILE = "verdict.json"

#: What else is made of a verdict, and must not outlive it.
JUNIT = "junit.xml"

#: Verdict -> exit code.
EXIT_CODES = {"valid": 0, "violated": 1, "unknown": 2}

#: Measures that are what a check has found of that kind.
COUNTED = (("J4", "lost"), ("J6", "doubled"), ("P1", "lost"))

#: Measures of a run that could not be looked at.
NO_MEASURES: dict[str, Any] = {
    **dict.fromkeys(("enqueued", "finished", "lost", "doubled", "refused_stale", "dead", "dropped")),
    **dict.fromkeys(("latency", "percentiles", "recovery", "faults", "by_fault"), ()),
    "rates": {"offered_per_s": None, "finished_per_s": None},
    "send_lag": {"p50_ms": None, "p99_ms": None},
    "delayed": {"n": 0, "p50_ms": None, "p99_ms": None, "max_ms": None},
    "recorder_share": None,
}


def merge(verdicts: Iterable[str]) -> str:
    """False beats unknown beats true; nothing at all is unknown."""
    return max(verdicts, key=("valid", "unknown", "violated").index, default="unknown")


def decide(found: Sequence[Found], measures: Mapping[str, Any], spec: Mapping[str, Any], trouble: str = "") -> dict[str, Any]:
    """The verdict of a run that could be looked at. Trouble with the measures makes it unknown too."""
    by_id = {one.check.id: one for one in found}
    counted = {name: proved(by_id[check], name) for check, name in COUNTED if check in by_id}
    return {
        "schema": SCHEMA,
        "verdict": merge([*(one.verdict for one in found), "unknown" if trouble else "valid"]),
        "reasons": [f"{one.check.id} {one.verdict}: {one.why}" for one in ranked(found) if one.verdict != "valid"]
        + ([trouble] if trouble else []),
        "checks": [check_entry(one) for one in found],
        "findings": [finding_entry(finding, found) for finding in spec.get("findings") or ()],
        "measures": {**measures, **counted},
        "spec": dict(spec),
    }


def proved(one: Found, kind: str) -> int | None:
    """How many violations of a kind are proved, declared ones as well; None where the check could not be judged."""
    return None if one.verdict == "unknown" else sum(one.counts.get((level, kind), 0) for level in ("violated", DECLARED))


def finding_entry(finding: Mapping[str, Any], found: Sequence[Found]) -> dict[str, Any]:
    """One declared finding as it stands in verdict.json: how often it was seen, and the first examples."""
    name = finding["name"]
    examples = [f"{one.check.id} {example}" for one in found for example in one.declared_examples.get(name, ())]
    rows = sum(one.declared.get(name, 0) for one in found)
    return {**finding, "rows": rows, "examples": examples[:EXAMPLES_MAX]}


def ranked(found: Sequence[Found]) -> list[Found]:
    """Violated checks first, then unknown ones."""
    return sorted(found, key=lambda one: ("violated", "unknown", "valid").index(one.verdict))


def check_entry(one: Found) -> dict[str, Any]:
    """One check as it stands in verdict.json."""
    examples = [example for level in ("violated", "unknown", "unproven", "possible") for example in one.examples.get(level, [])]
    return {
        "id": one.check.id,
        "name": one.check.name,
        "verdict": one.verdict,
        "violations": one.total("violated"),
        "declared": one.total(DECLARED),
        "possible": sum(map(one.total, ("unknown", "unproven", "possible"))),
        "examples": examples[:EXAMPLES_MAX],
        "why": one.why,
    }


def undecided(reason: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict of a run that could not be looked at."""
    head = {"schema": SCHEMA, "verdict": "unknown", "reasons": [reason], "checks": [], "findings": []}
    return {**head, "measures": NO_MEASURES, "spec": dict(spec)}


def withdraw(run: Path) -> None:
    """Remove an older verdict first, so that a judge that dies leaves none that looks new. Raises CannotJudge."""
    for name in (FILE, JUNIT):
        try:
            (run / name).unlink(missing_ok=True)
        except OSError as error:
            raise CannotJudge(f"the older {name} of {run.name} cannot be removed: {error.strerror or error}") from error


def write(run: Path, verdict: Mapping[str, Any]) -> None:
    """Put verdict.json in place in one step. Raises CannotJudge when the disk refuses."""
    place(run / FILE, json.dumps(verdict, indent=2, ensure_ascii=False) + "\n")


def place(path: Path, words: str) -> None:
    """Put a text in place in one step. Raises CannotJudge when the disk refuses."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        # Half a surrogate pair in a spec is written as an escape.
        fresh.write_text(words, "utf-8", "backslashreplace")
        fresh.replace(path)
    except OSError as error:
        raise CannotJudge(f"{path.name} of {path.parent.name} cannot be written: {error.strerror or error}") from error
