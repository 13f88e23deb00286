"""What is simulated: the load, the system, what it loses, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reports.capacity.measurement import Bin
from reports.errors import JudgeError

#: So many values of a kind, in ms.
Sampler = Callable[[np.random.Generator, int], np.ndarray]

#: More jobs than this take minutes.
JOBS_MAX = 2_000_000

#: How jobs arrive: evenly, as from the schedule of one driver, or at random, as from many independent producers.
EVEN, RANDOM = "even", "random"


@dataclass(frozen=True, kw_only=True)
class Load:
    """The jobs. `warm_up_s`: the jobs due before it are not counted. `due_s`: the very instants, ascending, instead of `arrivals`
    at `rate`. `priorities`: the share of each, the most urgent first.
    `failure_share`: of runs that fail; a job runs at most `attempts` times."""

    rate: float
    seconds: float
    warm_up_s: float = 0.0
    arrivals: str = RANDOM
    due_s: Sequence[float] = ()
    priorities: tuple[float, ...] = (1.0,)
    failure_share: float = 0.0
    retry_ms: float = 1_000.0
    attempts: int = 3


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A worker, or a shard's primary when `worker` is None, that is away for a while. `recovery_s`: after so long the jobs of
    the worker wait again."""

    at_s: float
    shard: int = 0
    worker: int | None = None
    away_s: float
    recovery_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class System:
    """Shards with workers. `service`: how long a job takes a place, its worker's processor time included, of which only the queue
    is added; `pickup`: what passes beside service and server when nothing is busy, which takes no place. `limit`: jobs that
    may run at once in a shard."""

    service: Sampler
    pickup: Sampler | None = None
    shards: int = 1
    workers: int = 1
    handlers_at_once: int = 1
    server_us_per_job: float = 0.0
    worker_us_per_job: float = 0.0
    limit: int | None = None
    losses: Sequence[Loss] = ()


@dataclass(frozen=True)
class Outcome:
    """What came of the jobs that count. `latencies_ms`: from due to the end; `waits_ms`: the queues in it; and `priorities`: all
    of those that finished, also after the load. `waiting` and `running`: means while it lasted; `left`: jobs not ended then."""

    latencies_ms: np.ndarray
    waits_ms: np.ndarray
    priorities: np.ndarray
    waiting: float
    running: float
    dead: int
    left: int

    def percentile(self, share: float) -> float:
        """A percentile of the latencies."""
        return float(np.quantile(self.latencies_ms, share))


def check(load: Load, system: System) -> None:
    """Raise JudgeError, naming the field, its value and its bound, for what cannot be simulated."""
    for name, value in (
        ("rate", load.rate),
        ("seconds", load.seconds - load.warm_up_s),
        ("shards", system.shards),
        ("workers", system.workers),
        ("handlers_at_once", system.handlers_at_once),
        ("attempts", load.attempts),
    ):
        if value <= 0:
            raise JudgeError(f"{name} is {value:g}, it must be above 0")
    if load.rate * load.seconds > JOBS_MAX:
        raise JudgeError(
            f"{load.rate:,.0f} jobs/s for {load.seconds:g} s are more than {JOBS_MAX:,} jobs: "
            f"{JOBS_MAX / load.rate:.1f} s can be simulated"
        )
    if not 0 <= load.failure_share <= 1:
        raise JudgeError(f"failure_share is {load.failure_share:g}, it must be from 0 to 1")
    if load.arrivals not in (EVEN, RANDOM):
        raise JudgeError(f"arrivals is {load.arrivals!r}, it must be {EVEN} or {RANDOM}")
    if not load.priorities or min(load.priorities) < 0 or abs(sum(load.priorities) - 1) > 1e-9:
        raise JudgeError(f"priorities is {load.priorities}, it must be shares that are 1 together")
    for loss in system.losses:
        if not 0 <= loss.shard < system.shards or not 0 <= (loss.worker or 0) < system.workers:
            raise JudgeError(f"a loss is of worker {loss.worker} in shard {loss.shard}, which does not exist")


def constant(ms: float) -> Sampler:
    """Always the same."""
    return lambda _, count: np.full(count, ms)


def exponential(mean_ms: float) -> Sampler:
    """An exponential distribution."""
    return lambda draw, count: draw.exponential(mean_ms, count)


def measured(bins: Sequence[Bin], later_ms: float = 0.0) -> Sampler:
    """A measured histogram, even inside its bins, and moved. Raises JudgeError for an empty one."""
    lower, upper, counts = (np.array(column, dtype=float) for column in zip(*bins, strict=True)) if bins else (np.zeros(0),) * 3
    if not counts.sum():
        raise JudgeError("a histogram is empty, so nothing can be drawn from it: measure it again")
    shares = counts / counts.sum()

    def drawn(draw: np.random.Generator, count: int) -> np.ndarray:
        places = draw.choice(len(shares), count, p=shares)
        return np.maximum(0.0, lower[places] + (upper[places] - lower[places]) * draw.random(count) + later_ms)

    return drawn


def quantiles(bins: Sequence[Bin], shares: np.ndarray) -> np.ndarray:
    """Quantiles of a histogram, even inside its bins."""
    edges = np.array([value for one in bins for value in (one.lower_ms, one.upper_ms)])
    before = np.concatenate([[0.0], np.cumsum([one.count for one in bins])])
    reached = np.stack([before[:-1], before[1:]], axis=1).ravel() / before[-1]
    return np.interp(shares, reached, edges)
