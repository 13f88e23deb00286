"""What workers have of their process: threads for tasks, its memory, the signals that it gets, and a name."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import FrameType

from engine.errors import logger
from engine.logs import Source, about
from engine.ops.workers import WorkerInfo
from engine.worker.machine.events import StopReason

log = logger("ironclaim.worker")

# -- Threads that run tasks, shared by all workers of a process that work together.
#
# A few of them do for servers that answer. A task that has waited for 20 ms gets a thread more. So calls that
# a dead server does not answer hold up no others. A thread that nobody needs ends after some seconds.

Task = Callable[[], object]

#: A task waits at most about so long for one of the threads that are kept, which are busy.
PATIENCE_S = 0.02
#: A thread that is more than are kept ends when it has had no task for so long.
LINGER_S = 5.0


class _Thread:
    """One thread, and the task that was given to it while it waited."""

    __slots__ = ("number", "task", "thread", "wake")

    def __init__(self, number: int, first: Task) -> None:
        self.number = number
        self.task: Task | None = first
        # A lock as a semaphore: the thread waits by taking it a second time.
        self.wake = threading.Lock()
        self.wake.acquire()
        self.thread: threading.Thread


class Threads:
    """Runs tasks in `kept` threads called `name-0`, `name-1` ...; in more, at most `most`, while these are
    held up. What a task raises is logged."""

    def __init__(self, name: str, *, kept: int, most: int | None = None) -> None:
        self._name = name
        self._kept = kept
        self._most = most
        self._lock = threading.Lock()
        self._threads: dict[int, _Thread] = {}
        #: Those that wait. The last one is the next: the others have nothing to do for long, and end.
        self._free: list[_Thread] = []
        #: Tasks that wait for a thread, each with the instant since when.
        self._waiting: deque[tuple[float, Task]] = deque()
        #: A thread looks whether they wait for too long.
        self._watched = False
        self._closed = False

    def run(self, task: Task) -> None:
        """Run a task, in a thread that waits or in a new one. Does not wait, and is safe from any thread."""
        with self._lock:
            if not self._run(task):
                self._waiting.append((time.monotonic(), task))
                self._watch()

    def offer(self, task: Task) -> bool:
        """Run a task, as `run` does; False where it would have to wait, as all threads that are kept are
        busy."""
        with self._lock:
            return self._run(task)

    def _run(self, task: Task) -> bool:
        if self._free:
            free = self._free.pop()
            free.task = task
            free.wake.release()
            return True
        return len(self._threads) < self._kept and self._begin(task)

    def _watch(self) -> None:
        """Have a thread look after the tasks that wait, unless one does or there may be no more threads."""
        if not self._watched and len(self._threads) != self._most:
            self._watched = self._begin(self._help)

    def _help(self) -> None:
        """What a thread more does: it takes the first task that waits for long, if there is one."""
        task: Task | None = None
        while task is None:
            time.sleep(PATIENCE_S)
            with self._lock:
                if self._waiting and time.monotonic() - self._waiting[0][0] >= PATIENCE_S:
                    task = self._waiting.popleft()[1]
                if task is not None or not self._waiting:
                    self._watched = False
                    if self._waiting:
                        self._watch()
                    if task is None:
                        return
        task()

    def _begin(self, task: Task) -> bool:
        """Start a thread. False when the system has none left for this process: the others do it later."""
        number = 0
        while number in self._threads:
            number += 1
        made = _Thread(number, task)
        made.thread = threading.Thread(
            target=self._serve, args=(made,), name=f"{self._name}-{number}", daemon=True
        )
        self._threads[number] = made
        try:
            made.thread.start()
        except RuntimeError:
            del self._threads[number]
            if not self._threads:
                raise
            return False
        return True

    def close(self) -> None:
        """Let the threads end once their tasks are done, and wait for those that have none."""
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
            for one in free:
                one.wake.release()
        for one in free:
            one.thread.join()

    def _serve(self, this: _Thread) -> None:
        while this.task is not None:
            try:
                this.task()
            except BaseException:
                # A defect of ours, or an observer that raises: the thread goes on for the others.
                log.exception("thread %s goes on after", this.thread.name)
            this.task = None
            self._wait(this)

    def _wait(self, this: _Thread) -> None:
        """Wait for a task; without one the thread ends."""
        with self._lock:
            if self._waiting:
                this.task = self._waiting.popleft()[1]
                return
            if self._closed:
                del self._threads[this.number]
                return
            self._free.append(this)
            lingers = len(self._threads) > self._kept
        if not this.wake.acquire(timeout=LINGER_S if lingers else -1):
            with self._lock:
                if this in self._free and len(self._threads) > self._kept:
                    self._free.remove(this)
                    del self._threads[this.number]
                    return
            # One of those that are kept; or it has been given a task just now.
            this.wake.acquire()
        if this.task is None:
            with self._lock:
                self._threads.pop(this.number, None)


# -- How much memory this process holds.

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_mb() -> float:
    """The resident memory of this process in MB; where the kernel does not report it, the maximum so far."""
    try:
        with open(_STATM) as statm:
            return int(statm.read().split()[1]) * _PAGE / 1e6
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most / 1e3


# -- What signals mean to a worker: the first SIGTERM or SIGINT asks it to stop, a second one to stop at
# once, a third ends it.

#: They mean the same.
NUMBERS = (signal.SIGTERM, signal.SIGINT)

#: How long the main thread may block. Its handlers run between two of its steps. So a signal that arrives
#: just before it blocks, or in another thread, is handled only when it wakes.
SIGNAL_LOOK_S = 1.0


@contextmanager
def stop_signals(ask: Callable[[StopReason], None]) -> Generator[list[int]]:
    """Ask for a stop at a signal, while this runs in the main thread. Yields the signals that have come so
    far."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def on_signal(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        ask("stopped" if len(came) == 1 else "at once")
        if len(came) > 1:
            # Should even that take too long, the next signal ends the process.
            for other in NUMBERS:
                signal.signal(other, signal.SIG_DFL)

    before = {number: signal.signal(number, on_signal) for number in NUMBERS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- Names of workers: the one that a worker has unless told, and a warning where two have the same.

#: What a name may consist of, and how much of a host's name is taken.
_OTHERS = re.compile(r"[^A-Za-z0-9._-]")
_HOST_CHARACTERS_MAX = 64


def default_name() -> str:
    """`HOST-PID`: in containers all workers may have the same process id."""
    host = _OTHERS.sub("-", socket.gethostname())[:_HOST_CHARACTERS_MAX]
    return f"worker-{host}-{os.getpid()}"


def warn_of_namesakes(found: Iterable[WorkerInfo], source: Source) -> None:
    """Log that another worker of the queue has the name of this one, by the heartbeats of its workers."""
    for info in found:
        if info.name == source.worker and info.alive and not _is_gone(info):
            text = (
                "worker %s: there is another one of this name, on host %s with process id %d, heard "
                "of %d s ago; "
                "a pause, a target or a concurrency that names it means both"
            )
            log.warning(
                text, source.worker, info.host, info.pid, info.beat_age_ms // 1000, extra=about(None, source)
            )
            return


def _is_gone(info: WorkerInfo) -> bool:
    """Whether this was an earlier run in this process, or in one of this host that has ended: its beats only
    count a little longer."""
    if info.host != socket.gethostname():
        return False
    if info.pid == os.getpid():
        return True
    try:
        os.kill(info.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        # Somebody else's process.
        return False
    return False
