"""The drill: start everything, put load on it, carry out the plan's faults, drain, stop everything, and leave a history."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import models
from bench.workload import NAMES, SCHEDULED_PAYLOAD
from chaos import rows, snapshot, topology
from chaos.errors import HarnessError
from chaos.faults import FAULTS
from chaos.faults.base import Scene, carry_out
from chaos.interrupts import Interrupts
from chaos.network import Network
from chaos.plan import PRODUCER, Plan, consumer_names, worker_names
from chaos.processes import STOP_GRACE_S, Crew, send
from chaos.progress import Progress, State
from chaos.runs import RunFolder
from chaos.sampler import Sampler
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import EngineError
from engine.history import HistoryFile
from engine.testing import ServerFailed, ServerMissing

#: Interpreters have to start and import; on a busy machine that takes seconds.
START_TIMEOUT_S = 60.0

#: Children that cannot reach their server any more are not waited for: what they owe, they cannot deliver.
LOST_GRACE_S = 1.0

#: How often the queue is asked whether it is empty.
DRAIN_POLL_S = 0.1


@dataclass
class Drill:
    """One run of a plan. `errors` says in one line each what the harness could not do; empty means that the run counts."""

    spec: RunSpec
    plan: Plan
    folder: RunFolder
    progress: Progress
    #: Signals are caught while the caller is inside its `with` block.
    interrupts: Interrupts
    lua: Path | None = None
    signal: Callable[[int, int], None] = send
    #: The Toxiproxy server program; a plan with faults of the network needs it.
    toxiproxy: Path | None = None
    #: The mutant whose faults of the network do nothing.
    pretend: bool = False
    errors: list[str] = field(default_factory=list)
    #: True from the first enqueue on: before it there is nothing to judge.
    loaded: bool = False
    _phase: str = "setup"
    _fault: str = ""
    _network: Network | None = None

    def run(self) -> None:
        """Carry out the plan. Whatever happens, every process is gone afterwards and the reason is in `errors`."""
        try:
            with ExitStack() as stack:
                self._set_up(stack)
                self._carry_out()
        except (HarnessError, EngineError, ServerFailed, ServerMissing) as error:
            self.errors.insert(0, str(error))
        except Exception as error:
            log = self.folder.logs / "harness.log"
            log.write_text(traceback.format_exc())
            self.errors.insert(0, f"the harness failed: {type(error).__name__}: {error} (see {log})")
        # Also a signal that came after the last tick, while everything was being stopped.
        if (complaint := self.interrupts.take()) and complaint not in self.errors:
            self.errors.append(complaint)

    def _set_up(self, stack: ExitStack) -> None:
        """Start server, proxies, sampler and workers. What is started first is stopped last."""
        spec, history = self.spec, self.folder.history
        manifest = self._open_history(stack, "manifest")
        manifest.append([rows.process("harness", "harness", "harness.jsonl")])
        self._harness = self._open_history(stack, "harness")
        self._servers = stack.enter_context(topology.make(spec.topology, self.folder.logs / "server.log"))
        url = self._servers.url
        if self.plan.needs_network():
            if self.toxiproxy is None:
                raise HarnessError("the plan has faults of the network, and no Toxiproxy server was named")
            log = self.folder.logs / "toxiproxy.log"
            self._network = stack.enter_context(Network(url, program=self.toxiproxy, log=log, pretend=self.pretend))
        self._queue = models.queue(spec.model, spec.queue, url=url)
        stack.callback(self._queue.close)
        for limit in spec.limits:
            self._queue.set_limit(**limit)
        payload = models.carried(spec.model).payload(SCHEDULED_PAYLOAD)
        for schedule in spec.schedules:
            # Every tick counts, also those of an outage.
            self._queue.schedules.put(**schedule, job_name=NAMES[0], payload=payload, missed="all")
        self._watch = Watch(history)
        stack.callback(self._watch.close)
        connect = self._network.connect if self._network else lambda name: url
        self._crew = Crew(spec, connect, history, self.folder.logs, manifest, self._watch, self.lua)
        self._sampler = Sampler(url=url, spec=spec, samples=self.folder.samples, harness=self._harness, pids=self._pids)
        stack.callback(self._sampler.close)
        stack.callback(self._stop_crew)
        self._sampler.start()
        names = worker_names(spec.workers)
        for name in names:
            self._crew.start_worker(name)
        consumers = consumer_names(spec.consumers)
        for name in consumers:
            self._crew.start_consumer(name)
        working = (*names, *consumers)
        self._require(lambda: all(self._watch.view(name).completed.get("claim") for name in working), "the workers did not claim")

    def _carry_out(self) -> None:
        """Lead-in, faults, settle, drain."""
        pace = self.plan.pace
        self._begin_load()
        quiet_ms = pace.lead_in_ms
        healed_ns = time.monotonic_ns()
        scene = self._scene()
        for planned in self.plan.faults:
            self._hold(time.monotonic_ns() + (quiet_ms + planned.delay_ms) * 1_000_000)
            self._fault = f"{planned.fault} on {planned.target}"
            fault = FAULTS[planned.name](scene, planned)
            healed_ns = carry_out(fault, planned, harness=self._harness, begin_phase=self._begin_phase)
            self._fault = ""
            quiet_ms = pace.calm_ms
        self._begin_phase("settle", time.monotonic_ns())
        self._hold(healed_ns + pace.settle_ms * 1_000_000)
        self._drain(healed_ns)

    def _begin_load(self) -> None:
        """Start the producer, and with it the lead-in."""
        load_ns = time.monotonic_ns()
        self._crew.start_producer(PRODUCER)
        self._require(lambda: self._watch.created() > 0, "the producer created no job")
        self.loaded = True
        self._begin_phase("lead-in", load_ns)

    def _scene(self) -> Scene:
        """What faults act on."""
        spec = self.spec
        return Scene(self._crew, self._watch, self.wait, self.signal, spec.lease_ms, spec.recovery_bound_ms, self._network)

    def _stop_crew(self) -> None:
        """Stop the children, over a network without faults. Those whose proxies are gone cannot stop well: no fault of theirs."""
        if self._network is None:
            self.errors += self._crew.stop_all()
            return
        self._network.heal_all()
        lost = self._network.complaint()
        complaints = self._crew.stop_all(LOST_GRACE_S if lost else STOP_GRACE_S)
        self.errors += [] if lost else complaints

    def _drain(self, healed_ns: int) -> None:
        """End the load, look at the queue when nothing may be stuck any more, and again when it is empty or time is up."""
        self._begin_phase("drain", time.monotonic_ns())
        self._end_load()
        liveness_ns = self.spec.liveness_ms * 1_000_000
        self._hold(healed_ns + liveness_ns)
        self._snapshot("deadline")
        left_s = (healed_ns + 2 * liveness_ns - time.monotonic_ns()) / 1e9
        if not self.wait(self._drained, timeout_s=left_s, poll_s=DRAIN_POLL_S):
            self._give_up()
        self._snapshot("end")
        self._begin_phase("end", time.monotonic_ns())

    def _end_load(self) -> None:
        """Let no new job come."""
        self.errors += self._crew.stop([PRODUCER])
        for schedule in self.spec.schedules:
            self._queue.schedules.disable(schedule["name"])

    def _drained(self) -> bool:
        return snapshot.drained(self._queue)

    def _give_up(self) -> None:
        """Record what is left after all the time it had, and quiet the queue.

        The judge takes the states at the end for final: a worker that finished a job after that snapshot would look like one
        that finished it and left it active. So the workers stop before it, and what the queue was like before that is kept.
        """
        self.errors.append(f"the queue was not drained {2 * self.spec.liveness_ms} ms after the last heal")
        self._snapshot("give-up")
        self.errors += self._crew.stop_all()

    def _snapshot(self, name: str) -> None:
        """Record a final snapshot; one that is no single instant is an error of the run."""
        if complaint := snapshot.take(self._queue, self._harness, name):
            self.errors.append(complaint)

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.005) -> bool:
        """Wait until the condition holds, watching everything meanwhile; False when it did not within the time."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._tick()
            if condition():
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(poll_s)

    def _hold(self, until_ns: int) -> None:
        """Let the load go on until the instant."""
        self.wait(lambda: False, timeout_s=(until_ns - time.monotonic_ns()) / 1e9, poll_s=0.01)

    def _require(self, condition: Callable[[], bool], complaint: str) -> None:
        if not self.wait(condition, timeout_s=START_TIMEOUT_S):
            raise HarnessError(f"{complaint} within {START_TIMEOUT_S:.0f} s; see {self.folder.logs}")

    def _tick(self) -> None:
        """Bring the view of the world up to date. Raises HarnessError when the world is not as planned."""
        self.interrupts.check()
        self._watch.poll()
        gone = self._crew.unplanned_exits()
        for child in gone:
            fault = f"unplanned-exit-{child.name}"
            row = rows.fault(fault, name="unplanned-exit", stage="witness", target=child.name, seen=True, detail=child.ending())
            self._harness.append([row])
        if gone:
            raise HarnessError("; ".join(f"unplanned exit of {child.ending()}" for child in gone))
        if complaint := self._servers.complaint() or (self._network.complaint() if self._network else ""):
            raise HarnessError(complaint)
        if self.progress.due(self._phase):
            self._draw()

    def _draw(self) -> None:
        counts = self._sampler.counts
        self.progress.draw(
            State(
                phase=self._phase,
                created=self._watch.created(),
                finished=self._watch.finished(),
                waiting=counts.waiting if counts else 0,
                delayed=counts.delayed if counts else 0,
                active=counts.active if counts else 0,
                workers_alive=self._crew.workers_alive(),
                workers=self.spec.workers,
                fault=self._fault,
            )
        )

    def _begin_phase(self, name: str, t_ns: int) -> None:
        self._phase = name
        self._harness.append([rows.phase(name)], t_ns=t_ns)

    def _pids(self) -> dict[str, int]:
        proxies = {"toxiproxy": self._network.pid} if self._network and self._network.pid else {}
        return {"harness": os.getpid(), **self._servers.server_pids(), **proxies, **self._crew.pids()}

    def _open_history(self, stack: ExitStack, proc: str) -> HistoryFile:
        """A history file of the harness's own, closed at the end; a disk that refused is an error of the run."""
        try:
            opened = HistoryFile(self.folder.history / f"{proc}.jsonl", proc=proc, role="harness")
        except OSError as error:
            raise HarnessError(f"history file {proc}.jsonl: {error.strerror or error}") from error

        def close() -> None:
            if opened.broken:
                self.errors.append(f"history file {proc}.jsonl could not be written to the end")
            opened.close()

        stack.callback(close)
        return opened
