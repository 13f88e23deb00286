"""The targets of make: a screen of help, and those of before, which say what to type now and go on working for one release."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import PROGRAMS as BENCHMARKS
from chaos.cli import parse
from reports.command import parser as reports_parser
from tests.ci_scripts import loaded
from tests.given import Output, Patch, script
from tests.golden import same

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
FORMER = loaded(ROOT / ".ci/former_targets")


def listed(name: str) -> set[str]:
    """The words of a variable of the Makefile, which goes on with +=."""
    return {word for line in re.findall(rf"^{name} [:+]= (.*)$", MAKEFILE, re.MULTILINE) for word in line.split()}


def typed(target: str, **given: str) -> str:
    """What is run, without the interpreter."""
    line, former = FORMER.command(target, list(given), given)
    assert former is (target != "bench" or "run bench" not in line)
    return line.removeprefix(".venv/bin/python -m ")


def test_the_makefile_knows_the_targets_and_variables_of_before() -> None:
    assert listed("FORMER") == {*FORMER.TARGETS, *FORMER.PROGRAMS}
    tables = [variables for _, variables in (*FORMER.TARGETS.values(), *FORMER.PROGRAMS.values())]
    used = {name for variables in (*tables, f"{FORMER.DRILL} FACE TARGET REPLAY SHRINK") for name in FORMER.names(variables)}
    assert used - listed("OF_FORMER") == {"ALL", "JOBS", "MINUTES"}, "which make itself has, too"
    assert listed("OF_FORMER") - used == set()


#: What was typed behind make; what is typed now stands in a text.
TYPED = [
    *("bench SEED=7 MODEL=bull ALL=1", "bench ARGS='--lease-ms 4000'", "bench FACE=http SEED=2", "bench MODEL=all"),
    *("bench MODEL=dsps MUTANT=cursor-moved-by-fetch", "chaos TOPOLOGY=aof DURABILITY=always", "chaos FAULT=net-down MINUTES=3"),
    *("chaos TARGET=rq FAULT=none", "chaos TARGET=all SEED=3", "chaos REPLAY=runs/a", "chaos REPLAY=runs/a SHRINK=1"),
    *("interop ONLY=mixed SEED=3", "mischief MODEL=bananas", "mutants ONLY=no-reap", "nightly DATE=2026-11-27 MINUTES=70"),
    *("upgrade FROM=v0.1.0", "scale", "soak HOURS=8", "churn JOBS=20000", "capacity RATE=9 HANDLER_MS=20 VALIDATE=1"),
    *("simulate MODEL=dsps MINUTES=2", "simulate-rules SEED=2", "judge", "judge RUN=runs/a SLO=my.toml", "runs"),
    *("queues RUNS='runs/a runs/b'", "compare A='x y' B=z METRIC=p99", "bench-judge ROWS='1e6 3e6'"),
    *("bench-engine QUICK=1 ONLY='drain claim'", "bench-guard BASE=HEAD~3", "peers DRILLS='runs/a runs/b'"),
    *("mutate TIER= FILES='http lua'", "sizes BASE=HEAD", "distclean"),
]


def split(words: str) -> tuple[str, dict[str, str]]:
    """A target and the variables that it is given."""
    target, *given = shlex.split(words)
    return target, dict(one.split("=", 1) for one in given)


def test_what_was_typed_before_is_what_is_typed_now() -> None:
    told = ""
    for former in TYPED:
        target, given = split(former)
        told += f"make {former}: {(now := typed(target, **given))}\n"
        words = now.split()
        if words[0] == "chaos":
            assert parse(words[1:]).command.split()[0] == words[1]
        elif words[0] == "reports":
            assert reports_parser().parse_args(words[1:]).command == words[1]
        elif words[0] == "bench":
            assert words[1] in BENCHMARKS
    same("project/former_targets.txt", told)


def test_a_variable_that_the_target_does_not_have_is_refused() -> None:
    for target, name in (("interop", "MUTANT"), ("bench", "TARGET"), ("test-times", "SEED"), ("chaos", "ONLY")):
        with pytest.raises(FORMER.Refused, match=rf"^{name}=x: {target} has no such variable; it has "):
            FORMER.command(target, [name], {name: "x"})
    assert typed("soak", SERVER="redis", BUSY="2", SEED="4") == "chaos run soak --seed 4"


def test_a_target_of_before_says_what_to_type_and_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    environment = {**os.environ, "RUNS": str(tmp_path / "runs")}
    command = [ROOT / ".ci/former_targets", "runs", "RUNS"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, (tmp_path / "runs/index.html").exists()) == (0, True), done.stderr
    assert done.stderr == f"make runs: for one release only; type now: .venv/bin/python -m reports list {tmp_path}/runs\n"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree whose set-up fails, with a Python that has the standard library alone."""
    tree = tmp_path_factory.mktemp("bare")
    (tree / ".ci").mkdir()
    for name in ("Makefile", ".ci/former_targets"):
        (tree / name).write_text((ROOT / name).read_text())
    (tree / ".ci/setup").write_text("import sys\nsys.exit('the set-up has begun')\n")
    for name in ("bench", "chaos", "engine", "record"):
        (tree / name).symlink_to(ROOT / name)
    script(tree / "python", f'exec {sys.executable} -S "$@"')
    return tree


