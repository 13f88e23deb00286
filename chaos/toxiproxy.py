"""The Toxiproxy server of a run: a real process on a free loopback port, gone with its owner, also when that was killed."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType

import psutil

from chaos.errors import HarnessError
from engine.testing import start_guarded
from engine.testing.server import LOOPBACK, free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 3.0
POLL_S = 0.01

#: How often another free port is tried when somebody took the one that was picked.
PORTS_MAX = 5

#: What the server writes to its log when it could not bind. It does not exit: it stays, deaf.
PORT_TAKEN = "address already in use"


class ToxiproxyServer:
    """The process, alive inside the `with` block. Enter it from a thread that lives as long as it should (see `start_guarded`).

    `port`: a fixed port of 127.0.0.1; without it a free one. Raises HarnessError when it does not come up.
    """

    def __init__(self, program: Path, log: Path, port: int | None = None) -> None:
        self.port = 0
        self._program = program
        self._log = log
        self._fixed_port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 outside the `with` block."""
        return self._process.pid if self._process else 0

    def complaint(self) -> str:
        """Why the server does not work any more, in one line; empty while it does."""
        code = self._process.poll() if self._process else None
        return "" if code is None else f"the Toxiproxy server exited in mid-run with code {code}; see {self._log}"

    def __enter__(self) -> ToxiproxyServer:
        tries_left = 1 if self._fixed_port else PORTS_MAX
        while True:
            self.port = self._fixed_port or free_port()
            try:
                failure = self._try_port()
            except BaseException:
                self.stop()
                raise
            if not failure:
                return self
            self.stop()
            tries_left -= 1
            if not tries_left or PORT_TAKEN not in failure:
                raise HarnessError(f"{self._program} on port {self.port}: {failure}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _try_port(self) -> str:
        """One start on one port: empty when the server listens, else why not. Raises HarnessError when it cannot be run."""
        with self._log.open("ab") as output:
            start = output.tell()
            command = [str(self._program), "-host", LOOPBACK, "-port", str(self.port)]
            try:
                self._process = start_guarded(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # At lower levels there are several lines for each connection.
                    env={**os.environ, "LOG_LEVEL": "error"},
                )
            except OSError as error:
                raise HarnessError(f"{self._program}: {error.strerror or error}; it must be a toxiproxy-server") from error
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._listens():
                return ""
            # Asked before its log is read: what a process writes last is missed when it ends in between.
            code = self._process.poll()
            said = self._log.read_bytes()[start:].decode(errors="replace")
            if PORT_TAKEN in said:
                return PORT_TAKEN
            if code is not None:
                return f"exited with code {code}; {(said.strip().splitlines() or ['it said nothing'])[-1].strip()}"
            time.sleep(POLL_S)
        return f"does not listen within {START_TIMEOUT_S:.0f} s; see {self._log}"

    def _listens(self) -> bool:
        """True when this very process listens on the port. Another server there would answer, and is not ours."""
        try:
            found = psutil.Process(self.pid).net_connections(kind="tcp")
        except psutil.Error:
            return False
        return any(one.status == psutil.CONN_LISTEN and one.laddr and one.laddr[1] == self.port for one in found)
