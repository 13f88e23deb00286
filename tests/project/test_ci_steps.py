"""Each test is run by a step of CI: which marks and files a step leaves out is read from what make would run."""

import argparse
import itertools
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

#: By what steps choose tests; `feature` says what a test proves.
MARKS = sorted({re.match(r"\w+", line)[0] for line in SETTINGS["markers"]} - {"feature"})  # pyright: ignore[reportOptionalSubscript]

#: With these a call runs what it would run without them; any other may leave tests out.
HARMLESS = ("--numprocesses", "--junitxml", "--budget")


class Selection(NamedTuple):
    """The tests that one call of pytest runs. What it takes for -m is Python, too."""

    places: tuple[str, ...]
    marks: str

    def has(self, file: str, marks: Iterable[str]) -> bool:
        """Whether it runs the tests of a file that have these marks and no others."""
        there = any(file == place or file.startswith(f"{place}/") for place in self.places)
        return there and bool(eval(self.marks, {}, {mark: mark in marks for mark in MARKS}))


def selection(line: str) -> Selection:
    """That of a call. Raises AssertionError for options that are not known here."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", dest="marks", default="True")
    for option in HARMLESS:
        parser.add_argument(option)
    parser.add_argument("--no-loadscope-reorder", action="store_true")
    parser.add_argument("places", nargs="*", default=SETTINGS["testpaths"])
    chosen, others = parser.parse_known_args(shlex.split(line.partition(" -m pytest ")[2]))
    assert others == [], f"{' '.join(others)} may leave tests out: {line}"
    return Selection(tuple(chosen.places), chosen.marks)


def planned(step: str) -> list[str]:
    """The calls of pytest that make would make for a step; not as part of the make that runs the tests."""
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-n", *shlex.split(step)], cwd=ROOT, env=apart, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if " -m pytest " in line]


@pytest.fixture(scope="module")
def selections() -> dict[str, list[Selection]]:
    """What each program of CI selects, step by step."""
    texts = {path.name: path.read_text() for path in (ROOT / ".ci").iterdir() if path.is_file()}
    programs = {name: text for name, text in texts.items() if "\n. .ci/steps\n" in text}
    steps = {name: re.findall(r"^step (test.*)$", text, re.MULTILINE) for name, text in programs.items()}
    return {name: [selection(line) for step in these for line in planned(step)] for name, these in steps.items()}


def left_out(chosen: Iterable[Selection]) -> list[str]:
    """Files and marks of which a test would be run by none of these."""
    chosen = list(chosen)
    files = [str(path.relative_to(ROOT)) for place in SETTINGS["testpaths"] for path in (ROOT / place).rglob("test_*.py")]
    classes = [marks for count in range(len(MARKS) + 1) for marks in itertools.combinations(MARKS, count)]
    return [
        f"{file}: {' and '.join(marks) or 'no mark'}"
        for file, marks in itertools.product(sorted(files), classes)
        if not any(one.has(file, marks) for one in chosen)
    ]


def test_whatever_marks_a_test_has_some_step_runs_it(selections: dict[str, list[Selection]]) -> None:
    assert set(selections) == {"nightly", "run", "weekly"} and selections["run"]
    assert left_out(itertools.chain.from_iterable(selections.values())) == []


def test_what_no_step_runs_is_found(selections: dict[str, list[Selection]]) -> None:
    landing, nightly = left_out(selections["run"]), left_out(selections["nightly"])
    wheel, check, drill = (
        f"tests/{name}.py: slow" for name in ("project/test_wheel", "chaos/service/test_service_check", "chaos/test_drill")
    )
    assert wheel not in landing and check in landing and check not in nightly and {drill} <= {*landing} & {*nightly}
    assert not [line for line in landing if line.endswith(": no mark")]
    with pytest.raises(AssertionError, match=r"^-k may leave tests out: "):
        selection(".venv/bin/python -m pytest --numprocesses 3 -m 'not slow' -k claim tests/engine")


def test_no_test_stands_in_a_file_that_pytest_does_not_read() -> None:
    others = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    assert [str(path) for path in others if re.search(r"^(async )?def test_", path.read_text(), re.MULTILINE)] == []
