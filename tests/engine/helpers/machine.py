"""Drives the worker's state machine by hand: no thread, no socket, and a clock that the test moves."""

from typing import Any

from engine.models.lanes import Lanes
from engine.worker.machine import events
from engine.worker.machine.machine import WorkerMachine
from engine.worker.machine.settings import Settings
from tests.engine import ops
from tests.engine.desk import then

MS = 1_000_000
#: Server time minus the machine's monotonic time, ms.
SERVER_MS = 1_700_000_000_000


class Machine:
    """One machine, its clock, the calls that are outstanding on each kind, and every action so far."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0
        usual = dict[str, Any](concurrency=2, prefetch=0, lease_ms=9000, sweep_ms=1000, grace_ms=30_000, classes=("main",))
        self.settings = Settings("w", **(usual | settings))
        self.clock = ops.ServerClock()
        self.clock.learn(SERVER_MS * 1000, 0)
        self.draws, self.log = list[float](), list[events.Action]()
        self.incarnations = iter(f"{number:016x}" for number in range(1, 100))
        self.out, self.sent_ms = dict[events.CallKind, ops.Call[Any]](), dict[events.CallKind, int]()
        self._fences = iter(range(1, 10_000))
        drawn = (self.incarnations.__next__, 0, lambda: self.draws.pop(0))
        self.steps = WorkerMachine(self.settings, Lanes("q").call, self.clock, *drawn)
        self.on(events.TimerFired())

    @property
    def now_ns(self) -> int:
        return self.now_ms * MS

    def on(self, event: events.Event) -> list[events.Action]:
        """Feed one event; a kind never carries two calls at once."""
        actions = self.steps.on(event, self.now_ns)
        for action in actions:
            if isinstance(action, events.Send):
                assert action.kind not in self.out, f"two calls outstanding on {action.kind}"
                self.out[action.kind] = action.call
                self.sent_ms[action.kind] = self.now_ms
        self.log += actions
        return actions

    def wait(self, ms: int) -> list[events.Action]:
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
            actions = self.on(events.TimerFired())
            done += actions
            if exits(actions):
                return done
            if not actions and self.now_ms == before_ms:
                wake_ns = self.steps.wake_at_ns(self.now_ns)
                assert wake_ns > self.now_ns, f"at {self.now_ms} ms it wants to be woken at once and then does nothing"
        raise AssertionError("the machine never rests")

    after, told, answered, failed, given, ended = map(then, ("wait", "on", "answer", "fail", "give", "handler_ends"))
    after_sweep, after_end, warmed, woken, extended = map(then, ("sweep", "end", "warm", "wake", "extend"))

    # -- answers

    def answer(self, kind: events.CallKind, reply: object, *, first_send_ms: int | None = None) -> list[events.Action]:
        """The outstanding call of a kind is answered now."""
        call = self.out.pop(kind)
        first_ms = self.sent_ms[kind] if first_send_ms is None else first_send_ms
        return self.on(events.Answered(kind, call, reply, first_ms * MS, self.now_ns))

    def fail(self, kind: events.CallKind, *, fault: bool = False) -> list[events.Action]:
        """The outstanding call of a kind got no answer."""
        return self.on(events.Unanswered(kind, self.out.pop(kind), self.sent_ms[kind] * MS, fault))

    def give(self, *jobs: ops.LeasedJob, kind: Any = None, sleep_ms: int = 1000) -> list[events.Action]:
        """Answer the outstanding claim, also the one in a fused call, whose leases are then all `ok`."""
        claimed = ops.Claimed(self.srv_us, kind or ("leased" if jobs else "empty"), sleep_ms, jobs)
        operation = self.out["work"].operation
        if isinstance(operation, ops.Finish):
            assert operation.claim is not None
            return self.answer("work", ops.FinishedAndClaimed(self.srv_us, self._ended(operation), claimed))
        return self.answer("work", claimed)

    def takes(self, *names: str, **options: Any) -> list[ops.LeasedJob]:
        """Answer the outstanding claim with jobs of these names."""
        jobs = [self.job(name, **options) for name in names]
        self.give(*jobs)
        return jobs

    def end(self, kind: events.CallKind = "work") -> list[events.Action]:
        """Answer the outstanding finish, retry or release: all `ok`."""
        return self.answer(kind, self._ended(self.out[kind].operation))

    def warm(self, rounds: int = 12, took_ms: int = 1) -> None:
        """Let the machine measure handlers of this time, one after the other; a claim is outstanding afterwards."""
        for number in range(rounds):
            (job,) = self.takes(f"warm{number}")
            self.wait(took_ms)
            self.handler_ends(job)
            assert isinstance(self.work, ops.Finish)

    def extend(self, *results: Any) -> list[events.Action]:
        """Answer the outstanding renewal."""
        assert len(results) == len(self.renewal.leases)
        return self.answer("renew", ops.Extended(self.srv_us, tuple((result, 0) for result in results)))

    def mark(self, result: ops.MarkResult = "ok") -> list[events.Action]:
        """Answer the outstanding mark."""
        assert isinstance(self.work, ops.Mark), f"no mark is outstanding but {self.work}"
        return self.answer("work", ops.Marked(self.srv_us, result))

    def sweep(self, *, sleep_ms: int = 1000, promoted: int = 0, reaped: tuple[ops.Lease, ...] = ()) -> list[events.Action]:
        """Answer a sweep of a worker that leads."""
        taken = tuple((lease, 1) for lease in reaped)
        return self.answer("sweep", ops.Swept(self.srv_us, sleep_ms, taken, promoted=promoted, leads=True))

    def sweeps_after(self, ms: int) -> Any:
        """Let time pass until the next sweep, beat or count, which comes then and not before; its operation."""
        self.wait(ms)
        assert "sweep" not in self.out
        self.on(events.TimerFired())
        return self.out["sweep"].operation

    def wake(self, marker: bool) -> list[events.Action]:
        return self.answer("wake", ops.Woken(marker))

    def handler_ends(self, job: ops.LeasedJob, error: str | None = None) -> list[events.Action]:
        return self.on(events.HandlerEnded(job.lease, error))

    @property
    def srv_us(self) -> int:
        return (SERVER_MS + self.now_ms) * 1000

    def job(self, name: str, *, deadline_ms: Any = None, failures: int = 0, crashes: int = 0, **options: Any) -> ops.LeasedJob:
        """A job leased by the outstanding claim. `deadline_ms` on the test's clock; else one lease from
        now."""
        claim = self.claim
        until_ms = self.now_ms + self.settings.lease_ms if deadline_ms is None else deadline_ms
        lease = ops.Lease(name, next(self._fences), f"{claim.incarnation}:{claim.counter}")
        until_ms += SERVER_MS
        body = ("work", "main", "main", b"{}", ops.Options(**options))
        return ops.LeasedJob(lease, until_ms, *body, SERVER_MS, 0, 1, failures, crashes)

    @property
    def claim(self) -> ops.Claim:
        """The outstanding claim, alone or inside a fused call."""
        operation = self.out["work"].operation
        claim = operation.claim if isinstance(operation, ops.Finish) else operation
        assert isinstance(claim, ops.Claim), f"no claim is outstanding but {operation}"
        return claim

    @property
    def work(self) -> Any:
        """The operation that is outstanding on the work kind, or None."""
        return self.out["work"].operation if "work" in self.out else None

    @property
    def renewal(self) -> ops.Extend:
        """The outstanding renewal."""
        operation = self.out["renew"].operation
        assert isinstance(operation, ops.Extend)
        return operation

    @staticmethod
    def _ended(operation: Any) -> ops.Ended:
        ok: tuple[ops.EndResult, str] = ("ok", "finished")
        return ops.Ended(0, (ok,) * (len(operation.failures) if hasattr(operation, "failures") else len(operation.leases)))


def holding(*names: str, **more: Any) -> tuple[Machine, list[ops.LeasedJob]]:
    """A machine with these settings whose first claim has leased jobs of these names with these options; and the jobs."""
    machine = Machine(**{name: more.pop(name) for name in [*more] if name in Settings.__annotations__})
    return machine, machine.takes(*names, **more)


def started(actions: list[events.Action]) -> list[str]:
    """Ids of the jobs whose handlers were started."""
    return [action.job.lease.job for action in actions if isinstance(action, events.Start)]


def batches(actions: list[events.Action]) -> list[list[str]]:
    """Ids of the jobs of each batch that was started."""
    return [[job.lease.job for job in action.batch] for action in actions if isinstance(action, events.Start) and action.batch]


def lost(actions: list[events.Action]) -> list[str]:
    """Ids of the jobs whose leases were reported lost."""
    return [action.lease.job for action in actions if isinstance(action, events.LoseLease)]


def exits(actions: list[events.Action]) -> bool:
    """Whether the machine is done."""
    return any(isinstance(action, events.Exit) for action in actions)
