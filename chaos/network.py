"""The network between the processes of a run and their server: one Toxiproxy server, and a proxy for each process.

Processes are told the url of their proxy and know nothing of it. The harness itself goes direct.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from chaos.errors import HarnessError
from chaos.probe import Address, address_of, through
from chaos.toxiproxy import PORT_TAKEN, PORTS_MAX, ToxiproxyServer
from chaos.toxiproxy_client import Toxic, ToxiproxyClient, ToxiproxyError
from engine.testing.ports import LOOPBACK, quiet_port


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
        self._proxies: dict[str, Address] = {}
        #: The host name that processes are told in place of the address of their proxy; "" = they are told the address.
        self.host = ""
        #: Where proxies of processes listen.
        self.listens_at = LOOPBACK
        #: Proxies in front of servers.
        self._fronts: dict[str, Address] = {}

    def lead_to(self, url: str) -> None:
        """Processes that start from now on get proxies to this server."""
        self.server = address_of(url)
        self._url = url

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
        self._proxies[name] = self._proxy(name, self.server, self.listens_at)
        return through(self._url, Address(self.host or self._proxies[name].host, self._proxies[name].port))

    def put_in_front(self, name: str, server: Address) -> Address:
        """Make the proxy of a server that is about to start; where it listens. A second call for a name makes another."""
        listen = self._proxy(f"{name}-{len(self._fronts)}", server)
        self._fronts[name] = listen
        return listen

    def _proxy(self, name: str, upstream: Address, host: str = LOOPBACK) -> Address:
        for tries_left in reversed(range(PORTS_MAX)):
            listen = Address(host, quiet_port())
            try:
                self._client.create(name, listen=listen, upstream=upstream)
                return listen
            except ToxiproxyError as error:
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
        raise AssertionError("the last try raises")

    def __contains__(self, name: object) -> bool:
        """True for a process that has a proxy."""
        return name in self._proxies

    def proxy(self, name: str) -> Address:
        """Where the proxy of a process listens."""
        return self._proxies[name]

    def poison(self, names: Iterable[str], toxics: Sequence[Toxic]) -> None:
        """Put the toxics on the proxies of the named processes."""
        if self._pretend:
            return
        for name in names:
            for toxic in toxics:
                self._client.add(name, toxic)

    def cut(self, names: Iterable[str]) -> None:
        """Cut the connections of the named processes and refuse new ones."""
        if self._pretend:
            return
        for name in names:
            self._client.enable(name, False)

    def move(self, host: str) -> None:
        """Let the proxies of all processes listen at another address of this machine, on their ports: what they carry is cut, and
        the address before refuses connections. Proxies to come listen there too."""
        if self._pretend:
            return
        for name, proxy in self._proxies.items():
            self._proxies[name] = moved = Address(host, proxy.port)
            self._client.move(name, moved)
        self.listens_at = host

    def heal(self, names: Iterable[str]) -> None:
        """Undo whatever was done to the named processes; all of them, also when one cannot be healed."""
        failure: HarnessError | None = None
        for name in names:
            try:
                self._client.heal(name)
            except ToxiproxyError as error:
                failure = failure or error
        if failure is not None:
            # A server that is gone explains every request that it did not answer.
            raise HarnessError(self.complaint() or str(failure))

    def heal_all(self) -> None:
        """Undo everything, as far as that is possible: for the end, when the run is as good or bad as it will be."""
        with suppress(HarnessError):
            self.heal(self._proxies)
