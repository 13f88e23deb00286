"""A child process of a worker: `python -m engine.worker.handler_process DESCRIPTOR PARENT TOLD`, which
`child_processes` starts.

It reads jobs and batches from the pipe, runs the handler of each in its main thread, and answers what came of
it. It ends with its parent."""

from __future__ import annotations

import ctypes
import json
import locale
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, cast

from engine.handlers import (
    Handlers,
    Lost,
    Ready,
    SoftOver,
    call_here,
    call_plain,
    ends,
    fault_of,
    faults,
)
from engine.hooks import Hooked, RunHooks
from engine.job import Job
from engine.logs import Forwarder, Source, run_everywhere
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.serializers import BUILT_IN, Serializers
from engine.worker.child_processes import Answer, Rules, Work
from engine.worker.runs import RunContexts

# -- What a run in a child process may change of its process, and the next run there must not see.

#: Those that handlers set; the others are not worth their time at each run.
_SIGNALS = (
    *(
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
    ),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2),
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class ProcessState:
    """Current directory, umask, signals (mask, handlers, alarms), locale and warnings filters as they are
    now. For the main thread of a child process."""

    def __init__(self) -> None:
        self._folder: str | None = None
        with suppress(OSError):
            # OSError: the directory is gone.
            self._folder = os.getcwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        self._timers = [timer for timer in _TIMERS if signal.getitimer(timer) == (0.0, 0.0)]
        self._locale = locale.setlocale(locale.LC_ALL)
        self._filters: Any = warnings.filters
        self._warned = list(warnings.filters)

    def restore(self) -> None:
        """Put it back, as far as it can be; as often as it is called."""
        for timer in self._timers:
            signal.setitimer(timer, 0)
        self._restore_signals()
        if self._folder is not None:
            with suppress(OSError):
                os.chdir(self._folder)
        os.umask(self._umask)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        if warnings.filters is not self._filters or warnings.filters != self._warned:
            warnings.filters = self._filters
            self._filters[:] = self._warned
            with warnings.catch_warnings():
                # It forgets what it has decided by other filters.
                pass

    def _restore_signals(self) -> None:
        for number in signal.sigpending() - self._mask:
            # What the run has blocked would else end this process as soon as it is let in.
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, self._handlers.get(number) or signal.SIG_DFL)
        for number, handler in self._handlers.items():
            # None: it was not set by Python, which cannot put it back.
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)


_PR_SET_PDEATHSIG = 1

#: Module and name of the handler, which hooks hold for it, its work, and the serialisers of the queue and
#: the rules of errors where there are some, pickled.
Order = tuple[tuple[str, str], tuple[int, ...], Work, bytes | None]


class Interrupt:
    """Raises SoftTimeout in the main thread, once for a run, while its handler is called there."""

    def __init__(self) -> None:
        self._called: Sequence[Job] = ()
        self._over: Job | None = None
        # A signal, because it ends a wait in a call of the system.
        signal.signal(signal.SIGXCPU, self._raise)

    def ask(self, job: Job) -> None:
        """The soft timeout of a job is over. Does not wait."""
        job.end_soon()
        self._over = job
        signal.pthread_kill(cast("int", threading.main_thread().ident), signal.SIGXCPU)

    def _raise(self, *_: object) -> None:
        if self._over is not None and self._over in self._called:
            self._called = ()
            raise self._over.end_soon()

    @contextmanager
    def calling(self, jobs: Sequence[Job]) -> Generator[None]:
        """The handler of these jobs is called, unless their time is over by now."""
        self._called = jobs
        try:
            # It may have been over before, in a hook.
            self._raise()
            yield
        finally:
            self._called = ()


class Orders:
    """Reads the pipe in a thread, so that a lost lease reaches the handler that runs."""

    def __init__(self, pipe: Connection, queue_name: str) -> None:
        self.jobs: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self.interrupt = Interrupt()
        self._pipe = pipe
        self._queue_name = queue_name
        self._lock = threading.Lock()
        self._saying = threading.Lock()
        self._running: dict[Lease, Job] = {}
        #: Leases of the work at hand that were lost before its handler began, or while it ran.
        self._lost: dict[Lease, Lost] = {}

    def begins(self, batch: Sequence[LeasedJob], serializers: Serializers) -> list[Job]:
        """Register the handler that is about to run."""
        jobs = {leased.lease: Job(leased, self.say, serializers, self._queue_name) for leased in batch}
        with self._lock:
            self._running = jobs
            for lease, lost in self._lost.items():
                if lease in jobs:
                    jobs[lease].lose(cancelled=lost.cancelled)
            self._lost = {}
        return list(jobs.values())

    def say(self, said: object) -> None:
        """Send a message to the worker. Safe from all threads of the handler."""
        with self._saying:
            self._pipe.send(said)

    def read(self) -> None:
        """Until the parent closes its end or dies: then the handler that runs has no worker any more."""
        try:
            while True:
                self._take(self._pipe.recv())
        except (EOFError, OSError):
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            # Who reads no orders would hold up its worker for ever.
            os._exit(1)

    def _take(self, order: Order | Lost | SoftOver | None) -> None:
        if isinstance(order, SoftOver):
            with self._lock:
                job = self._running.get(order.lease)
            if job is not None:
                self.interrupt.ask(job)
            return
        if not isinstance(order, Lost):
            self.jobs.put(order)
            return
        with self._lock:
            job = self._running.get(order.lease)
            if job is None:
                self._lost[order.lease] = order
        if job is not None:
            job.lose(cancelled=order.cancelled)


