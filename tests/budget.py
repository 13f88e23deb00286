"""What the first tier costs, in numbers that no slow machine changes, against those of tests/budget.toml.

As a pytest plugin with `--budget FILE` it counts by file of tests, prints the sums, and fails the run with the largest of what is
over. As a program, `python -m tests.budget -m 'not (slow or nightly)' --budget FILE`, it only collects: `make check` sees the
number of tests and of seconds to wait before any of them runs.

A budget is a name and a number. The names are:

- `tests`, and `waits_s`: seconds of the sleeps of constant length, for each set of parameters of a test, and once in helpers;
- `processes`: what the processes of the tests start or fork. What those start in turn is not seen;
- each program of them: `server`, `cluster node`, `sentinel`, `fork`, `python -c`, `python -m MODULE`, else its name. A
  `spark-submit` is a Spark session;
- `spark jobs`: what these sessions were asked for.

What a fixture of the session starts counts once, however many processes run the tests; what starts outside of tests does not.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
import textwrap
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

#: What each process of tests finds by itself, and all alike.
COLLECTED = ("tests", "waits_s")
#: Who sleeps so long is ended by the test, which does not wait for it.
ENDED_S = 20.0
SHOWN = 10
_FIXTURE = "fixture "
_ARITHMETIC = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)


class Budget:
    """The counts of a process of tests, or in the one that hands tests out to others the sums of theirs."""

    def __init__(self, limits: Mapping[str, float]) -> None:
        self._limits = limits
        #: How many of each kind, by where: a file of tests, or a fixture of the session.
        self.counts: defaultdict[str, Any] = defaultdict(Counter)
        self._place = ""
        self._spark: tuple[object, Any, int] = (None, None, 0)

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count a process that is started."""
        if self._place and event in ("subprocess.Popen", "os.fork"):
            kind = program([os.fsdecode(word) for word in arguments[1]]) if arguments else "fork"
            for name in ("processes", kind):
                self.counts[name][self._place] += 1

    def over(self) -> list[str]:
        """The names of the budgets that do not hold."""
        return [name for name, limit in self._limits.items() if self.counts[name].total() > limit]

    def lines(self) -> Iterator[str]:
        """The sums, the largest of what is over, and what has no budget of its own."""
        for name, limit in self._limits.items():
            over = name in self.over()
            yield f"{self.counts[name].total():10,.10g} of {limit:7,}  {name}{' OVER' if over else ''}"
            largest = sorted(self.counts[name].items(), key=lambda item: (-item[1], item[0]))
            yield from (f"{count:25,.10g}  {place}" for place, count in largest[: SHOWN if over else 0])
        others = sorted(name for name in self.counts if name not in (*self._limits, *COLLECTED))
        if others:
            yield from textwrap.wrap("others: " + ", ".join(f"{name} {self.counts[name].total()}" for name in others), 110)

    def _switch(self, place: str) -> str:
        """What is counted from now on belongs to this place; returns the one before."""
        context = getattr(getattr(sys.modules.get("pyspark"), "SparkContext", None), "_active_spark_context", None)
        if context is not None:
            with contextlib.suppress(Exception):  # a session that has just ended
                self._count_spark_jobs(context)
        before, self._place = self._place, place
        return before

    def _count_spark_jobs(self, context: Any) -> None:
        if context is not self._spark[0]:
            self._spark = (context, context._jsc.sc().dagScheduler(), 0)
        _, scheduler, before = self._spark
        total = scheduler.numTotalJobs()
        self._spark = (context, scheduler, total)
        self.counts["spark jobs"][self._place] += total - before

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._switch(file_of(item))

    #: Before the session of Spark ends with the last test.
    pytest_runtest_teardown = pytest_runtest_setup

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
        root = session.config.rootpath
        tests = Counter((file_of(item), getattr(item, "originalname", "")) for item in session.items)
        for (file, _), count in tests.items():
            self.counts["tests"][file] += count
        for module in list(sys.modules.values()):
            if str(getattr(module, "__file__", None)).startswith(f"{root / 'tests'}/"):
                for file, test, wait_s in waits_of(module, root):
                    self.counts["waits_s"][file] += wait_s * (tests[file, test] if test else 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the counts of a process of tests to those of the others."""
        for kind, places in getattr(node, "workeroutput", {}).get("budget", {}).items():
            for place, count in places.items():
                once = kind in COLLECTED or place.startswith(_FIXTURE)
                known = self.counts[kind][place]
                self.counts[kind][place] = max(known, count) if once else known + count

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["budget"] = {kind: dict(places) for kind, places in self.counts.items()}
        elif exitstatus == pytest.ExitCode.OK and self.over():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("budget: OVER, see tests/budget.toml" if self.over() else "budget")
        for line in self.lines():
            terminalreporter.write_line(line, red=line.endswith(" OVER"))


def file_of(item: pytest.Item) -> str:
    """The file of a test."""
    return item.nodeid.partition("::")[0]


def program(words: Sequence[str]) -> str:
    """The name under which a started program is counted."""
    name = Path(words[0]).name
    if name in ("valkey-server", "redis-server"):
        return "cluster node" if "--cluster-enabled" in words else "sentinel" if "--sentinel" in words else "server"
    if name.startswith("python"):
        # Options before it have no values of their own.
        first, second = ([word for word in words[1:] if word in ("-m", "-c") or not word.startswith("-")] + ["", ""])[:2]
        return f"python -m {second}" if first == "-m" else f"python {Path(first).name}"
    return name


def waits_of(module: ModuleType, root: Path) -> Iterator[tuple[str, str, float]]:
    """The sleeps of constant length of a module: its file, the test that they are in ('' for helpers), and seconds."""
    file = Path(str(module.__file__))
    source = file.read_text() if file.suffix == ".py" else ""
    for statement in ast.parse(source).body if "sleep(" in source else ():
        name = getattr(statement, "name", "")
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] == "sleep":
                if not all(isinstance(part, _ARITHMETIC) for part in ast.walk(node.args[0])):
                    continue
                with contextlib.suppress(NameError, TypeError, ValueError):  # what is known only when it runs
                    if 0 < (wait_s := float(eval(ast.unparse(node.args[0]), vars(module)))) < ENDED_S:
                        yield str(file.relative_to(root)), name if name.startswith("test_") else "", wait_s


def read(file: Path) -> dict[str, float]:
    """The budgets of a file. Raises pytest.UsageError when it cannot be read, or has one that is no number."""
    try:
        limits = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--budget: {file} cannot be read: {error}") from error
    for name, limit in limits.items():
        if type(limit) not in (int, float) or limit < 0:
            raise pytest.UsageError(f"--budget: {file}: {name} = {limit!r} must be a number, 0 or more")
    return limits


def pytest_addoption(parser: pytest.Parser) -> None:
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
