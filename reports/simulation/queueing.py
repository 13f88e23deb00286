"""The simulation itself: events in the order of their time. A server and a worker's processor serve in the order of asking."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from reports.simulation.system import EVEN, Load, Loss, Outcome, System, check

#: Kinds of events, which come before arrivals of the same time; of two at the same time the lower comes first.
FINISH, LOST, BACK, READY = range(4)


@dataclass(slots=True, eq=False)
class Job:
    """A job and its run of the moment."""

    due_s: float
    shard: int
    priority: int
    attempts: int = 0
    waited_s: float = 0.0
    ready_s: float = 0.0
    #: Number of the run; the end of an earlier one, whose worker was lost, is not its end.
    run: int = 0
    worker: int = -1


@dataclass(slots=True, eq=False)
class Shard:
    """A server with its workers. `places`: workers by free place; a worker that is away has none."""

    places: deque[int]
    processor_s: list[float]
    away: set[int] = field(default_factory=set)
    server_s: float = 0.0
    down_s: float = 0.0
    waiting: list[tuple[int, int, Job]] = field(default_factory=list)
    running: set[Job] = field(default_factory=set)


class Simulation:
    """One simulation. Times are seconds."""

    def __init__(self, load: Load, system: System, seed: int) -> None:
        self.load, self.system = load, system
        self.draw = np.random.default_rng(seed)
        self.server_s, self.processor_s = system.server_us_per_job / 1e6, system.worker_us_per_job / 1e6
        places = [worker for _ in range(system.handlers_at_once) for worker in range(system.workers)]
        self.shards = [Shard(deque(places), [0.0] * system.workers) for _ in range(system.shards)]
        self.events: list[tuple[float, int, int, Callable[[], None]]] = []
        self.sequence = 0
        self.now = 0.0
        self.waiting = self.running = 0
        self.waiting_area = self.running_area = 0.0
        self.ended: list[tuple[float, float, float, int]] = []
        self.dead = 0
        self.services = iter(())
        self.pickups = iter(())

    def push(self, at_s: float, kind: int, action: Callable[[], None]) -> None:
        """An event to come."""
        self.sequence += 1
        heapq.heappush(self.events, (at_s, kind, self.sequence, action))

    def service_s(self) -> float:
        """The service time of a run."""
        value = next(self.services, None)
        if value is None:
            self.services = iter((self.system.service(self.draw, 10_000) / 1_000).tolist())
            value = next(self.services)
        return value

    def pickup_s(self) -> float:
        """What passes beside it."""
        if self.system.pickup is None:
            return 0.0
        value = next(self.pickups, None)
        if value is None:
            self.pickups = iter((self.system.pickup(self.draw, 10_000) / 1_000).tolist())
            value = next(self.pickups)
        return value

    def arrivals(self) -> list[Job]:
        """All jobs, in the order of their time."""
        load, jobs = self.load, self.load.rate * self.load.seconds
        due = np.array(load.due_s) if load.due_s else self.instants(jobs)
        count = len(due)
        shards = self.draw.integers(self.system.shards, size=count)
        priorities = self.draw.choice(len(load.priorities), count, p=load.priorities)
        drawn = zip(due.tolist(), shards.tolist(), priorities.tolist(), strict=True)
        return [Job(*one) for one in drawn if one[0] <= load.seconds]

    def instants(self, jobs: float) -> np.ndarray:
        """When about so many jobs are due, and some more."""
        load = self.load
        # Random arrivals may take less time than their mean; what is due after the load is left out.
        count = int(jobs + 6 * jobs**0.5) + 1
        gaps = np.full(count, 1.0) if load.arrivals == EVEN else self.draw.exponential(1.0, count)
        return np.cumsum(gaps) / load.rate

    def outcome(self) -> Outcome:
        """Run until every job has ended, and say what came of it."""
        for loss in self.system.losses:
            self.push(loss.at_s, LOST, partial(self.lose, loss))
        for job in self.arrivals():
            while self.events and self.events[0][0] <= job.due_s:
                self.next_event()
            self.advance(job.due_s)
            self.arrive(job)
        while self.events and self.events[0][0] <= self.load.seconds:
            self.next_event()
        self.advance(self.load.seconds)
        left = self.waiting + self.running
        while self.events:
            self.next_event()
        counted = np.array([one for one in self.ended if one[0] >= self.load.warm_up_s] or np.zeros((0, 4)))
        span_s = self.load.seconds - self.load.warm_up_s
        return Outcome(
            latencies_ms=counted[:, 1] * 1_000,
            waits_ms=counted[:, 2] * 1_000,
            priorities=counted[:, 3].astype(int),
            waiting=self.waiting_area / span_s,
            running=self.running_area / span_s,
            dead=self.dead,
            left=left,
        )

    def next_event(self) -> None:
        """Let the next event happen."""
        at_s, _, _, action = heapq.heappop(self.events)
        self.advance(at_s)
        action()

    def advance(self, at_s: float) -> None:
        """Move the clock, and add up how many jobs wait and run."""
        span_s = min(at_s, self.load.seconds) - max(self.now, self.load.warm_up_s)
        if span_s > 0:
            self.waiting_area += span_s * self.waiting
            self.running_area += span_s * self.running
        self.now = at_s

    def arrive(self, job: Job) -> None:
        """A producer asks the server to take a job."""
        self.waiting += 1
        self.push(self.served(self.shards[job.shard]), READY, partial(self.ready, job))

    def served(self, shard: Shard) -> float:
        """When the server has done something asked now: half of a job's time is the enqueue, half the claim and the finish."""
        shard.server_s = max(self.now, shard.server_s, shard.down_s) + self.server_s / 2
        return shard.server_s

    def ready(self, job: Job) -> None:
        """A job can be claimed from now on."""
        job.ready_s = self.now
        shard = self.shards[job.shard]
        shard.running.discard(job)
        self.sequence += 1
        heapq.heappush(shard.waiting, (job.priority, self.sequence, job))
        self.claim(shard)

    def claim(self, shard: Shard) -> None:
        """Start as many jobs as there are free places, within the limit."""
        limit = self.system.limit
        while shard.waiting and shard.places and (limit is None or len(shard.running) < limit):
            if self.now < shard.down_s:
                return
            _, _, job = heapq.heappop(shard.waiting)
            job.worker = shard.places.popleft()
            job.run += 1
            job.attempts += 1
            shard.running.add(job)
            self.waiting -= 1
            self.running += 1
            start_s = max(self.served(shard), shard.processor_s[job.worker])
            shard.processor_s[job.worker] = start_s + self.processor_s
            job.waited_s += start_s - job.ready_s
            self.push(start_s + self.service_s(), FINISH, partial(self.finish, job, job.run))

    def finish(self, job: Job, run: int) -> None:
        """A handler has ended; while the server is away its result cannot be reported."""
        shard = self.shards[job.shard]
        if job.run != run:
            return
        if self.now < shard.down_s:
            self.push(shard.down_s, FINISH, partial(self.finish, job, run))
            return
        shard.running.discard(job)
        shard.places.append(job.worker)
        self.running -= 1
        if self.load.failure_share and self.draw.random() < self.load.failure_share:
            self.fail(job)
        else:
            latency_s = self.now - job.due_s + self.pickup_s()
            self.ended.append((job.due_s, latency_s, job.waited_s, job.priority))
        self.claim(shard)

    def fail(self, job: Job) -> None:
        """A run has failed: the job waits for its retry, or is dead."""
        if job.attempts >= self.load.attempts:
            self.dead += 1
            return
        self.waiting += 1
        self.push(self.now + self.load.retry_ms / 1_000, READY, partial(self.ready, job))

    def lose(self, loss: Loss) -> None:
        """A worker or a primary is away from now on."""
        shard = self.shards[loss.shard]
        self.push(self.now + loss.away_s, BACK, partial(self.back, loss))
        if loss.worker is None:
            shard.down_s = max(shard.down_s, self.now + loss.away_s)
            return
        shard.away.add(loss.worker)
        shard.places = deque(worker for worker in shard.places if worker != loss.worker)
        for job in sorted((job for job in shard.running if job.worker == loss.worker), key=lambda job: job.due_s):
            # A crash is not a failure of the job, and its late end counts for nothing. It has its place of the limit until it is
            # reaped, as a lease has.
            job.worker = -1
            job.run += 1
            job.attempts -= 1
            self.running -= 1
            self.waiting += 1
            self.push(self.now + loss.recovery_s, READY, partial(self.ready, job))

    def back(self, loss: Loss) -> None:
        """It is there again."""
        shard = self.shards[loss.shard]
        if loss.worker is not None and loss.worker in shard.away:
            shard.away.discard(loss.worker)
            shard.places.extend([loss.worker] * self.system.handlers_at_once)
        self.claim(shard)


def simulate(load: Load, system: System, seed: int = 1) -> Outcome:
    """What becomes of this load. Raises JudgeError for what cannot be simulated."""
    check(load, system)
    return Simulation(load, system, seed).outcome()
