"""How the server of a queue is found where no address is fixed: by sentinels, or by the nodes of a cluster.
Values, no socket.

A url names several addresses: `sentinel://user:pw@host:port,host:port/service?db=0` and
`redis+cluster://user:pw@host:port,host:port`; `rediss+sentinel://` and `rediss+cluster://` use TLS for all
connections."""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode

SLOTS = 16_384
SENTINEL_PORT = 26_379
SERVER_PORT = 6_379

_URL = re.compile(
    r"(sentinel|rediss?\+sentinel|rediss?\+cluster)://(?:([^/?#]*)@)?([^/?#@]+)(?:/([^?#]*))?(?:\?([^#]*))?"
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:]+)(?::(\d{1,5}))?")


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    @classmethod
    def of(cls, redirection: Any) -> Address:
        """Where a MOVED or an ASK points."""
        return cls(redirection.host, redirection.port)


class Node(NamedTuple):
    """A server that may be written to, as the sentinels or the cluster name it. `identity` is what the server
    must say of itself: its run id behind sentinels, its node id in a cluster; empty where only its role can
    be checked."""

    host: str
    port: int
    identity: str

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class SentinelRoute:
    """The primary of `service`, as the majority of its sentinels names it. `credentials` are those of the
    sentinels."""

    sentinels: tuple[Address, ...]
    service: str
    credentials: tuple[tuple[str, Any], ...] = field(default=(), repr=False)

    def shown(self) -> str:
        """Its url, for people."""
        return f"sentinel://{_shown(self.sentinels)}/{self.service}"


@dataclass(frozen=True, slots=True)
class ClusterRoute:
    """The primaries of a cluster, as its nodes name them; `seeds` are asked first."""

    seeds: tuple[Address, ...]

    def shown(self) -> str:
        """Its url, for people."""
        return f"redis+cluster://{_shown(self.seeds)}"


Route = SentinelRoute | ClusterRoute


def slot_of(key: str) -> int:
    """The slot of a key in a cluster (the CRC16 of the text between the first braces, of the whole key where
    there is none)."""
    start = key.find("{")
    end = key.find("}", start + 1)
    tag = key[start + 1 : end] if start >= 0 and end > start + 1 else key
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


def read_url(url: str) -> tuple[Route, str] | None:
    """The route that a url names, and the url of one server with the same credentials, database and options,
    for redis-py to read; None for a url of one server. Raises ValueError for one that cannot be read."""
    if not re.match(r"(sentinel|rediss?\+(sentinel|cluster)):", url):
        return None
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("hosts are missing")
    scheme, user, hosts, path, query = parts.groups(default="")
    options = parse_qsl(query, keep_blank_values=True)
    plain = "rediss" if scheme.startswith("rediss") else "redis"
    credentials = {
        name.removeprefix("sentinel_"): value for name, value in options if name.startswith("sentinel_")
    }
    if unknown := credentials.keys() - {"username", "password"}:
        raise ValueError(f"sentinel_{min(unknown)} is not known")
    route: Route
    if scheme.endswith("cluster"):
        if path not in ("", "0") or any(name == "db" and value != "0" for name, value in options):
            raise ValueError("a cluster has database 0 only")
        route = ClusterRoute(_addresses(hosts, SERVER_PORT))
    else:
        if not path or "/" in path:
            raise ValueError("the name of the service is missing: sentinel://host:port/service")
        route = SentinelRoute(
            _addresses(hosts, SENTINEL_PORT), unquote(path), tuple(sorted(credentials.items()))
        )
    rest = urlencode([(name, value) for name, value in options if not name.startswith("sentinel_")])
    host = hosts.split(",", 1)[0]
    return route, f"{plain}://{user}{'@' if user else ''}{host}/{'?' if rest else ''}{rest}"


def _addresses(hosts: str, port: int) -> tuple[Address, ...]:
    found: list[Address] = []
    for host in hosts.split(","):
        parts = _HOST.fullmatch(host)
        if parts is None or not 0 < int(parts[2] or port) < 65_536:
            raise ValueError(f"{host!r} is no host:port")
        found.append(Address(parts[1].strip("[]"), int(parts[2] or port)))
    return tuple(found)


def _shown(addresses: tuple[Address, ...]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
