"""A pytest plugin: a fixture that fails names its cause once.

pytest gives the failure of a shared fixture to every test that asks for it: a server that does not start is four hundred errors
with the same traceback. The first of them is kept; the others are reported as skipped, with the name of the first. The run
fails all the same, for the first one is an error.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

#: Failures of fixtures, and the test that met each first. Kept, so that no other exception can have the same identity.
_met: dict[int, tuple[BaseException, str]] = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report a failure that an earlier test has shown already as a skip that points to it."""
    report = yield
    if call.when != "setup" or call.excinfo is None or not report.failed:
        return report
    error = call.excinfo.value
    _, first = _met.setdefault(id(error), (error, item.nodeid))
    if first != item.nodeid:
        file, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (file, (line or 0) + 1, f"its fixture failed: see the error of {first}")
    return report
