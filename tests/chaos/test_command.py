"""The command line: every wrong use is one clear line and exit code 2, and nothing is left behind."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from chaos import fault_table, interrupts
from chaos.cli import main, parse
from chaos.plan import consumer_names, draw, worker_names
from chaos.processes import ROOT
from chaos.scenarios import bench
from chaos.simulate.games import GAMES
from chaos.spec import RunSpec
from chaos.verbs import OF_SPEC, PLAYED, VERBS, Verb
from tests.given import Output, Patch
from tests.golden import same


def chaos(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, "-m", "chaos", *arguments], {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


def refused(line: str, folder: Path, monkeypatch: Patch, capsys: Output) -> str:
    """The one line that a call in this folder leaves, and nothing else."""
    monkeypatch.chdir(folder)
    with interrupts.Interrupts() as caught:
        try:
            code: object = main(tuple(line.split()), caught)
        except SystemExit as stopped:
            code = stopped.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and list(folder.iterdir()) == [], line
    return err


#: Verb -> what is wrong behind it; the line that each of them leaves stands in a text.
WRONG_OPTIONS = {
    "run bench": (
        "--mutant nonsense; --model resque; --model dsps; --model bull --mutant no-reap; --rate 0; --rate 5001; --seed -1; "
        "--seed one; --lease-ms 999; --topology moon; --topology sentinl; --producers 9; --keep 0; --keep-days 0; --minutes 0; "
        "--faults net-down,nonsense; --fault nonsense; --face http; --nonsense; --sed 3; --mod bull"
    ),
    "run http": "--model bull; --topology aof",
    "run channels": "--mutant no-reap; --rate 120; --lease-ms 9000; --seed -1; --faults worker-kill",
    "run mischief": "--model lanes; --mutant no-reap; --model bull --mutant written-back-runs-again",
    "run target": "sidekiq; rq --model bull; rq --faults earthquake; rq --minutes 61",
    "run attended --url redis://127.0.0.1:1": "--workers 0; --producers 9; --rate 0",
    "run soak": "--minutes 1; --hours 25",
    "run upgrade": "--form HEAD; ",
    "run": "bnch; nonsense.toml",
    "campaign": "nightli; nonsense; nightly --date yesterday; models --models dsps; models --slo my.toml; ",
    **{"replay": "none; none --seed 1; none --fault net-down", "shrink": "none; ", "show none": "--slo"},
    **{"churn": "--jobs 9999; --jobs 1000000001", "capacity": "--rate 0"},
    "simulate": "--model resque; --profile poison --model dsps; --episode 3; rules --rule first",
    "": "cmpaign; nonsense; ",
}


def test_bad_arguments_start_nothing(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    lines = [f"{verb} {options}".strip() for verb, several in WRONG_OPTIONS.items() for options in several.split("; ")]
    same("chaos/refused.txt", "".join(f"{line}: {refused(line, tmp_path, monkeypatch, capsys)}" for line in lines))
    # The rest of that line is git's.
    assert "no-such-commit" in refused("run upgrade --from no-such-commit", tmp_path, monkeypatch, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("load", ["bench", "channels"])
def test_a_missing_file_of_objectives_starts_nothing(load: str, tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    assert "none.toml: No such file or directory" in refused(f"run {load} --slo none.toml", tmp_path, monkeypatch, capsys)


WORDS_OF_BEFORE = [
    *(("bench --rate 40", "run bench --rate 40"), ("bench --face direct", "run bench")),
    *(("bench --seed 3 --face=http", "run http --seed 3"), ("bench --model dsps --seed 3", "run channels --seed 3")),
    ("bench --target rq --fault worker-kill", "run target rq --fault worker-kill"),
    *(("bench --target all", "campaign targets"), ("bench --replay runs/a", "replay runs/a")),
    *(("bench --replay runs/a --shrink", "shrink runs/a"), ("compare --quick", "campaign models --quick")),
    *(("attend --url redis://x", "run attended --url redis://x"), ("nightly", "campaign nightly")),
    ("soak --hours 1", "run soak --hours 1"),
]


@pytest.mark.parametrize(("before", "now"), WORDS_OF_BEFORE)
def test_words_of_before_go_on_working_and_say_what_to_type(before: str, now: str, capsys: Output) -> None:
    told = parse(before.split())
    assert capsys.readouterr().err.endswith(f"has another name now, type: python -m chaos {now}\n")
    assert told == parse(now.split()) and capsys.readouterr().err == ""


def test_every_verb_tells_each_option_with_its_default_and_bounds(capsys: Output) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as ended:
            parse([*verb.name.split(), "--help"])
        told = " ".join(capsys.readouterr().out.split())
        assert ended.value.code == 0 and verb.about.split(". ")[0] in told
        for option in verb.options:
            assert (option.shown if option.word else f"--{option.name}") in told
            assert " ".join(option.told.replace("%%", "%").split()) in told
    assert f"draws load and faults (default 1; 0 to {2**53 - 1})" in OF_SPEC["seed"].told


def test_the_list_of_verbs_is_complete(capsys: Output) -> None:
    for words in (["--help"], ["-h"]):
        with pytest.raises(SystemExit) as ended:
            parse(words)
        assert ended.value.code == 0
        listed = [line.split("  ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
        assert listed == [verb.name for verb in VERBS]
    with pytest.raises(SystemExit):
        parse(["campaign", "--help"])
    assert capsys.readouterr().out.count("\n  campaign ") == sum(verb.name.startswith("campaign") for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_each_verb_has_its_function(verb: Verb) -> None:
    module, name = verb.runs.split(":")
    assert list(inspect.signature(getattr(import_module(module), name)).parameters) == ["arguments", "interrupts"]


def test_the_simulator_plays_what_its_option_names() -> None:
    assert (*GAMES, "all") == PLAYED


def test_the_kinds_of_fault_are_printed(capsys: Output) -> None:
    with interrupts.Interrupts() as caught:
        assert main(("faults",), caught) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (fault_table.table(), "") and "| `worker-kill` | SIGSTOP, and SIGKILL once" in out


def test_a_missing_server_or_toxiproxy_is_one_line_with_what_to_do(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    gone = str(tmp_path / "gone")
    monkeypatch.setenv("TOXIPROXY_SERVER", gone)
    error = refused("run bench", tmp_path, monkeypatch, capsys)
    assert error == f"chaos: TOXIPROXY_SERVER={gone}: no such program, or not executable; it must be a toxiproxy-server\n"
    # No fault needs the proxy.
    monkeypatch.setenv("IRONCLAIM_REDIS_SERVER", gone)
    error = refused("run bench --faults worker-kill", tmp_path, monkeypatch, capsys)
    assert "IRONCLAIM_REDIS_SERVER" in error and "TOXIPROXY_SERVER" not in error


def test_a_missing_package_is_one_line_with_what_installs_it(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError('no psutil', name='psutil')\n")
    done = chaos("run", "bench", folder=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2 and "'psutil' is missing; `make setup`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_runs_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    # A rate that is asked for is kept, however slow this machine is.
    done = chaos("run", "bench", "--rate", "40", folder=tmp_path)
    assert done.returncode == 2 and "run folder" in done.stderr and len(done.stderr.splitlines()) == 1


@contextmanager
def begun(folder: Path, *python_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A bench with its runs in `folder/runs` and its output in `folder/out` and `folder/err`, which ends with code 2."""
    command = [sys.executable, "-m", "chaos", "run", "bench", "--lease-ms", "1000", "--rate", "40"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*python_path, ROOT]))}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder, env=env, text=True)
    try:
        yield process
        assert process.wait(120) == 2
    finally:
        process.kill()


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
    with begun(tmp_path, tmp_path / "packages") as process:
        interrupt_when(process, (tmp_path / "importing").exists, "the import")
        (tmp_path / "interrupted").touch()
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
    done = subprocess.run([sys.executable, "-c", EARLY, "run", "bench"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "chaos: interrupted by SIGINT\n")


@pytest.mark.slow
def test_a_second_interrupt_ends_the_judge_too(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with begun(tmp_path) as process:
        interrupt_when(process, lambda: "lead-in" in out.read_text(), "the load")
        interrupt_when(process, lambda: "judging what there is" in out.read_text(), "the judging")
    assert "harness: interrupted by SIGINT" in out.read_text()
    assert (tmp_path / "err").read_text().splitlines()[-1] == "chaos: interrupted by SIGINT"
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert not (tmp_path / "runs" / "latest" / "verdict.json").exists()


@pytest.mark.slow
def test_a_run_whose_end_cannot_be_written_is_not_judged(tmp_path: Path) -> None:
    latest = tmp_path / "runs" / "latest"

    def spoil() -> bool:
        """Once the workers are being started, nothing can be written where the spec is prepared."""
        if not (latest / "history" / "worker-1.jsonl").exists():
            return False
        (latest / "spec.tmp").mkdir()
        return True

    with begun(tmp_path) as process:
        interrupt_when(process, spoil, "the start of the workers")
    assert (tmp_path / "err").read_text() == "chaos: spec.json cannot be written: Is a directory\n"
    assert "ended_utc" not in json.loads((latest / "spec.json").read_text())
    assert "verdict" not in (tmp_path / "out").read_text()


NAMED_CONNECTIONS = [
    *(("run bench", "embedded", True), ("run http", "embedded", True), ("run bench", "aof", True)),
    *(("run bench", "replica", False), ("run bench", "sentinel", False), ("run bench --model bull", "embedded", False)),
    *(("run bench --fault worker-kill", "embedded", False), ("run bench --minutes 2", "embedded", False)),
]


@pytest.mark.parametrize(("words", "topology", "some"), NAMED_CONNECTIONS)
def test_a_drill_of_all_faults_has_a_worker_without_a_proxy_where_that_shows(words: str, topology: str, some: bool) -> None:
    assert bench.names_connections(parse(words.split()), topology) is some


CONNECTED_DIRECTLY = [
    (("worker-kill",), ("worker-1", "worker-2", "worker-3", "worker-4", "worker-5", "consumer-1")),
    (("worker-kill", "net-down"), ("worker-1",)),
]


@pytest.mark.parametrize(("kinds", "direct"), CONNECTED_DIRECTLY, ids=["no proxies", "proxies"])
def test_the_spec_names_all_that_are_connected_directly(kinds: tuple[str, ...], direct: tuple[str, ...]) -> None:
    """Replacements as well, which are here of the worker without a proxy and of another one."""
    spec = RunSpec(id="x", seed=1, direct=bench.DIRECTLY)
    plan = draw(1, workers=worker_names(3), consumers=consumer_names(1), kinds=kinds, direct=bench.DIRECTLY)
    assert bench.of_plan(spec, plan).spec.direct == direct
    several = replace(spec, topology="sentinel", direct=None)
    assert bench.of_plan(several, draw(1, workers=worker_names(3), kinds=())).spec.direct == ()


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_ctrl_c_ends_what_never_checks_and_is_one_line(
    monkeypatch: Patch, capsys: Output, before: Any, request: pytest.FixtureRequest
) -> None:
    """Also in a process that was started in the background, where a shell has it ignored."""
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, before)))
    with interrupts.Interrupts() as caught:
        with pytest.raises(KeyboardInterrupt), caught.raised():
            signal.raise_signal(signal.SIGINT)
        # Noted again, and no more than that.
        signal.raise_signal(signal.SIGINT)
        assert caught.take() == "interrupted by SIGINT"

    def play(*_: object) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    monkeypatch.setattr("chaos.simulate.command._run", play)
    with interrupts.Interrupts() as caught:
        assert main(("simulate",), caught) == 2
    assert capsys.readouterr().err == "chaos: interrupted by SIGINT\n"


def test_the_installed_command_calls_itself_by_its_name(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/ironclaim-chaos"])
    with pytest.raises(SystemExit):
        parse(["run", "bench", "--rate", "0"])
    assert capsys.readouterr().err.startswith("ironclaim-chaos run bench: rate is 0: ")
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert capsys.readouterr().out.startswith("usage: ironclaim-chaos COMMAND [options]\n")
