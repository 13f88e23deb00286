"""A worker of an episode: the engine's own state machine; its handlers, its timers and its death are
played."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Protocol

from chaos.simulate.chance import spread_ms
from chaos.simulate.control import Control, Told
from chaos.simulate.line import Line, Outcome, Process
from chaos.simulate.places import PLACES
from chaos.simulate.server import SimulatedServer
from chaos.simulate.watching import SimulatedWatch
from chaos.simulate.world import MS, World
from engine.errors import EngineError, ScriptFault
from engine.ops.base import Call, Operation, ServerClock
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import FAILED, RunRequest
from engine.queue.era import DataLoss
from engine.worker.machine.claiming import BLOCK_MS
from engine.worker.machine.events import (
    Answered,
    CallKind,
    Event,
    Exit,
    HandlerEnded,
    LoseLease,
    Send,
    Start,
    StopAsked,
    TimerFired,
    Unanswered,
)
from engine.worker.machine.machine import WorkerMachine
from engine.worker.machine.settings import Settings

#: What handlers raise that do this: what a job has a rule for, and what ends it without one.
_REQUESTS = {
    "skip": RunRequest(kinds=("Spoilt", "Exception")),
    "reroute": RunRequest(kinds=("Elsewhere", "Exception")),
    "discard": RunRequest("discard", ("Discard",), asked=True),
}
KINDS: tuple[CallKind, ...] = ("work", "finish", "renew", "sweep", "wake")


class WorkerObserver(Protocol):
    """Checks what a worker does."""

    def knows(self, incarnation: str, worker: SimulatedWorker) -> None:
        """The worker has named itself anew."""
        ...

    def sends(self, worker: SimulatedWorker, operation: Operation) -> None:
        """A call leaves."""
        ...

    def hears(self, worker: SimulatedWorker, operation: Operation, outcome: Outcome) -> None:
        """A call is over."""
        ...

    def starts(self, worker: SimulatedWorker, job: LeasedJob) -> None:
        """A handler starts."""
        ...

    def loses(self, process: Process, loss: DataLoss) -> None:
        """A process is told that its server went back."""
        ...

    def acted(self, worker: SimulatedWorker) -> None:
        """All that followed from an event has been done."""
        ...


class SimulatedWorker(Process):
    """One worker process from its start to its end. `gone` hears when it has died or left."""

    def __init__(
        self,
        world: World,
        server: SimulatedServer,
        observer: WorkerObserver,
        name: str,
        place: int,
        gone: Callable[[SimulatedWorker], None],
    ) -> None:
        super().__init__(world, name)
        profile = world.profile
        #: Which of the places it has (chaos/simulate/places.py).
        self.place = place
        self.settings = Settings(
            name,
            profile.concurrency,
            profile.prefetch,
            profile.lease_ms,
            profile.sweep_ms,
            30_000,
            profile.names,
            inline=frozenset(profile.inline),
            beat_ms=profile.beat_ms,
            attributes=PLACES[place % len(PLACES)],
        )
        self.steps: WorkerMachine | None = None
        self.incarnations: list[str] = []
        self.running: dict[Lease, LeasedJob] = {}
        #: Jobs in hand whose handler has not started, and finished ones that no call has told, with the time.
        self.unstarted: dict[Lease, tuple[int, LeasedJob]] = {}
        self.untold: dict[Lease, int] = {}
        #: What handlers returned.
        self.returned: dict[Lease, bytes] = {}
        self._lost: set[Lease] = set()
        #: The claim that has not been answered.
        self.asked = ""
        #: Since when it has had a free handler, by its own count.
        self.room_since_ns: int | None = None
        self.stopping = False
        self._server = server
        self._observer = observer
        self._gone = gone
        self.watch = SimulatedWatch(server.model, self._loses) if profile.watches else None
        self._clock = ServerClock(self.watch)
        self._events = 0
        self._timer = 0
        block_ms = {"wake": BLOCK_MS}
        self._lines = {kind: server.knows(Line(self, server.arrive, kind, self._clock, block_ms.get(kind, 0))) for kind in KINDS}
        self.proxied = profile.presence and place < profile.proxied
        seen = profile.presence and not profile.proxied <= place < profile.proxied + profile.absent
        self._control = Control(self, server.model.control(name), self._told, server.clients, seen=seen, direct=not self.proxied)
        server.tells(self._control)
        self._lines["work"].greet(self._begin)

    def stop(self) -> None:
        """Ask for a graceful stop."""
        self.stopping = True
        if self.steps is None:
            self._leave("left")
        else:
            self.at(self.world.now_ns, self._on, StopAsked())

    def kill(self, why: str) -> None:
        """SIGKILL: nothing more happens here; what it has sent may still arrive."""
        self.world.note(self.name, "killed", why, tuple(lease.job for lease in self.running), fault=True)
        self.disturbed(self.world.now_ns)
        self._leave("killed")

    def _leave(self, how: str) -> None:
        self.alive = False
        self.died_ns = self.world.now_ns
        # Without power the server does not even hear that the connections are gone.
        if how == "killed" and self.world.chance.draw(self.name, 0, 4) < 0.3:
            over_ns = self.died_ns + BLOCK_MS * MS
            self.disturbed(over_ns)
        else:
            over_ns = self.died_ns + MS
        self.world.at(over_ns, self._server.drop_waits, tuple(self._lines.values()))
        self.world.at(over_ns, self._control.ends)
        self._gone(self)

    # -- the executor

    def _loses(self, loss: DataLoss) -> None:
        self._observer.loses(self, loss)

    def _begin(self) -> None:
        note = self.watch.begin() if self.watch is not None else None
        if note is not None:
            self._lines["work"].carry(self._server.model.call(note), lambda _: self._works())
        else:
            self._works()

    def _works(self) -> None:
        steps = WorkerMachine(
            self.settings, self._server.model.call, self._clock, self._incarnation, self.world.now_ns, self._jitter
        )
        self.steps = steps
        self._on(TimerFired())
        self._control.begins()

    def _on(self, event: Event) -> None:
        steps, world = self.steps, self.world
        assert steps is not None
        world.steps += 1
        self._events += 1
        fault = world.chance.fault(self.name, self._events, world.profile.process)
        actions = steps.on(event, world.now_ns)
        if fault is not None and fault.kind == "kill":
            # It dies in the middle of what it has decided.
            actions = actions[: int(fault.size * (len(actions) + 1))]
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case Start():
                    self._start(action.job)
                case LoseLease():
                    self.unstarted.pop(action.lease, None)
                    self._lost.add(action.lease)
                    world.note(self.name, "is told that the lease ended", "", (action.lease.job,))
                case Exit():
                    world.note(self.name, "leaves")
                    self._leave("left")
                    return
        if fault is not None:
            self._strike(fault.kind, fault.size)
            if not self.alive:
                return
        self._observer.acted(self)
        self._timer += 1
        late_ns = int(world.chance.draw(self.name, self._events, 3) * MS)
        self.at(steps.wake_at_ns(world.now_ns) + late_ns, self._timer_fires, self._timer)

    def _told(self, told: Told) -> None:
        if self.steps is not None:
            self._on(told)

    def holds(self, lease: Lease) -> bool:
        """Whether it runs the job of this lease, or may yet, and has not heard that the lease ended."""
        return (lease in self.running or lease in self.unstarted) and lease not in self._lost

    def _timer_fires(self, timer: int) -> None:
        if timer == self._timer:
            self._on(TimerFired())

    def _strike(self, kind: str, size: float) -> None:
        world = self.world
        if kind == "kill":
            self.kill("SIGKILL")
            return
        length_ms = spread_ms(size, 20, 4 * self.settings.lease_ms)
        until_ns = world.now_ns + int(length_ms * MS)
        if kind == "freeze":
            self.freeze(until_ns)
        else:
            self.cut_until_ns = until_ns
        world.note(self.name, kind, f"for {length_ms:.0f} ms", tuple(lease.job for lease in self.running), fault=True)
        self.disturbed(until_ns)

    @property
    def works(self) -> bool:
        """Whether a call is on its way on the work slot."""
        return self._lines["work"].busy

    def _send(self, send: Send) -> None:
        started_ns = self.world.now_ns
        self._observer.sends(self, send.call.operation)

        def done(outcome: Outcome) -> None:
            self._observer.hears(self, send.call.operation, outcome)
            if isinstance(outcome, EngineError):
                self.world.note(f"{self.name}.{send.kind}", f"gives up {type(send.call.operation).__name__}", str(outcome))
                self._on(Unanswered(send.kind, send.call, started_ns, isinstance(outcome, ScriptFault)))
            else:
                self._on(Answered(send.kind, send.call, outcome.reply, outcome.first_send_ns, outcome.done_ns))

        call: Call[object] = send.call
        self._lines[send.kind].carry(call, done, again=send.again)

    # -- handlers

    def _start(self, job: LeasedJob) -> None:
        world = self.world
        self._observer.starts(self, job)
        self.running[job.lease] = job
        self.unstarted.pop(job.lease, None)
        world.note(self.name, f"starts {job.lease.job}", f"fence {job.lease.fence}, crashes {job.crashes}", (job.lease.job,))
        least_ms, most_ms = world.profile.handler_ms
        took_ms = spread_ms(world.chance.draw("handler " + job.lease.job, job.claims), least_ms, most_ms)
        self.at(world.now_ns + int(took_ms * MS), self._handler_ends, job)

    def _handler_ends(self, job: LeasedJob) -> None:
        does = json.loads(job.payload)["does"]
        world, name = self.world, job.lease.job
        if does == "crash":
            self.kill(f"by the handler of {name}")
            return
        del self.running[job.lease]
        request = _REQUESTS.get(does, FAILED)
        fails = does in ("fail", *_REQUESTS) or (does == "flake" and world.chance.draw("flake " + name, job.claims) < 0.6)
        world.note(self.name, f"handler of {name} ends", "failed" if fails else "", (name,))
        assert self.steps is not None
        result: bytes | None = None
        if not fails and world.chance.draw("result " + name, job.claims) < world.profile.returns:
            result = self.returned[job.lease] = b'{"of":"%b","run":%d}' % (name.encode(), job.claims)
        if not fails:
            if job.lease not in self._lost:
                self.untold[job.lease] = world.now_ns
            # What the executor does first: the next job of the same place starts without a whole decision.
            following = self.steps.next_start(job.lease, world.now_ns, result)
            if following is not None:
                world.steps += 1
                self._start(following)
                self._observer.acted(self)
                return
        self._on(HandlerEnded(job.lease, "it failed" if fails else None, request=request, result=result))

    # -- chance

    def _incarnation(self) -> str:
        number = len(self.incarnations)
        high, low = (int(self.world.chance.draw("incarnation " + self.name, number, salt) * (1 << 32)) for salt in (0, 1))
        self.incarnations.append(f"{high:08x}{low:08x}")
        self._observer.knows(self.incarnations[-1], self)
        return self.incarnations[-1]

    def _jitter(self) -> float:
        return self.world.chance.draw("backoff " + self.name, self._events)
