"""A private server on a loopback port: in memory only, no eviction, ready when the constructor's `with` is entered."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from engine.errors import EngineError
from engine.testing import wire
from engine.testing.binary import server_binary
from engine.testing.folders import OwnedFolder, sweep
from engine.testing.guard import start_guarded
from engine.testing.ports import LOOPBACK, free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01

#: How often another free port is tried when somebody took the one that was picked.
PORTS_MAX = 5

#: What the server says when it could not bind (Redis 7 and Valkey alike).
PORT_TAKEN = "Address already in use"

NOT_RUNNING = "the embedded server is not running: enter its `with` block first"


class ServerFailed(EngineError):
    """The server program was found and does not run. The message is one line: program, port, and its own last words."""


class EmbeddedServer:
    """A server process of its own, alive inside the `with` block and gone after it.

    Args (all optional):
        port: fixed TCP port of 127.0.0.1; without it a free one.
        binary: the program; without it see `server_binary`.
        folder: working directory of the server, kept; without it a temporary one, removed at the end (that of an owner
            that was killed: by the next server that is started on this machine).
        log: file that gets the server's output, kept; without it `server.log` in the folder.
        flags: more of the server's command line.
        environment: more of the server's environment.

    Enter it from a thread that lives as long as the server should (see `start_guarded`). Raises ServerMissing when no
    program can be had and ServerFailed when it does not come up.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        binary: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        log: str | os.PathLike[str] | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._fixed_port = port
        self._binary = binary
        self._more_flags = tuple(flags)
        self._more_environment = dict(environment or {})
        self._kept_folder = None if folder is None else Path(folder).resolve()
        self._kept_log = None if log is None else Path(log).resolve()
        self._temporary: OwnedFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server process. Raises ServerFailed outside the `with` block."""
        if self._process is None:
            raise ServerFailed(NOT_RUNNING)
        return self._process

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1."""
        if self._process is None:
            raise ServerFailed(NOT_RUNNING)
        return self._port

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self.process.pid

    @property
    def url(self) -> str:
        """What a client connects to: database 0 of this server."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def flush(self) -> None:
        """Empty every database, and wait until it is done."""
        wire.ask(self.port, "FLUSHALL SYNC")

    def kill(self) -> None:
        """SIGKILL it, and wait until it is gone. Its folder stays, and `start_again` starts it on the same port."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start it after `kill`, on the port that it had: with what its folder holds, which is nothing unless flags say that
        data is kept. Raises ServerFailed when somebody took the port meanwhile."""
        self._fixed_port = self.port
        self._start(server_binary(self._binary))

    def __enter__(self) -> EmbeddedServer:
        program = server_binary(self._binary)
        if self._kept_folder is None:
            sweep()
            self._temporary = OwnedFolder()
        try:
            self._start(program)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server (SIGTERM, after 5 s SIGKILL) and remove its temporary folder. A second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.remove()

    def _start(self, program: Path) -> None:
        """Start the program on the fixed port, or on free ports until one is still free when the server binds it."""
        folder = self._kept_folder or (self._temporary.path if self._temporary else Path.cwd())
        log = self._kept_log or folder / "server.log"
        tries_left = 1 if self._fixed_port else PORTS_MAX
        while True:
            self._port = self._fixed_port or free_port()
            failure = self._try_port(program, folder, log)
            if failure is None:
                return
            tries_left -= 1
            if not tries_left or PORT_TAKEN not in failure:
                raise ServerFailed(failure)

    def _command(self, program: Path, folder: Path) -> list[str]:
        """The command line of a start."""
        return [str(program), *_flags(self._port, folder), *self._more_flags]

    def _try_port(self, program: Path, folder: Path, log: Path) -> str | None:
        """One start on one port: None when the server answers, else why not. Raises ServerFailed when it cannot be run."""
        with log.open("ab") as output:
            output_start = output.tell()
            try:
                self._process = start_guarded(
                    self._command(program, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # The server refuses to start when the environment names a locale that the machine lacks.
                    env={**os.environ, **self._more_environment, "LC_ALL": "C"},
                )
            except OSError as error:
                raise ServerFailed(f"{program}: {error.strerror}; it must be a redis-server or valkey-server") from error
        if self._answers():
            return None
        code = self._process.poll()
        state = f"no answer within {START_TIMEOUT_S:.0f} s" if code is None else f"exited with code {code}"
        self._process.kill()
        self._process.wait()
        return f"{program} on port {self._port}: {state}; {_last_words(log, output_start)}"

    def _answers(self) -> bool:
        """Wait until **this** server answers; False when it exits or the time is up. Another server on the port is not ours."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s and self.process.poll() is None:
            try:
                answered = wire.ask(self._port, "PING", wire.PROBE_TIMEOUT_S) == "PONG"
                if answered and wire.process_id(self._port, wire.PROBE_TIMEOUT_S) == self.process.pid:
                    return True
            except OSError:
                pass
            time.sleep(POLL_S)
        return False


def _flags(port: int, folder: Path) -> list[str]:
    """Command line of a server that keeps everything in memory and evicts nothing (an evicted lock would be a lost lock)."""
    return [
        *("--port", str(port), "--bind", LOOPBACK, "--dir", str(folder)),
        *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
    ]


def _last_words(log: Path, start: int) -> str:
    """The line of the log, after byte `start`, that says most about why the server did not come up."""
    lines = [line.strip() for line in log.read_bytes()[start:].decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return "it said nothing"
    return next((line for line in lines if PORT_TAKEN in line), lines[-1])
