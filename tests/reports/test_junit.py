"""junit.xml: what a CI system reads off it."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from reports.errors import JudgeError
from reports.verdict import junit as render
from reports.verdict import undecided
from reports.verdict import write_junit as write


def entry(check: str, verdict: str, why: str = "", examples: list[str] | None = None) -> dict[str, Any]:
    return {"id": check, "name": f"name of {check}", "verdict": verdict, "why": why, "examples": examples or []}


def decided(verdict: str, *entries: dict[str, Any], reasons: list[str] | None = None) -> dict[str, Any]:
    return {"verdict": verdict, "checks": list(entries), "reasons": reasons or [], "spec": {"id": "run-1"}}


def test_each_check_is_a_test_case() -> None:
    """Violated is a failure, unknown an error, with the reason and its examples."""
    lost = entry("J4", "violated", "a is lost", ["a is lost", "b is lost"])
    entries = (entry("J1", "valid"), lost, entry("H1", "unknown", "no witness"))
    suite = ElementTree.fromstring(render(decided("violated", *entries)).encode())
    assert suite.attrib == {"name": "run-1", "tests": "3", "failures": "1", "errors": "1"}
    valid, violated, unknown = suite
    assert (valid.get("name"), valid.get("classname"), len(valid)) == ("J1 name of J1", "run-1", 0)
    (failure,), (error,) = violated, unknown
    assert (failure.tag, failure.get("message"), failure.text) == ("failure", "a is lost", "a is lost\nb is lost")
    assert (error.tag, error.get("message"), error.text) == ("error", "no witness", "no witness")


def objective(result: str, value: float | None, note: str = "") -> dict[str, Any]:
    head = {"objective": "errors.lost", "bound": 0.01, "at_least": False, "unit": "share", "value": value}
    return {**head, "result": result, "note": note}


def test_each_objective_is_a_test_case() -> None:
    """Missed is a failure and unknown an error, though the verdict is valid."""
    slo = [objective("met", 0.0), objective("missed", 0.05, "5 of 100"), objective("unknown", None, "no jobs")]
    suite = ElementTree.fromstring(render({**decided("valid", entry("J1", "valid")), "slo": slo}).encode())
    assert suite.attrib == {"name": "run-1", "tests": "4", "failures": "1", "errors": "1"}
    _, met, missed, unknown = suite
    assert (met.get("name"), len(met)) == ("slo errors.lost", 0)
    (failure,), (error,) = missed, unknown
    assert (failure.tag, failure.get("type")) == ("failure", "missed")
    assert failure.get("message") == "errors.lost must be at most 1 %, it is 5 % (5 of 100)"
    assert (error.tag, error.get("message")) == ("error", "errors.lost must be at most 1 %, it is ? (no jobs)")


def test_a_violation_comes_with_the_rows_that_prove_it() -> None:
    check = {**entry("J4", "violated", "a is lost", ["a is lost"]), "evidence": ["worker-1.jsonl:7  1.000 s  claim leased"]}
    ((failure,),) = ElementTree.fromstring(render(decided("violated", check)).encode())
    assert failure.text == "a is lost\n  worker-1.jsonl:7  1.000 s  claim leased"


def test_a_run_that_could_not_be_looked_at_is_one_error() -> None:
    suite = ElementTree.fromstring(render(undecided("the history of x is empty", {})).encode())
    ((error,),) = suite
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "1", "0")
    assert (error.tag, error.get("message")) == ("error", "the history of x is empty")


def test_measures_that_crashed_are_an_error_though_all_checks_are_valid() -> None:
    suite = ElementTree.fromstring(render(decided("unknown", entry("J1", "valid"), reasons=["the measures crashed: x"])).encode())
    assert (suite.get("tests"), suite.get("errors")) == ("2", "1")


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    text = render(decided("violated", entry("J4", "violated", 'a\x00b\ud800c <&"> ü')))
    ((failure,),) = ElementTree.fromstring(text.encode())
    assert failure.get("message") == 'a?b?c <&"> ü'


def test_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "junit.xml.new").symlink_to("/dev/full")
    with pytest.raises(JudgeError, match=r"^junit\.xml of .* cannot be written: No space left on device$"):
        write(tmp_path, undecided("why", {}))
