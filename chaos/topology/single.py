"""One server: in memory, or with everything in a file beside its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from chaos.probe import Address, address_of
from chaos.topology.base import Setting
from engine.testing import EmbeddedServer, ServerFailed
from engine.testing.server import PORT_TAKEN, ask_server, free_port


class Embedded:
    """One private server on a free loopback port, started from the bundled binary."""

    def __init__(self, setting: Setting) -> None:
        self.url = ""
        self._server = EmbeddedServer(log=setting.log, environment=setting.environment)

    def __enter__(self) -> Embedded:
        self._server.__enter__()
        self.url = self._server.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.__exit__(kind, error, trace)

    def address(self) -> Address:
        return address_of(self.url)

    def server_pids(self) -> dict[str, int]:
        return {"server": self._server.pid}

    def unplanned_failover(self) -> str:
        return ""

    def complaint(self) -> str:
        code = self._server.process.poll()
        return "" if code is None else f"the embedded server exited in mid-run with code {code}"


#: What a server writes down, before it answers unless told otherwise, and that it never rewrites: its folder may be copied at any
#: time.
AOF_FLAGS = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")

#: Where it writes, below its folder.
AOF_FILES = "appendonlydir/*.incr.aof"

#: The beginning of a command as it stands in the file.
TORN = b"*3\r\n$3\r\nSET\r\n$20\r\nironclaim:"

#: How often another port is tried when somebody took the one that was picked.
PORTS_MAX = 5


class Durable:
    """One private server that keeps everything in a file beside its log. It may be ended and started again, on the same port: one
    that the kernel gives to no outgoing connection, so that it is still free then."""

    def __init__(self, setting: Setting) -> None:
        self.url = ""
        #: When the file is on the disk: `always` or `everysec`.
        self.durability = setting.durability or "always"
        #: The server's own folder.
        self.folder = setting.log.parent / "server"
        self._log = setting.log
        self._environment = setting.environment
        self._server = EmbeddedServer()
        self._port = 0
        #: True while it is meant to be down.
        self.ended = False

    def __enter__(self) -> Durable:
        self.folder.mkdir(exist_ok=True)
        for tries_left in reversed(range(PORTS_MAX)):
            self._port = free_port()
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
        self._server = EmbeddedServer(
            port=self._port, folder=self.folder, log=self._log, flags=self._flags(), environment=self._environment
        )
        self._server.__enter__()
        self.ended = False

    def _flags(self) -> tuple[str, ...]:
        return (*AOF_FLAGS, "--appendfsync", self.durability)

    def address(self) -> Address:
        return address_of(self.url)

    def written_bytes(self) -> dict[Path, int]:
        """How long the files are in which the server has written down what it did."""
        return {path: path.stat().st_size for path in self.folder.glob(AOF_FILES)}

    def cut(self, sizes: dict[Path, int]) -> int:
        """Take away what the files of an ended server have beyond these sizes, as a power loss takes what was not on the disk
        yet; how many bytes that were."""
        gone = 0
        for path, size in sizes.items():
            gone += path.stat().st_size - size
            with path.open("r+b") as file:
                file.truncate(size)
        return gone

    def tear(self) -> int:
        """Leave the beginning of a command at the end of an ended server's file, as a power loss leaves one that was not answered
        yet; how many bytes that are."""
        newest = max(self.written_bytes(), key=lambda path: path.stat().st_mtime_ns)
        with newest.open("ab") as file:
            return file.write(TORN)

    def log_bytes(self) -> int:
        """How long its log is."""
        return self._log.stat().st_size

    def logged_since(self, bytes_before: int) -> str:
        """What its log says since it was so long."""
        return self._log.read_bytes()[bytes_before:].decode(errors="replace")

    def file_bytes(self) -> tuple[int, int]:
        """How many bytes it has written to its file, be they on the disk or not, and how many are to follow of what it has
        answered. Raises OSError."""
        lines = ask_server(self._port, "INFO persistence").splitlines()
        found = {name: value for name, _, value in (line.strip().partition(":") for line in lines)}
        return int(found["aof_current_size"]), int(found["aof_buffer_length"])

    def end(self, number: int, send: Callable[[int, int], None]) -> None:
        """Send it a signal that ends it: SIGTERM for an orderly end, SIGKILL for none."""
        self.ended = True
        send(self._server.pid, number)

    def reaped(self) -> int | None:
        """How the process that was ended last did end, as of Popen; None while it lives."""
        return self._server.process.poll()

    def run_id(self) -> str:
        """What tells one process of the server from the next. Raises OSError when it does not answer."""
        lines = ask_server(self._port, "INFO server").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("run_id:")), "")

    def server_pids(self) -> dict[str, int]:
        return {} if self.ended else {"server": self._server.pid}

    def unplanned_failover(self) -> str:
        return ""

    def complaint(self) -> str:
        code = None if self.ended else self._server.process.poll()
        return "" if code is None else f"the embedded server exited in mid-run with code {code}"
