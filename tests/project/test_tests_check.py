"""`.ci/tests_check`: what it finds in the source of a test, and what it leaves alone."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.ci_scripts import loaded

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "test_a.py"


@pytest.fixture(scope="module")
def check() -> ModuleType:
    return loaded(ROOT / ".ci" / "tests_check")


def found(rule: Any, *lines: str) -> list[int]:
    """The numbers of the lines in which this rule finds something."""
    return sorted(int(line.split(":")[1]) for line in rule(FILE, ast.parse("\n".join(lines))))


def test_a_few_digits_that_a_text_must_not_have_are_found(check: ModuleType) -> None:
    by_chance = (
        *('assert "4111" not in text', 'assert done and "0a1" not in text', 'assert b"7f" not in packed'),
        *('assert [("4111" in text) for text in shown] == [False]', 'assert not [text for text in shown if "410" in text]'),
        'assert not ("12" in text)',
    )
    assert found(check.parts_of_numbers, *by_chance) == [1, 2, 3, 4, 5, 6]
    meant = (
        *('assert "503" in error', 'assert done and "10" in caught.bound'),
        *('assert "4111-1111" not in text and "411111" not in text', 'assert "dead" not in text and "db" not in options'),
        "assert 4111 not in numbers and number not in text",
    )
    assert found(check.parts_of_numbers, *meant) == []


def test_a_bound_that_a_process_may_need_is_found(check: ModuleType) -> None:
    short = ("process.wait(20)", "subprocess.run(words, timeout=60)", "worker.join(1)")
    assert found(check.short_bounds, *short) == [1, 2, 3]
    assert found(check.short_bounds, "process.wait(120)", "thread.join(0.05)", "event.wait(20)") == []
