"""What every topology is: real servers inside a context, what clients connect to, and who is primary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

import redis
from redis.cluster import ClusterNode

from chaos.network import Network
from chaos.probe import Address


@dataclass(frozen=True, slots=True)
class Setting:
    """What a topology is made for. `log`: of its only server; others write beside it. `durability`: see `chaos.topologies`.
    `network`: where its servers get their proxies. `tag`: hash tag of the keys that the run is about. `environment`: more of the
    environment of its only server. `direct`: servers get no proxies, so nothing can cut them off."""

    log: Path
    durability: str = ""
    network: Network | None = None
    tag: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    direct: bool = False


class Topology(Protocol):
    """A server, or several, that a run works against."""

    #: What clients connect to.
    url: str

    def __enter__(self) -> Topology: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def address(self) -> Address:
        """Where the primary of the run's keys itself listens, whatever stands in front of it. Raises OSError while there is
        none."""
        ...

    def server_pids(self) -> dict[str, int]:
        """Process ids by name, for the samples; empty when the servers are not ours."""
        ...

    def complaint(self) -> str:
        """Why the topology does not work any more, in one line; empty while it does."""
        ...

    def unplanned_failover(self) -> str:
        """What happened when another server became the primary without a fault that says so; empty while none has."""
        ...


class Replicated(Topology, Protocol):
    """Several servers, of which one is the primary of the run's keys. Servers are named by their number; a fault says which ones
    are meant to be down."""

    #: Servers that a fault has killed.
    down: set[int]
    #: The primary that is known of: another one was not planned, unless a fault says that it is `moving`.
    known: int | None
    moving: bool
    #: The flat list of servers, each with its own port.
    ports: tuple[int, ...]

    def primary(self) -> int | None:
        """The server that the majority names; None while there is none."""
        ...

    def replicas(self) -> list[int]:
        """The servers that follow the primary, dead ones included."""
        ...

    def kill(self, server: int, send: Callable[[int, int], None]) -> None:
        """SIGKILL a server. It is gone once `alive` says so."""
        ...

    def alive(self, server: int) -> bool:
        """True while its process runs."""
        ...

    def ending(self, server: int) -> int | None:
        """How its process ended, as of Popen; None while it runs."""
        ...

    def start_again(self, server: int) -> None:
        """Start a killed server on its port, empty."""
        ...

    def pid(self, server: int) -> int:
        """Its process id."""
        ...

    def failover(self) -> None:
        """An operator's failover. Raises HarnessError when it is refused."""
        ...

    def is_whole(self) -> bool:
        """True when all servers are up, agree about the primary, and every replica is in step with it."""
        ...


def client_of(url: str, timeout_s: float) -> Any:
    """A client that finds the primary by itself; texts come decoded."""
    common: dict[str, Any] = {"decode_responses": True, "socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    parts = urlsplit(url)
    if parts.scheme == "redis":
        return redis.Redis.from_url(url, **common)
    seeds = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in parts.netloc.split(","))]
    if parts.scheme == "sentinel":
        return redis.Sentinel(seeds, **common).master_for(parts.path.strip("/"))
    return redis.RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in seeds], **common)
