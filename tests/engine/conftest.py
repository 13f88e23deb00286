"""What tests of the engine start from: a queue on an empty server, and worker processes that are gone afterwards."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from chaos.topology.embedded_cluster import EmbeddedCluster
from engine import ConnectOptions, Queue
from engine.redis import handshake
from tests.engine.cluster_desk import CALM_MS
from tests.engine.desk import desk as desk
from tests.engine.desk import lent
from tests.engine.helpers.both import hurried
from tests.engine.helpers.databases import Database, new_database
from tests.engine.helpers.postgres import Postgres
from tests.engine.helpers.processes import Workers
from tests.engine.helpers.producing import PATIENCE_MS, raw_client
from tests.engine.helpers.relay import Relay, bound


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues without timeouts of their own wait longer for a reply than a busy machine stands still. A call that is sent again
    goes over another connection, and its result is `repeated`."""
    defaults: Any = ConnectOptions.__init__.__kwdefaults__
    for name in ("timeout_ms", "connect_timeout_ms"):
        monkeypatch.setitem(defaults, name, PATIENCE_MS)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch is overdue, and no connection silent, because a machine stands still."""
    monkeypatch.setattr("engine.redis.gathering.OVERDUE_S", 600.0)
    monkeypatch.setattr("engine.redis.async_driver.SILENT_NS", 600_000_000_000)


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    """Nothing is in it."""
    yield from lent(Queue("q", url=ironclaim_url))


@pytest.fixture
def nowhere(closed_port: int) -> Iterator[Queue]:
    """A queue whose every call would fail with another error than Malformed."""
    with Queue("q", url=f"redis://127.0.0.1:{closed_port}/0") as made:
        made.driver.deadline_ms = 0
        yield made


@pytest.fixture
def direct(ironclaim_url: str) -> Iterator[Queue]:
    """The same queue past the relay, or beside the face that the test is about."""
    yield from lent(Queue("q", url=ironclaim_url))


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[Any]:
    """redis-py itself on the server of the queue."""
    with raw_client(ironclaim_url) as made:
        yield made


@pytest.fixture
def raw(ironclaim_url: str) -> Iterator[Any]:
    """The same, which gives bytes as they are."""
    yield from lent(redis.Redis.from_url(ironclaim_url))


@pytest.fixture
def as_user(client: Any, ironclaim_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a user with these rules, who is gone afterwards; the url for it."""
    handshake.tell_unknown.cache_clear()

    def make(rules: str) -> str:
        client.execute_command("ACL", "SETUSER", "shop", "reset", "on", ">secret", *rules.split())
        return ironclaim_url.replace("redis://", "redis://shop:secret@")

    yield make
    client.execute_command("ACL", "DELUSER", "shop")


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of an asyncio face that a test uses like the blocking one."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    """Of a queue: a test runs once with each."""
    return request.param


@pytest.fixture
def face(kind: str, runner: asyncio.Runner, ironclaim_url: str) -> Iterator[Any]:
    """An empty queue of either kind, called as if it blocked. No call is sent twice because the machine is busy: a repeat
    says so in its result."""
    yield from lent(hurried(kind, runner, "q", ironclaim_url, timeout_ms=60_000))


@pytest.fixture
def relay(ironclaim_server: Any, ironclaim_url: str) -> Iterator[Relay]:
    """A relay in front of the session's server, which is empty."""
    with Relay(ironclaim_server.port) as made:
        yield made


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens; it stays reserved, so that nobody else gets it."""
    with bound(0) as reserved:
        yield reserved.getsockname()[1]


@pytest.fixture
def workers(tmp_path: Path, ironclaim_url: str) -> Iterator[Workers]:
    with Workers(tmp_path, ironclaim_url) as made:
        yield made


@pytest.fixture(scope="session")
def three_primaries() -> Iterator[EmbeddedCluster]:
    """A cluster for all tests that leave it whole."""
    with EmbeddedCluster(node_timeout_ms=CALM_MS) as made:
        yield made


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that lives as long as the test session."""
    with Postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database with the tables of the outbox and of effects; of PostgreSQL only where the test runs on it."""
    return new_database(request.param, tmp_path, lambda: request.getfixturevalue("postgres"))
