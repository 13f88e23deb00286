"""A drill in which the engine and the original Bull share a queue: the processes of both, and a look at its keys as they are."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from chaos import rows
from chaos.drill import Drill
from chaos.interop.keyspace import BullKeys
from chaos.interop.load import NewJob, jobs, write_plan
from chaos.interop.node import adapter_command, adapter_environment
from chaos.interop.scenarios import NODE, Mixture
from chaos.processes import Child, Crew


def on_node(name: str) -> bool:
    """True for the name of a process that runs the original client."""
    return name.startswith(NODE)


@dataclass
class MixedCrew(Crew):
    """A crew whose processes are the engine's or Node's, by their names."""

    handlers = "chaos.interop.handlers:handlers"

    port: int = 0
    node_concurrency: int = 1
    sent: dict[str, list[NewJob]] = field(default_factory=dict)

    def start_worker(self, name: str) -> Child:
        """Announce a worker in the manifest, then start it."""
        if not on_node(name):
            return super().start_worker(name)
        sink = self.history / f"{name}.sink.jsonl"
        self.manifest.append([rows.process("worker", name, f"{name}.jsonl"), rows.process("sink", name, sink.name)])
        settings = {"sink": str(sink), "concurrency": self.node_concurrency}
        return self._start_node(name, "worker", "consume", settings)

    def start_producer(self, name: str) -> Child:
        """Announce a producer in the manifest, then start it with what it sends."""
        plan = self.logs / f"{name}.plan.jsonl"
        write_plan(plan, self.sent[name])
        self.manifest.append([rows.process("producer", name, f"{name}.jsonl")])
        if on_node(name):
            return self._start_node(name, "producer", "produce", {"plan": str(plan)})
        command = [sys.executable, "-m", "chaos.interop.producer", name, self.connect(name), self.spec.queue]
        return self._start(name, "producer", [*command, str(plan), str(self.history / f"{name}.jsonl")], {})

    def _start_node(self, name: str, role: str, mode: str, settings: dict[str, Any]) -> Child:
        common = {"queue": self.spec.queue, "port": self.port, "proc": name, "history": str(self.history / f"{name}.jsonl")}
        return self._start(name, role, adapter_command(mode, {**common, **settings}), adapter_environment())


@dataclass(kw_only=True)
class MixedDrill(Drill):
    """One run of a mixture."""

    mixture: Mixture

    crew_of = MixedCrew
    _crew: MixedCrew = field(init=False, repr=False)

    def _set_up(self, stack: ExitStack) -> None:
        super()._set_up(stack)
        self._keys = BullKeys(self._servers.url, self.spec.queue)
        stack.callback(self._keys.close)

    def _start_workers(self) -> tuple[str, ...]:
        crew, mixture = self._crew, self.mixture
        crew.port = urlsplit(self._servers.url).port or 0
        crew.node_concurrency = mixture.concurrency
        crew.sent = {name: jobs(self.spec.seed, name, mixture.mix) for name in mixture.producers}
        for name in mixture.workers:
            crew.start_worker(name)
        return mixture.workers

    def _works(self, name: str) -> bool:
        # A worker of Bull is connected; it writes nothing down while there are no jobs.
        return bool(self._watch.view(name).connected_ns) if on_node(name) else super()._works(name)

    def _start_producers(self) -> None:
        for name in self.mixture.producers:
            self._crew.start_producer(name)
        self._require(lambda: all(self._watch.view(name).created for name in self.mixture.producers), "a producer created no job")

    def _end_load(self) -> None:
        self.errors += self._crew.stop(list(self.mixture.producers))

    def _drained(self) -> bool:
        return self._keys.drained()

    def _snapshot(self, name: str) -> None:
        self._keys.snapshot(self._harness, name, time.monotonic_ns())
