"""A primary with replicas and the sentinels that watch them, on loopback ports: who is primary, kill -9, failover, and back.

with EmbeddedSentinel() as servers:
    servers.kill(old := servers.primary())        # SIGKILL
    servers.wait_for_failover(old)
    servers.start_again(old)                      # empty, on its port: the sentinels make it a replica
    servers.wait_until_whole()"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from engine.testing.server import (
    LOOPBACK,
    NOT_RUNNING,
    PORT_TAKEN,
    PORTS_MAX,
    PROBE_TIMEOUT_S,
    EmbeddedServer,
    ServerFailed,
    ask_server,
    free_port,
)

#: Name under which the sentinels know the primary.
SERVICE = "ironclaim"

#: A server that does not answer its sentinels for so long is down for them.
DOWN_AFTER_MS = 1_000

#: A failover that does not succeed is given up after this, and tried again after twice as long.
FAILOVER_TIMEOUT_MS = 4_000

#: Upper bound of a failover, and of the time until a server that came back is a replica: sentinels correct the role of one that
#: was away only after eight seconds.
FAILOVER_TIMEOUT_S = 30.0
WHOLE_TIMEOUT_S = 45.0

POLL_S = 0.02

#: Replicas are to be there at once: by default a first copy waits for further replicas for five seconds.
REPLICATION_FLAGS = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")

#: What the others are to be told as the port of a server or sentinel, by its name and its own port.
Announce = Callable[[str, int], int]


def own_port(name: str, port: int) -> int:
    """Nothing stands in front of the process."""
    del name
    return port


class SentinelProcess(EmbeddedServer):
    """One sentinel. `settings`: lines of its configuration, which it rewrites as it learns."""

    def __init__(self, *, port: int, binary: str | os.PathLike[str] | None, log: Path | None, settings: Sequence[str]) -> None:
        super().__init__(port=port, binary=binary, log=log)
        self._settings = tuple(settings)

    def _command(self, program: Path, folder: Path) -> list[str]:
        file = folder / "sentinel.conf"
        if not file.exists():
            lines = (f"port {self._port}", f"bind {LOOPBACK}", f"dir {folder}", *self._settings)
            file.write_text("\n".join(lines) + "\n")
        return [str(program), str(file), "--sentinel"]


class EmbeddedSentinel:
    """Servers and sentinels (0 for none), alive inside the `with` block and gone after it, also when their owner was killed.

    Server 0 begins as the primary; the others are its replicas. `announce`: what stands in front of each process (see
    `Announce`); names are `server-0` and so on, and `sentinel-0`. `logs`: folder for their output, kept. `flags`: more of the
    servers' command lines. Enter it from a thread that lives as long as they should. Raises ServerMissing and ServerFailed as
    `EmbeddedServer` does.
    """

    def __init__(
        self,
        *,
        replicas: int = 2,
        sentinels: int = 3,
        down_after_ms: int = DOWN_AFTER_MS,
        failover_timeout_ms: int = FAILOVER_TIMEOUT_MS,
        binary: str | os.PathLike[str] | None = None,
        logs: Path | None = None,
        flags: Sequence[str] = (),
        announce: Announce = own_port,
    ) -> None:
        self._counts = (1 + replicas, sentinels)
        self._quorum = sentinels // 2 + 1
        self._times_ms = (down_after_ms, failover_timeout_ms)
        self._binary = binary
        self._logs = logs
        self._flags = tuple(flags)
        self._announce = announce
        self._stack = ExitStack()
        self.servers: list[EmbeddedServer] = []
        self.sentinels: list[EmbeddedServer] = []
        #: What others know each process by, in the order of `servers` and of `sentinels`.
        self.server_ports: list[int] = []
        self.sentinel_ports: list[int] = []

    @property
    def url(self) -> str:
        """What a client of the sentinels connects to. Raises ServerFailed outside the `with` block."""
        if not self.servers:
            raise ServerFailed(NOT_RUNNING)
        if not self.sentinels:
            return f"redis://{LOOPBACK}:{self.server_ports[0]}/0"
        return f"sentinel://{','.join(f'{LOOPBACK}:{port}' for port in self.sentinel_ports)}/{SERVICE}?db=0"

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each server and sentinel that runs, by name."""
        named = [*((f"server-{n}", one) for n, one in enumerate(self.servers))]
        named += [(f"sentinel-{n}", one) for n, one in enumerate(self.sentinels)]
        return {name: one.pid for name, one in named if one.process.poll() is None}

    def alive(self, server: int) -> bool:
        """True while the process of a server runs."""
        return self.servers[server].process.poll() is None

    def primary(self) -> int | None:
        """The server that a majority of all sentinels names; None while there is none. Without sentinels nobody replaces it."""
        if not self._counts[1]:
            return 0
        named = Counter(port for port in map(self._named_by, self.sentinels) if port)
        port, votes = next(iter(named.most_common(1)), (0, 0))
        return self.server_ports.index(port) if votes >= self._quorum and port in self.server_ports else None

    def role(self, server: int) -> str:
        """What a server says it is: master or slave; empty when it does not answer."""
        return info(self.servers[server].port, "replication").get("role", "")

    def kill(self, server: int) -> None:
        """SIGKILL a server, and wait until it is gone."""
        self.servers[server].kill()

    def start_again(self, server: int) -> None:
        """Start a killed server on its port: empty, and a primary until the sentinels tell it otherwise."""
        self.servers[server].start_again()

    def failover(self) -> None:
        """Let the sentinels make a replica the primary, as an operator does. Raises OSError when they refuse."""
        ask_server(self.sentinels[0].port, f"SENTINEL FAILOVER {SERVICE}")

    def wait_for_failover(self, old: int | None, timeout_s: float = FAILOVER_TIMEOUT_S) -> int:
        """Wait until the sentinels name another server than `old`, and that one is a primary. Raises ServerFailed."""
        deadline_s = time.monotonic() + timeout_s
        while (now := self.primary()) in (None, old) or self.role(now or 0) != "master":
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"the sentinels name server {now} {timeout_s:g} s after server {old} was the primary")
            time.sleep(POLL_S)
        return now

    def is_whole(self) -> bool:
        """True when every sentinel knows all the others and all replicas, and every replica follows the primary."""
        primary = self.primary()
        if primary is None or not all(self.alive(number) for number in range(len(self.servers))):
            return False
        servers, sentinels = self._counts
        known = all(
            f"status=ok,address={LOOPBACK}:{self.server_ports[primary]},slaves={servers - 1},sentinels={sentinels}"
            in info(sentinel.port, "sentinel").get("master0", "")
            for sentinel in self.sentinels
        )
        lines = info(self.servers[primary].port, "replication")
        online = [value for name, value in lines.items() if name.startswith("slave") and "state=online" in value]
        return known and lines.get("role") == "master" and len(online) == servers - 1

    def wait_until_whole(self, timeout_s: float = WHOLE_TIMEOUT_S) -> None:
        """Wait until `is_whole`. Raises ServerFailed."""
        deadline_s = time.monotonic() + timeout_s
        while not self.is_whole():
            if time.monotonic() > deadline_s:
                raise ServerFailed(f"servers on ports {self.server_ports} and their sentinels: not whole within {timeout_s:g} s")
            time.sleep(POLL_S)

    def __enter__(self) -> EmbeddedSentinel:
        servers, sentinels = self._counts
        try:
            for number in range(servers):
                self._add_server(number)
            for number in range(sentinels):
                self._add_sentinel(number)
            self.wait_until_whole()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process and remove its folder, the sentinels first. A second call does nothing."""
        self.servers, self.sentinels = [], []
        self._stack.close()

    def _add_server(self, number: int) -> None:
        def make(port: int, announced: int, log: Path | None) -> EmbeddedServer:
            flags = [*REPLICATION_FLAGS, "--replica-announce-ip", LOOPBACK, "--replica-announce-port", str(announced)]
            if number:
                flags += ["--replicaof", f"{LOOPBACK} {self.server_ports[0]}"]
            return EmbeddedServer(port=port, binary=self._binary, log=log, flags=(*flags, *self._flags))

        self._add(f"server-{number}", make, self.servers, self.server_ports)

    def _add_sentinel(self, number: int) -> None:
        down_after_ms, failover_timeout_ms = self._times_ms

        def make(port: int, announced: int, log: Path | None) -> EmbeddedServer:
            settings = [
                f"sentinel announce-ip {LOOPBACK}",
                f"sentinel announce-port {announced}",
                f"sentinel monitor {SERVICE} {LOOPBACK} {self.server_ports[0]} {self._quorum}",
                f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
                f"sentinel failover-timeout {SERVICE} {failover_timeout_ms}",
                f"sentinel parallel-syncs {SERVICE} {len(self.servers)}",
            ]
            return SentinelProcess(port=port, binary=self._binary, log=log, settings=settings)

        self._add(f"sentinel-{number}", make, self.sentinels, self.sentinel_ports)

    def _add(
        self, name: str, make: Callable[[int, int, Path | None], EmbeddedServer], into: list[EmbeddedServer], ports: list[int]
    ) -> None:
        """Start a process on a port that stays its own while it is down: one that the kernel gives to nobody else."""
        log = self._logs / f"{name}.log" if self._logs else None
        for tries_left in reversed(range(PORTS_MAX)):
            port = free_port()
            announced = self._announce(name, port)
            try:
                into.append(self._stack.enter_context(make(port, announced, log)))
                ports.append(announced)
                return
            except ServerFailed as error:
                if not tries_left or PORT_TAKEN not in str(error):
                    raise

    def _named_by(self, sentinel: EmbeddedServer) -> int:
        """Port of the primary that a sentinel names; 0 when it does not answer."""
        line = info(sentinel.port, "sentinel").get("master0", "")
        return int(line.partition("address=")[2].partition(",")[0].rpartition(":")[2] or 0)


def info(port: int, section: str) -> dict[str, str]:
    """A section of INFO of the server on this port; empty when it does not answer."""
    try:
        lines = ask_server(port, f"INFO {section}", PROBE_TIMEOUT_S).splitlines()
    except OSError:
        return {}
    return {name: value for name, found, value in (line.partition(":") for line in lines) if found}
