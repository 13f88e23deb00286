"""Where the server of a run comes from. Every topology is a context: real processes inside, nothing left behind after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Protocol

from chaos.errors import HarnessError
from engine.testing import EmbeddedServer, server_binary


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


#: Name of a topology -> how to make it, from the path of the server's log.
TOPOLOGIES: dict[str, Callable[[Path], Topology]] = {"embedded": Embedded}


def make(name: str, log: Path) -> Topology:
    """The topology of that name. Raises HarnessError naming those that exist."""
    if name not in TOPOLOGIES:
        raise HarnessError(f"topology {name!r} does not exist; choose from {', '.join(sorted(TOPOLOGIES))}")
    return TOPOLOGIES[name](log)


def binary() -> Path:
    """The server binary that `embedded` will start."""
    return Path(server_binary())
