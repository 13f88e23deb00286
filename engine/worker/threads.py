"""Threads that run tasks, shared by all workers of a process that work together: as many as are busy at once.

A task that no thread waits for gets a new thread, so calls that a dead server does not answer hold up no
others. Threads that nobody needs end after some seconds, so a worker of many shards has few.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

Task = Callable[[], None]

#: A thread that is more than are kept ends when it has had no task for so long.
LINGER_S = 5.0


class Threads:
    """Runs tasks in threads called `name-0`, `name-1` ... Of those that have nothing to do, `kept` stay.
    With `most`, more tasks than that wait for a free thread. A task must not raise."""

    def __init__(self, name: str, *, kept: int, most: int | None = None) -> None:
        self._name = name
        self._kept = kept
        self._most = most
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        #: Threads that wait, less the tasks that were put for them; below zero: tasks wait for a thread.
        self._free = 0
        self._threads: dict[int, threading.Thread] = {}
        self._closed = False

    def run(self, task: Task) -> None:
        """Run a task, in a thread that waits or in a new one. Does not wait, and is safe from any thread."""
        with self._lock:
            if self._free <= 0 and not self._closed and len(self._threads) != self._most:
                number = next(
                    number for number in range(len(self._threads) + 1) if number not in self._threads
                )
                thread = self._threads[number] = threading.Thread(
                    target=self._serve, args=(number, task), name=f"{self._name}-{number}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:
                    # The system has no thread left for this process: those that it has do it later.
                    del self._threads[number]
                    if not self._threads:
                        raise
                else:
                    return
            self._free -= 1
            self._tasks.put(task)

    def close(self, timeout_s: float = 0.0) -> None:
        """Let the threads end once the tasks that were put are done, and wait for that at most so long."""
        with self._lock:
            self._closed = True
            threads = list(self._threads.values())
            for _ in threads:
                self._tasks.put(None)
        until_s = time.monotonic() + timeout_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until_s - time.monotonic()))

    def _serve(self, number: int, first: Task) -> None:
        task: Task | None = first
        while task is not None:
            task()
            task = self._next(number)

    def _next(self, number: int) -> Task | None:
        """The next task; None: the thread ends."""
        with self._lock:
            self._free += 1
            lingers = len(self._threads) > self._kept
        while True:
            try:
                task = self._tasks.get(timeout=LINGER_S if lingers else None)
            except queue.Empty:
                with self._lock:
                    # What was put meanwhile has been put for a thread that waits.
                    if not self._tasks.empty():
                        continue
                    lingers = len(self._threads) > self._kept
                    if not lingers:
                        continue
                    self._free -= 1
                    del self._threads[number]
                    return None
            else:
                if task is None:
                    with self._lock:
                        self._threads.pop(number, None)
                return task
