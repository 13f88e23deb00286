"""Hooks of a service around every run and every enqueue, and for the life of a worker: traces, counters,
database sessions.

Hooks are plain functions, called in the order in which they were given. They must be short, because they run
in the thread, or on the loop, of the handler or the enqueue. Those of a run in a child process run there.
Those of one run share its context with the handler: a ContextVar that one sets the others see, and the next
run does not. What has to be awaited is an async `around`, for the async handlers.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar

from engine.errors import Malformed, logger, meant_for_the_caller, spared
from engine.job import Job

if TYPE_CHECKING:
    from engine.ops.jobs import Enqueued
    from engine.queue.producing import NewJob

log = logger("ironclaim.worker")

Before = Callable[[Job], object]
After = Callable[[Job, str | None], object]
#: Also a generator function, or an async one, with one `yield`.
Around = Callable[
    [Job],
    AbstractContextManager[object]
    | AbstractAsyncContextManager[object]
    | Iterator[object]
    | AsyncIterator[object],
]
Hook = TypeVar("Hook", bound=Callable[..., object])


class RunHooks:
    """Around the runs of a worker's handlers, `@handlers.hooks.before`, `.after`, `.around`; and for its
    life, `.on_start`, `.on_stop`."""

    def __init__(self) -> None:
        self._before: list[Before] = []
        self._after: list[After] = []
        self._around: list[Callable[[Job], Any]] = []
        self._on_start: list[Callable[[], object]] = []
        self._on_stop: list[Callable[[], object]] = []
        #: The modules whose import has registered them: a child process imports these. '' is none.
        self.modules: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._before or self._after or self._around)

    def before(self, hook: Before) -> Before:
        """Call this with the Job before its handler. What it raises is a failed run, and the handler is not
        called. Raises Malformed for an async function."""
        return self._add(self._before, _plain("before", hook))

    def after(self, hook: After) -> After:
        """Call this with the Job and its error (None: it returned) after the handler, before the server is
        told. Whatever it raises, SystemExit as well, is logged, and changes nothing. Not called where the
        process that runs the handler dies. Raises Malformed for an async function."""
        return self._add(self._after, _plain("after", hook))

    def around(self, hook: Around) -> Around:
        """Enter the context manager that this makes of a Job, and leave it after the handler, with what that
        raised. What it raises itself is a failed run; what it swallows is none. An async one is for async
        handlers alone, on whose loop it is awaited; the runs of plain ones pass it by."""
        made: Callable[[Job], Any] = hook
        if isgeneratorfunction(hook):
            made = contextmanager(hook)
        elif isasyncgenfunction(hook):
            made = asynccontextmanager(hook)
        self._add(self._around, made)
        return hook

    def on_start(self, hook: Hook) -> Hook:
        """Call this without arguments when a worker starts, before its first claim, and in each child process
        before its first job. What it raises ends `Worker.run`; a child is not used, and another one is tried
        after a pause. An async function is awaited on the loop of the async handlers."""
        return self._add(self._on_start, hook)

    def on_stop(self, hook: Hook) -> Hook:
        """Call this without arguments when a worker that has started stops, after its last run, and in each
        child process that ends in order. What it raises is logged. In the reverse of their order."""
        return self._add(self._on_stop, hook)

    def _add(self, hooks: list[Any], hook: Any) -> Any:
        hooks.append(hook)
        self.modules[_importing()] = None
        return hook

    def described(self) -> list[str]:
        """Kind and name of each hook: the same in each process that has imported the same modules."""
        return [
            f"{kind[1:]} {_name(hook)}"
            for kind, hooks in vars(self).items()
            if kind[0] == "_"
            for hook in hooks
        ]

    @property
    def has_async_life(self) -> bool:
        """Whether a hook of its life has to be awaited."""
        return any(map(iscoroutinefunction, (*self._on_start, *self._on_stop)))

    def start(self) -> None:
        """Call the plain hooks of a start. Raises what one of them raises."""
        for hook in self._on_start:
            if not iscoroutinefunction(hook):
                with _told(hook):
                    hook()

    def stop(self) -> None:
        """Call the plain hooks of a stop."""
        for hook in reversed(self._on_stop):
            if not iscoroutinefunction(hook):
                spared(hook, otherwise=None, log=log, said=("on_stop %s failed", _name(hook)))

    async def start_async(self) -> None:
        """As `start`, for the async ones."""
        for hook in self._on_start:
            if iscoroutinefunction(hook):
                with _told(hook):
                    await hook()

    async def stop_async(self) -> None:
        """As `stop`, for the async ones."""
        for hook in reversed(self._on_stop):
            if iscoroutinefunction(hook):
                try:
                    await hook()
                except BaseException:
                    log.exception("on_stop %s failed", _name(hook))

    def enter(self, job: Job, stack: ExitStack) -> None:
        """Enter the context managers of a plain handler, and call the hooks before its run."""
        for around in self._around:
            context = around(job)
            if hasattr(context, "__enter__") or not hasattr(context, "__aenter__"):
                stack.enter_context(context)
        for before in self._before:
            before(job)

    async def enter_async(self, job: Job, stack: AsyncExitStack) -> None:
        """The same for an async handler."""
        for around in self._around:
            context = around(job)
            if hasattr(context, "__aenter__"):
                await stack.enter_async_context(context)
            else:
                stack.enter_context(context)
        for before in self._before:
            before(job)

    def ended(self, job: Job, error: str | None) -> None:
        """Call the hooks after a run: its handler has returned (`error` is None), or it has failed."""
        for after in self._after:
            said, extra = ("job %s: a hook after its run failed", job.id), {"job_id": job.id}
            spared(after, job, error, otherwise=None, log=log, said=said, extra=extra)


def _plain(kind: str, hook: Hook) -> Hook:
    if iscoroutinefunction(hook):
        raise Malformed(kind, hook, "a plain function; what has to be awaited goes into an async `around`")
    return hook


def _name(hook: object) -> str:
    known: Any = hook if hasattr(hook, "__qualname__") else type(hook)
    return f"{known.__module__}.{known.__qualname__}"


def _importing() -> str:
    """The module that is being imported here, '' where there is none."""
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return "" if name == "__main__" else name


@contextmanager
def _told(hook: Callable[[], object]) -> Generator[None]:
    try:
        yield
    except BaseException:
        log.exception("on_start %s failed, so nothing is run here", _name(hook))
        raise


# -- The hooks of the registries that a handler belongs to, outermost first.


@contextmanager
def entered(hooks: Iterable[RunHooks], job: Job) -> Generator[None]:
    """Enter the context managers and call the hooks before a run of a plain handler; leave the former with
    what the run raises."""
    with ExitStack() as stack:
        for each in hooks:
            each.enter(job, stack)
        yield


@asynccontextmanager
async def entered_async(hooks: Iterable[RunHooks], job: Job) -> AsyncGenerator[None]:
    """The same for an async handler."""
    async with AsyncExitStack() as stack:
        for each in hooks:
            await each.enter_async(job, stack)
        yield


def ended(hooks: Sequence[RunHooks], job: Job, error: str | None) -> None:
    """Call the hooks after a run, the inner ones first."""
    for each in reversed(hooks):
        each.ended(job, error)


class Hooked:
    """A job of a batch and its hooks: what its run has failed of, or its result. A job whose hook raises has
    failed, and the handler does not get it."""

    def __init__(self, job: Job, hooks: Sequence[RunHooks]) -> None:
        self.job = job
        self._hooks = hooks
        self.failure: BaseException | None = None
        self.result: bytes | None = None
        self._context: Any = None

    def enter(self) -> None:
        """Call the hooks before the run."""
        context = entered(self._hooks, self.job)
        try:
            context.__enter__()
            self._context = context
        except BaseException as failure:
            self.failure = failure

    async def enter_async(self) -> None:
        """The same for an async handler."""
        context = entered_async(self._hooks, self.job)
        try:
            await context.__aenter__()
            self._context = context
        except BaseException as failure:
            self.failure = failure

    def leave(self) -> None:
        """Leave the context managers, with the failure of this job."""
        try:
            if self._context is not None and self._context.__exit__(*self._raised()):
                self.failure = None
        except BaseException as more:
            self.failure = more

    async def leave_async(self) -> None:
        """The same for an async handler."""
        try:
            if self._context is not None and await self._context.__aexit__(*self._raised()):
                self.failure = None
        except BaseException as more:
            self.failure = more

    def _raised(self) -> tuple[Any, Any, Any]:
        failure = self.failure
        return (None, None, None) if failure is None else (type(failure), failure, failure.__traceback__)

    def ended(self, error: str | None) -> None:
        """Call the hooks after the run."""
        ended(self._hooks, self.job, error)


class EnqueueHooks:
    """Around the enqueues of a queue: `@queue.hooks.before`, `.after`."""

    def __init__(self) -> None:
        self._before: list[Callable[[NewJob], object]] = []
        self._after: list[Callable[[NewJob, Enqueued], object]] = []
        #: Whether there are any.
        self.some = False

    def before(self, hook: Callable[[NewJob], object]) -> Callable[[NewJob], object]:
        """Call this with each NewJob before it is checked and sent; it may change it. What it raises goes to
        who enqueues, and nothing is sent."""
        self._before.append(hook)
        self.some = True
        return hook

    def after(self, hook: Callable[[NewJob, Enqueued], object]) -> Callable[[NewJob, Enqueued], object]:
        """Call this with each NewJob and what came of it. What it raises is logged: the job is there. Only
        KeyboardInterrupt and SystemExit of the main thread, and what ends a greenlet, go on. Not called where
        the enqueue has raised."""
        self._after.append(hook)
        self.some = True
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
