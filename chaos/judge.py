"""Ask `reports` for the verdict, in a fresh interpreter, and turn it into the exit code of the drill."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos.processes import ROOT, child_environment
from engine.testing import start_guarded

#: Verdict -> exit code.
EXIT_CODES = {"valid": 0, "violated": 1, "unknown": 2}
VALID = EXIT_CODES["valid"]
UNKNOWN = EXIT_CODES["unknown"]

#: Spark needs about half a minute; a judge that takes this long is stuck.
JUDGE_TIMEOUT_S = 900


def judge_command(run: Path) -> list[str]:
    return [sys.executable, "-m", "reports", "judge", str(run)]


def judge(run: Path, command: Sequence[str] | None = None) -> tuple[int, str]:
    """Judge a run, its output passed through. Returns the exit code (0, 1 or 2) and a complaint, empty when all went well.

    An exit code alone is not believed: an interpreter that crashes exits with 1 too. It must agree with verdict.json.
    """
    process = start_guarded(command or judge_command(run), cwd=ROOT, env=child_environment({}))
    try:
        code = process.wait(JUDGE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return UNKNOWN, f"the judge did not end within {JUDGE_TIMEOUT_S} s"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    written = written_code(run / "verdict.json")
    if written is None or written != code:
        return UNKNOWN, f"the judge gave no usable verdict (exit code {code}, verdict.json says {written})"
    return code, ""


def written_code(path: Path) -> int | None:
    """The exit code that belongs to the verdict in verdict.json; None when there is none."""
    try:
        return EXIT_CODES.get(json.loads(path.read_text())["verdict"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
