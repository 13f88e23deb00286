"""Where the time of a test run goes: `python -m tests.times` prints it, from the report that `make test` leaves in `runs/tests/`.

As a pytest plugin (tests/conftest.py loads it) it notes with each test how long the fixtures took that were set up for it, as
properties `fixture NAME` in seconds of the JUnit report. As a program it reads that report: seconds by file, by fixture, and of
the longest tests. A fixture's seconds are part of those of the test that asked for it first.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from pathlib import Path
from xml.etree import ElementTree

import pytest

PREFIX = "fixture "

#: Fixtures that took less are not worth a property in every test.
LEAST_S = 0.005

FILES_SHOWN, FIXTURES_SHOWN, TESTS_SHOWN = 40, 20, 20

_current: list[pytest.Item] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Remember the test that fixtures are set up for."""
    _current[:] = [item]
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Note how long a fixture took, also when it failed."""
    started_s = time.perf_counter()
    try:
        return (yield)
    finally:
        took_s = time.perf_counter() - started_s
        if _current and took_s >= LEAST_S:
            _current[0].user_properties.append((PREFIX + fixturedef.argname, f"{took_s:.3f}"))


def tables(report: Path) -> list[str]:
    """The lines of `python -m tests.times`, from one JUnit report. Raises OSError and ElementTree.ParseError."""
    files: dict[str, list[float]] = {}
    fixtures: dict[str, list[float]] = {}
    tests: list[tuple[float, str]] = []
    for case in ElementTree.parse(report).iter("testcase"):
        took_s, file = float(case.get("time", "0")), case.get("classname", "").removeprefix("tests.")
        files.setdefault(file, []).append(took_s)
        tests.append((took_s, f"{file}::{case.get('name')}"))
        for one in case.iter("property"):
            if one.get("name", "").startswith(PREFIX):
                fixtures.setdefault(one.get("name", "").removeprefix(PREFIX), []).append(float(one.get("value", "0")))
    whole_s = sum(took_s for took_s, _ in tests)
    lines = [f"{len(tests)} tests in {len(files)} files: {whole_s:.1f} s, summed over the processes", "", "by file"]
    lines += [*_ranked(files, FILES_SHOWN, "tests"), "", "by fixture", *_ranked(fixtures, FIXTURES_SHOWN, "times")]
    return [*lines, "", "longest tests", *(f"{took_s:9.2f} s  {name}" for took_s, name in sorted(tests)[: -TESTS_SHOWN - 1 : -1])]


def _ranked(times_s: dict[str, list[float]], most: int, unit: str) -> list[str]:
    ranked = sorted(((sum(took), len(took), name) for name, took in times_s.items()), reverse=True)
    return [f"{total_s:9.2f} s  {count:5} {unit}  {name}" for total_s, count, name in ranked[:most]]


def main(words: list[str]) -> int:
    """Print the tables of the report that is named, else of the newest one."""
    reports = [Path(word) for word in words] or sorted(Path("runs/tests").glob("*.xml"), key=lambda path: path.stat().st_mtime)
    if not reports:
        print("test-times: there is no report in runs/tests; make test writes one", file=sys.stderr)
        return 2
    try:
        print("\n".join([str(reports[-1]), *tables(reports[-1])]))
    except (OSError, ElementTree.ParseError) as error:
        print(f"test-times: {reports[-1]} cannot be read: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
