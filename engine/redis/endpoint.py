"""Where a queue's server is and how it is reached: a url, or the client that a service has already; and the
bounds of time.

Behind sentinels and in a cluster there is a route in place of an address: `engine.redis.resolver` finds the
server by it.

The engine opens connections of its own in either case. Of a client it takes the address, the
database, the credentials and TLS. It ignores the pool, whose connections answer in the client's way. It
ignores retries, which would re-send calls unnoticed, and timeouts and `decode_responses`."""

from __future__ import annotations

import binascii
import copy
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlencode

import redis
import redis.asyncio
from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import parse_url as parse_async_url  # pyright: ignore[reportUnknownVariableType]
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import parse_url  # pyright: ignore[reportUnknownVariableType]
from redis.retry import Retry

from engine import validate
from engine.errors import HIDDEN, Malformed, describe, redacted, redacted_url, shown
from engine.validate import settle

# -- How the server of a queue is found where no address is fixed: by sentinels, or by the nodes of a
# cluster. Values, no socket.
#
# A url names several addresses: `sentinel://user:pw@host:port,host:port/service?db=0` and
# `redis+cluster://user:pw@host:port,host:port`; `rediss+sentinel://` and `rediss+cluster://` use TLS for
# all connections.

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
        return f"sentinel://{_listed(self.sentinels)}/{self.service}"


@dataclass(frozen=True, slots=True)
class ClusterRoute:
    """The primaries of a cluster, as its nodes name them; `seeds` are asked first."""

    seeds: tuple[Address, ...]

    def shown(self) -> str:
        """Its url, for people."""
        return f"redis+cluster://{_listed(self.seeds)}"


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


