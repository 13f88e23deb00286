"""Drives the worker's state machine by hand: no thread, no socket, and a clock that the test moves."""

from typing import Any, Self

from engine.models.lanes import Lanes
from engine.ops.base import Call, ServerClock
from engine.ops.claims import (
    Claim,
    Claimed,
    Ended,
    EndResult,
    Extend,
    Extended,
    Finish,
    FinishedAndClaimed,
    LeasedJob,
    Mark,
    Marked,
    MarkResult,
    Swept,
    Woken,
)
from engine.ops.jobs import Lease, Options
from engine.worker.machine.events import (
    Action,
    Answered,
    CallKind,
    Event,
    Exit,
    HandlerEnded,
    LoseLease,
    Send,
    Start,
    TimerFired,
    Unanswered,
)
from engine.worker.machine.machine import WorkerMachine
from engine.worker.machine.settings import Settings

MS = 1_000_000
#: Server time minus the machine's monotonic time, ms.
SERVER_MS = 1_700_000_000_000


class Machine:
    """One machine, its clock, the calls that are outstanding on each kind, and every action so far."""

    def __init__(
        self, *, concurrency: int = 2, prefetch: int = 0, lease_ms: int = 9000, sweep_ms: int = 1000, **more: Any
    ) -> None:
        self.now_ms = 0
        grace_ms, classes = more.pop("grace_ms", 30_000), more.pop("classes", ("main",))
        self.settings = Settings("w", concurrency, prefetch, lease_ms, sweep_ms, grace_ms, classes, **more)
        self.clock = ServerClock()
        self.clock.learn(SERVER_MS * 1000, 0)
        self.draws: list[float] = []
        self.incarnations = iter(f"{number:016x}" for number in range(1, 100))
        self.out: dict[CallKind, Call[Any]] = {}
        self.sent_ms: dict[CallKind, int] = {}
        self.log: list[Action] = []
        self._fences = iter(range(1, 10_000))
        self.steps = WorkerMachine(
            self.settings, Lanes("q").call, self.clock, lambda: next(self.incarnations), 0, lambda: self.draws.pop(0)
        )
        self.on(TimerFired())

    @property
    def now_ns(self) -> int:
        return self.now_ms * MS

    def on(self, event: Event) -> list[Action]:
        """Feed one event; a kind never carries two calls at once."""
        actions = self.steps.on(event, self.now_ns)
        for action in actions:
            if isinstance(action, Send):
                assert action.kind not in self.out, f"two calls outstanding on {action.kind}"
                self.out[action.kind] = action.call
                self.sent_ms[action.kind] = self.now_ms
        self.log += actions
        return actions

    def wait(self, ms: int) -> list[Action]:
        """Let time pass, waking the machine whenever it asks for it; fails when it asks to be woken at once,
        for nothing."""
        end_ms, done = self.now_ms + ms, []
        for _ in range(1000):
            wake_ns = self.steps.wake_at_ns(self.now_ns)
            if wake_ns >= end_ms * MS:
                self.now_ms = end_ms
                return done
            # A wake-up rounds up to the next whole ms; one that changes nothing must move the clock.
            before_ms, self.now_ms = self.now_ms, max(self.now_ms, -(-wake_ns // MS))
            actions = self.on(TimerFired())
            done += actions
            if exits(actions):
                return done
            if not actions and self.now_ms == before_ms:
                wake_ns = self.steps.wake_at_ns(self.now_ns)
                assert wake_ns > self.now_ns, f"at {self.now_ms} ms it wants to be woken at once and then does nothing"
        raise AssertionError("the machine never rests")

    # -- the same, whatever the machine does, and then the next step

    def after(self, ms: int) -> Self:
        self.wait(ms)
        return self

    def told(self, event: Event) -> Self:
        self.on(event)
        return self

    def answered(self, kind: CallKind, reply: object) -> Self:
        self.answer(kind, reply)
        return self

    def failed(self, kind: CallKind, *, fault: bool = False) -> Self:
        self.fail(kind, fault=fault)
        return self

    def given(self, *jobs: LeasedJob, kind: Any = None, sleep_ms: int = 1000) -> Self:
        self.give(*jobs, kind=kind, sleep_ms=sleep_ms)
        return self

    def ended(self, job: LeasedJob, error: str | None = None) -> Self:
        self.handler_ends(job, error)
        return self

    # -- answers

    def answer(self, kind: CallKind, reply: object, *, first_send_ms: int | None = None) -> list[Action]:
        """The outstanding call of a kind is answered now."""
        call = self.out.pop(kind)
        first_ms = self.sent_ms[kind] if first_send_ms is None else first_send_ms
        return self.on(Answered(kind, call, reply, first_ms * MS, self.now_ns))

    def fail(self, kind: CallKind, *, fault: bool = False) -> list[Action]:
        """The outstanding call of a kind got no answer."""
        return self.on(Unanswered(kind, self.out.pop(kind), self.sent_ms[kind] * MS, fault))

    def give(self, *jobs: LeasedJob, kind: Any = None, sleep_ms: int = 1000) -> list[Action]:
        """Answer the outstanding claim, also the one in a fused call, whose leases are then all `ok`."""
        claimed = Claimed(self.srv_us, kind or ("leased" if jobs else "empty"), sleep_ms, jobs)
        operation = self.out["work"].operation
        if isinstance(operation, Finish):
            assert operation.claim is not None
            return self.answer("work", FinishedAndClaimed(self.srv_us, self._ended(operation), claimed))
        return self.answer("work", claimed)

    def takes(self, *names: str, **options: Any) -> list[LeasedJob]:
        """Answer the outstanding claim with jobs of these names."""
        jobs = [self.job(name, **options) for name in names]
        self.give(*jobs)
        return jobs

    def end(self, kind: CallKind = "work") -> list[Action]:
        """Answer the outstanding finish, retry or release: all `ok`."""
        return self.answer(kind, self._ended(self.out[kind].operation))

    def warm(self, rounds: int = 12, took_ms: int = 1) -> None:
        """Let the machine measure handlers of this time, one after the other; a claim is outstanding afterwards."""
        for number in range(rounds):
            (job,) = self.takes(f"warm{number}")
            self.wait(took_ms)
            self.handler_ends(job)
            assert isinstance(self.work, Finish)

    def extend(self, *results: Any) -> list[Action]:
        """Answer the outstanding renewal."""
        assert len(results) == len(self.renewal.leases)
        return self.answer("renew", Extended(self.srv_us, tuple((result, 0) for result in results)))

    def mark(self, result: MarkResult = "ok") -> list[Action]:
        """Answer the outstanding mark."""
        assert isinstance(self.work, Mark), f"no mark is outstanding but {self.work}"
        return self.answer("work", Marked(self.srv_us, result))

    def sweep(self, *, sleep_ms: int = 1000, promoted: int = 0, reaped: tuple[Lease, ...] = ()) -> list[Action]:
        """Answer a sweep of a worker that leads."""
        taken = tuple((lease, 1) for lease in reaped)
        return self.answer("sweep", Swept(self.srv_us, sleep_ms, taken, promoted=promoted, leads=True))

    def sweeps_after(self, ms: int) -> Any:
        """Let time pass until the next sweep, beat or count, which comes then and not before; its operation."""
        self.wait(ms - 2)
        assert "sweep" not in self.out
        self.wait(3)
        return self.out["sweep"].operation

    def wake(self, marker: bool) -> list[Action]:
        return self.answer("wake", Woken(marker))

    def handler_ends(self, job: LeasedJob, error: str | None = None) -> list[Action]:
        return self.on(HandlerEnded(job.lease, error))

    @property
    def srv_us(self) -> int:
        return (SERVER_MS + self.now_ms) * 1000

    def job(self, name: str, *, deadline_ms: int | None = None, failures: int = 0, crashes: int = 0, **options: Any) -> LeasedJob:
        """A job leased by the outstanding claim. `deadline_ms` on the test's clock; else one lease from
        now."""
        claim = self.claim
        until_ms = self.now_ms + self.settings.lease_ms if deadline_ms is None else deadline_ms
        lease = Lease(name, next(self._fences), f"{claim.incarnation}:{claim.counter}")
        until_ms += SERVER_MS
        return LeasedJob(lease, until_ms, "work", "main", "main", b"{}", Options(**options), SERVER_MS, 0, 1, failures, crashes)

    @property
    def claim(self) -> Claim:
        """The outstanding claim, alone or inside a fused call."""
        operation = self.out["work"].operation
        claim = operation.claim if isinstance(operation, Finish) else operation
        assert isinstance(claim, Claim), f"no claim is outstanding but {operation}"
        return claim

    @property
    def work(self) -> Any:
        """The operation that is outstanding on the work kind, or None."""
        return self.out["work"].operation if "work" in self.out else None

    @property
    def renewal(self) -> Extend:
        """The outstanding renewal."""
        operation = self.out["renew"].operation
        assert isinstance(operation, Extend)
        return operation

    @staticmethod
    def _ended(operation: Any) -> Ended:
        ok: tuple[EndResult, str] = ("ok", "finished")
        count = len(operation.failures) if hasattr(operation, "failures") else len(operation.leases)
        return Ended(0, (ok,) * count)


def holding(*names: str, **more: Any) -> tuple[Machine, list[LeasedJob]]:
    """A machine with these settings whose first claim has leased jobs of these names with these options; and the jobs."""
    machine = Machine(**{name: more.pop(name) for name in [*more] if name in Settings.__annotations__})
    return machine, machine.takes(*names, **more)


def started(actions: list[Action]) -> list[str]:
    """Ids of the jobs whose handlers were started."""
    return [action.job.lease.job for action in actions if isinstance(action, Start)]


def batches(actions: list[Action]) -> list[list[str]]:
    """Ids of the jobs of each batch that was started."""
    return [[job.lease.job for job in action.batch] for action in actions if isinstance(action, Start) and action.batch]


def lost(actions: list[Action]) -> list[str]:
    """Ids of the jobs whose leases were reported lost."""
    return [action.lease.job for action in actions if isinstance(action, LoseLease)]


def exits(actions: list[Action]) -> bool:
    """Whether the machine is done."""
    return any(isinstance(action, Exit) for action in actions)
