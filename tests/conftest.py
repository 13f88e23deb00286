"""The server fixtures for the whole suite (those that users get), and what running it in several processes needs."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from engine.testing.plugin import ironclaim_server as ironclaim_server
from engine.testing.plugin import ironclaim_url as ironclaim_url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that shares the Spark session goes to one process, so that there is one session."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Some tests log text that no encoding can carry (lone surrogates); between processes a report travels as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
