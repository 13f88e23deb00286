"""The network between the processes of a run and their server: one Toxiproxy server, and a proxy for each process, or, for one
that calls apps in place of the server, for each of those.

Processes are told the urls of their proxies and know nothing of them. The harness itself goes direct.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType

from chaos.errors import HarnessError
from chaos.probe import PATIENCE_S, Address, Silence, address_of, ask, greeting_of, pinged, round_trip_ms, through
from chaos.toxiproxy import PORT_TAKEN, PORTS_MAX, Toxic, ToxiproxyClient, ToxiproxyError, ToxiproxyServer
from engine.testing.server import LOOPBACK, free_port


class Network:
    """The proxies of a run, inside a `with` block. Every method raises HarnessError when Toxiproxy does not do as it is told.

    `url`: of the one server that processes get proxies to; empty until `lead_to` says it.

    `pretend`: the mutant whose faults do nothing. Proxies are real, and `poison` and `cut` only say that they acted.
    """

    def __init__(self, url: str, *, program: Path, log: Path, pretend: bool = False) -> None:
        if url:
            self.lead_to(url)
        self._toxiproxy = ToxiproxyServer(program, log)
        self._pretend = pretend
        #: The ways of each process.
        self._ways: dict[str, list[Way]] = {}
        #: The host name that processes are told in place of the address of their proxy; "" = they are told the address.
        self.host = ""
        #: Where proxies of processes listen.
        self.listens_at = LOOPBACK
        #: Proxies in front of servers.
        self._fronts: dict[str, Address] = {}

    def lead_to(self, url: str) -> None:
        """Processes that start from now on get proxies to this server."""
        self.server = address_of(url)
        self._url, self._greeting = url, greeting_of(url)

    def __enter__(self) -> Network:
        self._toxiproxy.__enter__()
        self._client = ToxiproxyClient(Address(LOOPBACK, self._toxiproxy.port))
        try:
            self._client.version()
        except BaseException:
            self._toxiproxy.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._toxiproxy.__exit__(kind, error, trace)

    @property
    def pid(self) -> int:
        """Process id of the Toxiproxy server."""
        return self._toxiproxy.pid

    def complaint(self) -> str:
        """Why the network does not work any more, in one line; empty while it does."""
        return self._toxiproxy.complaint()

    def connect(self, name: str) -> str:
        """Make the proxy of a process that is about to start; the url that it is to use."""
        way = self._add(name, Way(name, self._proxy(name, self.server, self.listens_at), self.server, self._greeting))
        return through(self._url, Address(self.host or way.entry.host, way.entry.port))

    def connect_to_app(self, name: str, app: str, listens: Address) -> Address:
        """Make the proxy of a process to an app that it calls; the address that it is to use."""
        proxy = f"{name}-to-{app}"
        return self._add(name, HttpWay(proxy, self._proxy(proxy, listens), listens)).entry

    def put_in_front(self, name: str, server: Address) -> Address:
        """Make the proxy of a server that is about to start; where it listens. A second call for a name makes another."""
        listen = self._proxy(f"{name}-{len(self._fronts)}", server)
        self._fronts[name] = listen
        return listen

    def _add(self, name: str, way: Way) -> Way:
        self._ways.setdefault(name, []).append(way)
        return way

    def _proxy(self, name: str, upstream: Address, host: str = LOOPBACK) -> Address:
        for tries_left in reversed(range(PORTS_MAX)):
            listen = Address(host, free_port())
            try:
                self._client.create(name, listen=listen, upstream=upstream)
                return listen
            except ToxiproxyError as error:
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
        raise AssertionError("the last try raises")

    def __contains__(self, name: object) -> bool:
        """True for a process that has a proxy."""
        return name in self._ways

    def proxy(self, name: str) -> Address:
        """Where the proxy of a process listens, the first of several."""
        return self._ways[name][0].entry

    def ways(self, name: str) -> tuple[Way, ...]:
        """All ways of a process."""
        return tuple(self._ways[name])

    def poison(self, names: Iterable[str], toxics: Sequence[Toxic]) -> None:
        """Put the toxics on the proxies of the named processes."""
        if self._pretend:
            return
        for way in self._of(names):
            for toxic in toxics:
                self._client.add(way.proxy, toxic)

    def cut(self, names: Iterable[str]) -> None:
        """Cut the connections of the named processes and refuse new ones."""
        if self._pretend:
            return
        for way in self._of(names):
            self._client.enable(way.proxy, False)

    def move(self, host: str) -> None:
        """Let the proxies of all processes listen at another address of this machine, on their ports: what they carry is cut, and
        the address before refuses connections. Proxies to come listen there too."""
        if self._pretend:
            return
        for name, ways in self._ways.items():
            self._ways[name] = [replace(way, entry=Address(host, way.entry.port)) for way in ways]
            for way in self._ways[name]:
                self._client.move(way.proxy, way.entry)
        self.listens_at = host

    def heal(self, names: Iterable[str]) -> None:
        """Undo whatever was done to the named processes; all of them, also when one cannot be healed."""
        failure: HarnessError | None = None
        for way in self._of(names):
            try:
                self._client.heal(way.proxy)
            except ToxiproxyError as error:
                failure = failure or error
        if failure is not None:
            # A server that is gone explains every request that it did not answer.
            raise HarnessError(self.complaint() or str(failure))

    def heal_all(self) -> None:
        """Undo everything, as far as that is possible: for the end, when the run is as good or bad as it will be."""
        with suppress(HarnessError):
            self.heal(self._ways)

    def _of(self, names: Iterable[str]) -> list[Way]:
        return [way for name in names for way in self._ways[name]]


#: Keys of probes vanish by themselves, should the harness be killed.
PROBE_KEY_MS = 60_000

#: The queue of the jobs that probes make over HTTP. Nobody works on it.
PROBE_JOBS = "/api/queues/probe/jobs"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the server. `proxy`: its name in Toxiproxy; it listens at `entry` and leads to `server`. `greeting`: how a
    connection begins."""

    proxy: str
    entry: Address
    server: Address
    greeting: tuple[tuple[str, ...], ...] = field(default=(), repr=False)

    def write(self, key: str, patience_s: float) -> str:
        """What was answered to a write over this way. Raises Silence where nothing came back, and another OSError."""
        return ask(self.entry, f"SET {key} 1 PX {PROBE_KEY_MS}", patience_s, self.greeting)

    def arrived(self, key: str) -> bool:
        """Whether the write is at the server, which is asked past the proxy. Raises OSError."""
        return ask(self.server, f"EXISTS {key}", greeting=self.greeting) == ":1"

    def forget(self, key: str) -> None:
        """Remove what a write has left."""
        ask(self.server, f"DEL {key}", greeting=self.greeting)

    def round_trip_ms(self, address: Address) -> float:
        """How long a round trip to one of the two ends takes. Raises OSError."""
        return round_trip_ms(address, lambda asked: pinged(asked, greeting=self.greeting))


