"""Runs the handlers that take several jobs of a lane at once. Each job keeps its own lease, hooks, result and end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from engine.errors import BatchFailed
from engine.handlers import Fault, Handlers, Job, bounded_error, call_here, end_fork, fault_of
from engine.hooks import RunHooks
from engine.machine.step_values import HandlerEnded, Start
from engine.operations import LeasedJob

if TYPE_CHECKING:
    from engine.runtime.running import Running


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
        """What this start is about."""
        return Batch(start.batch) if start.batch else start.job


Run = LeasedJob | Batch
#: Hears that a batch is over, how each of its jobs did and whether it was inline; says what its place runs next, as `Ended` does.
BatchEndedTold = Callable[[tuple[HandlerEnded, ...], bool], Run | None]


class _Said(Exception):
    """A job has failed, with a text instead of an exception."""


@dataclass(slots=True)
class _One:
    """A job of a batch that runs."""

    leased: LeasedJob
    job: Job
    start_ns: int
    ticket: object
    context: AbstractContextManager[None] | None = None
    failure: BaseException | None = None
    result: bytes | None = None

    def enter(self, hooks: RunHooks) -> None:
        """What is to be done before. A job whose hook raises has failed, and its handler does not get it."""
        context = hooks.entered(self.job)
        try:
            context.__enter__()
            self.context = context
        except BaseException as failure:
            self.failure = failure

    def leave(self) -> None:
        """What is to be done after, with what the handler said of this job."""
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
    """The batches of one `Running`."""

    def __init__(self, running: Running, handlers: Handlers, ended: BatchEndedTold) -> None:
        self._running = running
        self._handlers = handlers
        self._ended = ended

    def run_plain(self, batch: Batch, *, inline: bool) -> Run | None:
        """Run a plain function; what follows."""
        ones = self._enter(batch)
        jobs = _given(ones)
        returned, failure = None, None
        try:
            if jobs:
                returned = call_here(self._handlers.find(batch.name), jobs, batch.name)
        except BaseException as raised:
            # Also SystemExit, as for single jobs.
            failure = raised
        return self._leave(ones, returned, failure, inline=inline)

    async def run_coroutine(self, batch: Batch, cancel: Callable[[], None]) -> None:
        """Run an async function, which `cancel` cancels."""
        pid = os.getpid()
        ones = self._enter(batch)
        jobs = _given(ones)
        returned, failure = None, None
        try:
            stop = _once(cancel)
            for leased in batch.jobs:
                self._running.stoppable(leased, stop)
            handler: Any = self._handlers.find(batch.name)
            if jobs:
                returned = await handler(jobs)
        except BaseException as raised:
            if os.getpid() != pid:
                end_fork(raised)
            failure = raised
        if os.getpid() != pid:
            end_fork(None)
        following = self._leave(ones, returned, failure, inline=False)
        if following is not None:
            self._running.start(following)

    def _enter(self, batch: Batch) -> list[_One]:
        ones: list[_One] = []
        for leased in batch.jobs:
            start_ns, ticket = self._running.begins(leased)
            ones.append(_One(leased, self._running.job(leased), start_ns, ticket))
            if self._handlers.hooks:
                ones[-1].enter(self._handlers.hooks)
        return ones

    def _leave(self, ones: list[_One], returned: object, failure: BaseException | None, *, inline: bool) -> Run | None:
        _settle([one for one in ones if one.failure is None], returned, failure)
        ends: list[HandlerEnded] = []
        # One exception may be about all of them: its trace is written, and logged, once.
        known: dict[int, Fault] = {}
        for one in ones:
            one.leave()
            fault: Fault | None = None
            if one.failure is not None:
                before = _known(one.failure, known)
                fault = self._running.failed(one.leased, one.failure, before)
                if before is None:
                    known[id(one.failure)] = fault_of(one.failure)
            if self._handlers.hooks:
                self._handlers.hooks.ended(one.job, None if fault is None else fault.error)
            self._running.over(one.leased, one.ticket, one.start_ns, fault)
            lease = one.leased.lease
            ends.append(HandlerEnded(lease, None, result=one.result) if fault is None else HandlerEnded(lease, *fault))
        following = self._ended(tuple(ends), inline)
        for one in ones:
            self._running.forget(one.leased.lease)
        return following


def _given(ones: list[_One]) -> list[Job]:
    return [one.job for one in ones if one.failure is None]


def _known(failure: BaseException, known: dict[int, Fault]) -> Fault | None:
    if isinstance(failure, _Said):
        return Fault(bounded_error(str(failure)), "")
    return known.get(id(failure))


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """Each job of a batch has its own timeout, and the coroutine that cleans up after the first is not cancelled again."""
    first = threading.Lock()

    def at_first() -> None:
        if first.acquire(blocking=False):
            call()

    return at_first


def _settle(ones: list[_One], returned: object, failure: BaseException | None) -> None:
    """Note for each job that the handler got whether it has failed, and its result."""
    ids = {one.job.id for one in ones}
    if failure is None:
        try:
            _keep(ones, ids, returned)
        except (TypeError, ValueError) as wrong:
            failure = wrong
    if isinstance(failure, BatchFailed) and failure.failures.keys() <= ids:
        for one in ones:
            said = failure.failures.get(one.job.id)
            one.failure = _Said(said) if isinstance(said, str) else said
    elif failure is not None:
        for one in ones:
            one.failure = failure


def _keep(ones: list[_One], ids: set[str], returned: object) -> None:
    """Give each job its result. Raises TypeError and ValueError for what cannot be told apart by job."""
    if returned is None:
        return
    if isinstance(returned, Mapping):
        by_id = cast("Mapping[object, object]", returned)
        if not by_id.keys() <= ids:
            raise ValueError("a batch handler returned results for ids that are not of its batch")
        results: Sequence[object] = [by_id.get(one.job.id) for one in ones]
    elif isinstance(returned, list | tuple):
        results = cast("Sequence[object]", returned)
        if len(results) != len(ones):
            raise ValueError(f"a batch handler returned {len(results)} results for {len(ones)} jobs")
    else:
        raise TypeError(f"a batch handler returned a {type(returned).__name__}: None, a list or a mapping by job id are allowed")
    for one, result in zip(ones, results, strict=True):
        try:
            one.result = one.job.encode_result(result)
        except Exception as failure:
            # Only the job whose result cannot be kept has failed.
            one.failure = failure
