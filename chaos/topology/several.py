"""Several servers, each behind a proxy unless none is wanted: replicas without sentinels, replicas with sentinels, and a cluster.

Servers and sentinels announce the ports of their proxies, so that clients, replicas and sentinels all go through these. The
harness itself asks the servers directly.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

import redis

from chaos.errors import HarnessError
from chaos.network import Network
from chaos.probe import Address
from chaos.topology.base import Setting
from chaos.topology.embedded_cluster import EmbeddedCluster
from chaos.topology.embedded_sentinel import Announce, EmbeddedSentinel, info, own_port
from engine.testing.server import LOOPBACK

#: Of a run: a primary that is dead is found out about quickly.
NODE_TIMEOUT_MS = 2_000

#: The same of sentinels. Half of it is too little where all share two cores: they took a primary that they had just named for
#: dead.
DOWN_AFTER_MS = 2_000

#: How often it is looked who is primary.
LOOK_S = 0.25

Send = Callable[[int, int], None]


def network_of(setting: Setting) -> Network:
    """The network of a run with several servers."""
    if setting.network is None:
        raise HarnessError("a topology of several servers needs proxies, and no Toxiproxy server was named")
    return setting.network


S = TypeVar("S", EmbeddedSentinel, EmbeddedCluster)


class Followed(Generic[S]):
    """Servers of which one is the primary. It is looked at again and again: on a machine that is busy, sentinels may take a
    server that lives for dead. `down`: those that are meant to be."""

    servers: S

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.known: int | None = None
        self.moving = False
        self._due_s = 0.0

    def primary(self) -> int | None:
        raise NotImplementedError

    def kill(self, server: int, send: Send) -> None:
        self.down.add(server)
        send(self.pid(server), signal.SIGKILL)

    def alive(self, server: int) -> bool:
        return self.servers.alive(server)

    def ending(self, server: int) -> int | None:
        return self.servers.servers[server].process.poll()

    def start_again(self, server: int) -> None:
        self.servers.start_again(server)
        self.down.discard(server)

    def pid(self, server: int) -> int:
        return self.servers.servers[server].pid

    def unplanned_failover(self) -> str:
        now_s = time.monotonic()
        if self.moving or now_s < self._due_s:
            return ""
        self._due_s = now_s + LOOK_S
        now = self.primary()
        if self.known is None or now in (None, self.known):
            self.known = now if self.known is None else self.known
            return ""
        return f"server-{now} was named the primary in place of server-{self.known}, without a fault that says so"


class WithSentinels(Followed[EmbeddedSentinel]):
    """A primary, two replicas, and three sentinels, or none: then nobody replaces the primary."""

    def __init__(self, setting: Setting, sentinels: int = 3) -> None:
        super().__init__()
        self.url = ""
        self.servers = EmbeddedSentinel(
            sentinels=sentinels, down_after_ms=DOWN_AFTER_MS, logs=setting.log.parent, announce=announcing(setting)
        )

    def __enter__(self) -> WithSentinels:
        self.servers.__enter__()
        self.url = self.servers.url
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.servers.__exit__(kind, error, trace)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(server.port for server in self.servers.servers)

    def address(self) -> Address:
        return place_of(self.primary(), self.ports)

    def primary(self) -> int | None:
        return self.servers.primary()

    def replicas(self) -> list[int]:
        return [server for server in range(len(self.ports)) if server != self.primary()]

    def failover(self) -> None:
        try:
            self.servers.failover()
        except OSError as error:
            raise HarnessError(f"the sentinels refuse a failover: {error}") from error

    def follow(self, server: int, primary: int) -> None:
        """Tell a server whom it follows, without waiting for the sentinels to do it."""
        with redis.Redis(port=self.ports[server], socket_timeout=5) as client:
            client.replicaof(LOOPBACK, self.servers.server_ports[primary])

    def is_whole(self) -> bool:
        return self.servers.is_whole()

    def server_pids(self) -> dict[str, int]:
        return self.servers.pids

    def complaint(self) -> str:
        named = [*((f"server-{n}", one) for n, one in enumerate(self.servers.servers) if n not in self.down)]
        named += [(f"sentinel-{n}", one) for n, one in enumerate(self.servers.sentinels)]
        ended = [f"{name} exited in mid-run with code {code}" for name, one in named if (code := one.process.poll()) is not None]
        return "; ".join(ended)


class WithReplicas(WithSentinels):
    """A primary and two replicas; the primary stays the primary."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, sentinels=0)

    def __enter__(self) -> WithReplicas:
        super().__enter__()
        # Each process of the run has a proxy of its own.
        self.url = f"redis://{LOOPBACK}:{self.ports[0]}/0"
        return self


class InCluster(Followed[EmbeddedCluster]):
    """Three primaries with a replica each. The primary is the one that owns the slot of the run's keys."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.url = ""
        self._tag = setting.tag
        self.slot = 0
        self.servers = EmbeddedCluster(
            replicas=1, node_timeout_ms=NODE_TIMEOUT_MS, logs=setting.log.parent, announce=announcing(setting)
        )

    def __enter__(self) -> InCluster:
        self.servers.__enter__()
        seeds = ",".join(f"{LOOPBACK}:{port}" for port in self.servers.announced_ports)
        self.url = f"redis+cluster://{seeds}"
        self.slot = self.servers.slot_of(f"{{{self._tag}}}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.servers.__exit__(kind, error, trace)

    @property
    def ports(self) -> tuple[int, ...]:
        return self.servers.ports

    def address(self) -> Address:
        return place_of(self.primary(), self.ports)

    def primary(self) -> int | None:
        return self.servers.primary_of(self.slot)

    def replicas(self) -> list[int]:
        primary = self.primary()
        return [] if primary is None else self.servers.replicas_of(primary)

    def failover(self) -> None:
        try:
            self.servers.failover(self.replicas()[0])
        except (redis.RedisError, IndexError) as error:
            raise HarnessError(f"the cluster refuses a failover: {error}") from error

    def is_whole(self) -> bool:
        return self.servers.is_whole()

    def server_pids(self) -> dict[str, int]:
        return {f"server-{n}": pid for n, pid in enumerate(self.servers.pids) if n not in self.down}

    def complaint(self) -> str:
        codes = {n: self.ending(n) for n in range(len(self.ports)) if n not in self.down}
        return "; ".join(f"server-{n} exited in mid-run with code {code}" for n, code in codes.items() if code is not None)


def announcing(setting: Setting) -> Announce:
    """What puts a proxy in front of a server, unless none is wanted, and says the port that others connect to."""
    if setting.direct:
        return own_port
    network = network_of(setting)
    return lambda name, port: network.put_in_front(name, Address(LOOPBACK, port)).port


def place_of(server: int | None, ports: tuple[int, ...]) -> Address:
    """Where a server listens. Raises OSError for none."""
    if server is None:
        raise ConnectionError("nobody is primary")
    return Address(LOOPBACK, ports[server])


def replication_offset(port: int) -> int:
    """How much of the stream of writes a server has; -1 when it does not answer."""
    lines = info(port, "replication")
    name = "master_repl_offset" if lines.get("role") == "master" else "slave_repl_offset"
    return int(lines.get(name, -1))
