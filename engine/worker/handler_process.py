"""A child process of a worker: `python -m engine.worker.handler_process DESCRIPTOR PARENT LOGGING`, which
`children` starts.

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
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from engine.handlers import End, Fault, Lost, call_here, call_plain, ends, fault_of, faults
from engine.job import Job
from engine.logs import Forwarder, Source, run_everywhere
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import ErrorRules
from engine.serializers import BUILT_IN, Serializers
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

#: What a run raised (error and traceback), and what it returned.
Answer = tuple[Fault | None, bytes | None]
Work = LeasedJob | list[LeasedJob]
#: Module and name of the handler, its work, and the serialisers of the queue and the rules of errors where
#: there are some, pickled.
Order = tuple[tuple[str, str], Work, bytes | None]


class Orders:
    """Reads the pipe in a thread, so that a lost lease reaches the handler that runs."""

    def __init__(self, pipe: Connection, queue_name: str) -> None:
        self.jobs: queue.SimpleQueue[Order] = queue.SimpleQueue()
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

    def _take(self, order: Order | Lost) -> None:
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
    logging = json.loads(sys.argv[3])
    source = Source(*logging["source"])
    orders = Orders(pipe, source.queue)
    threading.Thread(target=orders.read, name="orders", daemon=True).start()
    forwarder, start = Forwarder(orders.say, logging["levels"]), _Start()
    while True:
        reference, work, own = orders.jobs.get()
        run_everywhere((source, work[0].name if isinstance(work, list) and len(work) > 1 else _first(work)))
        answers = _run(orders, reference, work, own, forwarder, start)
        run_everywhere(None)
        orders.say(answers)


def _first(work: Work) -> LeasedJob:
    return work[0] if isinstance(work, list) else work


def _run(
    orders: Orders,
    reference: tuple[str, str],
    work: Work,
    own: bytes | None,
    forwarder: Forwarder,
    start: _Start,
) -> list[Answer]:
    """Run a handler. Returns for each job what it raised and what it returned."""
    batch = work if isinstance(work, list) else [work]
    known: tuple[Serializers | None, Sequence[ErrorRules]] = (None, ())
    try:
        # Also what the service's own class raises here is a failed run.
        known = known if own is None else pickle.loads(own)  # noqa: S301  of its own worker
        handler = _handler(reference, forwarder, start)
        jobs = orders.begins(batch, known[0] or BUILT_IN)
        try:
            return start.contexts.run(_carry_out, handler, jobs, work, known[1])
        finally:
            start.state.restore()
    except BaseException as failure:
        return [(fault_of(failure, known[1]), None)] * len(batch)


class _Start:
    """What each run begins with: what the modules of the service have set when they were imported."""

    def __init__(self) -> None:
        self.look()

    def look(self) -> None:
        """It is what holds now."""
        self.contexts, self.state = RunContexts(), ProcessState()


def _handler(reference: tuple[str, str], forwarder: Forwarder, start: _Start) -> Any:
    new = reference[0] not in sys.modules
    handler: Any = import_module(reference[0])
    if new:
        forwarder.take_over()
        start.look()
    for part in reference[1].split("."):
        handler = getattr(handler, part)
    return handler


def _carry_out(handler: Any, jobs: list[Job], work: Work, rules: Sequence[ErrorRules]) -> list[Answer]:
    """Run a handler in a context of its own."""
    for job in jobs:
        # Its time begins now, not when this process was started.
        job.extend(max(1, job.timeout_ms))
    if isinstance(work, list):
        return faults(_ends(handler, jobs), rules)
    return [(None, call_plain(handler, jobs[0]))]


def _ends(handler: Any, jobs: list[Job]) -> list[End]:
    returned, raised = None, None
    try:
        returned = call_here(handler, jobs, jobs[0].name)
    except BaseException as failure:
        raised = failure
    return ends(jobs, returned, raised)


def _end_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL when the worker is gone. Where it cannot, the closed pipe ends this
    process, unless a handler holds the interpreter lock."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
