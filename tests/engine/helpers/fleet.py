"""Workers in virtual time over a real server: their state machines decide, the scripts run on the server with
the time that the test gives, and a minute takes a moment. Round trips take 1 ms; the server's clock may step
and the server may stand still."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.ops import base, claims, jobs
from engine.worker.machine.events import MS, Action, Answered, Event, HandlerEnded, LoseLease, Send, Start, TimerFired
from engine.worker.machine.machine import WorkerMachine
from engine.worker.machine.settings import Settings
from tests.engine.desk import Desk

#: What a handler does: it takes so many ms, never returns (None), or takes its whole worker with it.
Handler = Callable[[claims.LeasedJob], int | None]
RTT_MS, POLL_MS = 1, 20


class Segfault(Exception):
    """Raised by a handler: the worker process is gone."""


@dataclass
class Puppet:
    """One worker: its machine, and what became of the jobs that it was given."""

    name: str
    steps: WorkerMachine
    clock: base.ServerClock
    alive: bool = True
    generation: int = 0
    #: (time in ms, job) of each handler start, and leases that it was told to have lost.
    starts: list[tuple[int, str]] = field(default_factory=list)
    lost: list[jobs.Lease] = field(default_factory=list)


class Fleet:
    """Runs puppets against the desk's server. `now_ms` is the workers' monotonic time, from 0."""

    def __init__(self, desk: Desk, handler: Handler) -> None:
        self.desk, self.handler, self.now_ms = desk, handler, 0
        self.workers: list[Puppet] = []
        #: (time in ms, lease, crashes) of each lease that a sweep took away, and ids that it buried.
        self.reaped, self.buried = list[tuple[int, jobs.Lease, int]](), list[str]()
        #: How often each operation was carried out, by name.
        self.sent: Counter[str] = Counter()
        self._offset_ms, self._stalled_until_ms = desk.now_ms, 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        #: Since when each worker that blocks does; the one that has blocked for longest gets the marker.
        self._blocked_ms: dict[str, int] = {}
        self._numbers = itertools.count()

    def start(self, *, concurrency: int = 4, prefetch: int = 0, lease_ms: int = 9000, sweep_ms: int = 1000) -> Puppet:
        """One more worker."""
        number = len(self.workers) + 1
        settings = Settings(f"w{number}", concurrency, prefetch, lease_ms, sweep_ms, 30_000, ("main",))
        clock = base.ServerClock()
        clock.learn((self._offset_ms + self.now_ms) * 1000, self.now_ms * MS)
        steps = WorkerMachine(settings, self.desk.call, clock, lambda: f"{number:016x}", self.now_ms * MS, lambda: 0.5)
        worker = Puppet(settings.name, steps, clock)
        self.workers.append(worker)
        self._at(0, lambda: self._feed(worker, TimerFired()))
        return worker

    def step_clock(self, ms: int) -> None:
        """The server's clock jumps."""
        self._offset_ms += ms

    def stall(self, ms: int) -> None:
        """The server stands still from now on for so long; what is sent meanwhile is carried out afterwards,
        in its order."""
        self._stalled_until_ms = self.now_ms + ms

    def run(self, ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; True when the condition came true, and no later than that."""
        end_ms = self.now_ms + ms
        while self._agenda and self._agenda[0][0] <= end_ms:
            self.now_ms, _, happen = heapq.heappop(self._agenda)
            happen()
            if until():
                return True
        self.now_ms = end_ms
        return until()

    def _at(self, after_ms: int, happen: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now_ms + after_ms, next(self._numbers), happen))

    def _feed(self, worker: Puppet, event: Event) -> None:
        if not worker.alive:
            return
        try:
            for action in worker.steps.on(event, self.now_ms * MS):
                self._execute(worker, action)
        except Segfault:
            worker.alive = False
            return
        worker.generation += 1
        generation, wake_ms = worker.generation, -(-worker.steps.wake_at_ns(self.now_ms * MS) // MS)

        def wake() -> None:
            if worker.generation == generation:
                self._feed(worker, TimerFired())

        self._at(max(0, wake_ms - self.now_ms), wake)

    def _execute(self, worker: Puppet, action: Action) -> None:
        match action:
            case Send():
                self._send(worker, action, self.now_ms)
            case Start(job=job):
                worker.starts.append((self.now_ms, job.lease.job))
                took_ms = self.handler(job)
                if took_ms is not None:
                    self._at(took_ms, lambda: self._feed(worker, HandlerEnded(job.lease, None)))
            case LoseLease(lease=lease):
                worker.lost.append(lease)

    def _send(self, worker: Puppet, send: Send, sent_ms: int) -> None:
        """Carry a call out now, or when the server goes on."""
        if self.now_ms < self._stalled_until_ms:
            self._at(self._stalled_until_ms - self.now_ms, lambda: self._send(worker, send, sent_ms))
            return
        if isinstance(send.call.operation, claims.Wait):
            if worker.alive:
                self._blocked_ms[worker.name] = sent_ms
            first = min(self._blocked_ms, key=lambda name: self._blocked_ms[name], default=worker.name)
            taken = first == worker.name and self.desk.redis.lpop(self.desk.keys.wake("main")) is not None
            if not taken and self.now_ms < sent_ms + send.call.block_ms and worker.alive:
                self._at(POLL_MS, lambda: self._send(worker, send, sent_ms))
                return
            self._blocked_ms.pop(worker.name, None)
            self._answer(worker, send, claims.Woken(taken), sent_ms)
            return
        self.sent[type(send.call.operation).__name__] += 1
        self.desk.now_ms = self._offset_ms + self.now_ms
        reply = self.desk.send(send.call)
        if isinstance(reply, claims.Swept):
            self.reaped += [(self.now_ms, lease, crashes) for lease, crashes in reply.leases]
            self.buried += reply.buried
        self._answer(worker, send, reply, sent_ms)

    def _answer(self, worker: Puppet, send: Send, reply: Any, sent_ms: int) -> None:
        def answer() -> None:
            if hasattr(reply, "srv_us"):
                worker.clock.learn(reply.srv_us, self.now_ms * MS)
            self._feed(worker, Answered(send.kind, send.call, reply, sent_ms * MS, self.now_ms * MS))

        self._at(RTT_MS, answer)
