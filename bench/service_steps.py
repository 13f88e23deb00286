"""The load of a service in steps: the jobs that its function yields leave at the rates that a measurement of capacity orders."""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gevent

import engine
from bench.arrivals import Arrivals
from bench.capacity_sending import Sending, answer, ordered
from bench.capacity_steps import Order, Other, Sent
from bench.openloop import PACERS
from bench.references import parts_of

#: How often it is looked whether a step was ordered.
LOOK_S = 0.02

#: Payloads of a step by whose size that of all is told.
SIZED = 200

#: Failures that are logged, of a process: people need the reason, not ten thousand of them.
LOGGED = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ArrivingJob:
    """A job that the load has yielded, and when it is to be sent, in ms from the begin of its step."""

    index: int
    offset_ms: float
    task: Any
    arguments: Any
    options: dict[str, Any]


class Step:
    """The jobs of one step, which are made as they are needed."""

    def __init__(self, queue: Any, load: Iterator[Any], arrivals: Arrivals, failed: Callable[[object], None]) -> None:
        self._queue, self._load, self._arrivals, self._failed = queue, load, arrivals, failed
        self._until_s = time.monotonic() + arrivals.seconds
        self._others: list[Other] = []
        self._sizes: list[int] = []
        self._failures = itertools.count(1)
        self.made, self.made_s = 0, 0.0

    def __iter__(self) -> Iterator[ArrivingJob]:
        for arrival in self._arrivals:
            began_s = time.monotonic()
            if began_s > self._until_s:
                # A load that is too slow is told by what it took, and not waited for.
                return
            try:
                task, arguments, options = parts_of(next(self._load))
            except StopIteration:
                logger.error("the load has ended, it must yield jobs without end")
                self._failed(self)
                return
            self.made_s += time.monotonic() - began_s
            self.made += 1
            if len(self._sizes) < SIZED:
                self._sizes.append(size_of(arguments))
            yield ArrivingJob(arrival.index, arrival.offset_ms, task, arguments, options)

    def enqueue(self, job: ArrivingJob) -> bool | None:
        """See `Sending`."""
        own = self._arrivals.id_of(job.index)
        try:
            reply = self._queue.enqueue(job.task, job.arguments, **{"id": own, **job.options})
        except engine.Malformed as error:
            # Nothing that happens to a measurement makes a job malformed.
            logger.error("the load yielded a job that cannot be sent: %s", error)
            self._failed(job)
            raise
        except engine.EngineError as error:
            if next(self._failures) <= LOGGED:
                logger.warning("a job was not sent: %s", error)
            raise
        delay_ms = job.options.get("delay_ms", 0)
        if reply.created and (reply.job != own or delay_ms):
            self._others.append(Other(job.index, reply.job, float(delay_ms) if isinstance(delay_ms, int | float) else 0.0))
        if reply.result == "duplicate":
            return None
        return reply.created

    def told(self, sent: Sent) -> Sent:
        """What came of the step, with what is known of its load."""
        mean = sum(self._sizes) / len(self._sizes) if self._sizes else 0.0
        return replace(sent, others=tuple(self._others), made=self.made, made_s=self.made_s, payload_bytes=mean)


class Steps:
    """Carries out the orders in a folder, one after the other. `failed`: called with what cannot go on."""

    def __init__(self, queue: Any, load: Iterator[Any], seed: int, folder: Path, failed: Callable[[object], None]) -> None:
        self._queue, self._load, self._seed, self._folder, self._failed = queue, load, seed, folder, failed
        self._running: gevent.Greenlet | None = None

    def start(self) -> None:
        """Begin to look for orders."""
        # Connect and load the scripts before the first step begins.
        self._queue.counts()
        self._running = gevent.spawn(self._run)

    def stop(self) -> None:
        """End."""
        gevent.killall([self._running] if self._running else [])

    def _run(self) -> None:
        done = 0
        while True:
            order = ordered(self._folder, done)
            if order is None:
                gevent.sleep(LOOK_S)
                continue
            done = order.step
            answer(self._folder, order, self._carried_out(order))

    def _carried_out(self, order: Order) -> Sent:
        arrivals = Arrivals(self._seed, order.step, order.rate_per_s, order.seconds)
        step = Step(self._queue, self._load, arrivals, self._failed)
        sending = Sending(order, iter(step), step.enqueue)
        pacers = [gevent.spawn(self._pace, sending) for _ in range(PACERS)]
        sent = sending.carry_out()
        gevent.killall(pacers)
        return step.told(sent)

    def _pace(self, sending: Sending[ArrivingJob]) -> None:
        try:
            while sending.pace():
                pass
        except Exception:
            # The last line of the log is what people are shown, and it names the error.
            logger.exception("the load has failed")
            self._failed(self)


def size_of(arguments: object) -> int:
    """The bytes of a payload, about."""
    return len(arguments) if isinstance(arguments, bytes) else len(json.dumps(arguments, default=str))
