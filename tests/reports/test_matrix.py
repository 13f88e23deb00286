"""The matrix of planted defects: what each sign means, and what is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from reports import command, errors
from reports.planted import ABSENT, ALLOWED, CAUGHT, MISSED, PAGE_FILE, PICTURE, TEXT, VALID, WRONG, caught_by, columns, sign
from tests.golden import same
from tests.reports.conftest import steady
from tests.reports.figures import figures_told as figures_told


def drill(name: str, **fields: Any) -> dict[str, Any]:
    found = {
        **{"name": name, "clean": False, "defect": "a <defect>", "check": "J3", "wanted": "violated", "closure": ["J3", "J6"]},
        **{"shape": "jobs on embedded: worker-freeze", "seed": 1, "run": f"run-{name}", "verdict": "violated"},
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


@pytest.mark.usefixtures("figures_told")
def test_text_picture_and_page_are_written_and_say_what_is_not_as_it_must_be(tmp_path: Path) -> None:
    written(tmp_path, drill("caught"), drill("missed", checks={"J3": "valid"}, why="J3 is valid, not violated"), CLEAN)
    text = caught_by(tmp_path)
    assert "missed: J3 is valid, not violated" in text and (tmp_path / TEXT).read_text().strip() == text.strip()
    assert (tmp_path / PICTURE).read_bytes().startswith(b"\x89PNG")
    same("reports/planted.html", steady(f"{text}\n{(tmp_path / PAGE_FILE).read_text()}", tmp_path))
    (tmp_path / PICTURE).unlink()
    (tmp_path / PICTURE).mkdir()
    with pytest.raises(errors.JudgeError, match=r"^mutants\.png of .* cannot be written: Is a directory$"):
        caught_by(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"schema": 9}'])
def test_what_is_no_result_is_one_clear_error(content: str, tmp_path: Path) -> None:
    with pytest.raises(errors.JudgeError, match=r"mutants\.json of"):
        caught_by(tmp_path)
    (tmp_path / "mutants.json").write_text(content)
    with pytest.raises(errors.JudgeError, match=r"mutants\.json of .* is not"):
        caught_by(tmp_path)


# The page of a soak: its figures and lines, and what is said of one that was not measured.


def line(what: str, unit: str, per_minute: float | None, half: float = 0.1, *, at: float = 50.0) -> dict[str, Any]:
    """A line over an hour with a sample every ten seconds; without a slope one that was not measured."""
    points = [[10.0 * number, at + (per_minute or 0.0) * number / 6] for number in range(360)]
    known = per_minute is not None
    return {
        **{"what": what, "unit": unit, "per_minute": per_minute},
        "interval": [per_minute - half, per_minute + half] if per_minute is not None else None,
        **{"first": at if known else None, "last": at + 60 * (per_minute or 0) if known else None},
        **{"samples": 354 if known else 0, "complaint": "" if known else "3 samples, it needs 354"},
        "points": points if known else points[:3],
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a soak."""
    lines = [
        *(line("memory of worker-1", "MB", 0.02), line("used_memory of the server", "MB", 2.5, at=20)),
        *(line("median of latency", "ms", 0.5, half=0.3), line("p99 of latency", "ms", None)),
    ]
    content = {"schema": 1, "id": "20261127-000000-soak-seed1", "warm_up_s": 60.0, "total_s": 3_600.0, "lines": lines}
    (tmp_path / "soak.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.usefixtures("figures_told")
def test_the_page_shows_memory_latency_and_their_growth(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["soak", str(run)]) == 0
    assert capsys.readouterr().out.strip() == f"page: {run / 'soak.html'}"
    page = (run / "soak.html").read_text()
    assert "<script" not in page
    same("reports/soak.html", steady(page, run))


def test_what_is_no_soak_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["soak", str(tmp_path)]) == 2 and "soak.json" in capsys.readouterr().err