def made(tree: Path, *words: str) -> str:
    """What a call of make that fails says; it is no part of the make that runs the tests, which hands its variables on."""
    apart = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", f"PYTHON={tree}/python", *words]
    done = subprocess.run(command, cwd=tree, env=apart, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


#: What is refused; the line that says why stands in a text. And what runs, or cannot be read.
WRONG = [
    *("bench SEED=x", "bench MODEL=bul", "bench ARGS='--lease-ms 5'", "bench ARGS='--sed 5'", "bench TARGET=rq"),
    *("bench MUTANT=no-rep", "bench MUTANT=no-reap MODEL=bull", "bench FAULT=net-dwn", "bench FACE=http FAULT=slot-move"),
    *("bench BUSY=65", "soak HOURS=99", "bench TOPOLOGY=aof DURABILITY=replica", "bench MODEL=dsps MUTANT=no-reap"),
    *("chaos ARGS='run bnch'", "measure ARGS=engin", """chaos ARGS="run bench --rate '9\""""),
]
GOOD = ["bench SEED=7", "chaos ARGS=--help", "chaos ARGS='simulate > told'", "report ARGS=judge", "sizes", "format"]


def read(words: str, monkeypatch: Patch, capsys: Output) -> tuple[int, str, str]:
    """The exit code, as in a process that make starts, and what is printed."""
    target, given = split(words)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [str(ROOT / ".ci/former_targets")])
    code: int = FORMER.read([target], list(given), given)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_wrong_option_is_refused(monkeypatch: Patch, capsys: Output) -> None:
    found = {words: read(words, monkeypatch, capsys) for words in WRONG}
    assert all((code, out, err.count("\n")) == (2, "", 1) for code, out, err in found.values())
    same("project/refused_targets.txt", "".join(f"make {words}: {err}" for words, (*_, err) in found.items()))


def test_what_runs_or_cannot_be_read_is_no_error(monkeypatch: Patch, capsys: Output) -> None:
    assert {words: read(words, monkeypatch, capsys) for words in GOOD} == dict.fromkeys(GOOD, (0, "", ""))


BEFORE = [
    (("bench", "SEED=x"), "python -m chaos run bench: seed is 'x': it must be"),
    (("bench", "MODEL=dsps", "FAULT=x"), "chaos: fault 'x' does not exist; choose from "),
    (("bench", "MUTANT=x"), "chaos: mutant 'x' does not exist; choose from "),
    (("test", "BUSY=x"), "make: BUSY is 'x': it must be"),
    (("bench", "SEED=7"), "the set-up has begun\n"),
]


@pytest.mark.parametrize(("words", "said"), BEFORE)
def test_options_are_read_before_anything_is_set_up(bare: Path, words: tuple[str, ...], said: str) -> None:
    told = made(bare, *words)
    assert told.startswith(said) and told.count("the set-up has begun") == said.count("the set-up has begun")


def test_an_old_python_reads_what_make_runs_before_the_set_up_refuses_it(monkeypatch: Patch) -> None:
    ast.parse((ROOT / ".ci/former_targets").read_text(), feature_version=(3, 7))
    assert loaded(ROOT / ".ci/setup").PYTHON_MIN == FORMER.PYTHON_MIN
    monkeypatch.setattr(FORMER, "PYTHON_MIN", (99, 0))
    assert FORMER.read(["bench"], ["SEED"], {"SEED": "x"}) == 0


def test_the_help_of_make_fits_one_screen_and_names_every_target_that_stays() -> None:
    lines = re.findall(r"^\t@echo '(.*)'$", MAKEFILE.partition("\nhelp:\n")[2].partition("\nsetup:")[0], re.MULTILINE)
    assert 10 <= len(lines) <= 24 and max(map(len, lines)) <= 130
    (phony,) = re.findall(r"^\.PHONY: (.*) \$\(FORMER\)$", MAKEFILE, re.MULTILINE)
    assert {*phony.split()} == {line.split()[1] for line in lines if line.startswith("make ")} | {"help"}
