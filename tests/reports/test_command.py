"""The command line: exit codes, one clear line for whatever is missing, never a traceback and never a pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import reports.judge
from reports.__main__ import main
from reports.verdict import undecided
from tests.reports.good_run import healthy

ROOT = Path(__file__).parents[2]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`judge FOLDER` in this process and the shared session: (exit code, stdout, stderr)."""
    monkeypatch.setattr(reports.judge, "spark_session", lambda master: nullcontext(spark))

    def run(folder: Path) -> tuple[int, str, str]:
        code = main(["judge", str(folder)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def in_a_process(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m reports judge FOLDER` in an interpreter of its own."""
    command = [sys.executable, "-m", "reports", "judge", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=170)


def test_a_valid_run_in_a_fresh_interpreter(tmp_path: Path) -> None:
    """The real thing: a session of its own, the table on stdout, short progress on stderr, exit code 0."""
    run = healthy(tmp_path / "run").write()
    done = in_a_process(run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "verdict: valid"
    progress = done.stderr.splitlines()
    assert progress[0] == "judge: starting Spark"
    assert all(line.startswith("judge: ") for line in progress), "Spark's own noise stays off the screen"
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "valid"


@pytest.mark.parametrize(("verdict", "exit_code"), [("valid", 0), ("violated", 1), ("unknown", 2)])
def test_the_exit_code_tells_the_verdict(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, verdict: str, exit_code: int
) -> None:
    run = healthy(tmp_path / "run").write()
    monkeypatch.setattr(reports.judge, "look", lambda *_: {**undecided("because", {}), "verdict": verdict})
    code, out, _ = command(run)
    assert (code, out.splitlines()[-1]) == (exit_code, f"verdict: {verdict}")
    assert json.loads((run / "verdict.json").read_text())["verdict"] == verdict


def no_spec(run: Path) -> None:
    (run / "spec.json").unlink()


def broken_spec(run: Path) -> None:
    (run / "spec.json").write_text("{")


def no_history(run: Path) -> None:
    for file in (run / "history").iterdir():
        file.unlink()
    (run / "history").rmdir()


def deleted_history(run: Path) -> None:
    for file in (run / "history").iterdir():
        file.unlink()


def empty_history(run: Path) -> None:
    for file in (run / "history").iterdir():
        file.write_text("")


def newer_schema(run: Path) -> None:
    file = run / "history" / "worker-1.jsonl"
    file.write_text(file.read_text().replace('"v":1', '"v":7', 1))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (no_spec, "spec.json of run: No such file or directory"),
        (broken_spec, "spec.json of run is not JSON"),
        (no_history, "run has no history folder"),
        (deleted_history, "the history of run is empty"),
        (empty_history, "the history of run is empty"),
        (newer_schema, "history file worker-1.jsonl: schema version 7, this judge reads up to 1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_judged_is_one_clear_line_and_unknown(
    tmp_path: Path, command: Command, spoil: Callable[[Path], None], words: str
) -> None:
    run = healthy(tmp_path / "run").write()
    (run / "verdict.json").write_text('{"verdict": "valid"}')
    spoil(run)
    code, out, _ = command(run)
    reasons = [line for line in out.splitlines() if words in line]
    assert (code, len(reasons), out.splitlines()[-1]) == (2, 1, "verdict: unknown")
    written = json.loads((run / "verdict.json").read_text())
    assert written["verdict"] == "unknown" and words in written["reasons"][0]


def test_a_missing_run_folder(tmp_path: Path, command: Command) -> None:
    code, out, err = command(tmp_path / "nowhere")
    assert (code, out) == (2, "verdict: unknown\n")
    assert err.splitlines() == [f"judge: run folder {tmp_path / 'nowhere'} does not exist"]


def test_a_verdict_that_cannot_be_written_is_never_a_pass(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = healthy(tmp_path / "run").write()
    monkeypatch.setattr(reports.judge, "look", lambda *_: {**undecided("because", {}), "verdict": "valid"})
    (run / "verdict.json.new").symlink_to("/dev/full")
    code, out, err = command(run)
    assert (code, out) == (2, "verdict: unknown\n")
    assert err.splitlines()[-1] == "judge: verdict.json of run cannot be written: No space left on device"


def test_a_judge_that_is_interrupted_leaves_no_older_verdict(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = healthy(tmp_path / "run").write()
    (run / "verdict.json").write_text('{"verdict": "valid"}')

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reports.judge, "look", interrupt)
    code, out, err = command(run)
    assert (code, out, err.splitlines()[-1]) == (2, "verdict: unknown\n", "judge: interrupted")
    assert not (run / "verdict.json").exists()


def test_tables_that_cannot_be_written_are_never_a_pass(tmp_path: Path, command: Command) -> None:
    run = healthy(tmp_path / "run").write()
    (run / "tables").write_text("in the way")
    code, out, _ = command(run)
    assert code == 2 and "  table ops.parquet cannot be written: " in out


def test_missing_java_names_what_installs_it(tmp_path: Path) -> None:
    run = healthy(tmp_path / "run").write()
    done = in_a_process(run, JAVA_HOME=str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"Spark needs Java, and JAVA_HOME is {tmp_path}, where there is no Java that runs" in done.stdout
    assert "install the Debian package openjdk-17-jre-headless, or set JAVA_HOME" in done.stdout
    assert done.stdout.splitlines()[-1] == "verdict: unknown"


def test_no_java_at_all_names_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reports.errors import CannotJudge
    from reports.session import require_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotJudge, match="none on PATH: install the Debian package openjdk-17-jre-headless"):
        require_java()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(CannotJudge, match="needs Java 17 or newer, and .* is version 11"):
        require_java()


def test_a_wrong_master_is_one_clear_line(tmp_path: Path) -> None:
    """In an interpreter of its own, as this one has a session already."""
    run = healthy(tmp_path / "run").write()
    command = [sys.executable, "-m", "reports", "judge", str(run), "--master", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=170)
    assert done.returncode == 2 and "Traceback" not in done.stderr + done.stdout
    assert "Spark does not start on master nonsense" in done.stdout


def test_wrong_arguments_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["judge"])
    assert stopped.value.code == 2 and "the following arguments are required: run" in capsys.readouterr().err
