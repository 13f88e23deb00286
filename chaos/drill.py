"""The frame of a drill: it watches the world while it waits, carries out the plan's faults, and notes phases and what went wrong.

What is started, which load is sent and what is looked at in the end is for the drills that are made of it.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from bench import models
from bench.workload import NAMES, SCHEDULED_PAYLOAD
from chaos import catalogue, rows, snapshot, topologies
from chaos.errors import HarnessError, TooSlow
from chaos.faults import FAULTS
from chaos.faults.base import Fault, Scene, carry_out
from chaos.interrupts import Interrupts
from chaos.network import Network
from chaos.plan import PRODUCER, Plan, PlannedFault, consumer_names, worker_names
from chaos.preload import library
from chaos.preload.control import HOST, Preload
from chaos.probe import login_of
from chaos.processes import STOP_GRACE_S, Children, Crew, send
from chaos.progress import Progress, State
from chaos.runs import RunFolder
from chaos.sampler import Sampler
from chaos.spec import RunSpec, SpecFile
from chaos.topology import Setting, Topology, make
from chaos.watch import Watch
from engine import EngineError, Queue
from engine.testing import ServerFailed, ServerMissing
from record.history import HistoryFile

#: Interpreters have to start and import; on a busy machine that takes seconds.
START_TIMEOUT_S = 60.0

#: The fault for which processes are told a host name in place of an address.
DNS_CHANGE = "dns-change"

#: Children that cannot reach their server any more are not waited for: what they owe, they cannot deliver.
LOST_GRACE_S = 1.0

S = TypeVar("S", bound=SpecFile)
K = TypeVar("K", bound=Scene)


@dataclass
class Frame(Generic[S]):
    """One run of a plan. `errors` says in one line each what the harness could not do; empty means that the run counts."""

    spec: S
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
    #: Called when the load has ended.
    load_ended: Callable[[], None] = lambda: None
    errors: list[str] = field(default_factory=list)
    #: True when the drill was given up because this machine was too slow for it.
    too_slow: bool = False
    #: True from the first of the load on: before it there is nothing to judge.
    loaded: bool = False
    _phase: str = "setup"
    _fault: str = ""
    _network: Network | None = None
    _preload: Preload | None = None

    # What `_set_up` of the drill makes.
    _harness: HistoryFile = field(init=False, repr=False)
    _servers: Topology = field(init=False, repr=False)
    _watch: Watch = field(init=False, repr=False)
    _crew: Children[Any] = field(init=False, repr=False)

    #: Kind of fault in a plan -> how to make it.
    FAULTS: ClassVar[Mapping[str, Callable[[Any, PlannedFault], Fault]]] = FAULTS

    def run(self) -> None:
        """Carry out the plan. Whatever happens, every process is gone afterwards and the reason is in `errors`."""
        try:
            with ExitStack() as stack:
                self._set_up(stack)
                self._carry_out()
        except (HarnessError, EngineError, ServerFailed, ServerMissing) as error:
            self.errors.insert(0, str(error))
            self.too_slow = isinstance(error, TooSlow)
        except Exception as error:
            log = self.folder.logs / "harness.log"
            log.write_text(traceback.format_exc())
            self.errors.insert(0, f"the harness failed: {type(error).__name__}: {error} (see {log})")
        # Also a signal that came after the last tick, while everything was being stopped.
        if (complaint := self.interrupts.take()) and complaint not in self.errors:
            self.errors.append(complaint)

    def outcome(self) -> dict[str, Any]:
        """How it went, as columns of its spec."""
        return {"harness_errors": self.errors} | ({"too_slow": True} if self.too_slow else {})

    def _set_up(self, stack: ExitStack) -> None:
        """Start everything but the load. What is started first is stopped last."""
        raise NotImplementedError

    def _begin_load(self) -> None:
        """Start the load, and with it the lead-in."""
        load_ns = time.monotonic_ns()
        self._send()
        self.loaded = True
        self._begin_phase("lead-in", load_ns)

    def _send(self) -> None:
        """Start what sends, and wait for the first that it has sent."""
        raise NotImplementedError

    def _scene(self) -> Scene:
        """What faults act on."""
        raise NotImplementedError

    def _scene_of(self, kind: type[K], lease_ms: int, recovery_bound_ms: int, **more: Any) -> K:
        """What faults act on, with leases of this length; `more`: what this kind of scene has besides."""
        own: dict[str, Any] = {"crew": self._crew, "watch": self._watch, "wait": self.wait, "signal": self.signal}
        own |= {"network": self._network, "servers": self._servers, "harness": self._harness}
        own |= {"pretend": self.pretend, "preload": self._preload}
        return kind(lease_ms=lease_ms, recovery_bound_ms=recovery_bound_ms, **own, **more)

    def _drain(self, healed_ns: int) -> None:
        """End the load, wait until nothing is left of it, and record what is there then."""
        raise NotImplementedError

    def _draw(self) -> None:
        """Draw the progress."""
        raise NotImplementedError

    def _carry_out(self) -> None:
        """Lead-in, faults, settle, drain."""
        pace = self.plan.pace
        self._begin_load()
        quiet_ms = pace.lead_in_ms
        healed_ns = time.monotonic_ns()
        scene = self._scene()
        if not self.plan.faults:
            self._hold(healed_ns + quiet_ms * 1_000_000)
            healed_ns = time.monotonic_ns()
        for planned in self.plan.inside(""):
            healed_ns = self._strike(scene, planned, quiet_ms)
            quiet_ms = pace.calm_ms
        self._begin_phase("settle", time.monotonic_ns())
        self._hold(healed_ns + pace.settle_ms * 1_000_000)
        self._drain(healed_ns)

    def _strike(self, scene: Scene, planned: PlannedFault, quiet_ms: int = 0) -> int:
        """After so much quiet and its delay carry out a fault, and those that come while it is in force; when it was healed."""
        self._hold(time.monotonic_ns() + (quiet_ms + planned.delay_ms) * 1_000_000)
        around = self._fault
        self._fault = ", ".join(filter(None, (around, f"{planned.fault} on {planned.target}")))

        def meanwhile() -> None:
            for inner in self.plan.inside(planned.fault):
                self._strike(scene, inner)

        fault = self.FAULTS[planned.name](scene, planned)
        healed_ns = carry_out(fault, planned, harness=self._harness, begin_phase=self._begin_phase, meanwhile=meanwhile)
        self._fault = around
        return healed_ns

    def _open_manifest(self, stack: ExitStack) -> HistoryFile:
        """The manifest, and the harness's own history."""
        manifest = self._open_history(stack, "manifest")
        manifest.append([rows.process("harness", "harness", "harness.jsonl")])
        self._harness = self._open_history(stack, "harness")
        return manifest

    def _start_servers(self, stack: ExitStack, topology: str, durability: str, tag: str) -> Callable[[str], str]:
        """Start the proxies that plan and topology need, then the servers; the url that the process of a name is to use. `tag`:
        hash tag of the keys that the run is about."""
        if self.plan.needs_network() or topology in topologies.SEVERAL:
            if self.toxiproxy is None:
                raise HarnessError("the plan has faults of the network, and no Toxiproxy server was named")
            log = self.folder.logs / "toxiproxy.log"
            self._network = stack.enter_context(Network("", program=self.toxiproxy, log=log, pretend=self.pretend))
        self._preload = self._library()
        environment = self._preload.environment("server") if self._preload else {}
        setting = Setting(self.folder.logs / "server.log", durability, self._network, tag, environment)
        self._servers = stack.enter_context(self._make_servers(topology, setting))
        url = self._servers.url
        if self._network is None or topology in topologies.FOLLOWED:
            return lambda name: url
        self._network.lead_to(url)
        if self._preload and any(planned.name == DNS_CHANGE for planned in self.plan.faults):
            self._network.host = HOST
            self._preload.lead_to(self._network.listens_at)
        return self._network.connect

    def _make_servers(self, topology: str, setting: Setting) -> Topology:
        """The servers of the run, which have not been started."""
        return make(topology, setting)

    def _library(self) -> Preload | None:
        """What servers and processes are started with, where a planned fault acts inside of them. Raises LibraryMissing."""
        kinds = [catalogue.KINDS[planned.name] for planned in self.plan.faults if planned.name in catalogue.KINDS]
        if not any(kind.preload for kind in kinds):
            return None
        return Preload(library.build(self.progress.say), self.folder.logs, pretend=self.pretend)

    def _stop_crew(self) -> None:
        """Stop the children, over a network without faults. Those whose proxies are gone cannot stop well: no fault of theirs."""
        if self._network is None:
            self.errors += self._crew.stop_all()
            return
        self._network.heal_all()
        lost = self._network.complaint()
        complaints = self._crew.stop_all(LOST_GRACE_S if lost else STOP_GRACE_S)
        self.errors += [] if lost else complaints

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
        if moved := self._servers.unplanned_failover():
            for stage in ("inject", "witness"):
                name = catalogue.UNPLANNED_FAILOVER
                row = rows.fault(f"0-{name}", name=name, stage=stage, target="servers", seen=True, detail=moved)
                self._harness.append([row])
            raise HarnessError(moved)
        if complaint := self._servers.complaint() or (self._network.complaint() if self._network else ""):
            raise HarnessError(complaint)
        if self.progress.due(self._phase):
            self._draw()

    def _begin_phase(self, name: str, t_ns: int) -> None:
        self._phase = name
        self._harness.append([rows.phase(name)], t_ns=t_ns)

    def _pids(self) -> dict[str, int]:
        proxies = {"toxiproxy": self._network.pid} if self._network and self._network.pid else {}
        return {"harness": os.getpid(), **self._servers.server_pids(), **proxies, **self._crew.pids()}

    def _open_history(self, stack: ExitStack, proc: str, role: str = "harness") -> HistoryFile:
        """A history file of the harness's own, closed at the end; a disk that refused is an error of the run."""
        try:
            opened = HistoryFile(self.folder.history / f"{proc}.jsonl", proc=proc, role=role)
        except OSError as error:
            raise HarnessError(f"history file {proc}.jsonl: {error.strerror or error}") from error

        def close() -> None:
            if opened.broken:
                self.errors.append(f"history file {proc}.jsonl could not be written to the end")
            opened.close()

        stack.callback(close)
        return opened


