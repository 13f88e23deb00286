"""A pytest plugin that writes down what each test reaches: lines of Python by coverage.py, marks of scripts by servers' logs.

Loaded into each process of a recorded run; `IRONCLAIM_MUTATION_RECORD` names the folder that gets its files. What a fixture of a
module or a session reaches is put down under the file of the test that needed it first.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import coverage
import pytest

from tests.mutation.lua_marks import LOGGED

if TYPE_CHECKING:
    from engine.testing.server import EmbeddedServer

SOURCES = ("engine", "record", "chaos", "reports", "bench")


class Recording:
    """What the tests of this process reach. A context is the id of a test, or the name of a file of tests."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.getpid()}.json"
        data = str(folder / f"{os.getpid()}.coverage")
        # Not "greenlet": what coverage.py keeps of each greenlet made the end of a thread with greenlets last for ever.
        self._coverage = coverage.Coverage(data, source=SOURCES, config_file=False, concurrency=["thread"])
        self._context = ""
        self._marks: dict[str, set[bytes]] = defaultdict(set)
        self._starts: set[str] = set()
        self._tests: dict[str, dict[str, Any]] = {}
        self._logs: dict[Path, int] = {}
        self._coverage.start()
        sys.addaudithook(self._audited)
        # Imported here: what runs on import before this is in no record.
        from engine.testing.server import EmbeddedServer

        self._follow(EmbeddedServer)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note who starts another Python, whose lines are not seen here."""
        if event == "os.fork" or (event == "subprocess.Popen" and "python" in str(arguments[1])):
            self._starts.add(self._context)

    def _follow(self, server_class: type[EmbeddedServer]) -> None:
        start, stop = server_class._try_port, server_class.stop

        def _try_port(server: EmbeddedServer, program: Path, folder: Path, log: Path) -> str | None:
            self._logs.setdefault(log, log.stat().st_size if log.exists() else 0)
            return start(server, program, folder, log)

        def _stop(server: EmbeddedServer) -> None:
            self.harvest()
            stop(server)

        patch.multiple(server_class, _try_port=_try_port, stop=_stop).start()

    def harvest(self) -> None:
        """Take what the servers have logged since the last time."""
        for log, start in list(self._logs.items()):
            try:
                with log.open("rb") as file:
                    file.seek(start)
                    for line in set(file):
                        _, found, marks = line.partition(LOGGED)
                        if found:
                            self._marks[self._context].update(marks.split())
                    self._logs[log] = file.tell()
            except OSError:
                del self._logs[log]

    def switch(self, context: str) -> str:
        """What is reached from now on belongs to this one; returns the one before."""
        self.harvest()
        before, self._context = self._context, context
        if context:
            self._coverage.switch_context(context)
        return before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self.switch(item.nodeid)
        result = yield
        self.switch("")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before = self.switch(self._context.partition("::")[0])
        try:
            return (yield)
        finally:
            self.switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests.setdefault(report.nodeid, {"seconds": 0.0, "failed": False, "skipped": False})
        test["seconds"] += report.duration
        test["failed"] |= report.failed
        test["skipped"] |= report.skipped

    def pytest_sessionfinish(self) -> None:
        self.harvest()
        self._coverage.stop()
        self._coverage.save()
        marks = {context: sorted(map(int, found)) for context, found in self._marks.items()}
        self._file.write_text(json.dumps({"tests": self._tests, "marks": marks, "starts": sorted(self._starts)}))


def pytest_configure(config: pytest.Config) -> None:
    """The process that only hands out tests to others has nothing to record."""
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        config.pluginmanager.register(Recording(Path(os.environ["IRONCLAIM_MUTATION_RECORD"])))
