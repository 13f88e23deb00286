"""Hooks of a service around every run and every enqueue: traces, counters, database sessions.

Hooks are plain functions, called in the order in which they were given. They must be short, because they run
in the thread, or on the loop, of the handler or the enqueue. With child processes they run in the worker, not
in the child. Those of one run share its context with the handler: a ContextVar that one sets the others see,
and the next run does not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from engine.errors import logger, meant_for_the_caller, spared
from engine.job import Job

if TYPE_CHECKING:
    from engine.ops.jobs import Enqueued
    from engine.queue.producing import NewJob

log = logger("ironclaim.worker")

Before = Callable[[Job], object]
After = Callable[[Job, str | None], object]
Around = Callable[[Job], AbstractContextManager[object]]


class RunHooks:
    """Around the runs of a worker's handlers: `@handlers.hooks.before`, `.after`, `.around`."""

    def __init__(self) -> None:
        self._before: list[Before] = []
        self._after: list[After] = []
        self._around: list[Around] = []

    def __bool__(self) -> bool:
        return bool(self._before or self._after or self._around)

    def before(self, hook: Before) -> Before:
        """Call this with the Job before its handler. What it raises is a failed run, and the handler is not
        called."""
        self._before.append(hook)
        return hook

    def after(self, hook: After) -> After:
        """Call this with the Job and its error (None: it returned) after the handler, before the server is
        told. Whatever it raises, SystemExit as well, is logged, and changes nothing."""
        self._after.append(hook)
        return hook

    def around(self, hook: Around) -> Around:
        """Enter the context manager that this makes of a Job, and leave it after the handler, with what that
        raised. What it raises itself is a failed run; what it swallows is none."""
        self._around.append(hook)
        return hook

    @contextmanager
    def entered(self, job: Job) -> Generator[None]:
        """Enter the context managers and call the hooks before a run; leave the former with what the run
        raises."""
        with ExitStack() as stack:
            for around in self._around:
                stack.enter_context(around(job))
            for before in self._before:
                before(job)
            yield

    def ended(self, job: Job, error: str | None) -> None:
        """Call the hooks after a run: its handler has returned (`error` is None), or it has failed."""
        for after in self._after:
            said, extra = ("job %s: a hook after its run failed", job.id), {"job_id": job.id}
            spared(after, job, error, otherwise=None, log=log, said=said, extra=extra)


class NestedHooks(RunHooks):
    """Those of a registry around those of one that it has included, as both are when a run begins."""

    def __init__(self, outer: RunHooks, inner: RunHooks) -> None:
        super().__init__()
        self._outer = outer
        self._inner = inner

    def __bool__(self) -> bool:
        return bool(self._outer or self._inner)

    @contextmanager
    def entered(self, job: Job) -> Generator[None]:
        """As RunHooks: the outer ones first."""
        with self._outer.entered(job), self._inner.entered(job):
            yield

    def ended(self, job: Job, error: str | None) -> None:
        """As RunHooks: the inner ones first."""
        self._inner.ended(job, error)
        self._outer.ended(job, error)


class EnqueueHooks:
    """Around the enqueues of a queue: `@queue.hooks.before`, `.after`."""

    def __init__(self) -> None:
        self._before: list[Callable[[NewJob], object]] = []
        self._after: list[Callable[[NewJob, Enqueued], object]] = []

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    def before(self, hook: Callable[[NewJob], object]) -> Callable[[NewJob], object]:
        """Call this with each NewJob before it is checked and sent; it may change it. What it raises goes to
        who enqueues, and nothing is sent."""
        self._before.append(hook)
        return hook

    def after(self, hook: Callable[[NewJob, Enqueued], object]) -> Callable[[NewJob, Enqueued], object]:
        """Call this with each NewJob and what came of it. What it raises is logged: the job is there. Only
        KeyboardInterrupt and SystemExit of the main thread, and what ends a greenlet, go on. Not called where
        the enqueue has raised."""
        self._after.append(hook)
        return hook

    def prepare(self, job: NewJob) -> NewJob:
        """Call the hooks before an enqueue; the job as they leave it."""
        for before in self._before:
            before(job)
        return job

    def announce(self, jobs: Iterable[NewJob], came: Iterable[Enqueued]) -> None:
        """Call the hooks after an enqueue with each job and what came of it."""
        for job, enqueued in zip(jobs, came, strict=True):
            said, extra = ("job %s: a hook after its enqueue failed", enqueued.job), {"job_id": enqueued.job}
            for after in self._after:
                spared(
                    after,
                    job,
                    enqueued,
                    otherwise=None,
                    log=log,
                    said=said,
                    extra=extra,
                    passes=meant_for_the_caller,
                )