class HttpWay(Way):
    """A way to an app, where HTTP is spoken: a write makes a job."""

    __slots__ = ()

    def write(self, key: str, patience_s: float) -> str:
        body = b'{"name":"probe","id":"%s"}' % key.encode()
        return str(status(self.entry, "POST", PROBE_JOBS, body, patience_s))

    def arrived(self, key: str) -> bool:
        return status(self.server, "GET", f"{PROBE_JOBS}/{key}") == 200

    def forget(self, key: str) -> None:
        status(self.server, "POST", f"{PROBE_JOBS}/{key}/cancel")

    def round_trip_ms(self, address: Address) -> float:
        return round_trip_ms(address, lambda app: status(app, "GET", "/nowhere") == 404)


def status(address: Address, method: str, path: str, body: bytes | None = None, patience_s: float = PATIENCE_S) -> int:
    """The status that a request is answered with. Raises Silence when nothing came, another OSError when the connection broke."""
    connection = HTTPConnection(address.host, address.port, timeout=patience_s)
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    except TimeoutError as error:
        raise Silence(f"{address}: no answer to {method} {path} within {patience_s:g} s") from error
    except HTTPException as error:
        raise ConnectionResetError(f"{address}: no answer to {method} {path}: {error}") from error
    finally:
        connection.close()
