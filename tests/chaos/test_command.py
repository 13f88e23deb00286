"""The command line: every wrong use is one clear line and exit code 2, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.processes import ROOT


def chaos(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("bench", "--mutant", "nonsense"),
            "mutant 'nonsense' does not exist; choose from finish-without-token-check, inject-nothing",
        ),
        (("bench", "--rate", "0"), "rate_per_s is 0: it must be a whole number from 1 to 5000"),
        (("bench", "--seed", "-1"), "seed is -1: it must be a whole number from 0 to 9007199254740991"),
        (("bench", "--lease-ms", "999"), "lease_ms is 999: it must be a whole number from 1000 to 60000"),
        (("bench", "--seed", "one"), "argument --seed: invalid int value: 'one'"),
        (("bench", "--keep", "0"), "--keep is 0: it must be at least 1"),
        (("bench", "--keep-days", "0"), "--keep-days is 0: it must be at least 1"),
        (("bench", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("nonsense",), "invalid choice: 'nonsense'"),
        ((), "the following arguments are required: command"),
    ],
)
def test_wrong_arguments_are_one_line_and_start_nothing(arguments: tuple[str, ...], complaint: str, tmp_path: Path) -> None:
    done = chaos(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_server_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    done = chaos("bench", folder=tmp_path, IRONCLAIM_REDIS_SERVER=str(tmp_path / "no-server"))
    assert done.returncode == 2
    assert "IRONCLAIM_REDIS_SERVER" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_one_line_with_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError('no psutil', name='psutil')\n")
    done = chaos("bench", folder=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2
    assert "'psutil' is missing; `pip install" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_runs_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    done = chaos("bench", folder=tmp_path)
    assert done.returncode == 2
    assert "run folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1