def main() -> None:
    """Run handlers until the parent ends."""
    _end_with_parent(int(sys.argv[2]))
    pipe: Any = Connection(int(sys.argv[1]))
    os.set_inheritable(pipe.fileno(), False)
    told = json.loads(sys.argv[3])
    source = Source(*told["source"])
    orders = Orders(pipe, source.queue)
    threading.Thread(target=orders.read, name="orders", daemon=True).start()
    start = _Start(Forwarder(orders.say, told["levels"]))
    try:
        start.begin(told["hooks"])
    except BaseException as failure:
        orders.say(Ready(fault_of(failure)))
        return
    orders.say(Ready(None))
    while (order := orders.jobs.get()) is not None:
        work = order[2]
        run_everywhere((source, work[0].name if isinstance(work, list) and len(work) > 1 else _first(work)))
        answers = _run(orders, order, start)
        run_everywhere(None)
        orders.say(answers)
    for hooks in reversed(start.hooks):
        hooks.stop()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that handlers have left do not hold it up.
    os._exit(0)


def _first(work: Work) -> LeasedJob:
    return work[0] if isinstance(work, list) else work


def _run(orders: Orders, order: Order, start: _Start) -> list[Answer]:
    """Run a handler. Returns for each job what it raised and what it returned."""
    reference, numbers, work, own = order
    batch = work if isinstance(work, list) else [work]
    known: tuple[Serializers | None, Rules] = (None, ())
    try:
        # Also what the service's own class raises here is a failed run.
        known = known if own is None else pickle.loads(own)  # noqa: S301  of its own worker
        handler = start.handler(reference)
        jobs = orders.begins(batch, known[0] or BUILT_IN)
        for job in jobs:
            # Its time begins now, not when this process was started.
            job.extend(max(1, job.timeout_ms or job.soft_timeout_ms))
        hooks = [start.hooks[number] for number in numbers]
        together = isinstance(work, list)
        try:
            return start.contexts.run(_carry_out, handler, jobs, hooks, orders.interrupt, known[1], together)
        finally:
            start.state.restore()
    except BaseException as failure:
        return [(fault_of(failure, known[1]), None)] * len(batch)


class _Start:
    """What each run begins with: what the modules of the service have set when they were imported."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        #: The hooks of the registries that the worker has named, in their order.
        self.hooks: list[RunHooks] = []
        self._look()

    def _look(self) -> None:
        """It is what holds now."""
        self.contexts, self.state = RunContexts(), ProcessState()

    def begin(self, told: Sequence[dict[str, Any]]) -> None:
        """Find the hooks, and call those of a start. Raises what modules and hooks raise, and LookupError
        where other hooks are found than the worker has."""
        for of_registry in told:
            for name in of_registry["modules"]:
                self._import(name)
            module, name = of_registry["registry"]
            found: Any = getattr(self._import(module), name)
            hooks = (found if isinstance(found, Handlers) else found.handlers).hooks
            if hooks.described() != of_registry["hooks"]:
                raise LookupError(
                    f"the hooks of {module}:{name} are {of_registry['hooks']} in the worker and "
                    f"{hooks.described()} in its child process: register them where the module is imported"
                )
            self.hooks.append(hooks)
        for hooks in self.hooks:
            hooks.start()
        self._look()

    def _import(self, name: str) -> Any:
        new = name not in sys.modules
        module = import_module(name)
        if new:
            self._forwarder.take_over()
            self._look()
        return module

    def handler(self, reference: tuple[str, str]) -> Any:
        """A handler, by its module and name."""
        handler: Any = self._import(reference[0])
        for part in reference[1].split("."):
            handler = getattr(handler, part)
        return handler


def _carry_out(
    handler: Any,
    jobs: list[Job],
    hooks: Sequence[RunHooks],
    interrupt: Interrupt,
    rules: Rules,
    together: bool,
) -> list[Answer]:
    """Run a handler in a context of its own, with the hooks of its jobs; `together`: it gets all of them."""
    ones = [Hooked(job, hooks) for job in jobs]
    for one in ones:
        one.enter()
    going = [one for one in ones if one.failure is None]
    given = [one.job for one in going]
    returned, result, raised = None, None, None
    try:
        if going:
            with interrupt.calling(given):
                if together:
                    returned = call_here(handler, given, given[0].name)
                else:
                    result = call_plain(handler, given[0])
    except BaseException as failure:
        raised = failure
    found = ends(given, returned, raised) if together else [(raised, result)] * len(going)
    for one, end in zip(going, found, strict=True):
        one.failure, one.result = end
    for one in ones:
        one.leave()
    answers = faults([(one.failure, one.result) for one in ones], rules)
    for one, (fault, _) in zip(ones, answers, strict=True):
        one.ended(None if fault is None else fault.error)
    return answers


def _end_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL when the worker is gone. Where it cannot, the closed pipe ends this
    process, unless a handler holds the interpreter lock."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
