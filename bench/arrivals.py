"""Arrivals of one kind of job at a constant rate: the load of a capacity measurement. Pure arithmetic, no I/O.

The workload of a drill (`bench.workload`) mixes everything that a queue can do; a capacity is that of one payload and one handler
time, so here all jobs are alike. Arrivals are Poisson for the same reason as there: evenly spaced ones would hide the queueing.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: Name of the jobs; `bench.timed_handlers` has its handler.
NAME = "capacity"

#: More than one sending process manages.
RATE_MAX_PER_S = 10_000.0

#: What a payload takes beside its padding, in bytes of JSON.
_FRAME_BYTES = 32


@dataclass(frozen=True, slots=True)
class Arrival:
    """One job: when it is meant to be sent, in ms from the start of its step."""

    index: int
    offset_ms: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of one step; the same in every process that has these four numbers."""

    seed: int
    step: int
    rate_per_s: float
    seconds: float

    def __iter__(self) -> Iterator[Arrival]:
        randomness = random.Random(f"ironclaim arrivals {self.seed} {self.step}")
        index, offset_ms = 0, 0.0
        while (offset_ms := offset_ms - math.log(1.0 - randomness.random()) * 1000 / self.rate_per_s) < self.seconds * 1000:
            yield Arrival(index, offset_ms)
            index += 1

    def id_of(self, index: int) -> str:
        """The id of a job, which no other step has."""
        return f"step{self.step}-{index}"


def payload(payload_bytes: int, handler_ms: float) -> dict[str, Any]:
    """What a job carries: how long its handler waits, and padding up to the size."""
    letters = string.ascii_letters + string.digits
    pad_bytes = max(0, payload_bytes - _FRAME_BYTES)
    return {"work_ms": handler_ms, "pad": (letters * (pad_bytes // len(letters) + 1))[:pad_bytes]}
