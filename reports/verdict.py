"""verdict.json: built from the checks and measures, and written to disk atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.causes import REMEDIES, Cause
from reports.check_result import DECLARED, EXAMPLES_MAX, IN_DOUBT, CheckResult
from reports.errors import JudgeError

SCHEMA = 1
FILE = "verdict.json"

#: Written from the verdict, and removed with it.
JUNIT = "junit.xml"

#: The rows that prove the violations of the verdict.
EVIDENCE = "evidence.json"

#: Verdict -> exit code. `missed`: a valid run that missed an objective.
EXIT_CODES = {"valid": 0, "violated": 1, "unknown": 2, "missed": 3}

#: (check, kind): measures that are the count of a check's violations of that kind.
COUNTED = (("J4", "lost"), ("J6", "doubled"), ("P1", "lost"))

#: Measures of a run that could not be judged.
NO_MEASURES: dict[str, Any] = {
    **dict.fromkeys(("enqueued", "finished", "lost", "doubled", "refused_stale", "dead", "dropped")),
    **dict.fromkeys(("latency", "percentiles", "recovery", "faults", "by_fault", "hosts"), ()),
    "rates": {"offered_per_s": None, "finished_per_s": None},
    "send_lag": {"p50_ms": None, "p99_ms": None},
    "delayed": {"n": 0, "p50_ms": None, "p99_ms": None, "max_ms": None},
    "recorder_share": None,
}


def merge(verdicts: Iterable[str]) -> str:
    """Violated beats unknown, and unknown beats valid; no verdicts at all give unknown."""
    return max(verdicts, key=("valid", "unknown", "violated").index, default="unknown")


def exit_code(decided: Mapping[str, Any]) -> int:
    """The exit code: that of the verdict, and of a valid run 3 when it missed an objective, or 2 when it cannot be told whether
    it met all of them."""
    results = {line["result"] for line in decided.get("slo", ())}
    worst = next((name for name in ("missed", "unknown") if name in results), "valid")
    return EXIT_CODES[worst if decided["verdict"] == "valid" else decided["verdict"]]


def worst(codes: Iterable[int]) -> int:
    """The exit code of several verdicts: violated beats unknown, unknown beats missed, and missed beats valid."""
    order = [EXIT_CODES[name] for name in ("valid", "missed", "unknown", "violated")]
    return max(codes, key=order.index, default=EXIT_CODES["unknown"])


def decide(
    found: Sequence[CheckResult],
    measures: Mapping[str, Any],
    spec: Mapping[str, Any],
    trouble: str = "",
    losses: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The verdict of a run that could be judged. `trouble`: why the measures failed, which also makes the verdict unknown.
    `losses`: what the servers may lose, as findings."""
    by_id = {one.check.id: one for one in found}
    counted = {name: proved(by_id[check], name) for check, name in COUNTED if check in by_id}
    return {
        "schema": SCHEMA,
        "verdict": merge([*(one.verdict for one in found), "unknown" if trouble else "valid"]),
        "reasons": [f"{one.check.id} {one.verdict}: {one.why}" for one in ranked(found) if one.verdict != "valid"]
        + ([trouble] if trouble else []),
        "causes": causes_of(found, trouble),
        "checks": [check_entry(one) for one in found],
        "findings": [finding_entry(finding, found) for finding in (*(spec.get("findings") or ()), *losses)],
        "measures": {**measures, **counted},
        "slo": [],
        "spec": dict(spec),
    }


def causes_of(found: Sequence[CheckResult], trouble: str) -> dict[str, list[str]]:
    """Why the verdict is unknown: each cause, the worst first, with the checks that have it; the measures have none."""
    checks = {cause: [one.check.id for one in found if cause in one.causes] for cause in REMEDIES}
    return {cause: checks[cause] for cause in REMEDIES if checks[cause] or (trouble and cause == Cause.CRASHED)}


def proved(one: CheckResult, kind: str) -> int | None:
    """Number of proved violations of a kind, declared ones included; None when the check is unknown."""
    return None if one.verdict == "unknown" else sum(one.counts.get((level, kind), 0) for level in ("violated", DECLARED))


def finding_entry(finding: Mapping[str, Any], found: Sequence[CheckResult]) -> dict[str, Any]:
    """One declared finding as written to verdict.json, with its row count and first examples."""
    name = finding["name"]
    examples = [f"{one.check.id} {example}" for one in found for example in one.declared_examples.get(name, ())]
    rows = sum(one.declared.get(name, 0) for one in found)
    return {**finding, "rows": rows, "examples": examples[:EXAMPLES_MAX]}


def ranked(found: Sequence[CheckResult]) -> list[CheckResult]:
    """Violated checks first, then unknown ones, then valid ones."""
    return sorted(found, key=lambda one: ("violated", "unknown", "valid").index(one.verdict))


def check_entry(one: CheckResult) -> dict[str, Any]:
    """One check as written to verdict.json."""
    levels = ("violated", *IN_DOUBT, "possible")
    examples, subjects = ([text for level in levels for text in found.get(level, [])] for found in (one.examples, one.subjects))
    return {
        "id": one.check.id,
        "name": one.check.name,
        "verdict": one.verdict,
        "violations": one.total("violated"),
        "declared": one.total(DECLARED),
        "possible": sum(map(one.total, (*IN_DOUBT, "possible"))),
        "examples": examples[:EXAMPLES_MAX],
        "subjects": subjects[:EXAMPLES_MAX],
        "evidence": [],
        "why": one.why,
        "not_judged": list(one.not_judged),
    }


def undecided(reason: str, spec: Mapping[str, Any], cause: Cause = Cause.INPUT) -> dict[str, Any]:
    """The verdict of a run that could not be judged."""
    head = {
        "schema": SCHEMA,
        "verdict": "unknown",
        "reasons": [reason],
        "causes": {cause: []},
        "checks": [],
        "findings": [],
        "slo": [],
    }
    return {**head, "measures": NO_MEASURES, "spec": dict(spec)}


def withdraw(run: Path) -> None:
    """Remove an older verdict before judging, so that a judge that crashes leaves no stale one. Raises JudgeError when it
    cannot be removed."""
    for name in (FILE, JUNIT, EVIDENCE):
        try:
            (run / name).unlink(missing_ok=True)
        except OSError as error:
            raise JudgeError(f"the older {name} of {run.name} cannot be removed: {error.strerror or error}") from error


def write(run: Path, verdict: Mapping[str, Any]) -> None:
    """Write verdict.json atomically. Raises JudgeError when it cannot be written."""
    place(run / FILE, json.dumps(verdict, indent=2, ensure_ascii=False) + "\n")


def content(folder: Path, file: str, schema: int) -> dict[str, Any]:
    """The JSON object in a file of this folder. Raises JudgeError when it is missing, not JSON or of another schema."""
    try:
        found = json.loads((folder / file).read_text("utf-8"))
    except OSError as error:
        raise JudgeError(f"{file} of {folder.name}: {error.strerror or error}") from error
    except ValueError as error:
        raise JudgeError(f"{file} of {folder.name} is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != schema:
        raise JudgeError(f"{file} of {folder.name} is not of schema {schema}")
    return found


def place(path: Path, words: str) -> None:
    """Write a text file atomically. Raises JudgeError when it cannot be written."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        # A lone surrogate in a spec cannot be encoded, so it is written as an escape.
        fresh.write_text(words, "utf-8", "backslashreplace")
        fresh.replace(path)
    except OSError as error:
        raise JudgeError(f"{path.name} of {path.parent.name} cannot be written: {error.strerror or error}") from error
