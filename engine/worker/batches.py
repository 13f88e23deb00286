"""Runs the handlers that take several jobs of a lane at once. Each job keeps its own lease, hooks, result and
end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.handlers import End, Fault, Handlers, Said, call_here, end_fork, ends, fault_in_batch
from engine.hooks import RunHooks
from engine.job import Job
from engine.logs import running
from engine.ops.claims import LeasedJob
from engine.outcomes import ErrorRules
from engine.worker.child_processes import Child, ChildFailed, reference_of
from engine.worker.machine.events import HandlerEnded, Start
from engine.worker.runs import RunContexts, Runs


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs of one name and lane that one call of their handler gets."""

    jobs: tuple[LeasedJob, ...]

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self.jobs[0].name

    @staticmethod
    def of(start: Start) -> Run:
        """The batch of a Start action."""
        return Batch(start.batch) if start.batch else start.job


Run = LeasedJob | Batch
#: Hears that a batch is over, how each of its jobs did and whether it was inline; says what its place runs
#: next, as `Ended` does.
BatchEndedTold = Callable[[tuple[HandlerEnded, ...], bool], Run | None]


@dataclass(slots=True)
class _One:
    """A job of a batch that runs."""

    leased: LeasedJob
    job: Job
    start_ns: int
    ticket: object
    context: AbstractContextManager[None] | None = None
    failure: BaseException | None = None
    fault: Fault | None = None
    result: bytes | None = None

    def enter(self, hooks: RunHooks) -> None:
        """Call the hooks before the run. A job whose hook raises has failed, and the handler does not get
        it."""
        context = hooks.entered(self.job)
        try:
            context.__enter__()
            self.context = context
        except BaseException as failure:
            self.failure = failure

    def leave(self) -> None:
        """Call the hooks after the run, with the result or failure of this job."""
        if self.context is None:
            return
        failure = self.failure
        told = (None, None, None) if failure is None else (type(failure), failure, failure.__traceback__)
        try:
            if self.context.__exit__(*told):
                self.failure = None
        except BaseException as more:
            self.failure = more


class BatchRuns:
    """The batches of one `HandlerPool`. `start` runs what follows a coroutine, without waiting."""

    def __init__(
        self,
        runs: Runs,
        start: Callable[[Run], None],
        handlers: Handlers,
        ended: BatchEndedTold,
        contexts: RunContexts,
    ) -> None:
        self._runs = runs
        self._contexts = contexts
        self._start = start
        self._handlers = handlers
        self._ended = ended

    def run_plain(self, batch: Batch, child: Child | None, *, inline: bool) -> Run | None:
        """Run a plain function, here or in a child process. Returns the next start of this place."""
        ones = self._begin(batch)
        self._contexts.run(self._carry_out, batch, ones, child)
        return self._told(ones, inline=inline)

    def _carry_out(self, batch: Batch, ones: list[_One], child: Child | None) -> None:
        """Run a plain function with the hooks of its jobs."""
        going = self._enter(batch, ones)
        jobs = [one.job for one in going]
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
        self._leave(ones)

    def _run_in(self, child: Child, name: str, batch: list[LeasedJob]) -> list[End]:
        """The end of each job in the child process. When the process dies, all of them have failed."""
        reference = reference_of(self._handlers.find(name))
        child.start(*batch)
        for leased in batch:
            self._runs.register(leased.lease, partial(child.lose, leased.lease))
            self._runs.stoppable(leased, partial(child.kill, leased.lease), alone=len(batch) == 1)
        known: dict[int, ChildFailed] = {}
        found: list[End] = []
        for fault, result in child.run_batch(reference, batch, self._handlers.error_rules(name)):
            failure = None if fault is None else known.setdefault(id(fault), ChildFailed(fault))
            found.append((failure, result))
        return found

    async def run_coroutine(self, batch: Batch, cancel: Callable[[], None]) -> None:
        """Run an async function, which `cancel` cancels."""
        pid = os.getpid()
        ones = self._begin(batch)
        going = self._enter(batch, ones)
        jobs = [one.job for one in going]
        returned, failure = None, None
        try:
            stop = _once(cancel)
            for leased in batch.jobs:
                self._runs.stoppable(leased, stop, alone=len(batch.jobs) == 1)
            handler: Any = self._handlers.find(batch.name)
            if jobs:
                returned = await handler(jobs)
        except BaseException as raised:
            if os.getpid() != pid:
                end_fork(raised)
            failure = raised
        if os.getpid() != pid:
            end_fork(None)
        _note(going, ends(jobs, returned, failure))
        self._leave(ones)
        following = Context().run(partial(self._told, ones, inline=False))
        if following is not None:
            self._start(following)

    def _begin(self, batch: Batch) -> list[_One]:
        ones: list[_One] = []
        for leased in batch.jobs:
            start_ns, ticket = self._runs.begins(leased)
            ones.append(_One(leased, self._runs.job(leased), start_ns, ticket))
        return ones

    def _enter(self, batch: Batch, ones: list[_One]) -> list[_One]:
        """Call the hooks before the run, in its context. Those that the handler gets."""
        running.set((self._runs.source, batch.jobs[0] if len(batch.jobs) == 1 else batch.name))
        if hooks := self._handlers.hooks_of(batch.name):
            for one in ones:
                one.enter(hooks)
        return [one for one in ones if one.failure is None]

    def _leave(self, ones: list[_One]) -> None:
        """Call the hooks after the run, and note what each job leaves behind."""
        # One exception may have failed all of them: its trace is stored, and logged, once.
        known: dict[int, Fault] = {}
        rules = self._handlers.error_rules(ones[0].leased.name)
        for one in ones:
            one.leave()
            if one.failure is not None:
                before = (
                    fault_in_batch(one.failure, ())
                    if type(one.failure) is Said
                    else known.get(id(one.failure))
                )
                one.fault = self._runs.failed(one.leased, one.failure, before)
                if before is None:
                    known[id(one.failure)] = _fault(one.failure, rules)
            if hooks := self._handlers.hooks_of(one.leased.name):
                hooks.ended(one.job, None if one.fault is None else one.fault.error)

    def _told(self, ones: list[_One], *, inline: bool) -> Run | None:
        """Tell that the run of a batch is over, outside of its context. What runs next in its place."""
        told: list[HandlerEnded] = []
        for one in ones:
            self._runs.over(one.leased, one.ticket, one.start_ns, one.fault)
            lease = one.leased.lease
            told.append(
                HandlerEnded(lease, None, result=one.result)
                if one.fault is None
                else HandlerEnded(lease, *one.fault)
            )
        following = self._ended(tuple(told), inline)
        for one in ones:
            self._runs.forget(one.leased.lease)
        return following


def _note(ones: list[_One], found: list[End]) -> None:
    for one, (failure, result) in zip(ones, found, strict=True):
        one.failure, one.result = failure, result


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
