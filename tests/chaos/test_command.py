"""The command line: every wrong use is one clear line and exit code 2, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from chaos import command
from chaos.cli import main, parse
from chaos.fault_table import table
from chaos.interrupts import Interrupts
from chaos.plan import consumer_names, draw, worker_names
from chaos.processes import ROOT
from chaos.spec import RunSpec

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]


def chaos(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-m", "chaos", *arguments], {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def refused(arguments: tuple[str, ...], folder: Path, monkeypatch: Patch, capsys: Output) -> str:
    """The one line that a call in this folder leaves, and nothing else."""
    monkeypatch.chdir(folder)
    with Interrupts() as caught:
        try:
            code: object = main(arguments, caught)
        except SystemExit as stopped:
            code = stopped.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and len(err.splitlines()) == 1
    assert list(folder.iterdir()) == []
    return err


ATTEND = ("attend", "--url", "redis://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("bench", "--mutant", "nonsense"), "mutant 'nonsense' does not exist; choose from claim-not-atomic, crash-forgotten, "),
        (("bench", "--model", "resque"), "model 'resque' does not exist; choose from lanes, bridge, bananas, bull, mosquito"),
        (("bench", "--model", "resque"), "bull, mosquito, dsps"),
        (("bench", "--model", "bull", "--mutant", "no-reap"), "mutants are of the model lanes, not of bull"),
        (
            ("bench", "--model", "dsps", "--mutant", "no-reap"),
            "mutant 'no-reap' does not exist; choose from checksum-not-verified, ",
        ),
        (("bench", "--model", "dsps", "--rate", "120"), "--rate is about jobs: the model dsps has none"),
        (("bench", "--model", "dsps", "--lease-ms", "9000"), "--lease-ms is about jobs: the model dsps has none"),
        (("bench", "--model", "dsps", "--seed", "-1"), "seed is -1: it must be a whole number from 0 to 9007199254740991"),
        (
            ("bench", "--model", "dsps", "--faults", "worker-kill"),
            "fault 'worker-kill' does not exist; choose from net-latency, ",
        ),
        (("compare", "--models", "dsps"), "model 'dsps' does not exist; choose from lanes, bridge, bananas, bull, mosquito"),
        (("bench", "--rate", "0"), "rate_per_s is 0: it must be a whole number from 1 to 5000"),
        (("bench", "--seed", "-1"), "seed is -1: it must be a whole number from 0 to 9007199254740991"),
        *(
            pytest.param(("bench", *words, "--slo", "none.toml"), "none.toml: No such file or directory", marks=pytest.mark.slow)
            for words in ((), ("--model", "dsps"))
        ),
        (("compare", "--slo", "my.toml"), "unrecognized arguments: --slo my.toml"),
        (("bench", "--lease-ms", "999"), "lease_ms is 999: it must be a whole number from 1000 to 60000"),
        (("bench", "--seed", "one"), "argument --seed: invalid int value: 'one'"),
        (("bench", "--keep", "0"), "--keep is 0: it must be at least 1"),
        (("bench", "--keep-days", "0"), "--keep-days is 0: it must be at least 1"),
        (("bench", "--faults", "net-down,nonsense"), "fault 'nonsense' does not exist; choose from worker-kill, "),
        (("bench", "--fault", "nonsense"), "fault 'nonsense' does not exist; choose from worker-kill, "),
        (("bench", "--shrink"), "--shrink needs --replay: the violated run to shrink"),
        (("bench", "--replay", "none"), "spec.json of none: No such file or directory"),
        (
            ("bench", "--replay", "none", "--seed", "1"),
            "--seed cannot be given with --replay: the run that is repeated decides it",
        ),
        (("bench", "--replay", "none", "--faults", "net-down"), "--fault cannot be given with --replay"),
        (("bench", "--replay", "none", "--model", "dsps"), "--model cannot be given with --replay"),
        (("upgrade",), "the following arguments are required: --from"),
        (("upgrade", "--from", "no-such-commit"), "no-such-commit"),
        (("mischief", "--model", "lanes"), "model 'lanes' has no foreign client; choose from bull, bananas, mosquito, bridge"),
        (
            ("mischief", "--mutant", "no-reap"),
            "mutant 'no-reap' does not exist for this model; choose from written-back-runs-again of bananas",
        ),
        (("mischief", "--model", "bull", "--mutant", "written-back-runs-again"), "does not exist for this model"),
        (("bench", "--target", "sidekiq"), "target 'sidekiq' does not exist; choose from ironclaim, rq, "),
        (("bench", "--target", "rq", "--model", "bull"), "--model is of the engine"),
        (("bench", "--target", "rq", "--topology", "aof"), "--topology is of the engine"),
        (("bench", "--target", "rq", "--faults", "earthquake"), "fault 'earthquake' does not exist"),
        (("bench", "--target", "rq", "--minutes", "61"), "wait_ms is 3660000: it must be a whole number from 1000 to 3600000"),
        (("bench", "--face", "grpc"), "invalid choice: 'grpc'"),
        (("bench", "--face", "http", "--model", "dsps"), "--face http is of drills of jobs"),
        (("bench", "--face", "http", "--target", "rq"), "--face http is of drills of jobs"),
        (("bench", "--face", "http", "--replay", "runs/a"), "--face cannot be given with --replay"),
        ((*ATTEND, "--workers", "0"), "workers is 0: it must be a whole number from 1 to 32"),
        ((*ATTEND, "--producers", "9"), "producers is 9: it must be a whole number from 1 to 8"),
        ((*ATTEND, "--rate", "0"), "rate_per_s is 0: it must be a whole number from 1 to 5000"),
        (("capacity", "--rate", "0"), "rate is 0: "),
        (("churn", "--jobs", "9999"), "jobs is 9999: it must be a whole number from 10000 to 1000000000"),
        (("churn", "--jobs", "1000000001"), "jobs is 1000000001: it must be a whole number from 10000 to 1000000000"),
        (("nightly", "--date", "yesterday"), "'yesterday' is no date such as 2026-11-27"),
        (("bench", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("nonsense",), "invalid choice: 'nonsense'"),
        ((), "the following arguments are required: command"),
    ],
)
def test_wrong_arguments_are_one_line_and_start_nothing(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    assert complaint in refused(arguments, tmp_path, monkeypatch, capsys)


def test_the_kinds_of_fault_are_printed(capsys: Output) -> None:
    with Interrupts() as caught:
        assert main(("faults",), caught) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (table(), "")
    assert "| `worker-kill` | SIGSTOP, and SIGKILL once" in out


def test_a_missing_server_or_toxiproxy_is_one_line_with_what_to_do(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    gone = str(tmp_path / "gone")
    monkeypatch.setenv("TOXIPROXY_SERVER", gone)
    error = refused(("bench",), tmp_path, monkeypatch, capsys)
    assert error == f"chaos: TOXIPROXY_SERVER={gone}: no such program, or not executable; it must be a toxiproxy-server\n"
    # No fault needs the proxy.
    monkeypatch.setenv("IRONCLAIM_REDIS_SERVER", gone)
    error = refused(("bench", "--faults", "worker-kill"), tmp_path, monkeypatch, capsys)
    assert "IRONCLAIM_REDIS_SERVER" in error and "TOXIPROXY_SERVER" not in error


def test_a_missing_package_is_one_line_with_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError('no psutil', name='psutil')\n")
    done = chaos("bench", folder=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2
    assert "'psutil' is missing; `make setup`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_runs_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    # A rate that is asked for is kept, however slow this machine is.
    done = chaos("bench", "--rate", "40", folder=tmp_path)
    assert done.returncode == 2
    assert "run folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def begin(folder: Path, *python_path: Path) -> subprocess.Popen[str]:
    """Start a bench with its runs in `folder/runs` and its output in `folder/out` and `folder/err`."""
    path = os.pathsep.join(map(str, [*python_path, ROOT]))
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        return subprocess.Popen(
            [sys.executable, "-m", "chaos", "bench", "--lease-ms", "1000", "--rate", "40"],
            stdout=out,
            stderr=err,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )


def interrupt_when(process: subprocess.Popen[str], condition: Callable[[], object], what: str) -> None:
    """Ctrl-C to the bench as soon as the condition holds."""
    deadline_s = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the bench has ended"
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)


#: A package whose import lasts until the test has sent its signal.
SLOW_PACKAGE = """
import pathlib, time
pathlib.Path("importing").touch()
while not pathlib.Path("interrupted").exists():
    time.sleep(0.005)
