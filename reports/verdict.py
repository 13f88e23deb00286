"""verdict.json and junit.xml: built from the results of the checks and the measures, and written to disk atomically."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from reports import slo
from reports.causes import REMEDIES, Cause, of_doubt, of_row
from reports.errors import JudgeError, content_of

if TYPE_CHECKING:
    from reports.checks.base import Check

# The result of one check: its violations by level, the first examples, and the verdict that follows.


#: A check shows at most this many examples.
EXAMPLES_MAX = 10

#: The level of a violation that a declared finding covers. The other levels are those of `reports.checks.base.Flag`.
DECLARED = "declared"

#: Levels of what may be a violation: because something is not known, handlers had all places, the clock of a host is not known,
#: rows are missing, or the machine was too slow.
IN_DOUBT = ("unknown", "full", "astray", "unproven", "slow")


@dataclass
class CheckResult:
    """The result of one check. `counts` is by (level, kind); `examples` are whole sentences, by level."""

    check: Check
    doubts: list[str]
    #: The parts of the check that this history cannot show.
    not_judged: list[str] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    #: The subject of each example.
    subjects: dict[str, list[str]] = field(default_factory=dict)
    #: True when rows are missing that may hide a violation.
    hidden: bool = False
    #: Per declared finding, the number of rows that it covers, which then do not count as violations; and their first examples.
    declared: dict[str, int] = field(default_factory=dict)
    declared_examples: dict[str, list[str]] = field(default_factory=dict)

    def total(self, level: str) -> int:
        """Number of violation rows of one level."""
        return sum(count for (at, _), count in self.counts.items() if at == level)

    @property
    def verdict(self) -> str:
        """Violated if any violation is proved, else unknown if anything is in doubt, else valid."""
        if self.total("violated"):
            return "violated"
        doubtful = self.doubts or self.hidden or any(map(self.total, IN_DOUBT))
        return "unknown" if doubtful else "valid"

    @property
    def causes(self) -> set[Cause]:
        """Why the check is unknown; empty when it is not."""
        if self.verdict != "unknown":
            return set()
        found = {
            of_row(self.check.id, level, kind) for (level, kind), count in self.counts.items() if count and level in IN_DOUBT
        }
        found |= {of_doubt(self.check.id, doubt) for doubt in self.doubts}
        return found | ({Cause.HOLES} if self.hidden else set())

    @property
    def why(self) -> str:
        """Why the check is not valid, in one line; empty when it is."""
        if self.verdict == "violated":
            return summarize(self.total("violated"), self.examples["violated"])
        reasons = list(self.doubts)
        if self.total("unknown"):
            reasons.append(summarize(self.total("unknown"), self.examples["unknown"]))
        if self.total("full"):
            reasons.append(summarize(self.total("full"), self.examples["full"]))
        if self.total("astray"):
            reasons.append("the clock of a host may explain it: " + summarize(self.total("astray"), self.examples["astray"]))
        if self.total("unproven"):
            reasons.append("missing rows may explain it: " + summarize(self.total("unproven"), self.examples["unproven"]))
        elif self.hidden:
            reasons.append("missing rows may hide a violation")
        if self.total("slow"):
            reasons.append("a slow machine may explain it: " + summarize(self.total("slow"), self.examples["slow"]))
        return "; ".join(reasons)


def summarize(count: int, examples: Sequence[str]) -> str:
    """The first example, with the count if there are more."""
    return examples[0] if count == 1 else f"{count} found, the first: {examples[0]}"


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
    found = content_of(folder / file, f"{file} of {folder.name}")
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


# junit.xml: the verdict as CI systems show it. One test case per check: violated is a failure, unknown an
# error. And one per service level objective: missed is a failure, unknown an error.


#: Verdict of a check, or result of an objective -> the XML element that reports it.
ELEMENTS = {"violated": "failure", "missed": "failure", "unknown": "error"}

#: The attributes that count the elements.
SUMS = {"failures": "failure", "errors": "error"}

#: Characters that XML 1.0 does not allow.
UNSPEAKABLE = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def write_junit(run: Path, decided: Mapping[str, Any]) -> None:
    """Write junit.xml atomically, whatever the verdict. Raises JudgeError when it cannot be written."""
    place(run / JUNIT, junit(decided))


def junit(decided: Mapping[str, Any]) -> str:
    """The document. If no check has the overall verdict, an extra test case reports it."""
    cases = [(f"{check['id']} {check['name']}", check["verdict"], check["why"], proof(check)) for check in decided["checks"]]
    reported = {one[1] for one in cases}
    if decided["verdict"] not in reported:
        cases.append(("verdict", decided["verdict"], "; ".join(decided["reasons"]), []))
    cases += [(f"slo {line['objective']}", line["result"], shortfall(line), []) for line in decided.get("slo", ())]
    run = spoken(str(decided["spec"].get("id", "run")))
    counts = {name: str(sum(ELEMENTS.get(one[1]) == element for one in cases)) for name, element in SUMS.items()}
    suite = ElementTree.Element("testsuite", {"name": run, "tests": str(len(cases)), **counts})
    for name, verdict, why, examples in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=run, name=spoken(name))
        if verdict in ELEMENTS:
            element = ElementTree.SubElement(case, ELEMENTS[verdict], type=verdict, message=spoken(why))
            element.text = spoken("\n".join(examples or [why]))
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, "unicode")}\n'


def proof(check: Mapping[str, Any]) -> list[str]:
    """The examples of a check, and the rows that prove the first one."""
    return [*check["examples"], *(f"  {row}" for row in check.get("evidence", ()))]


def shortfall(line: Mapping[str, Any]) -> str:
    """What an objective wants and what the run has."""
    note = f" ({line['note']})" if line["note"] else ""
    return f"{line['objective']} must be {slo.wanted(line)}, it is {slo.measured(line)}{note}"


def spoken(words: str) -> str:
    """The text with a question mark for each character that XML does not allow."""
    return UNSPEAKABLE.sub("?", words)
