"""junit.xml: what a CI system reads off it."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from reports.errors import JudgeError
from reports.verdict import junit as render
from reports.verdict import undecided
from reports.verdict import write_junit as write
from tests.golden import Told, tells


def entry(check: str, verdict: str, why: str = "", examples: list[str] | None = None) -> dict[str, Any]:
    return {"id": check, "name": f"name of {check}", "verdict": verdict, "why": why, "examples": examples or []}


def decided(verdict: str, *entries: dict[str, Any], reasons: list[str] | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "checks": list(entries), "reasons": reasons or [], "spec": {"id": "run-1"}}


def objective(result: str, value: float | None, note: str = "") -> dict[str, Any]:
    head = {"objective": "errors.lost", "bound": 0.01, "at_least": False, "unit": "share", "value": value}
    return {**head, "result": result, "note": note}


def cases() -> Told:
    """Violated is a failure and unknown an error, with the reason, its examples and the rows that prove it. So is each objective,
    though the verdict is valid; a run that could not be looked at; and measures that crashed, though all checks are valid."""
    valid, lost = entry("J1", "valid"), entry("J4", "violated", "a is lost", ["a is lost", "b is lost"])
    slo = [objective("met", 0.0), objective("missed", 0.05, "5 of 100"), objective("unknown", None, "no jobs")]
    proved = {**lost, "examples": ["a is lost"], "evidence": ["worker-1.jsonl:7  1.000 s  claim leased"]}
    runs = {
        "checks": decided("violated", valid, lost, entry("H1", "unknown", "no witness")),
        **{"objectives": {**decided("valid", valid), "slo": slo}, "proof": decided("violated", proved)},
        "no history": undecided("the history of x is empty", {}),
        "crashed": decided("unknown", valid, reasons=["the measures crashed: x"]),
        "no XML": decided("violated", entry("J4", "violated", 'a\x00b\ud800c <&"> ü')),
    }
    for name, run in runs.items():
        suite = ElementTree.fromstring(render(run).encode())
        yield name, (suite.attrib, [(case.attrib, [(one.tag, one.attrib, one.text) for one in case]) for case in suite])


def test_each_check_and_each_objective_is_a_test_case() -> None:
    tells("reports/junit.txt", cases)


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "junit.xml.new").symlink_to("/dev/full")
    with pytest.raises(JudgeError, match=r"^junit\.xml of .* cannot be written: No space left on device$"):
        write(tmp_path, undecided("why", {}))
