"""Child processes that run handlers, one job or batch at a time each: for handlers that hold the interpreter
lock (rule 14).

A child imports the handler by module and name; nothing is forked. A child that dies takes only its own run
with it.
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
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from typing import Any

from engine.errors import Malformed
from engine.handlers import Fault, Lost
from engine.job import Say
from engine.logs import NOBODY, Logged, Source, levels, write
from engine.ops.claims import LeasedJob
from engine.ops.jobs import Lease
from engine.outcomes import ErrorRules
from engine.serializers import BUILT_IN, Serializers
from engine.worker.machine.events import MoreTime, Progressed

#: A child that closed its end or died is noticed at once; one that died and left its end to a child of its
#: own, and a lease that was lost, after this.
_LOOK_S = 0.1
#: An idle child that was told to end gets this long.
_END_S = 1.0


#: What a run raised (error and traceback), and what it returned.
Answer = tuple[Fault | None, bytes | None]
Rules = Sequence[ErrorRules]


class ChildFailed(Exception):
    """A run in a child process has failed; hooks get this exception with the text of the original one."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.error)
        self.fault = fault


class Child:
    """One child process, started again with the next job after it died.

    `run` belongs to one thread, and only that thread sends: a child that does not read its pipe holds up
    nobody else. `say` takes what handlers tell the worker; what they log the worker writes. After `max_jobs`
    (0 = never) the process is replaced.
    """

    def __init__(
        self, say: Say, max_jobs: int = 0, serializers: Serializers = BUILT_IN, source: Source = NOBODY
    ) -> None:
        self._say = say
        self._source = source
        self._max_jobs = max_jobs
        # Sent only where the child does not have them anyway.
        self._serializers = serializers if serializers.own else None
        self._jobs = 0
        self._lost: queue.SimpleQueue[Lost] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Any = None
        # The leases of the jobs that it has, or that are on their way to it.
        self._leases: frozenset[Lease] = frozenset()
        self._killed = False
        self._closed = False

    def start(self, *jobs: LeasedJob) -> None:
        """Start the process unless it runs; `jobs` are what it is about to get, which can be killed from now
        on. Raises OSError, also after `close`."""
        with self._lock:
            if self._closed:
                raise OSError("the worker has stopped")
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
                        self._logging(),
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

    def _logging(self) -> str:
        """What the process has to know of the log."""
        return json.dumps({"levels": levels(), "source": self._source})

    def run(self, reference: tuple[str, str], job: LeasedJob, rules: Rules) -> Answer:
        """Run the handler (module, name) in the child, which was started for the job: what it raised, judged
        by its rules, None when it returned, and its result."""
        return self._run(reference, job, (job,), rules)[0]

    def run_batch(self, reference: tuple[str, str], jobs: Sequence[LeasedJob], rules: Rules) -> list[Answer]:
        """As `run`, for a handler of batches: the answer for each job."""
        return self._run(reference, list(jobs), jobs, rules)

    def _run(
        self,
        reference: tuple[str, str],
        work: LeasedJob | list[LeasedJob],
        jobs: Sequence[LeasedJob],
        rules: Rules,
    ) -> list[Answer]:
        answers: list[Answer]
        # By itself, so that a child which cannot read it says why; raises what the service's own class
        # raises.
        own = pickle.dumps((self._serializers, rules)) if self._serializers or rules else None
        try:
            with self._lock:
                if self._closed:
                    raise OSError
                self._leases = frozenset(job.lease for job in jobs)
            self._pipe.send((reference, work, own))
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
            self._end()
        if self._process is None or self._process.poll() is not None:
            with contextlib.suppress(Exception):
                # Ahead of the next job, which tells when it cannot be started.
                self.start()
        return answers

    def _receive(self) -> list[Answer]:
        """What comes of the run; what its handler says meanwhile is passed on. Raises EOFError or OSError
        when the child died."""
        while True:
            while not self._pipe.poll(_LOOK_S):
                if self._process is not None and self._process.poll() is not None:
                    raise EOFError
                self._tell_lost()
            received = self._pipe.recv()
            if isinstance(received, Logged):
                write(received)
            elif isinstance(received, MoreTime | Progressed):
                self._say(received)
            else:
                return received

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
        """Notify the running handler. Leases that were lost before it started do not matter to it."""
        while not self._lost.empty():
            lost = self._lost.get()
            if lost.lease in self._leases:
                self._pipe.send(lost)

    def close(self) -> None:
        """End the process: at once when it is idle, by SIGKILL when its handler still runs. It is not started
        again."""
        with self._lock:
            self._closed = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            process = self._process
            if process is None:
                return
            rest: list[Logged] = []
            if self._leases:
                process.kill()
            else:
                rest = self._close()
        for logged in rest:
            write(logged)
        try:
            process.wait(_END_S)
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
