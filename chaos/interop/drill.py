"""A drill in which the engine and the original Bull share a queue: a crew of both, and a look at the queue's keys as they are."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

from chaos import topology
from chaos.drill import Drill
from chaos.interop.crew import MixedCrew, on_node
from chaos.interop.keyspace import BullKeys
from chaos.interop.load import jobs
from chaos.interop.scenarios import Scenario
from chaos.sampler import Sampler
from chaos.topology import Setting
from chaos.watch import Watch
from record.history import HistoryFile


@dataclass(kw_only=True)
class MixedDrill(Drill):
    """One run of a scenario."""

    scenario: Scenario

    def _set_up(self, stack: ExitStack) -> None:
        """Start server, sampler and workers. What is started first is stopped last."""
        spec, history = self.spec, self.folder.history
        manifest = self._open_manifest(stack)
        self._servers = stack.enter_context(topology.make(spec.topology, Setting(self.folder.logs / "server.log")))
        url = self._servers.url
        self._keys = BullKeys(url, spec.queue)
        stack.callback(self._keys.close)
        self._watch = Watch(history)
        stack.callback(self._watch.close)
        self._crew = self._make_crew(url, manifest)
        self._sampler = Sampler(
            queue=self._open_queue(url),
            address=self._servers.address,
            samples=self.folder.samples,
            harness=self._harness,
            pids=self._pids,
        )
        stack.callback(self._sampler.close)
        stack.callback(self._stop_crew)
        self._sampler.start()
        for name in self.scenario.workers:
            self._crew.start_worker(name)
        self._require(lambda: all(map(self._ready, self.scenario.workers)), "the workers did not begin to work")

    def _make_crew(self, url: str, manifest: HistoryFile) -> MixedCrew:
        crew = MixedCrew(self.spec, lambda name: url, self.folder.history, self.folder.logs, manifest, self._watch, self.lua)
        crew.port = urlsplit(url).port or 0
        crew.node_concurrency = self.scenario.concurrency
        crew.sent = {name: jobs(self.spec.seed, name, self.scenario.mix) for name in self.scenario.producers}
        return crew

    def _ready(self, name: str) -> bool:
        """A worker of the engine has asked for jobs; one of Bull is connected, as it writes nothing down while there are none."""
        view = self._watch.view(name)
        return bool(view.connected_ns if on_node(name) else view.completed.get("claim"))

    def _begin_load(self) -> None:
        """Start the producers, and with them the lead-in."""
        load_ns = time.monotonic_ns()
        for name in self.scenario.producers:
            self._crew.start_producer(name)
        self._require(
            lambda: all(self._watch.view(name).created for name in self.scenario.producers), "a producer created no job"
        )
        self.loaded = True
        self._begin_phase("lead-in", load_ns)

    def _end_load(self) -> None:
        self.errors += self._crew.stop(list(self.scenario.producers))

    def _drained(self) -> bool:
        return self._keys.drained()

    def _snapshot(self, name: str) -> None:
        self._keys.snapshot(self._harness, name, time.monotonic_ns())
