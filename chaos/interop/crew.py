"""The processes of a mixed run: the engine's own, and Node processes with the original Bull."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from chaos import rows
from chaos.interop.load import NewJob, write_plan
from chaos.interop.node import adapter_command, adapter_environment
from chaos.interop.scenarios import NODE
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
