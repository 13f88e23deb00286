"""One step of a capacity measurement as it is sent: arrivals in an open loop, and what came of them. Import it behind gevent."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import gevent

from bench.capacity_steps import ORDER, Order, Sent
from bench.openloop import OpenLoop

#: How long the last answers of a step are waited for: slightly longer than the driver re-sends.
ANSWERS_TIMEOUT_S = 12.0


class Indexed(Protocol):
    """A job of a step: its number, and when it is to be sent, in ms from the begin."""

    @property
    def index(self) -> int: ...

    @property
    def offset_ms(self) -> float: ...


Job = TypeVar("Job", bound=Indexed)


class Unanswered(Exception):
    """No answer before the end of the step."""


class Sending(Generic[Job]):
    """One step that is being sent. `enqueue(job)` is True for a job that was created, and None for one that is none of the step:
    another one like it is there. `report`: response time in ms (None = not sent), and the failure, if there is one; `drop`: why
    a job was not sent."""

    def __init__(
        self,
        order: Order,
        jobs: Iterator[Job],
        enqueue: Callable[[Job], bool | None],
        report: Callable[[float, Exception | None], None] = lambda took_ms, failure: None,
        drop: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._order, self._enqueue, self._report, self._dropped = order, enqueue, report, drop
        self._late_ms: list[float] = []
        self._sends: list[tuple[int, float, float]] = []
        self._offered = 0
        self._loop = OpenLoop[Job](self._counted(jobs), send=self._send, drop=self._drop)
        self._begin_ns = time.monotonic_ns()
        self._loop.start()

    def pace(self) -> bool:
        """Wait for the next arrival and start its send; False when the step has no more."""
        return self._loop.pace()

    def carry_out(self) -> Sent:
        """Wait for the end of the step and for the last answers; what came of it."""
        used_s, began_s = time.process_time(), time.monotonic()
        gevent.sleep(self._order.seconds)
        cpu_share = (time.process_time() - used_s) / (time.monotonic() - began_s)
        self._loop.finish(ANSWERS_TIMEOUT_S)
        late = sorted(self._late_ms)
        return Sent(
            step=self._order.step,
            begin_ns=self._begin_ns,
            end_ns=self._begin_ns + round(self._order.seconds * 1e9),
            offered=self._offered,
            created=len(self._sends),
            late_p99_ms=late[math.ceil(0.99 * len(late)) - 1] if late else 0.0,
            cpu_share=cpu_share,
            sends=tuple(self._sends),
        )

    def _counted(self, jobs: Iterator[Job]) -> Iterator[Job]:
        for job in jobs:
            self._offered += 1
            yield job

    def _send(self, job: Job, intended_ns: int) -> None:
        began_ms = self._ms()
        self._late_ms.append(began_ms - (intended_ns - self._begin_ns) / 1e6)
        failure: Exception | None = None
        try:
            created = self._enqueue(job)
            if created:
                self._sends.append((job.index, began_ms, self._ms()))
            elif created is None:
                self._offered -= 1
        except gevent.GreenletExit:
            failure = Unanswered("no answer before the end of the step")
        except Exception as error:  # any error is a failed send and must not end the load
            failure = error
        self._report((time.monotonic_ns() - intended_ns) / 1e6, failure)

    def _ms(self) -> float:
        """Now, in ms from the beginning."""
        return round((time.monotonic_ns() - self._begin_ns) / 1e6, 3)

    def _drop(self, job: Job, intended_ns: int, why: str) -> None:
        self._dropped(why)


def ordered(folder: Path, done: int) -> Order | None:
    """The newest order in a folder; None while there is none after the step that was done last."""
    try:
        order = Order(**json.loads((folder / ORDER).read_text()))
    except FileNotFoundError:
        return None
    return order if order.step > done else None


def answer(folder: Path, order: Order, sent: Sent) -> None:
    """Leave what came of an order, in one step, so that no reader sees half of it."""
    fresh = folder / "step.tmp"
    fresh.write_text(json.dumps(asdict(sent)))
    fresh.replace(folder / order.answer)
