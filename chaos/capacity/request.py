"""What is asked of a capacity measurement: one frozen value, checked before anything starts. What cannot be is answered by what
can."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench import models
from bench.arrivals import RATE_MAX_PER_S
from bench.models import LANES, NAMES
from chaos import topologies
from chaos.errors import HarnessError
from record.options import SEEDS

#: A step needs so many arrivals, or its p99 is the slowest of a handful.
ARRIVALS_MIN = 100

#: A target that nobody named is so many times the handler, and at least this: four handlers of queueing lie where p99 rises
#: steeply with the rate. Nearer to the handler the curve is flat, so one rate is hardly told from another: with a handler of
#: 20 ms, p99 was 43 ms at 1,000 jobs/s and 47 at 1,250, of at most 1,570.
TARGET_TIMES = 5
TARGET_LEAST_MS = 25.0

#: The first step of a ramp offers this, or less where the handlers cannot do four times as much.
FIRST_PER_S = 50.0
FIRST_SHARE = 0.25

#: field -> (lowest, highest) value.
BOUNDS: dict[str, tuple[float, float]] = {
    "p99_ms": (1, 60_000),
    "payload_bytes": (64, 1 << 20),
    "handler_ms": (0.1, 10_000),
    "backlog_s": (0, 7 * 86_400),
    "workers": (1, 32),
    "handlers_at_once": (1, 256),
    "seed": SEEDS,
    "step_s": (1, 600),
    "last_step_s": (1, 3_600),
    "verify_times": (1, 100),
    "within_s": (60, 86_400),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One measurement. `rate_per_s`: the rate that the plan is for, None = the rate that is found. `p99_ms` None: by the
    handler's time. `workers` None: two, and the plan says how many the rate needs; a number that was named must be enough for
    the rate. `within_s`: when the measurement is to be over; other numbers of workers are searched while there is time.

    Raises HarnessError in one line: field, value, bound, and what would be possible.
    """

    rate_per_s: float | None = None
    p99_ms: float | None = None
    payload_bytes: int = 2_048
    handler_ms: float = 20.0
    model: str = LANES
    topology: str = topologies.EMBEDDED
    durability: str = ""
    backlog_s: float = 3_600.0
    workers: int | None = None
    handlers_at_once: int = 10
    seed: int = 1
    step_s: float = 15.0
    last_step_s: float = 60.0
    verify_times: int = 3
    within_s: float = 1_500.0

    def __post_init__(self) -> None:
        if self.model not in NAMES:
            raise HarnessError(f"model {self.model!r} does not exist; choose from {', '.join(NAMES)}")
        topologies.check(self.topology, self.durability)
        if self.topology == topologies.CLUSTER and not models.in_cluster(self.model):
            raise HarnessError(
                f"topology 'cluster': the keys of a queue of {self.model} are in many slots; possible are the other topologies, "
                f"or a model such as {LANES}"
            )
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise HarnessError(f"{name} is {value:.10g}: it must be from {low:.10g} to {high:.10g}")
        if self.p99_target_ms <= self.handler_ms:
            raise HarnessError(
                f"p99_ms is {self.p99_target_ms:g}: the handler alone takes {self.handler_ms:g} ms, so no rate meets it; "
                f"possible is a target above {self.handler_ms:g}, and {target_ms(self.handler_ms):g} leaves room to queue"
            )
        self._check_rate()
        self._check_handlers()

    @property
    def p99_target_ms(self) -> float:
        """The target."""
        return target_ms(self.handler_ms) if self.p99_ms is None else self.p99_ms

    @property
    def workers_measured(self) -> int:
        """Worker processes that the steps run with."""
        return 2 if self.workers is None else self.workers

    @property
    def ceiling_per_s(self) -> float:
        """What the handlers can do if nothing else takes time: handlers at once, divided by how long each takes."""
        return min(RATE_MAX_PER_S, self.workers_measured * self.handlers_at_once * 1000 / self.handler_ms)

    @property
    def first_per_s(self) -> float:
        """The rate of the first step."""
        return max(self.least_per_s, min(FIRST_PER_S, FIRST_SHARE * self.ceiling_per_s))

    @property
    def least_per_s(self) -> float:
        """The smallest rate that a step can measure."""
        return ARRIVALS_MIN / self.step_s

    def _check_rate(self) -> None:
        rate, able = self.rate_per_s, f"{self.workers_measured} workers of {self.handlers_at_once} handlers"
        if rate is None:
            return
        if not rate > 0:
            raise HarnessError(
                f"rate is {rate:g}: it must be above 0; {able} that take {self.handler_ms:g} ms can do at most "
                f"{self.ceiling_per_s:g} jobs/s"
            )
        if self.workers is not None and rate > self.ceiling_per_s:
            needed = math.ceil(rate * self.handler_ms / 1000 / self.handlers_at_once)
            raise HarnessError(
                f"rate is {rate:g}: {able} that take {self.handler_ms:g} ms can do at most {self.ceiling_per_s:g} jobs/s; "
                f"possible are {needed} workers, or handlers of at most {self._handler_ms_at(rate):g} ms"
            )

    def _check_handlers(self) -> None:
        if self.ceiling_per_s < 2 * self.least_per_s:
            raise HarnessError(
                f"handler_ms is {self.handler_ms:g}: {self.workers_measured} workers of {self.handlers_at_once} handlers do at "
                f"most {self.ceiling_per_s:.3g} jobs/s, too few for a p99 in {self.step_s:g} s; possible are handlers of at most "
                f"{self._handler_ms_at(2 * self.least_per_s):g} ms, or more of them at once"
            )

    def _handler_ms_at(self, rate_per_s: float) -> float:
        """The longest handlers with which the slots do this rate."""
        return math.floor(10_000 * self.workers_measured * self.handlers_at_once / rate_per_s) / 10


def target_ms(handler_ms: float) -> float:
    """A target with room to queue, for such a handler."""
    return max(TARGET_LEAST_MS, TARGET_TIMES * handler_ms)
