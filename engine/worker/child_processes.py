"""Child processes that run handlers, one job or batch at a time each: for handlers that hold the interpreter
lock (rule 14).

A child imports the handler by module and name, and first the registries whose hooks hold for it; nothing is
forked. A child that dies takes only its own run with it, and one whose start fails gets no job.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from typing import Any

from engine.errors import Malformed, logger
from engine.handlers import Fault, Lost, Ready, SoftOver
from engine.job import Say
from engine.logs import NOBODY, Logged, Source, about, levels, write
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import ErrorRules
from engine.serializers import BUILT_IN, Serializers
from engine.worker.machine.events import MoreTime, Progressed

#: A child that closed its end or died is noticed at once; one that died and left its end to a child of its
#: own, and a lease that was lost, after this.
_LOOK_S = 0.1
#: An idle child that was told to end gets this long, for its hooks.
END_S = 5.0
#: The pause after a start that has failed, which grows to the second.
_PAUSE_S, _PAUSE_MOST_S = 1.0, 30.0

log = logger("ironclaim.worker")


#: What a run raised (error and traceback), and what it returned.
Answer = tuple[Fault | None, bytes | None]
Rules = Sequence[ErrorRules]
#: One job, or those that one call of their handler gets.
Work = LeasedJob | list[LeasedJob]


class WorkerStopped(OSError):
    """No process is started any more."""


class ChildFailed(Exception):
    """A run in a child process has failed; hooks get this exception with the text of the original one."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.error)
        self.fault = fault


