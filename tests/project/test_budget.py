"""The budget of the first tier: what tests start and wait for counts alike in any number of processes, and too much of it fails
the run. Spark's jobs: tests/reports/test_budget.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import program, read

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
import subprocess
import pytest

@pytest.fixture(scope="session")
def shared():
    subprocess.run(["true"])
"""

TESTS = """
import os, subprocess, sys, time
import pytest

HALF_S = 0.25

@pytest.mark.parametrize("number", range(3))
def test_starts(shared, number):
    if subprocess.run([sys.executable, "-c", ""]).returncode:
        time.sleep(2 * HALF_S)
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)

@pytest.mark.slow
def test_of_another_tier():
    time.sleep(5)

def helper(unknown_s):
    time.sleep(1)
    time.sleep(600)
    time.sleep(unknown_s)
"""


FILES = ("test_a.py", "test_b.py")


def run(tree: Path, limits: str, *words: str) -> tuple[int, list[str]]:
    """The exit code of these words after `python -m`, and the lines of the budget."""
    (tree / "tests").mkdir()
    (tree / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tree / "budget.toml").write_text(limits)
    for name, text in {"conftest.py": CONFTEST, **dict.fromkeys(FILES, TESTS)}.items():
        (tree / "tests" / name).write_text(text)
    command = [sys.executable, "-m", *words, "-m", "not slow", "-p", "tests.budget", "--budget", "budget.toml", "tests"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    _, found, rest = done.stdout.partition("= budget")
    assert found, done.stdout + done.stderr
    return done.returncode, [line for line in rest.splitlines()[1:] if "passed" not in line]


def test_what_is_over_its_budget_fails_the_run_of_several_processes(tmp_path: Path) -> None:
    limits = "tests = 6\nwaits_s = 4\nprocesses = 13\nfork = 5\ntrue = 0.5\njava = 0\n"
    code, lines = run(tmp_path, limits, "pytest", "-q", "-p", "xdist", "-n", "2", "--dist", "loadfile")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert [line.split(maxsplit=3) for line in lines] == [
        *(["6", "of", "6", "tests"], ["5", "of", "4", "waits_s OVER"]),
        *(["2.5", f"tests/{file}"] for file in FILES),
        # Each file three times Python and a fork; the fixture of the session, which both processes set up, counts once.
        *(["13", "of", "13", "processes"], ["6", "of", "5", "fork OVER"]),
        *(["3", f"tests/{file}"] for file in FILES),
        *(["1", "of", "0.5", "true OVER"], ["1", "fixture", "shared", "of tests"], ["0", "of", "0", "java"]),
        ["others:", "python", "-c", "6"],
    ]


def test_what_is_collected_is_seen_before_anything_runs(tmp_path: Path) -> None:
    code, lines = run(tmp_path, "tests = 6\nwaits_s = 5.0\nprocesses = 0\n", "tests.budget")
    assert (code, [line.split() for line in lines]) == (0, [["6", "of", "6", "tests"], ["5", "of", "5.0", "waits_s"]])


def test_programs_have_names_that_say_what_they_cost() -> None:
    names = {
        "/opt/valkey-server --port 1": "server",
        "redis-server --port 1 --cluster-enabled yes": "cluster node",
        **{"valkey-server /tmp/sentinel.conf --sentinel": "sentinel", "/venv/bin/python3.11 -P -c pass": "python -c"},
        **{"python -m reports judge -c": "python -m reports", "python -u .ci/generate -m x": "python generate"},
        "/usr/lib/pyspark/bin/spark-submit --conf a": "spark-submit",
    }
    assert {words: program(words.split()) for words in names} == names


@pytest.mark.parametrize("text", ["tests = 'many'", "tests = -1", "tests = true", "tests ="])
def test_a_file_that_sets_no_number_is_refused(tmp_path: Path, text: str) -> None:
    (file := tmp_path / "budget.toml").write_text(text)
    with pytest.raises(pytest.UsageError, match=f"^--budget: {file}"):
        read(file)
