"""Open-loop sending: every job has its intended instant, and a slow server does not delay the schedule.

A closed loop (send, wait for the answer, pause) hides an outage: while the server hangs, it sends nothing, so nothing is
measured as slow. Here each send has its own greenlet, started at its intended instant, however many sends are still unanswered.
Jobs that cannot be sent in time are passed to `drop` and so are counted.

Times are CLOCK_MONOTONIC nanoseconds. Import locust (which patches the sockets) before anything that sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import gevent
from gevent.lock import Semaphore
from gevent.pool import Pool, PoolFull

#: Greenlets that take turns at a schedule, where Locust has no users for that.
PACERS = 4

#: Maximum number of unanswered sends. At 120 jobs/s that is four seconds without answers; a network fault and the reconnects
#: after it take three.
IN_FLIGHT_MAX = 512
#: A job later than this is dropped: its latency would measure the sender's backlog instead of the server.
LATE_MAX_MS = 1000


class Planned(Protocol):
    """An entry of a schedule."""

    @property
    def offset_ms(self) -> float:
        """The intended instant of its send, in ms from the start."""
        ...


Job = TypeVar("Job", bound=Planned)


class OpenLoop(Generic[Job]):
    """A schedule that is being sent, shared by any number of pacers (the Locust users of one process).

    Pacers take turns at one iterator, so the total rate and the jobs are those of the schedule, whatever the number of pacers
    and even if it changes. Safe between greenlets of one thread: nothing yields between a read and the dependent write, and the
    iterator, which may wait for a database of its own, has one pacer at a time.

    `send(job, intended_ns)` runs in its own greenlet and must not raise; `drop(job, intended_ns, why)` is called for each job
    that was not sent in time.
    """

    def __init__(
        self,
        jobs: Iterator[Job],
        *,
        send: Callable[[Job, int], None],
        drop: Callable[[Job, int, str], None],
        in_flight_max: int = IN_FLIGHT_MAX,
        late_max_ms: int = LATE_MAX_MS,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._jobs, self._turn = jobs, Semaphore()
        self._send = send
        self._drop = drop
        self._late_max_ns = late_max_ms * 1_000_000
        self._clock_ns = clock_ns
        self._in_flight = Pool(in_flight_max)
        self._given_back: list[Job] = []
        self._start_ns: int | None = None
        self._stopped = False

    def start(self) -> None:
        """Fix the instant from which all offsets count; later calls have no effect."""
        if self._start_ns is None:
            self._start_ns = self._clock_ns()

    def pace(self) -> bool:
        """Wait for the instant of the next job, then start its send or drop it. Return False when the schedule has ended.

        A pacer that is killed while it waits returns its job to the schedule.
        """
        if self._stopped or (job := self._take()) is None:
            return False
        try:
            self._sleep_until(self._intended_ns(job))
            self._dispatch(job)
        except gevent.GreenletExit:
            self._given_back.append(job)
            raise
        return True

    def finish(self, timeout_s: float) -> int:
        """Stop the schedule: send or drop the jobs that are due, wait up to timeout_s for the answers. Return the number of
        sends that were given up."""
        self._stopped = True
        stop_ns = self._clock_ns()
        while self._start_ns is not None and (job := self._take()) is not None and self._intended_ns(job) <= stop_ns:
            self._dispatch(job)
        self._in_flight.join(timeout=timeout_s)
        given_up = len(self._in_flight)
        self._in_flight.kill()
        return given_up

    def _take(self) -> Job | None:
        if self._given_back:
            self._given_back.sort(key=lambda job: job.offset_ms)
            return self._given_back.pop(0)
        with self._turn:
            return next(self._jobs, None)

    def _intended_ns(self, job: Job) -> int:
        if self._start_ns is None:
            raise RuntimeError("start() comes before pace()")
        return self._start_ns + round(job.offset_ms * 1_000_000)

    def _sleep_until(self, instant_ns: int) -> None:
        while (rest_ns := instant_ns - self._clock_ns()) > 0:
            gevent.sleep(rest_ns / 1e9)

    def _dispatch(self, job: Job) -> None:
        intended_ns = self._intended_ns(job)
        rest_ns = intended_ns + self._late_max_ns - self._clock_ns()
        late_max_ms = self._late_max_ns // 1_000_000
        if rest_ns < 0:
            self._drop(job, intended_ns, f"more than {late_max_ms} ms late")
            return
        try:
            self._in_flight.start(gevent.Greenlet(self._send, job, intended_ns), timeout=rest_ns / 1e9)
        except PoolFull:
            self._drop(job, intended_ns, f"{self._in_flight.size} sends unanswered for {late_max_ms} ms")
