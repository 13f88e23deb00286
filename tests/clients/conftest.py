"""The clients beside a real application on a real server: the Python one in both of its faces, and the TypeScript one as users
get it, packed by npm, in Node and in Chromium."""

import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from chaos.interop import node
from engine import Handlers, Queue, Worker, models
from engine.http.channels.settings import ChannelSettings
from engine.http.settings import HttpSettings, Token
from ironclaim_client import Retries
from tests.absent import without
from tests.clients.faces import AsyncFace, Connect, Face, SyncFace
from tests.clients.relay import HttpRelay, relay
from tests.engine.conftest import raw as raw
from tests.engine.helpers.at_work import at_work
from tests.engine.http.serving import served
from tests.reports.browser import Browser
from tests.reports.browser import window as window

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).parent / "typescript"
TYPES = {".js": "text/javascript", ".html": "text/html"}
TOKEN = "operator-0123456789abcdef"
#: Compiling takes seconds; on a busy machine it takes its time.
BUILD_S = 300


@pytest.fixture
def application_url(ironclaim_url: str) -> Iterator[str]:
    """An application that a token of the role operate may change."""
    token = Token(secret=TOKEN, role="operate")
    more: Any = {"allow_changes": True, "show_payloads": True, "channels": ChannelSettings()}
    with served(HttpSettings(url=ironclaim_url, tokens=(token,), **more)) as base:
        yield base


@pytest.fixture
def harmed(application_url: str) -> Iterator[HttpRelay]:
    """A relay to the application, that harms what it is told to."""
    with relay(application_url) as made:
        yield made


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    """The queue as it is on the server."""
    with Queue("emails", url=ironclaim_url) as opened:
        yield opened


@contextmanager
def meanwhile(function: Callable[[], object]) -> Iterator[None]:
    """Do something beside a call that waits for it."""
    thread = threading.Thread(target=function)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def add(job: Any) -> Any:
    """A handler for tests of all clients."""
    return sum(job.payload)


def fail(job: Any) -> None:
    raise ValueError("no such address")


@contextmanager
def working(url: str, of: str = "emails", **handlers: Any) -> Iterator[None]:
    """A worker of a queue, of that of Bananas in Bananas' own keyspace."""
    known = Handlers()
    for name, function in handlers.items():
        known(name)(function)
    model = (models.Bananas(),) if of == "bananas" else ()
    with Queue(of, *model, url=url) as queue, at_work(Worker(queue, known, sweep_ms=50)):
        yield


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Connects the Python client, in each of its faces."""
    with ExitStack() as stack:

        def connected(url: str, token: str | None = TOKEN, **retries: int) -> Face:
            settings = Retries(**{"deadline_ms": 15_000, "attempt_ms": 15_000, "first_ms": 1, "longest_ms": 20, **retries})
            face = SyncFace if request.param == "sync" else AsyncFace
            client = face(url, token, settings)
            stack.enter_context(client)
            return client

        yield connected


class Scenarios(Protocol):
    """Runs a scenario of tests/clients/typescript/scenarios.js, which finds the application, and these pages, behind a relay."""

    pages: dict[str, tuple[str, bytes]]

    def __call__(self, name: str, harmed: HttpRelay, **settings: Any) -> Any: ...


def run(command: list[str | Path], folder: Path, timeout_s: float = BUILD_S) -> str:
    """What a command prints. Fails where it fails."""
    apart: Any = {"cwd": folder, "stdin": subprocess.DEVNULL, "timeout": timeout_s}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **apart)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """What compiles the TypeScript client."""
    try:
        return node.modules(folder=node.CLIENT)
    except node.NodeMissing as missing:
        without(missing)


@pytest.fixture(scope="session")
def tarball(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, compiled from a copy of its sources and packed by npm."""
    folder = tmp_path_factory.mktemp("typescript") / "client"
    shutil.copytree(node.CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (folder / "node_modules").symlink_to(node_modules)
    run([node.program("npm"), "pack", "--silent", "--offline"], folder)
    (packed,) = folder.glob("*.tgz")
    return packed


@pytest.fixture(scope="session")
def installed(tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scenarios, and the package installed beside them; its path."""
    folder = tmp_path_factory.mktemp("installed")
    for source in SCENARIOS.iterdir():
        shutil.copy(source, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    package = folder / "node_modules" / "@ironclaim" / "client"
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    package.parent.mkdir(parents=True)
    (folder / "package").rename(package)
    return folder


def pages_of(installed: Path) -> dict[str, tuple[str, bytes]]:
    """The scenarios and the package, by the paths of page.html."""
    package = installed / "node_modules" / "@ironclaim" / "client"
    files = {f"/{path.name}": path for path in installed.iterdir() if path.suffix in TYPES}
    files |= {f"/package/{path.relative_to(package).as_posix()}": path for path in package.rglob("*.js")}
    return {name: (TYPES[path.suffix], path.read_bytes()) for name, path in files.items()}


class InNode:
    """Runs scenarios in Node."""

    def __init__(self, installed: Path) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self._folder = installed

    def __call__(self, name: str, harmed: HttpRelay, **settings: Any) -> Any:
        return json.loads(run([node.program("node"), "run.js", name, json.dumps({"url": harmed.url, **settings})], self._folder))


class InChromium:
    """Runs scenarios in Chromium, on a page that comes from the same origin as the application."""

    def __init__(self, window: Browser, installed: Path) -> None:
        self.pages = pages_of(installed)
        self._window = window

    def __call__(self, name: str, harmed: HttpRelay, **settings: Any) -> Any:
        self._window.open(f"{harmed.url}/page.html")
        given = f"{json.dumps(name)}, {json.dumps({'url': harmed.url, **settings})}"
        script = f"return import('/scenarios.js').then((module) => module.run({given})).then(JSON.stringify)"
        return json.loads(self._window.run(script))


@pytest.fixture(params=["node", "chromium"])
def scenario(request: pytest.FixtureRequest, installed: Path) -> Scenarios:
    """Runs scenarios in Node and in Chromium."""
    if request.param == "node":
        return InNode(installed)
    return InChromium(request.getfixturevalue("window"), installed)