def _listed(addresses: tuple[Address, ...]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


DEFAULT_URL = "redis://127.0.0.1:6379"
#: How long a call is re-sent. A tombstone lives 20 s, so a repeat inside this time always meets what the
#: first one did.
DEADLINE_MS = 10_000
#: A reply that takes longer than this counts as lost, and the call is sent again on a new connection.
TIMEOUT_MS = 2_000
#: What a tombstone's 20 s leave for a call that is sent again, with five to spare.
DEADLINE_MS_MAX = 15_000
TIMEOUT_MS_MAX = 600_000
CONNECTIONS_MAX = 10_000
_URL_BOUND = (
    "a url redis://host:port/db, rediss:// or unix:// with options that redis-py knows, "
    "sentinel://host:port,host:port/service"
    " or redis+cluster://host:port,host:port"
)
#: A connection class of redis-py that asks sentinels by itself -> the one that does not.
_PLAIN_CLASSES = {"SentinelManagedConnection": "Connection", "SentinelManagedSSLConnection": "SSLConnection"}
#: What is taken of a client, beside its `ssl_` settings.
_TAKEN = (
    *("host", "port", "path", "db", "username", "password", "credential_provider", "client_name"),
    *("socket_type", "socket_keepalive_options"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectOptions:
    """Timeouts, retries and the number of connections between a queue and its server.

    `timeout_ms`: a reply that takes longer counts as lost, and its call is sent again; 10 to 600,000.
    `connect_timeout_ms`: the same for a new connection. `deadline_ms`: how long a call is sent again before
    it raises; 10 to 15,000, because the server knows a job for 20 s after its end. `connections_max`: most
    calls at once, others wait; 0 = no bound for Queue, 16 for AsyncQueue. `idle_check_ms`: a
    connection that was idle for longer is looked at before it is used.
    """

    timeout_ms: int = TIMEOUT_MS
    connect_timeout_ms: int = 2_000
    deadline_ms: int = DEADLINE_MS
    connections_max: int = 0
    idle_check_ms: int = 1_000

    def __post_init__(self) -> None:
        settle(
            self,
            timeout_ms=(10, TIMEOUT_MS_MAX),
            connect_timeout_ms=(10, TIMEOUT_MS_MAX),
            deadline_ms=(10, DEADLINE_MS_MAX),
            connections_max=(0, CONNECTIONS_MAX),
            idle_check_ms=(0, 3_600_000),
        )


class Endpoint:
    """A server: `url` for people, and the settings of redis-py connections to it. `route`: how it is found,
    None where its address is fixed. `slot`: that of the calls that name no key, in a cluster. Raises
    Malformed for a url that redis-py does not know, and for a client whose connections the engine cannot make
    itself."""

    def __init__(
        self,
        url: object = DEFAULT_URL,
        client: object = None,
        options: ConnectOptions | None = None,
        *,
        asynchronous: bool = False,
    ) -> None:
        if options is not None:
            validate.instance("connect", options, ConnectOptions, "ConnectOptions")
        self.options = options or ConnectOptions()
        self._asynchronous = asynchronous
        if client is not None and url != DEFAULT_URL:
            raise Malformed("client", client, "given without a url: one of the two says where the server is")
        self.route: Route | None
        self.route, address = (
            _of_url(url, asynchronous) if client is None else _asked_of_client(client, asynchronous)
        )
        self.slot = 0
        self.connection_class: Any = address.pop(
            "connection_class", AsyncConnection if asynchronous else redis.Connection
        )
        self._address = address
        shown = self.route.shown() if self.route is not None else _shown(address, self.connection_class)
        self.url = redacted_url(str(url)) if client is None else shown

    @property
    def asynchronous(self) -> bool:
        """Whether its connections are those of asyncio."""
        return self._asynchronous

    def of_kind(self, *, asynchronous: bool) -> Endpoint:
        """The same server for connections of this kind. Raises Malformed for a client whose connections are
        of a class that the other kind lacks."""
        if asynchronous is self._asynchronous:
            return self
        made = copy.copy(self)
        made._asynchronous = asynchronous
        own, home = (
            self.connection_class,
            AsyncConnection.__module__ if asynchronous else redis.Connection.__module__,
        )
        made.connection_class = getattr(sys.modules[home], own.__name__, None)
        try:
            known = own.__module__ in (redis.Connection.__module__, AsyncConnection.__module__)
            if not known or made.connection_class is None:
                raise TypeError(f"{own.__name__} is not one of redis-py's own")
            made.connection_class(**self._address)
        except TypeError as error:
            bound = (
                f"one whose connections redis-py has for asyncio and without it ({error}); a url "
                "works for both"
            )
            raise Malformed("client", own, bound) from None
        return made

    def with_options(self, options: ConnectOptions | None) -> Endpoint:
        """The same server with these options; itself for None."""
        if options is None:
            return self
        made = copy.copy(self)
        made.options = options
        return made

    @property
    def is_cluster(self) -> bool:
        """Whether each key has a slot, which is at one of several servers."""
        return isinstance(self.route, ClusterRoute)

    def led_to(self, url: str) -> Endpoint:
        """Another server, for connections of the same kind with the same options. Raises Malformed."""
        return Endpoint(url, None, self.options, asynchronous=self._asynchronous)

    def for_keys_like(self, key: str) -> Endpoint:
        """The same server, or cluster, for calls about keys of the slot of this one."""
        if not self.is_cluster:
            return self
        made = copy.copy(self)
        made.slot = slot_of(key)
        return made

    def of_address(self, address: Address, credentials: Mapping[str, Any] | None = None) -> Endpoint:
        """A server at a fixed address that is reached in the same way; with these credentials for those of
        the endpoint."""
        made = copy.copy(self)
        made.route = None
        settings = (
            dict(self._address)
            if credentials is None
            else _without_credentials(self._address) | dict(credentials)
        )
        made._address = {**settings, **address._asdict()}
        if credentials is not None:
            made._address.pop("db", None)
        return made

    @property
    def sharing_key(self) -> str:
        """Equal for endpoints that reach their servers with the same settings."""
        return repr((self.connection_class, sorted(self._address.items()), self.options))

    def reaches(self, other: Endpoint) -> bool:
        """Whether both name the same database of the same server, with the same words."""
        return self._server_address() == other._server_address()

    def _server_address(self) -> tuple[object, ...]:
        address = self._address
        if self.route is not None:
            return (self.route, address.get("db") or 0)
        where = (
            (address["path"],)
            if "path" in address
            else (address.get("host") or "localhost", address.get("port") or 6379)
        )
        return (self.connection_class.__name__, *where, address.get("db") or 0)

    def settings(self, patience_ms: int = 0, node: Node | None = None) -> dict[str, Any]:
        """Arguments of one connection, to a node where the endpoint has a route. `patience_ms`: how much
        longer than usual a reply may take."""
        settings = {
            **self._address,
            **(node.address._asdict() if node is not None else {}),
            "protocol": 2,
            "retry": (AsyncRetry if self._asynchronous else Retry)(NoBackoff(), 0),
            "socket_timeout": (self.options.timeout_ms + patience_ms) / 1000,
            "socket_connect_timeout": self.options.connect_timeout_ms / 1000,
            "health_check_interval": 0,
            "decode_responses": False,
        }
        # Only TCP connections know keep-alive and Nagle.
        if "path" not in settings:
            settings["socket_keepalive"] = True
        return settings


def _without_credentials(address: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in address.items()
        if name not in ("username", "password", "credential_provider")
    }


def _of_url(url: object, asynchronous: bool) -> tuple[Route | None, dict[str, Any]]:
    if not issubclass(type(url), str):
        raise Malformed("url", redacted(shown(url)), _URL_BOUND)
    url, wrong = str.__str__(cast("str", url)), ""
    try:
        return _read(url, asynchronous)
    except Exception as error:
        wrong = describe(error)
    # Without the cause: what redis-py and urllib say has parts of the url, which may be the password. Of the
    # url without it they say the same, unless it is the password that cannot be read.
    safe = redacted_url(url)
    if safe != url:
        wrong = "a user or a password with other characters than letters and digits has them as %23"
        try:
            _read(safe.replace(HIDDEN, "x"), asynchronous)
        except Exception as error:
            wrong = describe(error)
    raise Malformed("url", safe, f"{_URL_BOUND} ({wrong})")


def _read(url: str, asynchronous: bool) -> tuple[Route | None, dict[str, Any]]:
    """The route and the settings of a url. Raises ValueError and TypeError."""
    route: Route | None = None
    found = read_url(url)
    if found is not None:
        route, url = found
    # redis-py takes a database that is no number for database 0.
    if not (url.startswith("unix://") or re.fullmatch(r"rediss?://[^/?#]*/?\d*(\?.*)?", url)):
        raise ValueError("no such url")
    return route, dict(_settings_of_url(url, asynchronous))


# A service may have many queues on few servers, and each connection that redis-py makes reads its own version
# from disk.
@lru_cache
def _settings_of_url(url: str, asynchronous: bool) -> Mapping[str, Any]:
    found = dict(cast("dict[str, Any]", (parse_async_url if asynchronous else parse_url)(url)))
    known = {name: value for name, value in found.items() if name != "connection_class"}
    plain: Any = AsyncConnection if asynchronous else redis.Connection
    found.get("connection_class", plain)(**known)
    return found


def _asked_of_client(client: object, asynchronous: bool) -> tuple[Route | None, dict[str, Any]]:
    return validate.asked("client", client, "a client that can be read", _of_client, client, asynchronous)


def _of_client(client: object, asynchronous: bool) -> tuple[Route | None, dict[str, Any]]:
    wanted = "a redis.asyncio.Redis" if asynchronous else "a redis.Redis"
    bound = f"{wanted}, one that Sentinel.master_for has made, or a RedisCluster of the same kind"
    route: Route | None = None
    if isinstance(client, redis.asyncio.RedisCluster if asynchronous else redis.RedisCluster):
        nodes: Any = cast("Any", client).nodes_manager.startup_nodes
        route = ClusterRoute(tuple(Address(node.host, node.port) for node in nodes.values()))
        given = cast("Mapping[str, Any]", cast("Any", client).get_connection_kwargs())
        ssl = given.get("ssl") or "SSL" in getattr(given.get("connection_class"), "__name__", "")
        own = "SSLConnection" if ssl else "Connection"
    elif isinstance(client, redis.asyncio.Redis if asynchronous else redis.Redis):
        pool: Any = client.connection_pool
        given = cast("Mapping[str, Any]", pool.connection_kwargs)
        own = pool.connection_class.__name__
        if (manager := getattr(pool, "sentinel_manager", None)) is not None:
            if not pool.is_master:
                raise Malformed("client", client, f"{bound}: this one reads from replicas")
            route = _of_sentinels(pool.service_name, manager)
        if given.get("redis_connect_func") is not None:
            raise Malformed(
                "client",
                client,
                f"{wanted} without a redis_connect_func: the engine greets the server in its own way",
            )
    else:
        raise Malformed("client", client, bound)
    taken = {
        name: given[name]
        for name in given
        if name in _TAKEN or (name.startswith("ssl_") and given[name] is not None)
    }
    home = sys.modules[AsyncConnection.__module__ if asynchronous else redis.Connection.__module__]
    plain = getattr(home, _PLAIN_CLASSES.get(own, own), None) if route is not None else None
    return route, {**taken, "connection_class": plain or cast("Any", client).connection_pool.connection_class}


def _of_sentinels(service: str, manager: Any) -> SentinelRoute:
    each: list[Mapping[str, Any]] = [
        sentinel.connection_pool.connection_kwargs for sentinel in manager.sentinels
    ]
    credentials = tuple(
        (name, each[0][name]) for name in ("username", "password") if each[0].get(name) is not None
    )
    return SentinelRoute(tuple(Address(one["host"], one["port"]) for one in each), service, credentials)


def _shown(address: Mapping[str, Any], connection_class: Any) -> str:
    """The address of a client, without its password, for messages."""
    if "path" in address:
        return f"unix://{address['path']}?db={address.get('db') or 0}"
    scheme = "rediss" if "SSL" in connection_class.__name__ else "redis"
    host, port = address.get("host") or "localhost", address.get("port") or 6379
    return f"{scheme}://{host}:{port}/{address.get('db') or 0}"
