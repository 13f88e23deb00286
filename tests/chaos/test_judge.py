"""The exit code of the judge is believed only when verdict.json agrees."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from chaos.judge import judge


def command(code: int, run: Path, verdict: object) -> list[str]:
    """A judge that writes this verdict.json (nothing for None) and exits with this code."""
    write = "" if verdict is None else f"open({str(run / 'verdict.json')!r}, 'w').write({json.dumps(verdict)!r}); "
    return [sys.executable, "-c", f"{write}raise SystemExit({code})"]


@pytest.mark.parametrize(("verdict", "code"), [("valid", 0), ("violated", 1), ("unknown", 2)])
def test_a_verdict_is_an_exit_code(verdict: str, code: int, tmp_path: Path) -> None:
    assert judge(tmp_path, command(code, tmp_path, {"verdict": verdict})) == (code, "")


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (1, None),
        (0, None),
        (3, {"verdict": "valid"}),
        (0, {"verdict": "violated"}),
        (1, {"verdict": "valid"}),
        (0, {"verdict": "splendid"}),
        (0, {}),
        (0, ["valid"]),
    ],
)
def test_a_judge_that_crashed_or_contradicts_itself_is_unknown(code: int, verdict: object, tmp_path: Path) -> None:
    exit_code, complaint = judge(tmp_path, command(code, tmp_path, verdict))
    assert exit_code == 2
    assert f"exit code {code}" in complaint


def test_a_judge_killed_by_a_signal_is_unknown(tmp_path: Path) -> None:
    exit_code, complaint = judge(tmp_path, [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert exit_code == 2
    assert "-9" in complaint
