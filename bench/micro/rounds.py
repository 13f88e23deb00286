"""Alternating repetitions, and the statistics over them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeVar

from bench.micro.place import evalsha_stats, server_cpu_s

T = TypeVar("T")


class Cost(NamedTuple):
    """The cost per job in one repetition. The rate is bounded by the process whose CPU time is close to the total time.

    `script_us` is the server's time inside scripts, part of `server_us`.
    """

    jobs_per_s: float
    script_us: float
    server_us: float
    client_us: float


class Side:
    """The measurements of one side of a comparison in one repetition."""

    def __init__(self) -> None:
        self._jobs, self._seconds, self._script_us, self._server_s, self._client_s = 0, 0.0, 0.0, 0.0, 0.0

    def run(self, work: Callable[[int], object], jobs: int, plain: Any) -> None:
        """Run and measure one block."""
        plain.config_resetstat()
        server_s, client_s, started_ns = server_cpu_s(plain), time.process_time(), time.monotonic_ns()
        work(jobs)
        self._seconds += (time.monotonic_ns() - started_ns) / 1e9
        self._client_s += time.process_time() - client_s
        self._server_s += server_cpu_s(plain) - server_s
        self._script_us += evalsha_stats(plain)[1]
        self._jobs += jobs

    def cost(self) -> Cost:
        """The cost per job."""
        return Cost(
            self._jobs / self._seconds,
            *(1e6 * seconds / self._jobs for seconds in (self._script_us / 1e6, self._server_s, self._client_s)),
        )


def columns(rows: Mapping[str, Sequence[Cost]]) -> dict[str, dict[str, list[float]]]:
    """The costs as field -> row -> values, for the JSON file."""
    return {field: {name: [getattr(cost, field) for cost in costs] for name, costs in rows.items()} for field in Cost._fields}


def in_turns(cases: Mapping[str, Callable[[], T]], repeat: int, report: Callable[[str], None]) -> dict[str, list[T]]:
    """Run each case `repeat` times; each round starts with another case, so that none always runs first."""
    names = list(cases)
    results: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(repeat):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            results[name].append(cases[name]())
        report(f"repetition {turn + 1} of {repeat}")
    return results


def alternate(
    plain: Any, jobs: int, block: int, ours: Callable[[int], object], theirs: Callable[[int], object]
) -> tuple[Side, Side]:
    """So many jobs of each of two sides on an emptied server, alternating in blocks."""
    plain.flushall()
    mine, other = Side(), Side()
    size = min(block, jobs)
    for number in range(2 * (jobs // size)):
        # The order is ours, theirs, theirs, ours, ..., so that a drift of the machine favours neither side.
        first = number % 4 in (0, 3)
        (mine if first else other).run(ours if first else theirs, size, plain)
    return mine, other


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of adjacent repetitions: a disturbance that slows both sides cancels out."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def ratio_interval(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 1, draws: int = 1000) -> tuple[float, float]:
    """95 % interval of `ratio`, by resampling the rounds."""
    return median_interval([mine / other for mine, other in zip(ours, theirs, strict=True)], seed=seed, draws=draws)


def median_interval(values: Sequence[float], *, seed: int = 1, draws: int = 1000) -> tuple[float, float]:
    """95 % interval of the median, by resampling."""
    return resampled(lambda draw: median(draw.choices(values, k=len(values))), seed=seed, draws=draws)


def interval(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], share: float, *, seed: int = 1, draws: int = 1000
) -> tuple[float, float]:
    """95 % interval of the ratio of two quantiles, by resampling whole slices: samples within a slice share disturbances, so
    only slices are independent."""

    def of(draw: random.Random) -> float:
        top, bottom = ([value for slice_ in draw.choices(all_, k=len(all_)) for value in slice_] for all_ in (ours, theirs))
        return quantile(top, share) / quantile(bottom, share)

    return resampled(of, seed=seed, draws=draws)


def resampled(estimate: Callable[[random.Random], float], *, seed: int = 1, draws: int = 1000) -> tuple[float, float]:
    """The 95 % interval of an estimate that is made so often, each time of other draws."""
    random_draws = random.Random(seed)
    found = [estimate(random_draws) for _ in range(draws)]
    return quantile(found, 0.025), quantile(found, 0.975)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
