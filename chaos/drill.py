"""The drill: start everything, put load on it, carry out the plan's faults, drain, stop everything, and leave a history."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar

from bench import models
from bench.workload import NAMES, SCHEDULED_PAYLOAD
from chaos import results, snapshot
from chaos.errors import TooSlow
from chaos.faults.base import Scene
from chaos.frame import Frame
from chaos.plan import PRODUCER, consumer_names, worker_names
from chaos.probe import login_of
from chaos.processes import Crew
from chaos.progress import State
from chaos.sampler import Sampler
from chaos.spec import RunSpec
from chaos.watch import Watch
from engine import Queue

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

    def _begin_load(self) -> None:
        """Start the producer, and with it the lead-in."""
        load_ns = time.monotonic_ns()
        self._start_producers()
        self._require(lambda: self._watch.created() > 0, "the producer created no job")
        self.loaded = True
        self._begin_phase("lead-in", load_ns)

    def _start_producers(self) -> None:
        """Start what sends."""
        self._crew.start_producer(PRODUCER)

    def _scene(self) -> Scene:
        spec = self.spec
        return Scene(
            self._crew,
            self._watch,
            self.wait,
            self.signal,
            spec.lease_ms,
            spec.recovery_bound_ms,
            self._network,
            self._servers,
            self._harness,
            self.pretend,
            self._preload,
        )

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
        if self.spec.results and (complaint := results.read(self._queue, self._harness, self._finished())):
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
