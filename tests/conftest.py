"""The fixtures of the whole suite (of servers those that users get), and what running it in several processes needs."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import redis.utils

from engine.testing.plugin import ironclaim_server as ironclaim_server
from engine.testing.plugin import ironclaim_url as ironclaim_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.budget", "tests.compiled", "tests.times", "tests.failed_fixtures", "tests.golden", "tests.walks")

# redis-py reads its own version anew from its metadata for every connection, of which the tests open tens of thousands.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


@pytest.fixture
def late_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits, for a result or a message, looks again after ten minutes only, and so is woken or fails."""
    monkeypatch.setattr("engine.channel.steps._LOOK_MS", 600_000)
    for module in ("results", "asynchronous.calls", "synchronous"):
        monkeypatch.setattr(f"engine.queue.{module}.BLOCK_MS", 600_000)


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """Clients of httpx share what they trust: to read the authorities again took 50 ms for each client, most of a short test."""
    import httpx

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", functools.cache(httpx.create_ssl_context))
        yield


#: What a shell, a hook of git or a drill may have set, and processes that tests start must not take for their own.
OF_OTHERS = ("COLUMNS", "LINES", "FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")

#: What begins so is said to the tests themselves; what else begins with IRONCLAIM_ is of a service.
OF_TESTS = tuple(f"IRONCLAIM_{name}" for name in ("REDIS_SERVER", "SPARK_", "WALKS", "MUTATION_", "FUZZ_"))


@pytest.fixture(scope="session", autouse=True)
def plain_environment() -> Iterator[None]:
    """The environment is the same on every machine. Where it names a proxy, that is not for the loopback, as in browsers."""
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") and value}
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name in OF_OTHERS or (name.startswith("IRONCLAIM_") and not name.startswith(OF_TESTS)):
                patch.delenv(name)
        direct = proxies.get("no_proxy") or proxies.get("NO_PROXY")
        for name in ("no_proxy", "NO_PROXY") if proxies else ():
            patch.setenv(name, ",".join(filter(None, (direct, "127.0.0.1", "localhost", "::1"))))
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the suite. Imported here, because most tests do without.

    Queries of hand-written runs have few rows: to interpret them is cheaper than to compile a class for each.
    """
    from reports.session import spark_session

    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    with spark_session("local[1]", {"spark.sql.shuffle.partitions": "1", **interpreted}) as session:
        yield session


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes, a million objects, lives to the end: the collector looks at none of it, now or later.

    Each process spent 4 of 12 s of collecting on it, and 0.3 s at each of some forty full collections afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Between processes, a file stays together, for the fixtures of its module; so does what shares the Spark session.

    Our own, because the groups of pytest-xdist 3.8 are without effect under pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return ByFile(config, log)


#: What takes longest comes first, or else one process would still be at it when the other has nothing left.
LONGEST_FIRST = ("tests/chaos/test_mutants_caught.py", "tests/reports", "tests/bench/test_locustfile.py", "tests/chaos")

#: A file of the first tier outside of tests/reports that judges: it comes when the Spark session of those is warm.
JUDGES_TOO = "tests/chaos/test_short_drill.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest scopes first; pytest-xdist keeps this order with --no-loadscope-reorder."""

    @functools.cache
    def rank(file: str) -> tuple[int, bool]:
        scope = scope_of(file)
        place = next((place for place, start in enumerate(LONGEST_FIRST) if scope.startswith(start)), len(LONGEST_FIRST))
        return place, file == JUDGES_TOO

    items.sort(key=lambda item: rank(item.nodeid.partition("::")[0]))


def scope_of(nodeid: str) -> str:
    """The tests that go to one process together with this one. Those of the capacity plan judge nothing."""
    file = nodeid.partition("::")[0]
    judges = file == JUDGES_TOO or (file.startswith("tests/reports/") and not file.startswith("tests/reports/capacity/"))
    return "tests/reports" if judges else file


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Some tests log text that no encoding can carry (lone surrogates); between processes a report travels as UTF-8."""
    report = yield
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    return report
