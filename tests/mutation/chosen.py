"""A pytest plugin that runs chosen tests in a given order and says at once how each one goes.

`IRONCLAIM_MUTATION_CHOSEN` names a file of JSON: `tests`, the ids in their order; `stop`, how far to go: to the `first` failure,
to the first one of each `file`, or `never`; `events`, the file that gets a line of JSON for each start and each failure.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest


class Chosen:
    """The choice of this process."""

    def __init__(self, path: Path) -> None:
        choice = json.loads(path.read_text())
        self._places = {test: place for place, test in enumerate(choice["tests"])}
        self._stop = choice["stop"]
        self._events = open(choice["events"], "a", buffering=1)  # noqa: SIM115 - open as long as the process lives
        self._failed_files: set[str] = set()

    def _tell(self, **event: str) -> None:
        self._events.write(json.dumps(event) + "\n")

    def _failed(self, test: str, why: object) -> None:
        self._failed_files.add(test.partition("::")[0])
        words = str(why).strip().splitlines() or [""]
        self._tell(failed=test, why=words[-1][:200])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._places]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self._places])
        items[:] = sorted(chosen, key=lambda item: self._places[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(report.nodeid, "cannot be collected")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if self._stop == "file" and item.nodeid.partition("::")[0] in self._failed_files:
            return True
        self._tell(started=item.nodeid)
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash: Any = getattr(report.longrepr, "reprcrash", None)
            self._failed(report.nodeid, crash.message.splitlines()[0] if crash and crash.message else report.longrepr)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._tell(ended=str(int(exitstatus)))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Chosen(Path(os.environ["IRONCLAIM_MUTATION_CHOSEN"])))