"""


def test_an_interrupt_while_modules_are_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "psutil.py").write_text(SLOW_PACKAGE)
    process = begin(tmp_path, tmp_path / "packages")
    try:
        interrupt_when(process, (tmp_path / "importing").exists, "the import")
        (tmp_path / "interrupted").touch()
        assert process.wait(120) == 2
    finally:
        process.kill()
    assert (tmp_path / "err").read_text() == "chaos: interrupted by SIGINT\n"
    assert not (tmp_path / "runs").exists()


#: Ctrl-C while the module that catches it is being imported.
EARLY = """
import runpy, sys

class Early:
    def find_spec(self, name, path=None, target=None):
        if name == "chaos.interrupts":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Early())
runpy.run_module("chaos", run_name="__main__", alter_sys=True)
"""


def test_an_interrupt_in_the_first_milliseconds_is_one_line_too() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY, "bench"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "chaos: interrupted by SIGINT\n")


@pytest.mark.slow
def test_a_second_interrupt_ends_the_judge_too(tmp_path: Path) -> None:
    process = begin(tmp_path)
    out = tmp_path / "out"
    try:
        interrupt_when(process, lambda: "lead-in" in out.read_text(), "the load")
        interrupt_when(process, lambda: "judging what there is" in out.read_text(), "the judging")
        assert process.wait(120) == 2
    finally:
        process.kill()
    assert "harness: interrupted by SIGINT" in out.read_text()
    assert (tmp_path / "err").read_text().splitlines()[-1] == "chaos: interrupted by SIGINT"
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert not (tmp_path / "runs" / "latest" / "verdict.json").exists()


@pytest.mark.slow
def test_a_run_whose_end_cannot_be_written_is_not_judged(tmp_path: Path) -> None:
    process = begin(tmp_path)
    latest = tmp_path / "runs" / "latest"

    def spoil() -> bool:
        """Once the workers are being started, nothing can be written where the spec is prepared."""
        if not (latest / "history" / "worker-1.jsonl").exists():
            return False
        (latest / "spec.tmp").mkdir()
        return True

    try:
        interrupt_when(process, spoil, "the start of the workers")
        assert process.wait(120) == 2
    finally:
        process.kill()
    assert (tmp_path / "err").read_text() == "chaos: spec.json cannot be written: Is a directory\n"
    assert "ended_utc" not in json.loads((latest / "spec.json").read_text())
    assert "verdict" not in (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("words", "topology", "some"),
    [
        ((), "embedded", True),
        (("--face", "http"), "embedded", True),
        ((), "aof", True),
        ((), "replica", False),
        ((), "sentinel", False),
        (("--model", "bull"), "embedded", False),
        (("--fault", "worker-kill"), "embedded", False),
        (("--minutes", "2"), "embedded", False),
    ],
)
def test_a_drill_of_all_faults_has_a_worker_without_a_proxy_where_that_shows(
    words: tuple[str, ...], topology: str, some: bool
) -> None:
    assert command.names_connections(parse(("bench", *words)), topology) is some


@pytest.mark.parametrize(
    ("kinds", "direct"),
    [
        (("worker-kill",), ("worker-1", "worker-2", "worker-3", "worker-4", "worker-5", "consumer-1")),
        (("worker-kill", "net-down"), ("worker-1",)),
    ],
    ids=["no proxies", "proxies"],
)
def test_the_spec_names_all_that_are_connected_directly(kinds: tuple[str, ...], direct: tuple[str, ...]) -> None:
    """Replacements as well, which are here of the worker without a proxy and of another one."""
    spec = RunSpec(id="x", seed=1, direct=command.DIRECTLY)
    plan = draw(1, workers=worker_names(3), consumers=consumer_names(1), kinds=kinds, direct=command.DIRECTLY)
    with Interrupts() as caught:
        assert command.of_plan(spec, plan, caught).spec.direct == direct
        several = replace(spec, topology="sentinel", direct=None)
        assert command.of_plan(several, draw(1, workers=worker_names(3), kinds=()), caught).spec.direct == ()
