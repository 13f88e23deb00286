"""Runs the handlers that take several jobs of a lane at once. Each job keeps its own lease, hooks, result and
end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from engine.handlers import End, Fault, Handlers, Said, call_here, end_fork, ends, fault_in_batch
from engine.hooks import Hooked, RunHooks
from engine.logs import running
from engine.ops.claims import LeasedJob
from engine.outcomes import ErrorRules
from engine.worker.child_processes import Child, ChildFailed, reference_of
from engine.worker.machine.events import HandlerEnded
from engine.worker.runs import RunContexts, Runs


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs of one name and lane that one call of their handler gets."""

    jobs: tuple[LeasedJob, ...]

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self.jobs[0].name


Run = LeasedJob | Batch
#: Where a run was: in the thread of the inline ones, in one of the pool, or elsewhere, where nothing but runs
#: can follow: on the loop, or in a child process.
Place = Literal["inline", "thread", "elsewhere"]
#: Hears that a batch is over, how each of its jobs did and where it was; says what is next there, as `Ended`
#: does.
BatchEndedTold = Callable[[tuple[HandlerEnded, ...], Place], Any]


@dataclass(slots=True)
class _One:
    """A job of a batch that runs."""

    leased: LeasedJob
    start_ns: int
    ticket: object
    run: Hooked
    fault: Fault | None = None


class BatchRuns:
    """The batches of one `HandlerPool`. `start` runs what follows a coroutine, without waiting."""

    def __init__(
        self,
        runs: Runs,
        start: Callable[[Run], None],
        handlers: Handlers,
        ended: BatchEndedTold,
        contexts: RunContexts,
        hooks_in_child: Callable[[str], list[int]],
    ) -> None:
        self._hooks_in_child = hooks_in_child
        self._runs = runs
        self._contexts = contexts
        self._start = start
        self._handlers = handlers
        self._ended = ended

    def run_plain(self, batch: Batch, child: Child | None, place: Place) -> Any:
        """Run a plain function, here or in a child process. Returns what is next here."""
        # Hooks of a run in a child process are called there.
        ones = self._begin(batch, () if child is not None else self._handlers.hooks_of(batch.name))
        self._contexts.run(self._carry_out, batch, ones, child)
        return self._told(ones, place)

    def _carry_out(self, batch: Batch, ones: list[_One], child: Child | None) -> None:
        """Run a plain function with the hooks of its jobs."""
        self._note_run(batch)
        for one in ones:
            one.run.enter()
        going = _going(ones)
        jobs = [one.run.job for one in going]
        returned, failure, found = None, None, None
        try:
            if jobs and child is not None:
                found = self._run_in(child, batch.name, [one.leased for one in going])
            elif jobs:
                returned = call_here(self._handlers.find(batch.name), jobs, batch.name)
        except BaseException as raised:
            # Also SystemExit, as for single jobs.
            failure = raised
        _note(going, ends(jobs, returned, failure) if found is None else found)
        for one in ones:
            one.run.leave()
        self._end(ones)

    def _run_in(self, child: Child, name: str, batch: list[LeasedJob]) -> list[End]:
        """The end of each job in the child process. When the process dies, all of them have failed."""
        reference = reference_of(self._handlers.find(name))
        child.start(*batch)
        for leased in batch:
            lease = leased.lease
            self._runs.register(leased, partial(child.lose, lease), partial(child.soften, lease))
            self._runs.stoppable(leased, partial(child.kill, leased.lease), alone=len(batch) == 1)
        known: dict[int, ChildFailed] = {}
        found: list[End] = []
        rules = self._handlers.error_rules(name)
        for fault, result in child.run_batch(reference, batch, rules, self._hooks_in_child(name)):
            failure = None if fault is None else known.setdefault(id(fault), ChildFailed(fault))
            found.append((failure, result))
        return found

    async def run_coroutine(self, batch: Batch, cancel: Callable[[], None]) -> None:
        """Run an async function, which `cancel` cancels."""
        pid = os.getpid()
        ones = self._begin(batch, self._handlers.hooks_of(batch.name))
        self._note_run(batch)
        for one in ones:
            await one.run.enter_async()
        going = _going(ones)
        jobs = [one.run.job for one in going]
        returned, failure = None, None
        try:
            stop = _once(cancel)
            for leased in batch.jobs:
                self._runs.stoppable(leased, stop, alone=len(batch.jobs) == 1)
            handler = self._runs.softened(
                self._handlers.find(batch.name), [(one.leased, one.run.job) for one in going]
            )
            if jobs:
                returned = await handler(jobs)
        except BaseException as raised:
            if os.getpid() != pid:
                end_fork(raised)
            failure = raised
        if os.getpid() != pid:
            end_fork(None)
        _note(going, ends(jobs, returned, failure))
        for one in ones:
            await one.run.leave_async()
        self._end(ones)
        following = Context().run(self._told, ones, "elsewhere")
        if following is not None:
            self._start(following)

    def _begin(self, batch: Batch, hooks: Sequence[RunHooks]) -> list[_One]:
        ones: list[_One] = []
        for leased in batch.jobs:
            start_ns, ticket = self._runs.begins(leased)
            ones.append(_One(leased, start_ns, ticket, Hooked(self._runs.job(leased), hooks)))
        return ones

    def _note_run(self, batch: Batch) -> None:
        running.set((self._runs.source, batch.jobs[0] if len(batch.jobs) == 1 else batch.name))

    def _end(self, ones: list[_One]) -> None:
        """Note what each job leaves behind, and call the hooks after its run."""
        # One exception may have failed all of them: its trace is stored, and logged, once.
        known: dict[int, Fault] = {}
        rules = self._handlers.error_rules(ones[0].leased.name)
        for one in ones:
            failure = one.run.failure
            if failure is not None:
                before = fault_in_batch(failure, ()) if type(failure) is Said else known.get(id(failure))
                one.fault = self._runs.failed(one.leased, failure, before)
                if before is None:
                    known[id(failure)] = _fault(failure, rules)
            one.run.ended(None if one.fault is None else one.fault.error)

    def _told(self, ones: list[_One], place: Place) -> Any:
        """Tell that the run of a batch is over, outside of its context. What is next in its place."""
        told: list[HandlerEnded] = []
        for one in ones:
            self._runs.over(one.leased, one.ticket, one.start_ns, one.fault)
            lease = one.leased.lease
            told.append(
                HandlerEnded(lease, None, result=one.run.result)
                if one.fault is None
                else HandlerEnded(lease, *one.fault)
            )
        following = self._ended(tuple(told), place)
        for one in ones:
            self._runs.forget(one.leased.lease)
        return following


def _going(ones: list[_One]) -> list[_One]:
    """Those that the handler gets."""
    return [one for one in ones if one.run.failure is None]


def _note(ones: list[_One], found: list[End]) -> None:
    for one, end in zip(ones, found, strict=True):
        one.run.failure, one.run.result = end


def _fault(failure: BaseException, rules: Sequence[ErrorRules]) -> Fault:
    return failure.fault if type(failure) is ChildFailed else fault_in_batch(failure, rules)


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """Each job of a batch has its own timeout, and the coroutine that cleans up after the first is not
    cancelled again."""
    first = threading.Lock()

    def at_first() -> None:
        if first.acquire(blocking=False):
            call()

    return at_first
