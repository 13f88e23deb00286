"""`make doctor`: what is there is shown with version and path, what is missing with the line that installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import doctor, installed
from tests.given import Output, Patch, script

ROOT = Path(__file__).resolve().parents[2]


def run_doctor(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-m", "chaos.doctor"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def line_of(answer: subprocess.CompletedProcess[str], tool: str) -> list[str]:
    return next(line.split(maxsplit=3) for line in answer.stdout.splitlines() if line.split()[1:2] == [tool])


def test_tools_are_shown_with_version_and_path(tmp_path: Path) -> None:
    java = script(tmp_path / "java", "echo 'openjdk version \"21.0.4\" 2024-07-16' >&2")
    toxiproxy = script(tmp_path / "my-toxiproxy", "echo toxiproxy-server version git")
    answer = run_doctor(PATH=f"{tmp_path}:{os.environ['PATH']}", JAVA_HOME="", TOXIPROXY_SERVER=str(toxiproxy))
    assert line_of(answer, "java") == ["ok", "java", "21.0.4", str(java)]
    assert line_of(answer, "toxiproxy-server") == ["ok", "toxiproxy-server", "?", str(toxiproxy)]
    assert line_of(answer, "valkey-server")[2].startswith("9.") and line_of(answer, "pyspark")[2] == "4.3.0"
    assert answer.stderr == ""


def test_missing_tools_come_with_the_line_that_installs_them(tmp_path: Path) -> None:
    script(tmp_path / "java", "exit 1")
    answer = run_doctor(PATH=str(tmp_path), JAVA_HOME="", TOXIPROXY_SERVER=str(tmp_path / "nothing"))
    assert (answer.returncode, line_of(answer, "java")[0]) == (1, "MISSING")
    assert "sudo apt-get install redis-server" in " ".join(line_of(answer, "redis-server"))
    assert f"TOXIPROXY_SERVER={tmp_path}/nothing: no such program" in " ".join(line_of(answer, "toxiproxy-server"))
    # git is only good to have
    assert line_of(answer, "git")[0] == "absent"
    last = answer.stdout.splitlines()[-1]
    assert last.startswith("missing: ") and "redis-server" in last and "git" not in last
    assert answer.stderr == ""


def test_it_runs_before_there_is_an_environment() -> None:
    answer = run_doctor("-S")
    assert answer.returncode == 1 and answer.stderr == ""
    assert line_of(answer, "pyspark")[:2] == ["MISSING", "pyspark"]
    assert "make setup" in " ".join(line_of(answer, "pyspark"))


@pytest.mark.parametrize("text", ["exit 3", "kill -9 $$"])
def test_a_tool_that_does_not_run_is_not_there(tmp_path: Path, text: str) -> None:
    broken = script(tmp_path / "tool", text)
    finding = doctor.examine(doctor.Tool("tool", lambda: broken, (), "make bench", "the line"))
    assert finding.missing and "the line" in finding.line()


@pytest.mark.parametrize("checkout", [True, False])
def test_a_wheel_is_asked_for_nothing_of_a_checkout(checkout: bool, tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(installed, "CHECKOUT", checkout)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert doctor.main() == 1
    *lines, last = capsys.readouterr().out.splitlines()
    told = {line.split()[1] for line in lines}
    assert "java" in told and "java" in last
    assert told & doctor.OF_CHECKOUT == (doctor.OF_CHECKOUT if checkout else set())
    assert ("chromium" in last) is checkout
