"""Where the server of a run comes from. Every topology is a context: real processes inside, nothing left behind after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol

from chaos.errors import HarnessError
from engine.testing import EmbeddedServer, ServerFailed, server_binary, wire
from engine.testing.ports import quiet_port
from engine.testing.server import PORT_TAKEN


class Topology(Protocol):
    """A server, or several, that a run works against."""

    #: What clients connect to.
    url: str

    def __enter__(self) -> Topology: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def server_pids(self) -> dict[str, int]:
        """Process ids by name, for the samples; empty when the servers are not ours."""
        ...

    def complaint(self) -> str:
        """Why the topology does not work any more, in one line; empty while it does."""
        ...


class Embedded:
    """One private server on a free loopback port, started from the bundled binary."""

    def __init__(self, log: Path) -> None:
        self.url = ""
        self._server = EmbeddedServer(log=log)

    def __enter__(self) -> Embedded:
        self._server.__enter__()
        self.url = self._server.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.__exit__(kind, error, trace)

    def server_pids(self) -> dict[str, int]:
        return {"server": self._server.pid}

    def complaint(self) -> str:
        code = self._server.process.poll()
        return "" if code is None else f"the embedded server exited in mid-run with code {code}"


#: What a server writes down before it answers, and that it never rewrites: its folder may be copied at any time.
AOF_FLAGS = ("--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")

#: How often another port is tried when somebody took the one that was picked.
PORTS_MAX = 5


class Durable:
    """One private server that keeps everything in a file beside its log. It may be ended and started again, on the same port: one
    that the kernel gives to no outgoing connection, so that it is still free then."""

    def __init__(self, log: Path) -> None:
        self.url = ""
        #: The server's own folder.
        self.folder = log.parent / "server"
        self._log = log
        self._server = EmbeddedServer()
        self._port = 0
        #: True while it is meant to be down.
        self.ended = False

    def __enter__(self) -> Durable:
        self.folder.mkdir(exist_ok=True)
        for tries_left in reversed(range(PORTS_MAX)):
            self._port = quiet_port()
            try:
                self.start()
                break
            except ServerFailed as error:
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
        self.url = self._server.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop()

    def start(self) -> None:
        """Start it with what its folder holds, and wait until it answers. Raises ServerFailed."""
        self._server = EmbeddedServer(port=self._port, folder=self.folder, log=self._log, flags=AOF_FLAGS)
        self._server.__enter__()
        self.ended = False

    def end(self, number: int, send: Callable[[int, int], None]) -> None:
        """Send it a signal that ends it: SIGTERM for an orderly end, SIGKILL for none."""
        self.ended = True
        send(self._server.pid, number)

    def reaped(self) -> int | None:
        """How the process that was ended last did end, as of Popen; None while it lives."""
        return self._server.process.poll()

    def run_id(self) -> str:
        """What tells one process of the server from the next. Raises OSError when it does not answer."""
        lines = wire.ask(self._port, "INFO server").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("run_id:")), "")

    def server_pids(self) -> dict[str, int]:
        return {} if self.ended else {"server": self._server.pid}

    def complaint(self) -> str:
        code = None if self.ended else self._server.process.poll()
        return "" if code is None else f"the embedded server exited in mid-run with code {code}"


#: Name of a topology -> how to make it, from the path of the server's log.
TOPOLOGIES: dict[str, Callable[[Path], Topology]] = {"embedded": Embedded, "aof": Durable}


def make(name: str, log: Path) -> Topology:
    """The topology of that name. Raises HarnessError naming those that exist."""
    if name not in TOPOLOGIES:
        raise HarnessError(f"topology {name!r} does not exist; choose from {', '.join(sorted(TOPOLOGIES))}")
    return TOPOLOGIES[name](log)


def binary() -> Path:
    """The server binary that `embedded` will start."""
    return Path(server_binary())
