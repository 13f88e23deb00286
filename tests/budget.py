"""What the first tier costs, in numbers that no slow machine changes, against those of tests/budget.toml.

As a pytest plugin (tests/conftest.py loads it), with `--budget FILE`, it counts by file of tests, prints the sums, and fails the run
with the largest of what is over its budget. As a program, `python -m tests.budget -m 'not (slow or nightly)' --budget FILE`, it only
collects: `make check` sees the number of tests and of seconds to wait before any of them runs.

A budget is a name and a number. The names are:

- `tests`, and `waits_s`: the seconds of the sleeps of constant length in tests, for each set of parameters, and once in their helpers;
- `processes`: what the processes of the tests start or fork. What those start in turn is not seen;
- what was started: `server`, `cluster node`, `sentinel`, `fork`, `python -c`, `python -m MODULE`, else the name of the program. One
  `spark-submit` is one Spark session;
- `spark jobs`: what these sessions were asked for.

What a fixture of the session starts, or what starts outside of tests, counts once, however many processes run the tests.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: What each process of tests finds by itself, and all alike.
COLLECTED = ("tests", "waits_s")
#: Who sleeps so long is ended by the test, which does not wait for it.
ENDED_S = 20.0
SHOWN = 10
_FIXTURE = "fixture "
_ARITHMETIC = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)

#: How many of each kind, by where: a file of tests, or a fixture of the session.
Counts = dict[str, dict[str, float]]


class Budget:
    """The counts of a process of tests, or in the one that hands tests out to others the sums of theirs."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        self.counts: Counts = {}
        self._place = ""
        self._spark: tuple[object, Any, int] = (None, None, 0)

    def add(self, kind: str, place: str, count: float) -> None:
        places = self.counts.setdefault(kind, {})
        places[place] = places.get(place, 0) + count

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.fork"):
            self.add("processes", self._place, 1)
            self.add(program([os.fsdecode(word) for word in arguments[1]]) if arguments else "fork", self._place, 1)

    def over(self) -> list[str]:
        """The names of the budgets that do not hold."""
        return [name for name, limit in self._limits.items() if sum(self.counts.get(name, {}).values()) > limit]

    def lines(self) -> Iterator[str]:
        """The sums, and the largest of what is over."""
        for name, limit in self._limits.items():
            places = self.counts.get(name, {})
            over = " OVER" if name in self.over() else ""
            yield f"{sum(places.values()):10,.10g} of {limit:7,}  {name}{over}"
            largest = sorted(places.items(), key=lambda item: (-item[1], item[0]))
            yield from (f"{count:25,.10g}  {place or 'outside of tests'}" for place, count in largest[: SHOWN if over else 0])

    def _switch(self, place: str) -> str:
        """What is counted from now on belongs to this place; returns the one before."""
        self._count_spark_jobs()
        before, self._place = self._place, place
        return before

    def _count_spark_jobs(self) -> None:
        context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
        with contextlib.suppress(Exception):  # a session that has just ended
            if context is not None and context is not self._spark[0]:
                self._spark = (context, context._jsc.sc().dagScheduler(), 0)
            if context is not None:
                total, before = self._spark[1].numTotalJobs(), self._spark[2]
                self._spark = (*self._spark[:2], total)
                if total > before:
                    self.add("spark jobs", self._place, total - before)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._switch(place_of(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        # Before the session of Spark ends with the last test.
        self._switch(place_of(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope != "session":
            return (yield)
        before = self._switch(f"{_FIXTURE}{fixturedef.argname} of {fixturedef.baseid or 'a plugin'}")
        try:
            return (yield)
        finally:
            self._switch(before)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        tests = Counter((place_of(item), getattr(item, "originalname", "")) for item in session.items)
        for (place, _), count in tests.items():
            self.add("tests", place, count)
        for module in list(sys.modules.values()):
            if str(getattr(module, "__file__", None)).startswith(f"{session.config.rootpath / 'tests'}/"):
                for place, function, wait_s in waits_of(module, session.config.rootpath):
                    self.add("waits_s", place, wait_s * (tests[place, function] if function else 1))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for kind, places in getattr(node, "workeroutput", {}).get("budget", {}).items():
            merge(kind, self.counts.setdefault(kind, {}), places)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["budget"] = self.counts
        elif exitstatus == pytest.ExitCode.OK and self.over():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("budget: OVER, see tests/budget.toml" if self.over() else "budget")
        for line in self.lines():
            terminalreporter.write_line(line, red=" OVER" in line)


def merge(kind: str, into: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the counts of one process of tests to those of others; what each of them does counts once."""
    for place, count in more.items():
        once = kind in COLLECTED or not place or place.startswith(_FIXTURE)
        into[place] = max(into.get(place, 0), count) if once else into.get(place, 0) + count


def place_of(item: pytest.Item) -> str:
    """The file of a test."""
    return item.nodeid.partition("::")[0]


def program(words: Sequence[str]) -> str:
    """The name under which a started program is counted."""
    name = Path(words[0]).name
    if name in ("valkey-server", "redis-server"):
        flags = {"--cluster-enabled": "cluster node", "--sentinel": "sentinel"}
        return next((kind for flag, kind in flags.items() if flag in words), "server")
    if not name.startswith("python"):
        return name
    for place, word in enumerate(words[1:], 1):
        if word == "-m":
            return f"python -m {words[place + 1]}"
        if not word.startswith("-"):
            return f"python {Path(word).name}"
        if word == "-c":
            break
    return "python -c"


def waits_of(module: ModuleType, root: Path) -> Iterator[tuple[str, str, float]]:
    """The sleeps of constant length of a module: its file, the test that they are in ('' for helpers), and seconds."""
    file = Path(str(module.__file__))
    source = file.read_text() if file.suffix == ".py" else ""
    for statement in ast.parse(source).body if "sleep(" in source else ():
        name = getattr(statement, "name", "")
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] == "sleep":
                wait_s = _value(node.args[0], vars(module))
                if 0 < wait_s < ENDED_S:
                    yield str(file.relative_to(root)), name if name.startswith("test_") else "", wait_s


def _value(expression: ast.expr, names: dict[str, Any]) -> float:
    """What constants make; 0 where it is known only when it runs."""
    if all(isinstance(node, _ARITHMETIC) for node in ast.walk(expression)):
        with contextlib.suppress(Exception):
            return float(eval(ast.unparse(expression), names))
    return 0.0


def read(file: Path) -> dict[str, float]:
    """The budgets of a file. Raises pytest.UsageError when it has none, or one that is no number."""
    try:
        limits = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--budget: {file} cannot be read: {error}") from error
    for name, limit in limits.items():
        if type(limit) not in (int, float) or limit < 0:
            raise pytest.UsageError(f"--budget: {file}: {name} = {limit!r} must be a number from 0")
    return limits


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--budget FILE`."""
    parser.addoption("--budget", metavar="FILE", type=Path, help="fail when the tests cost more than this file allows")


def pytest_configure(config: pytest.Config) -> None:
    """Count where tests run, or add up where they are handed out."""
    if config.option.budget is None:
        return
    limits = read(config.option.budget)
    budget = Budget({name: limits[name] for name in limits if name in COLLECTED or not config.option.collectonly})
    config.pluginmanager.register(budget, "ironclaim-budget")
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        sys.addaudithook(budget.audited)


def main(words: Iterable[str]) -> int:
    """Collect only, and print nothing but the budget, or all when a file cannot be collected."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = pytest.main([*words, "--collect-only", "-qq", "--color=no", "-p", "no:warnings"])
    text = output.getvalue()
    print(text[text.rindex("= budget") :] if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else text, end="")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
