"""The matrix of planted defects: what each sign means, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.errors import JudgeError
from reports.planted import ABSENT, ALLOWED, CAUGHT, MISSED, PAGE_FILE, PICTURE, TEXT, VALID, WRONG, caught_by, columns, sign


def drill(name: str, **fields: Any) -> dict[str, Any]:
    found = {
        "name": name,
        "clean": False,
        "defect": "a <defect>",
        "check": "J3",
        "wanted": "violated",
        "closure": ["J3", "J6"],
        "shape": "jobs on embedded: worker-freeze",
        "seed": 1,
        "run": f"run-{name}",
        "verdict": "violated",
        "checks": {"H0": "valid", "J3": "violated", "J6": "violated", "J10": "valid"},
        "why": "",
    }
    return {**found, **fields}


CLEAN = drill("clean-1", clean=True, defect="", check="", wanted="valid", closure=[], checks={"H0": "valid", "P1": "valid"})


def written(folder: Path, *drills: dict[str, Any]) -> None:
    content = {"schema": 1, "id": "sample", "line": "mutants: caught 1 of 1, false alarms 0 of 1", "drills": list(drills)}
    (folder / "mutants.json").write_text(json.dumps(content))


def test_each_check_has_the_sign_of_what_it_has_to_do_with_the_drill() -> None:
    found = drill("caught")
    assert [sign(found, check) for check in ("H0", "J3", "J6", "J10", "P1")] == [VALID, CAUGHT, ALLOWED, VALID, ABSENT]
    assert sign(drill("wrong", closure=["J3"]), "J6") == WRONG
    assert sign(drill("missed", checks={"J3": "unknown"}), "J3") == MISSED
    assert sign(drill("missed", checks={}), "J3") == MISSED
    assert sign({**CLEAN, "checks": {"J3": "unknown"}}, "J3") == WRONG


def test_checks_stand_in_the_order_of_their_numbers() -> None:
    assert columns([drill("caught"), CLEAN]) == ["H0", "J3", "J6", "J10", "P1"]


def test_text_picture_and_page_are_written_and_say_what_is_not_as_it_must_be(tmp_path: Path) -> None:
    missed = drill("missed", checks={"J3": "valid"}, why="J3 is valid, not violated")
    written(tmp_path, drill("caught"), missed, CLEAN)
    text = caught_by(tmp_path)
    assert "missed: J3 is valid, not violated" in text and (tmp_path / TEXT).read_text().strip() == text.strip()
    assert (tmp_path / PICTURE).read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / PAGE_FILE).read_text()
    assert "a &lt;defect&gt;" in page and 'href="run-caught/report.html"' in page
    assert "caught 1 of 1, false alarms 0 of 1" in page and "<svg" in page


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 9}'])
def test_what_is_no_result_is_one_clear_error(content: str, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=r"mutants\.json of"):
        caught_by(tmp_path)
    (tmp_path / "mutants.json").write_text(content)
    with pytest.raises(JudgeError, match=r"mutants\.json of .* is not"):
        caught_by(tmp_path)
