"""The producers of an episode: what `Queue.enqueue` and `Queue.enqueue_many` do, through `engine.queue.producing`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from unittest.mock import patch

from chaos.simulate.line import Line, Outcome, Process
from chaos.simulate.planned_actions import Clear, Hold, PlannedAction
from chaos.simulate.server import SimulatedServer
from chaos.simulate.watching import SimulatedWatch
from chaos.simulate.world import MS, World
from engine.errors import EngineError, LeaseLost, OutcomeUnknown, PartlyEnqueued, ScriptFault, UnknownParent
from engine.ops.admin import Administered, AdminOperation
from engine.ops.base import DeadlineBound, Operation, ServerClock
from engine.ops.jobs import Enqueue, Enqueued, EnqueueMany
from engine.ops.looks import Look
from engine.queue import admin, producing, scheduling, workflows
from engine.queue.producing import Steps
from engine.redis.endpoint import DEADLINE_MS
from engine.redis.gathering import CallMaker, GatheredEnqueue, merged
from engine.serializers import BUILT_IN

if TYPE_CHECKING:
    from chaos.simulate.judge import Judge

BYTES_MAX = 600_000
#: Jobs of a workflow that are looked at.
_WORKFLOW_MAX = 1_000


@contextmanager
def _identities(numbers: Iterator[int]) -> Iterator[None]:
    """Holders of locks take their identities from these: a seed has the same ones each time."""
    # What removes many jobs looks at few in each call, so that it takes several.
    with patch.object(admin, "PIECE", 4), patch.object(admin, "new_token", lambda: _op_id(numbers)):
        yield


def _op_id(numbers: Iterator[int]) -> str:
    return f"{next(numbers):016x}"


class Rest(NamedTuple):
    """What a call does between two others: nothing for so long."""

    length_ms: int


class Producer(Process):
    """Carries out actions, each on a connection of its own, and tells the judge what its caller was told."""

    def __init__(self, world: World, server: SimulatedServer, judge: Judge, actions: tuple[PlannedAction, ...]) -> None:
        super().__init__(world, "producer")
        self._server = server
        self._judge = judge
        self.watch = SimulatedWatch(server.model, partial(judge.loses, self)) if world.profile.watches else None
        self._clock = ServerClock(self.watch)
        self.open = 0
        self.does(actions)

    def does(self, actions: tuple[PlannedAction, ...]) -> None:
        """Take on more actions, from now on."""
        for action in actions:
            self.open += 1
            self.at(self.world.now_ns + action.at_ms * MS, self._begin, action)

    def _begin(self, action: PlannedAction) -> None:
        line = self._server.knows(Line(self, self._server.arrive, f"call{action.number}", self._clock))
        act = self._administer if action.asks is not None else self._enqueue if action.jobs else self._carry_out
        if self._clock.known:
            act(action, line)
        else:
            line.greet(lambda: self._first(act, action, line))

    def _first(self, act: Callable[[PlannedAction, Line], None], action: PlannedAction, line: Line) -> None:
        """The process begins to use the queue."""
        note = self.watch.begin() if self.watch is not None else None
        if note is not None:
            line.carry(self._server.model.call(note), lambda _: act(action, line))
        else:
            act(action, line)

    def _administer(self, action: PlannedAction, line: Line) -> None:
        def done(_: Outcome) -> None:
            self.open -= 1

        assert action.asks is not None
        self._send(action.asks, line, done)

    def _carry_out(self, action: PlannedAction, line: Line) -> None:
        """What `Queue.carry_out` does."""
        steps = self._steps(action)
        op_ids = count(action.number + 1 << 32)

        def go_on(outcome: Outcome | None, answer: Any = None) -> None:
            try:
                with _identities(op_ids):
                    ask = steps.throw(outcome) if isinstance(outcome, EngineError) else steps.send(answer)
            except StopIteration as end:
                self.open -= 1
                self.world.note("producer", f"has done call {action.number}", end.value)
                self._judge.cleared(action, end.value)
                return
            except EngineError as error:
                self.open -= 1
                self.world.note("producer", f"cannot do call {action.number}", type(error).__name__)
                return
            if isinstance(ask, Rest):
                self.at(self.world.now_ns + ask.length_ms * MS, go_on, None)
                return
            if isinstance(ask, AdminOperation):
                ask = replace(ask, op_id=_op_id(op_ids))
            self._send(ask, line, done)

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, EngineError):
                go_on(outcome)
                return
            try:
                if isinstance(outcome.reply, Administered):
                    outcome.reply.check_done()
            except OutcomeUnknown as unknown:
                go_on(unknown)
            else:
                go_on(None, outcome.reply)

        go_on(None)

    def _send(self, operation: Operation, line: Line, then: Callable[[Outcome], None], *, first: bool = True) -> None:
        """Send an operation; once more when it came late."""

        def done(outcome: Outcome) -> None:
            if not isinstance(outcome, EngineError) and first and outcome.came_late:
                self._send(operation, line, then, first=False)
            else:
                then(outcome)

        line.carry(self._server.model.call(self._leaves(operation)), done)

    def _leaves(self, operation: Operation) -> Operation:
        """The operation as it leaves now. A copy: late messages of the one that left before keep their time."""
        not_after_ms = self._clock.now_ms(self.world.now_ns) + DEADLINE_MS
        if isinstance(operation, EnqueueMany):
            return EnqueueMany(tuple(replace(job, not_after_ms=not_after_ms) for job in operation.jobs))
        return replace(operation, not_after_ms=not_after_ms) if isinstance(operation, DeadlineBound) else operation

    def _steps(self, action: PlannedAction) -> Generator[Any, Any, Any]:
        model = self._server.model
        if action.clear is not None:
            return _clearing(*action.clear)
        if action.hand is not None:
            does, job = action.hand
            return admin.altering(model.names, does, job, None)
        if action.revive is not None:
            how, job = action.revive
            return workflows.requeueing(model, job) if how == "requeue" else workflows.retrying(model, job, _WORKFLOW_MAX)
        if action.lock is not None:
            return _holding(action.lock)
        if action.read:
            return _reading(action.read)
        assert action.schedule is not None
        change, name, every_ms = action.schedule
        if change == "put":
            timing = scheduling.timing(None, "UTC", every_ms, 0, 0)
            overlap = "skip" if action.number % 2 else "allow"
            options = {"attempts": 2, "backoff_ms": 50, "result_ttl_ms": 500, "error_ttl_ms": 30_000}
            payload = {"does": "ok", "of": f"{name} by call {action.number % 4}"}
            job = scheduling.template_job(self.world.profile.names[0], payload, BYTES_MAX, options, BUILT_IN, model)
            return scheduling.putting(model.names, name, timing, scheduling.policy("once", 2000, overlap), job, None)
        return (
            scheduling.removing(model.names, name)
            if change == "remove"
            else scheduling.enabling(model.names, name, change == "enable")
        )

    def _enqueue(self, action: PlannedAction, line: Line) -> None:
        nonce = b"%08d" % (action.number + 1)
        drafts = producing.drafts(action.jobs, BYTES_MAX, model=self._server.model)
        if action.many and action.number % 2:
            self._gathered([(draft, b"%04d%04d" % (action.number + 1, at)) for at, draft in enumerate(drafts)], line, first=True)
        elif action.many:
            self._many(drafts, nonce, line)
        else:
            self._one(drafts[0], nonce, line)

    def _one(self, draft: Enqueue, nonce: bytes, line: Line) -> None:
        self._send(_with_nonce(draft, nonce), line, lambda outcome: self._hears([(draft, nonce, _enqueued(outcome))]))

    def _many(self, drafts: list[Enqueue], nonce: bytes, line: Line) -> None:
        steps = producing.enqueue_many([_with_nonce(draft, nonce) for draft in drafts])

        def go_on(outcomes: list[Outcome] | None) -> None:
            results: list[Enqueued | EngineError]
            try:
                (operation,) = cast("list[Enqueue]", next(steps) if outcomes is None else steps.send(outcomes))
            except StopIteration as end:
                results = end.value
            except PartlyEnqueued as partly:
                results = list(partly.results)
            except EngineError as error:
                results = [error] * len(drafts)
            else:
                line.carry(self._server.model.call(self._leaves(operation)), lambda outcome: go_on([outcome]))
                return
            self._hears([(draft, nonce, result) for draft, result in zip(drafts, results, strict=True)])

        go_on(None)

    def _gathered(self, enqueues: list[tuple[Enqueue, bytes]], line: Line, *, first: bool) -> None:
        """What enqueues of several callers do that leave together, each with a nonce of its own."""
        model, results, late = (
            self._server.model,
            list[tuple[Enqueue, bytes, Enqueued | EngineError]](),
            list[tuple[Enqueue, bytes]](),
        )
        maker = CallMaker(model.call, model.merges_enqueues)
        gathered = [GatheredEnqueue(_with_nonce(draft, nonce), None) for draft, nonce in enqueues]
        to_send = merged(gathered, self._clock.now_ms(self.world.now_ns) + DEADLINE_MS, maker)
        answered = iter(enqueues)

        def go_on(outcome: Outcome) -> None:
            sent = to_send.pop(0)
            if parts := sent.apart(outcome, maker):
                to_send[:0] = parts
            else:
                for (draft, nonce), its_outcome in zip([next(answered) for _ in sent.jobs], sent.outcomes(outcome), strict=True):
                    if not isinstance(its_outcome, EngineError) and first and its_outcome.came_late:
                        late.append((draft, nonce))
                    else:
                        results.append((draft, nonce, _enqueued(its_outcome)))
            if to_send:
                line.carry(to_send[0].call, go_on)
                return
            if late:
                self.open += 1
                self._gathered(late, line, first=False)
            self._hears(results)

        line.carry(to_send[0].call, go_on)

    def _hears(self, results: list[tuple[Enqueue, bytes, Enqueued | EngineError]]) -> None:
        self.open -= 1
        for draft, nonce, result in results:
            if isinstance(result, Enqueued):
                told = result.result
            elif isinstance(result, OutcomeUnknown | ScriptFault):
                told = "unknown"
            elif isinstance(result, UnknownParent):
                told = "orphan"
            else:
                told = "unavailable"
            job = draft.job or (result.job if isinstance(result, Enqueued) else "")
            self.world.note("producer", f"hears of {job or draft.payload.decode()}", told, (job,))
            self._judge.told(draft, nonce, told)


def _with_nonce(draft: Enqueue, nonce: bytes) -> Enqueue:
    """A copy with this nonce, if it needs one: an id that was drawn for it is identity enough."""
    return replace(draft, nonce=nonce if draft.nonce else b"")


def _enqueued(outcome: Outcome) -> Enqueued | EngineError:
    try:
        return outcome if isinstance(outcome, EngineError) else producing.enqueued(outcome)
    except EngineError as error:
        return error


def _clearing(does: Clear, how: Mapping[str, Any]) -> Steps[Any]:
    """What the queue's methods of these names carry out."""
    match does:
        case "clean":
            return admin.cleaning(**how)
        case "drain":
            return admin.draining(**how)
        case "obliterate":
            return admin.obliterating(**how)
        case "retention":
            return _doing(admin.set_retention(**how))


def _doing(operation: Operation) -> Steps[None]:
    yield operation


def _holding(hold: Hold) -> Generator[Any, Any, str]:
    """What a user of `queue.locks` does, however late it is."""
    lock = yield from admin.acquiring(hold.name, hold.ttl_ms)
    if lock is None:
        return "it is taken"
    for at, wait_ms in enumerate(hold.waits_ms):
        yield Rest(wait_ms)
        if at + 1 == len(hold.waits_ms):
            break
        try:
            lock = yield from admin.extending(lock, hold.ttl_ms)
        except LeaseLost:
            return "it is lost"
    if not hold.gives_back:
        return "it is kept"
    return "it is given back" if (yield from admin.releasing(lock)) else "it was not held"


def _reading(job: str) -> Steps[str]:
    seen = yield Look(job)
    return seen.state
