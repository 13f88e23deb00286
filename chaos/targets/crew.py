"""The processes of a drill of a job queue: the adapters of `bench/peers`, each in the environment of its library.

A worker that ends by itself is started again at once, as any supervisor would do, and that it ended is a row of the history.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bench.micro.payload import PAYLOAD
from bench.peers.environments import ADAPTERS
from chaos import rows
from chaos.processes import ROOT, Child, Children
from chaos.targets.faults import send_to_tree
from chaos.targets.spec import TargetSpec
from record.history import SCHEMA_VERSION, HistoryFile

#: A library whose workers end by themselves more often than this cannot be drilled.
RESTARTS_MAX = 20

#: How long a producer that was told to end may take for the job that it is sending.
PRODUCER_GRACE_S = 15.0


@dataclass
class TargetCrew(Children[TargetSpec]):
    """Workers and the producer. `command`: what runs the adapter, and `runtime` what it is written for; `harness`: the
    harness's own history."""

    command: list[str] = field(default_factory=list)
    runtime: str = "python"
    harness: HistoryFile | None = None
    restarts: int = 0
    _urls: dict[str, str] = field(default_factory=dict)

    def start_worker(self, name: str) -> Child:
        """Announce a worker in the manifest, then start it."""
        self.manifest.append([rows.process("sink", name, f"{name}.jsonl")])
        return self._start_adapter(name, "worker", {"role": "work"})

    def start_producer(self, name: str) -> Child:
        """Announce the producer in the manifest, then start it."""
        self.manifest.append([rows.process("producer", name, f"{name}.jsonl")])
        return self._start_adapter(name, "producer", {"role": "produce", "way": "drilled", "rate": self.spec.rate_per_s})

    def start_replacement(self, name: str, of: str) -> Child:
        return self.start_worker(name)

    def unplanned_exits(self) -> list[Child]:
        """Workers that ended by themselves are started again; whatever else did is returned."""
        gone = super().unplanned_exits()
        workers = [child for child in gone if child.role == "worker" and self.restarts < RESTARTS_MAX]
        for child in workers:
            self.restarts += 1
            if self.harness:
                fault = f"unplanned-exit-{self.restarts}"
                detail = child.ending()
                row = rows.fault(fault, name="unplanned-exit", stage="witness", target=child.name, seen=True, detail=detail)
                self.harness.append([row])
            self._start_adapter(child.name, "worker", {"role": "work"})
        return [child for child in gone if child not in workers]

    def end(self) -> list[str]:
        """End the producer politely and the workers by force: what they did is on record. Returns complaints."""
        complaints = self.stop([child.name for child in self.children.values() if child.role == "producer"], PRODUCER_GRACE_S)
        for child in self.children.values():
            child.exit_expected = True
            send_to_tree(child.pid, signal.SIGKILL)
            child.process.wait()
        return complaints

    def _start_adapter(self, name: str, role: str, order: dict[str, Any]) -> Child:
        spec = self.spec
        # A worker that is started again keeps its proxy.
        url = self._urls[name] = self._urls.get(name) or self.connect(name)
        parts = urlsplit(url)
        work_s = [work_ms / 1_000 for work_ms in spec.work_ms]
        path = str(self.history / f"{name}.jsonl")
        full = {
            "host": parts.hostname,
            "port": parts.port,
            "url": url,
            "queue": f"target-{spec.target}",
            "payload": PAYLOAD,
            "settings": spec.settings,
            "history": {"path": path, "proc": name, "version": SCHEMA_VERSION, "work_s": work_s},
            **order,
        }
        return self._start(name, role, self.command, {"PEERS_ORDER": json.dumps(full), "PYTHONPATH": python_path(self.runtime)})


def python_path(runtime: str) -> str:
    """Where a Python adapter finds what it shares with the others; the engine of this checkout only where it is asked for."""
    return os.pathsep.join((str(ADAPTERS), str(ROOT))) if runtime == "checkout" else str(ADAPTERS)
