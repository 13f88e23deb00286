"""Runs the handlers of a worker's jobs: coroutines on a loop of their own, plain functions in threads or in
child processes, and inline ones in the thread that asks for it.

A thread that has run one job runs the next. Whatever a handler raises is a failed run and never ends
the worker.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from inspect import getattr_static
from itertools import chain
from typing import Any, Literal

from engine.errors import Malformed, logger
from engine.handlers import End, Fault, Handlers, Said, call_here, call_plain, end_fork, ends, fault_in_batch
from engine.hooks import Hooked, RunHooks, ended, entered, entered_async
from engine.job import Job, Say
from engine.logs import NOBODY, Source, about, running
from engine.observer import Observer
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import ErrorRules
from engine.serializers import BUILT_IN, Serializers
from engine.worker.child_processes import END_S, Answer, Child, ChildFailed, Work, reference_of
from engine.worker.machine.events import HandlerEnded, StopCause
from engine.worker.process import Threads
from engine.worker.runs import Coroutines, LoopThread, RunContexts, Runs

log = logger("ironclaim.worker")


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
#: Called when a run is over, with its failure, place and result. Returns what runs next there: a run, or in a
#: thread also a call whose reply that thread reads. None: another thread decides.
Ended = Callable[[LeasedJob, Fault | None, Place, bytes | None], Any]
#: Called when a batch is over, with the end of each of its jobs and its place. Returns what `Ended` returns.
BatchEndedTold = Callable[[tuple[HandlerEnded, ...], Place], Any]


class HandlerPool:
    """The handlers that run. At most `places` run at once and one more inline, which its user sees to. Plain
    functions run in `threads`, each of which `serve` gives its first run, and coroutines on `loop`.
    `processes`: in as many child processes instead, which are replaced after `child_max_jobs` each (0 =
    never). While none of them starts, what was to run goes back by `not_started`. `ended` is told of runs,
    and `batch_ended` of batches. `say` takes what handlers tell the worker; `source` is for the log. `alone`:
    no other queue has these threads. `runs` are those under way."""

    def __init__(
        self,
        handlers: Handlers,
        observer: Observer | None,
        ended: Ended,
        threads: Threads,
        loop: LoopThread,
        serve: Callable[[Run], object],
        *,
        batch_ended: BatchEndedTold | None = None,
        not_started: Callable[[tuple[Lease, ...]], None] = lambda leases: None,
        say: Say,
        places: int,
        processes: bool,
        child_max_jobs: int = 0,
        serializers: Serializers = BUILT_IN,
        source: Source = NOBODY,
        alone: bool = True,
    ) -> None:
        self._handlers = handlers
        self._serializers = serializers
        self._say = say
        self._ended = ended
        self._serve = serve
        self.runs = Runs(handlers, observer, say=say, serializers=serializers, source=source)
        self._contexts = RunContexts()
        all_coroutines = handlers.by_name and all(map(handlers.is_coroutine, handlers.by_name))
        in_children = hooks_of_children(handlers) if processes and not all_coroutines else []
        # Where child processes have the hooks of a registry.
        self._numbers = {id(hooks): number for number, (hooks, _) in enumerate(in_children)}
        self._batches = (
            BatchRuns(self.runs, self.start, handlers, batch_ended, self._contexts, self._run_in)
            if batch_ended is not None
            else None
        )
        self._loop = Coroutines(loop, self._contexts)
        self._threads = threads
        # What waits for a child process. Each has a thread of its own, which alone talks to it.
        self._work: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        told = [told for _, told in in_children]
        self._children = (
            [Child(say, child_max_jobs, serializers, source, told) for _ in range(places)]
            if processes and not all_coroutines
            else []
        )
        #: Whether its threads read replies as well: where each place has one. A coroutine or a child process
        #: has a place without it, and a job that follows would wait for the thread that reads. Where other
        #: queues share them, one whose server does not answer would hold those up.
        self.reads = alone and places > 0 and not self._children and not handlers.coroutines
        # Those whose last start has failed.
        self._failing: set[Child] = set()
        self._not_started = not_started
        self._serving: list[threading.Thread] = []

    def open(self) -> None:
        """Start the child processes."""
        self._serving = [
            threading.Thread(target=self._serve_child, args=(child,), name=f"handler-{number}", daemon=True)
            for number, child in enumerate(self._children)
        ]
        for thread in self._serving:
            thread.start()

    def start(self, run: Run) -> None:
        """Run the handler of a job or a batch. Does not wait."""
        if not self._handlers.is_coroutine(run.name):
            if self._children:
                self._work.put(run)
                if not self.usable:
                    # In another thread: the machine has its lock here.
                    self._threads.run(self._give_back)
            else:
                self._threads.run(partial(self._serve, run))
        elif isinstance(run, Batch):
            self._loop.run(partial(self._run_batch, run), f"a batch ({run.name})")
        else:
            self._loop.run(partial(self._run_coroutine, run), f"job {run.lease.job} ({run.name})")

    def offer(self, task: Callable[[], object]) -> bool:
        """Whether a thread that would run handlers carries this out instead, because none of them is to."""
        return self._threads.offer(task)

    def close(self) -> None:
        """Stop. Functions that still run in threads go on; coroutines are cancelled and child processes
        killed."""
        for child in self._children:
            self._work.put(None)
            child.ask_end()
        self._loop.close()
        until_s = time.monotonic() + END_S
        for thread in self._serving:
            thread.join(max(0.0, until_s - time.monotonic()))
        for child in self._children:
            child.close(until_s)

    def look(self) -> None:
        """Warn when the coroutines stand still. To be called often."""
        self._loop.look()

    def stop(self, leased: LeasedJob, cause: StopCause) -> None:
        """Have the handler of this job end, as `Runs.stop` does. When the worker stops, no child process is
        replaced any more."""
        if cause == "stop":
            for child in self._children:
                child.stop_starting()
        self.runs.stop(leased, cause)

    def _serve_child(self, child: Child) -> None:
        """Run plain functions in a child process, one at a time."""
        self._until_ready(child)
        while (run := self._work.get()) is not None:
            self._run_in_child(run, child)
            # Ahead of the next job.
            self._until_ready(child)
        # Here, because the kernel kills a child when the thread that has started it ends.
        child.close()

    @property
    def usable(self) -> bool:
        """Whether a child process has started, or may still; True where there are none."""
        return not self._children or len(self._failing) < len(self._children)

    def _until_ready(self, child: Child) -> None:
        child.until_ready(partial(self._start_failed, child))
        self._failing.discard(child)

    def _start_failed(self, child: Child) -> None:
        """A child process has not started. When none does, others may have what waits for them."""
        was_usable = self.usable
        self._failing.add(child)
        if self.usable:
            return
        if was_usable:
            said = "no child process starts: until one does, nothing is claimed, and what was goes back"
            log.error(said, extra=about(None, self.runs.source))
        self._give_back()

    def _give_back(self) -> None:
        """Give back what waits for a child process."""
        while not self.usable:
            try:
                run = self._work.get_nowait()
            except queue.Empty:
                return
            if run is None:
                # It ends the thread of a child.
                self._work.put(None)
                return
            leases = tuple(job.lease for job in (run.jobs if isinstance(run, Batch) else (run,)))
            self._not_started(leases)
            for lease in leases:
                self.runs.forget(lease)

    def _run_in_child(self, run: Run, child: Child) -> None:
        """Run a plain function, and those that follow in its place."""
        following: Run | None = run
        while following is not None:
            if not (child.ready or child.closed):
                # Another child may be. When the worker stops none will, and the run ends as stopped.
                self.start(following)
                return
            following = self.run_here(following, "elsewhere", child)

    def run_here(self, run: Run, place: Place, child: Child | None = None) -> Any:
        """Run the handler of a job or a batch in this thread, or in a child process. Returns what is next
        here."""
        if place != "inline" and self._handlers.is_coroutine(run.name):
            self.start(run)
            return None
        if isinstance(run, Batch):
            assert self._batches is not None
            return self._batches.run_plain(run, child, place)
        start_ns, ticket = self.runs.begins(run)
        fault, result = self._contexts.run(self._carry_out, run, child)
        return self._ends(run, ticket, start_ns, fault, place, result)

    def _carry_out(self, leased: LeasedJob, child: Child | None) -> Answer:
        """Run a plain function with its hooks. What it raised, and its result."""
        running.set((self.runs.source, leased))
        fault: Fault | None = None
        result: bytes | None = None
        hooks = self._handlers.hooks_of(leased.name)
        job: Job | None = None
        try:
            if child is not None:
                ((fault, result),) = self._run_in(child, leased)
                if fault is not None:
                    raise ChildFailed(fault)
                return None, result
            job = self.runs.job(leased)
            if hooks:
                with entered(hooks, job):
                    result = call_plain(self._handlers.find(leased.name), job)
            else:
                result = call_plain(self._handlers.find(leased.name), job)
        except BaseException as failure:
            # Also SystemExit: it would end only this thread, and the job would be held for ever.
            fault = self.runs.failed(leased, failure)
        if hooks and job is not None:
            ended(hooks, job, None if fault is None else fault.error)
        return fault, result

    def _run_in(self, child: Child, work: Work) -> list[Answer]:
        """Run a plain function in a child process. When the process dies, all of its jobs have failed."""
        jobs = work if isinstance(work, list) else [work]
        name = jobs[0].name
        reference = reference_of(self._handlers.find(name))
        child.start(*jobs)
        for leased in jobs:
            lease = leased.lease
            self.runs.register(leased, partial(child.lose, lease), partial(child.soften, lease))
            self.runs.stoppable(leased, partial(child.kill, lease), alone=len(jobs) == 1)
        return child.run(reference, work, self._handlers.error_rules(name), self._hooks_in_child(name))

    def _hooks_in_child(self, name: str) -> list[int]:
        """Which of its hooks a child process calls around the runs of a name."""
        hooks = self._handlers.hooks_of(name)
        return [self._numbers[id(each)] for each in hooks if id(each) in self._numbers]

    async def _run_batch(self, batch: Batch) -> None:
        assert self._batches is not None
        await self._batches.run_coroutine(batch, self._loop.canceller())

    async def _run_coroutine(self, leased: LeasedJob) -> None:
        running.set((self.runs.source, leased))
        start_ns, ticket = self.runs.begins(leased)
        fault: Fault | None = None
        result: bytes | None = None
        pid = os.getpid()
        job = self.runs.job(leased)
        hooks = self._handlers.hooks_of(leased.name)
        try:
            handler = self.runs.softened(self._handlers.find(leased.name), [(leased, job)])
            self.runs.stoppable(leased, self._loop.canceller())
            if hooks:
                async with entered_async(hooks, job):
                    result = job.encode_result(await handler(job))
            else:
                result = job.encode_result(await handler(job))
        except BaseException as failure:
            if os.getpid() != pid:
                end_fork(failure)
            # Also CancelledError: the run has not done its work.
            fault = self.runs.failed(leased, failure)
        if os.getpid() != pid:
            end_fork(None)
        ended(hooks, job, None if fault is None else fault.error)
        following = Context().run(self._ends, leased, ticket, start_ns, fault, "elsewhere", result)
        if following is not None:
            # In a task of its own: what a handler does to its task (cancel it, set context variables) is not
            # for the next job.
            self.start(following)

    def _ends(
        self,
        leased: LeasedJob,
        ticket: object,
        start_ns: int,
        fault: Fault | None,
        place: Place,
        result: bytes | None,
    ) -> Any:
        """Tell that a run is over, outside of its context. What is next in its place."""
        self.runs.over(leased, ticket, start_ns, fault)
        following = self._ended(leased, fault, place, result)
        self.runs.forget(leased.lease)
        return following


def check_references(handlers: Handlers) -> None:
    """Raise Malformed when a child process would not find one of the plain functions, or their hooks and
    what their rules of errors name."""
    plain = [name for name in handlers.by_name if not handlers.is_coroutine(name)]
    for name in plain:
        if name not in handlers.inline:
            named = ((*(rules.retry_on or ()), *rules.bury_on) for rules in handlers.error_rules(name))
            for one in (handlers.by_name[name], *chain.from_iterable(named)):
                reference_of(one)
    if plain:
        hooks_of_children(handlers)


def hooks_of_children(handlers: Handlers) -> list[tuple[RunHooks, dict[str, object]]]:
    """The hooks that child processes have to have, and how they find each: the modules to import, module and
    name of the registry, and what its hooks are. Raises Malformed where a child would not find them."""
    return [
        (
            registry.hooks,
            {
                "modules": [*registry.hooks.modules],
                "registry": _reference_of_registry(registry),
                "hooks": described,
            },
        )
        for registry in handlers.registries()
        if (described := registry.hooks.described())
    ]


def _reference_of_registry(registry: Handlers) -> tuple[str, str]:
    bound = (
        "registered while a module is imported, on handlers that a module has by a name, to run in processes"
    )
    if "" not in registry.hooks.modules:
        for module in (*registry.hooks.modules, *sys.modules):
            # A queue has it as well. Read so that no proxy is asked what it stands for.
            for name, value in [*getattr(sys.modules.get(module), "__dict__", {}).items()]:
                held = value is registry or getattr_static(value, "handlers", None) is registry
                if held and module != "__main__":
                    return module, name
    raise Malformed("hooks", registry.hooks.described(), bound)


# -- Handlers that take several jobs of a lane at once. Each job keeps its own lease, hooks, result and end.


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
        run_in: Callable[[Child, Work], list[Answer]],
    ) -> None:
        self._run_in = run_in
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
        returned, failure = None, None
        found: list[End] | None = None
        try:
            if jobs and child is not None:
                known: dict[int, ChildFailed] = {}
                found = [
                    (None if fault is None else known.setdefault(id(fault), ChildFailed(fault)), result)
                    for fault, result in self._run_in(child, [one.leased for one in going])
                ]
            elif jobs:
                returned = call_here(self._handlers.find(batch.name), jobs, batch.name)
        except BaseException as raised:
            # Also SystemExit, as for single jobs.
            failure = raised
        _note(going, ends(jobs, returned, failure) if found is None else found)
        for one in ones:
            one.run.leave()
        self._end(ones)

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