class Child:
    """One child process, started again after it died.

    `run` belongs to one thread, and only that thread sends: a child that does not read its pipe holds up
    nobody else. `say` takes what handlers tell the worker; what they log the worker writes. After `max_jobs`
    (0 = never) the process is replaced. `hooks` say where the child finds those that hold for its jobs.
    """

    def __init__(
        self,
        say: Say,
        max_jobs: int = 0,
        serializers: Serializers = BUILT_IN,
        source: Source = NOBODY,
        hooks: Sequence[dict[str, object]] = (),
    ) -> None:
        self._say = say
        self._hooks = hooks
        self._ready = False
        self._failed_starts = 0
        self._reading = threading.Lock()
        self._source = source
        self._max_jobs = max_jobs
        # Sent only where the child does not have them anyway.
        self._serializers = serializers if serializers.own else None
        self._lost: queue.SimpleQueue[Lost | SoftOver] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Any = None
        # The leases of the jobs that it has, or that are on their way to it.
        self._leases: frozenset[Lease] = frozenset()
        self._killed = False
        self._closed = threading.Event()

    def start(self, *jobs: LeasedJob) -> None:
        """Start the process unless it runs; `jobs` are what it is about to get, which can be killed from now
        on. Raises OSError, also after `close`."""
        with self._lock:
            if self._closed.is_set():
                raise WorkerStopped("the worker has stopped")
            self._leases = frozenset(job.lease for job in jobs)
            if self._process is not None and self._process.poll() is None:
                return
            ours, theirs = Pipe()
            try:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "engine.worker.handler_process",
                        str(theirs.fileno()),
                        str(os.getpid()),
                        json.dumps({"levels": levels(), "source": self._source, "hooks": self._hooks}),
                    ],
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                    },
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    # Ctrl-C at a terminal is for the worker, which stops in order.
                    start_new_session=True,
                )
            finally:
                theirs.close()
            self._pipe = ours
            self._jobs = 0
            self._ready = False

    @property
    def ready(self) -> bool:
        """Whether the process takes jobs."""
        return self._ready and self._process is not None and self._process.poll() is None

    @property
    def closed(self) -> bool:
        """Whether the process is not started again."""
        return self._closed.is_set()

    def until_ready(self, failed: Callable[[], None]) -> None:
        """Return once the process takes jobs, or was closed. A start that fails is logged, told to `failed`,
        and tried again after a pause."""
        pause_s = _PAUSE_S
        while not self._closed.is_set():
            try:
                self.start()
                with self._reading:
                    fault = self._until_ready()
            except Exception as failure:
                fault = Fault(f"{failure or type(failure).__name__}: {self._died()}", "")
            if fault is None:
                return
            self._died()
            self._failed_starts += 1
            said = "a child process is not used, its start has failed (%d have so far; again in %d s): %s"
            extra = about(None, self._source) | {"traceback": fault.trace}
            log.error(said, self._failed_starts, pause_s, fault.error, extra=extra)
            failed()
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MOST_S)

    def _until_ready(self) -> Fault | None:
        """Read until the process is ready. Returns why it is not; raises EOFError or OSError when it died."""
        while not (self._ready or self._closed.is_set()):
            if self._pipe.poll(_LOOK_S):
                received = self._pipe.recv()
                if isinstance(received, Logged):
                    write(received)
                elif received.fault is not None:
                    return received.fault
                else:
                    self._ready = True
            elif self._process is None or self._process.poll() is not None:
                raise EOFError
        return None

    def run(
        self, reference: tuple[str, str], work: Work, rules: Rules, hooks: Sequence[int] = ()
    ) -> list[Answer]:
        """Run the handler (module, name) in the child, which was started for this work, with these of its
        hooks. For each job what it raised, judged by its rules, None when it returned, and its result. The
        handler of a list gets all of its jobs at once."""
        jobs = work if isinstance(work, list) else [work]
        answers: list[Answer]
        # By itself, so that a child which cannot read it says why; raises what the service's own class
        # raises.
        own = pickle.dumps((self._serializers, rules)) if self._serializers or rules else None
        try:
            with self._lock:
                if self._closed.is_set():
                    raise OSError
                self._leases = frozenset(job.lease for job in jobs)
            self._pipe.send((reference, tuple(hooks), work, own))
            answers = self._receive()
        except Exception:
            # It has died, or what it says cannot be read.
            died = Fault(self._died(), "")
            answers = [(died, None) for _ in jobs]
        with self._lock:
            self._leases = frozenset()
            killed, self._killed = self._killed, False
        self._jobs += len(jobs)
        if killed and self._process is not None:
            # It was killed when its answer was already on the way.
            self._died()
        elif self._max_jobs and self._jobs >= self._max_jobs:
            self._end(time.monotonic() + END_S)
        return answers

    def _receive(self) -> list[Answer]:
        """What comes of the run; what its handler says meanwhile is passed on. Raises EOFError or OSError
        when the child died."""
        while True:
            # Also where it says so much that it is never waited for.
            self._tell_lost()
            while not self._pipe.poll(_LOOK_S):
                if self._process is not None and self._process.poll() is not None:
                    raise EOFError
                self._tell_lost()
            received = self._pipe.recv()
            if isinstance(received, Logged):
                write(received)
            elif isinstance(received, MoreTime | Progressed):
                self._say(received)
            elif not isinstance(received, Ready):
                return received
            elif received.fault is not None:
                raise EOFError

    @property
    def busy(self) -> bool:
        """Whether the process has a job, or one has been sent to it."""
        return bool(self._leases)

    def kill(self, lease: Lease) -> None:
        """End the process, if it still runs this job, and with it those of the same batch. Does not wait."""
        with self._lock:
            if lease in self._leases and self._process is not None:
                self._killed = True
                self._process.kill()

    def lose(self, lease: Lease, *, cancelled: bool) -> None:
        """Notify the handler that its lease has ended. Does not wait."""
        self._lost.put(Lost(lease, cancelled))

    def _tell_lost(self) -> None:
        """Tell the running handler. What came before it started does not matter to it."""
        while not self._lost.empty():
            lost = self._lost.get()
            if lost.lease in self._leases:
                self._pipe.send(lost)

    def soften(self, lease: Lease) -> None:
        """Tell the handler that its soft timeout is over. Does not wait."""
        self._lost.put(SoftOver(lease))

    def stop_starting(self) -> None:
        """The process is not started again from now on. Does not wait."""
        self._closed.set()

    def ask_end(self) -> None:
        """Tell the process to end: when it is idle, in order; by SIGKILL when its handler still runs. It is
        not started again. Does not wait."""
        self._closed.set()
        with self._lock:
            if self._process is None:
                return
            if self._leases:
                self._process.kill()
            else:
                # It has died.
                with contextlib.suppress(OSError):
                    self._pipe.send(None)

    def close(self, until_s: float | None = None) -> None:
        """End the process, which gets until this time, monotonic, if it is idle."""
        self.ask_end()
        self._end(time.monotonic() + END_S if until_s is None else until_s, asked=True)

    def _end(self, until_s: float, *, asked: bool = False) -> None:
        with self._lock:
            process, busy = self._process, bool(self._leases)
        if process is None:
            return
        if not busy:
            with self._reading, contextlib.suppress(EOFError, OSError):
                if not asked:
                    self._pipe.send(None)
                # What it logs meanwhile.
                while self._pipe.poll(max(0.0, until_s - time.monotonic())):
                    received = self._pipe.recv()
                    if isinstance(received, Logged):
                        write(received)
            with self._lock:
                self._pipe.close()
        try:
            process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _close(self) -> list[Logged]:
        """Close the pipe. Returns what was logged since the last answer."""
        rest: list[Logged] = []
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll(0):
                received = self._pipe.recv()
                rest += [received] if isinstance(received, Logged) else []
        self._pipe.close()
        return rest

    def _died(self) -> str:
        """Make sure that the process is dead. Returns how it ended, for a message."""
        with self._lock:
            process, self._process = self._process, None
            rest = self._close()
        for logged in rest:
            write(logged)
        if process is None:
            return "the process of the handler was ended"
        process.kill()
        code = process.wait()
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        return f"the process of the handler ended by {how}"


def reference_of(handler: Callable[..., object]) -> tuple[str, str]:
    """Module and name by which another process imports a handler. Raises Malformed where it could not."""
    module, name = getattr(handler, "__module__", ""), getattr(handler, "__qualname__", "")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if module == "__main__" or found is not handler:
        raise Malformed(
            "handlers",
            f"{module}.{name}",
            "functions of importable modules under their own names, to run in processes",
        )
    return module, name