#: How often the queue is asked whether it is empty.
DRAIN_POLL_S = 0.1

#: What is left when its time is up is waited for while some job is finished in every such time, and at most so long in all: a
#: machine that was slow works its backlog off, and a queue that is stuck does not move.
MOVING_S = 2.0
WORK_OFF_S = 60.0


@dataclass
class Drill(Frame[RunSpec]):
    """A run of jobs: workers, consumers inside Locust, and a producer."""

    #: What starts the processes.
    crew_of: ClassVar[type[Crew]] = Crew

    _queue: Queue = field(init=False, repr=False)
    _sampler: Sampler = field(init=False, repr=False)
    _crew: Crew = field(init=False, repr=False)

    def _set_up(self, stack: ExitStack) -> None:
        """Start server, proxies, sampler and workers."""
        spec, history = self.spec, self.folder.history
        manifest = self._open_manifest(stack)
        connect = self._start_servers(stack, spec.topology, spec.durability, spec.queue)
        url = self._servers.url
        self._queue = self._open_queue(url)
        stack.callback(self._queue.close)
        self._settle_queue()
        self._watch = Watch(history)
        stack.callback(self._watch.close)
        direct = spec.direct or ()

        def connected(name: str) -> str:
            return url if name in direct else connect(name)

        self._crew = self.crew_of(spec, connected, history, self.folder.logs, manifest, self._watch, self.lua)
        self._crew.preload = self._preload
        self._sampler = Sampler(
            queue=self._open_queue(url),
            address=self._servers.address,
            samples=self.folder.samples,
            harness=self._harness,
            pids=self._pids,
            login=login_of(url),
        )
        stack.callback(self._sampler.close)
        stack.callback(self._stop_crew)
        self._sampler.start()
        working = self._start_workers()
        self._require(lambda: all(map(self._works, working)), "the workers did not claim")

    def _works(self, name: str) -> bool:
        """Whether a worker is ready: it has asked for jobs."""
        return bool(self._watch.view(name).completed.get("claim"))

    def _open_queue(self, url: str) -> Queue:
        """The queue that the run is about, without I/O so far; another object each time."""
        return models.queue(self.spec.model, self.spec.queue, url=url)

    def _settle_queue(self) -> None:
        """Give the queue, which is the run's own, the limits and schedules of the spec."""
        for limit in self.spec.limits:
            self._queue.set_limit(**limit)
        payload = models.carried(self.spec.model).payload(SCHEDULED_PAYLOAD)
        for schedule in self.spec.schedules:
            # Every tick counts, also those of an outage.
            self._queue.schedules.put(**schedule, job_name=NAMES[0], payload=payload, missed="all")

    def _start_workers(self) -> tuple[str, ...]:
        """Start all that work on jobs: their names."""
        names, consumers = worker_names(self.spec.workers), consumer_names(self.spec.consumers)
        for name in names:
            self._crew.start_worker(name)
        for name in consumers:
            self._crew.start_consumer(name)
        return (*names, *consumers)

    def _send(self) -> None:
        self._start_producers()
        self._require(lambda: self._watch.created() > 0, "the producer created no job")

    def _start_producers(self) -> None:
        """Start what sends."""
        self._crew.start_producer(PRODUCER)

    def _scene(self) -> Scene:
        return self._scene_of(Scene, self.spec.lease_ms, self.spec.recovery_bound_ms)

    def _drain(self, healed_ns: int) -> None:
        """End the load, look at the queue when nothing may be stuck any more, and again when it is empty or time is up."""
        self._begin_phase("drain", time.monotonic_ns())
        self._end_load()
        self.load_ended()
        liveness_ns = self.spec.liveness_ms * 1_000_000
        self._hold(healed_ns + liveness_ns)
        self._snapshot("deadline")
        left_s = (healed_ns + 2 * liveness_ns - time.monotonic_ns()) / 1e9
        if not self.wait(self._drained, timeout_s=left_s, poll_s=DRAIN_POLL_S) and not self._work_off():
            self._give_up()
        self._snapshot("end")
        if self.spec.results and (complaint := snapshot.read_results(self._queue, self._harness, self._finished())):
            self.errors.append(complaint)
        self._begin_phase("end", time.monotonic_ns())

    def _finished(self) -> set[str]:
        """Jobs whose finish was accepted."""
        ended = (pair for view in self._watch.views.values() for pair in view.ended.items())
        return {token.job for token, (operation, result, _) in ended if (operation, result) == ("finish", "ok")}

    def _end_load(self) -> None:
        """Let no new job come."""
        self.errors += self._crew.stop_load(PRODUCER)
        for schedule in self.spec.schedules:
            self._queue.schedules.disable(schedule["name"])

    def _drained(self) -> bool:
        return snapshot.drained(self._queue)

    def _work_off(self) -> bool:
        """Go on waiting while jobs are finished; True when the queue was drained after all, False when it is stuck.

        Raises TooSlow when it still moves at the end of its time: what is left then says something about the machine.
        """
        until_s = time.monotonic() + WORK_OFF_S
        while True:
            finished = self._watch.finished()
            if self.wait(self._drained, timeout_s=MOVING_S, poll_s=DRAIN_POLL_S):
                return True
            if self._watch.finished() == finished:
                return False
            if time.monotonic() >= until_s:
                raise TooSlow(f"this machine was too slow: jobs were still worked off {WORK_OFF_S:g} s after their time was up")

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
                workers_alive=self._crew.alive("worker"),
                workers=self.spec.workers,
                fault=self._fault,
            )
        )
