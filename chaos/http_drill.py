"""A drill whose producer sends over HTTP: to apps, processes of `ironclaim serve`, that lead to the server.

The producer reaches each app over a proxy of its own, and each app the server over another.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field

from chaos.catalogue import APPS
from chaos.drill import Drill
from chaos.network import Network
from chaos.plan import PRODUCER
from chaos.probe import Address, refused
from chaos.processes import Child, Crew
from engine.testing.server import LOOPBACK, free_port


@dataclass(frozen=True, slots=True)
class App:
    """An app: where it listens, the url by which the producer calls it, and that by which it calls the server."""

    listens: Address
    url: str
    server_url: str


@dataclass
class HttpCrew(Crew):
    """The children of such a run. `network` None: everybody calls everybody directly."""

    network: Network | None = None
    apps: dict[str, App] = field(default_factory=dict)

    @property
    def serve_options(self) -> tuple[str, ...]:
        """How the apps are started."""
        return ("--allow-changes",)

    def start_app(self, name: str) -> Child:
        """Start an app; one that was there before at its old address, where the producer looks for it."""
        if name not in self.apps:
            listens = Address(LOOPBACK, free_port())
            entry = self.network.connect_to_app(PRODUCER, name, listens) if self.network else listens
            self.apps[name] = App(listens, f"http://{entry}", self.connect(name))
        app = self.apps[name]
        command = [sys.executable, "-m", "engine", "serve", *self.serve_options, "--url", app.server_url]
        child = self._start(name, "app", [*command, "--host", app.listens.host, "--port", str(app.listens.port)], {})
        # Its server ends by the signal that has stopped it.
        child.endings = (0, -signal.SIGTERM)
        return child

    def listening(self, name: str) -> bool:
        """True when somebody listens where an app should."""
        return not refused(self.apps[name].listens)

    def start_replacement(self, name: str, of: str) -> Child:
        return self.start_app(name) if of in self.apps else super().start_replacement(name, of)

    def start_producer(self, name: str) -> Child:
        """Announce the producer in the manifest, then start it."""
        urls = ",".join(app.url for app in self.apps.values())
        return self._start_sending(name, urls)


@dataclass
class HttpDrill(Drill):
    """A run of jobs that come over HTTP."""

    crew_of = HttpCrew
    _crew: HttpCrew = field(init=False, repr=False)

    def _begin_load(self) -> None:
        self._crew.network = self._network
        for name in APPS:
            self._crew.start_app(name)
        self._require(lambda: all(map(self._crew.listening, APPS)), "the apps did not listen")
        super()._begin_load()
