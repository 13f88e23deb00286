"""A drill of a job queue: its workers and a producer, the plan's faults, and a last look at what the server's keys still hold."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import ClassVar

from chaos import rows, topologies
from chaos.drill import Frame
from chaos.plan import PRODUCER, worker_names
from chaos.progress import State
from chaos.targets.crew import TargetCrew
from chaos.targets.faults import FAULTS, TargetScene, send_to_tree
from chaos.targets.spec import TargetSpec
from chaos.targets.watch import TargetWatch, held

#: What probes through the proxies take for a lease: it bounds their patience, and is none of the queue's.
LEASE_MS = 9_000

#: How often it is looked whether all jobs have run.
DRAIN_POLL_S = 0.1


@dataclass
class TargetDrill(Frame[TargetSpec]):
    """One run. `command`: what runs the adapter of the target, and `runtime` what it is written for."""

    FAULTS: ClassVar = FAULTS

    command: list[str] = field(default_factory=list)
    runtime: str = "python"

    _watch: TargetWatch = field(init=False, repr=False)
    _crew: TargetCrew = field(init=False, repr=False)

    def _set_up(self, stack: ExitStack) -> None:
        spec, history = self.spec, self.folder.history
        manifest = self._open_manifest(stack)
        connect = self._start_servers(stack, topologies.EMBEDDED, "", "")
        self._watch = TargetWatch(history)
        stack.callback(self._watch.close)
        self._crew = TargetCrew(
            *(spec, connect, history, self.folder.logs, manifest, self._watch),
            command=self.command,
            runtime=self.runtime,
            harness=self._harness,
        )
        stack.callback(self._stop_crew)
        for name in worker_names(spec.workers):
            self._crew.start_worker(name)

    def _send(self) -> None:
        self._crew.start_producer(PRODUCER)
        self._require(lambda: bool(self._watch.ended), "no job ran to its end")

    def _scene(self) -> TargetScene:
        return replace(self._scene_of(TargetScene, LEASE_MS, LEASE_MS), signal=send_to_tree, freeze_ms=self.spec.freeze_ms)

    def _drain(self, healed_ns: int) -> None:
        self._begin_phase("drain", time.monotonic_ns())
        self.errors += self._crew.stop([PRODUCER])
        self.load_ended()
        # What a queue gives back, it gives back by now; a queue that has nothing left is not waited for.
        until_ns = max(healed_ns, time.monotonic_ns()) + self.spec.wait_ms * 1_000_000
        self.wait(lambda: not self._watch.left(), timeout_s=(until_ns - time.monotonic_ns()) / 1e9, poll_s=DRAIN_POLL_S)
        found = sorted(held(self._servers.url) & self._watch.left(), key=int)
        self._harness.append(
            rows.final("end", state="held", count=len(found), jobs=[(job, 0) for job in found], srv_us=time.time_ns() // 1_000)
        )
        self._begin_phase("end", time.monotonic_ns())

    def _stop_crew(self) -> None:
        if self._network is not None:
            self._network.heal_all()
        self.errors += self._crew.end()

    def _draw(self) -> None:
        watch, crew = self._watch, self._crew
        sent, ended = len(watch.acknowledged), len(watch.ended)
        active = sum(len(view.running) for view in watch.views.values())
        alive = crew.alive("worker")
        self.progress.draw(
            State(self._phase, sent, ended, max(0, sent - ended - active), 0, active, alive, self.spec.workers, self._fault)
        )
