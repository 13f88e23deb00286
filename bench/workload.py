"""The seeded workload: the instant of each job, and what its handler will do. Pure arithmetic, no I/O.

Arrivals are Poisson: independent producers behave that way, and only bursts make jobs queue, so evenly spaced arrivals would
hide queueing delay. Each job takes a fixed number of draws, and only `Random.random()` is used, the one generator whose
sequence Python guarantees. So the same seed gives the same jobs in every process, and another rate changes the instants of the
jobs but not their content.
"""

from __future__ import annotations

import json
import math
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: Names of the jobs; `bench.handlers` has a handler for each.
NAMES = ("email", "thumbnail", "report")

#: Usual size of an encoded payload: 200 bytes, give or take 50, as is typical of small job payloads.
SMALL_BYTES = (150, 250)
#: Size of the few large payloads, uniform on a logarithmic scale.
LARGE_BYTES = (1024, 16 * 1024)
#: Least and greatest delay of a delayed job.
DELAY_MS = (50, 2000)
#: Priority of two jobs in three; the others are spread evenly over all ten priorities.
USUAL_PRIORITY = 5
USUAL_PRIORITY_SHARE = 2 / 3
#: Tenants, used as keys of keyed jobs: few, so that the limit of each key is reached.
KEYS = tuple(f"tenant-{number}" for number in range(1, 7))
#: Unique keys: few, so that some jobs are refused because a job with the same key has not ended.
UNIQUE_KEYS = tuple(f"only-{number}" for number in range(1, 5))
#: Concurrency limits of the workload, as arguments of `Queue.set_limit`. They are reached in bursts and while a backlog is
#: processed, but are far above what the load needs on average (a third of the jobs has the name, one in twenty a tenant).
LIMITS: tuple[dict[str, Any], ...] = ({"name": "report", "concurrency": 6}, {"key": "*", "concurrency": 2})
#: Rate limit of a name in a drill: so many jobs in a window, `RATE_ROOM` times what the load has of that name on average. Where
#: the average is 8, bursts bring 14 or more in 1 window of 29: a short drill reaches the limit too, and little has to wait.
RATED = "report"
RATE_JOBS = 14
RATE_ROOM = 1.75
#: Schedules of the workload: they tick every `every_ms`, and each tick creates a short job.
SCHEDULES: tuple[dict[str, Any], ...] = ({"name": "beat", "every_ms": 500},)
SCHEDULED_PAYLOAD: dict[str, Any] = {"index": -1, "work_ms": 5, "fail_first": 0, "pad": ""}
#: Name of the only field of a payload in a wire format that holds only strings.
PLAN_TEXT = "plan"
#: A job with parents has one or two, each at most this many jobs before it.
PARENTS_BACK = 6
#: The capability that routed jobs require; the drill's worker processes have it, the consumers inside Locust do not.
CAPABILITY = "heavy"
#: Environment variable: the control file of a process inside which faults act (chaos/preload). As its wall clock may be set, its
#: handlers say what it shows.
CONTROL_VARIABLE = "IRONCLAIM_CONTROL"
#: Environment variable: a file that a fault makes, with the number of bytes that the next handler is to take and never give back.
GROW_VARIABLE = "IRONCLAIM_GROW"
#: Spread of handler times (log-logistic: long right tail, closed form). With 0.4 the mean is a third above the median.
WORK_SPREAD = 0.4
#: Largest share of the worker slots that the load may keep busy, so that recovery times do not measure a backlog.
OFFERED_LOAD_MAX = 0.6

_ID_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_PAD_SOURCE_BYTES = 2 * LARGE_BYTES[1]
_MEAN_STEPS = 10_000


class WorkloadError(ValueError):
    """A workload setting is out of bounds; the message names the field, the value and the bound."""


def plan_of(payload: Any) -> dict[str, Any]:
    """The handler's instructions in a payload, also when they were encoded as one string."""
    return json.loads(payload[PLAN_TEXT]) if PLAN_TEXT in payload else payload


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One job to send: `offset_ms` after the start of the schedule, with the arguments of `Queue.enqueue`.

    `payload` holds the handler's instructions: wait `work_ms`, and fail the first `fail_first` runs.
    """

    index: int
    offset_ms: float
    id: str
    name: str
    payload: dict[str, Any]
    delay_ms: int
    priority: int
    attempts: int
    backoff_ms: int
    work_ms: int
    fail_first: int
    key: str | None = None
    unique: str | None = None
    needs: tuple[str, ...] = ()
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a run. `jobs_max` None = no end. Shares are fractions of all jobs.

    Raises WorkloadError naming field, value and bound.
    """

    seed: int
    rate_per_s: float
    id_prefix: str = ""
    jobs_max: int | None = None
    delayed_share: float = 0.05
    failing_share: float = 0.005
    hopeless_share: float = 0.001
    large_share: float = 0.02
    keyed_share: float = 0.3
    unique_share: float = 0.08
    needs_share: float = 0.05
    routed_share: float = 0.1
    work_median_ms: int = 30
    work_max_ms: int = 300
    attempts: int = 3
    backoff_ms: int = 500

    def __post_init__(self) -> None:
        _check_whole("seed", self.seed, 0, 2**63 - 1)
        _check_number("rate_per_s", self.rate_per_s, 0.1, 10_000)
        if self.jobs_max is not None:
            _check_whole("jobs_max", self.jobs_max, 0, 10**9)
        for field in (
            *("routed_share", "delayed_share", "failing_share", "hopeless_share", "large_share", "keyed_share"),
            *("unique_share", "needs_share"),
        ):
            _check_number(field, getattr(self, field), 0, 1)
        _check_number("failing_share + hopeless_share", self.failing_share + self.hopeless_share, 0, 1)
        _check_whole("work_max_ms", self.work_max_ms, 1, 60_000)
        _check_whole("work_median_ms", self.work_median_ms, 1, self.work_max_ms)
        _check_whole("attempts", self.attempts, 1, 100)
        _check_whole("backoff_ms", self.backoff_ms, 0, 3_600_000)
        if not self.id_prefix:
            object.__setattr__(self, "id_prefix", f"b{self.seed}")
        if not _ID_PREFIX.fullmatch(self.id_prefix) or self.id_prefix.startswith("cron:"):
            raise WorkloadError(f"id_prefix: {self.id_prefix!r} is not 1 to 100 of A-Z a-z 0-9 _ . : - (and not cron:...)")

    def jobs(self, part: int = 0, parts: int = 1) -> Iterator[PlannedJob]:
        """The jobs in order of their instants. Of `parts` senders, sender `part` gets the indexes with index % parts == part.

        Together the senders send every index once, without communication.
        """
        _check_whole("parts", parts, 1, 10_000)
        _check_whole("part", part, 0, parts - 1)
        return self._jobs(part, parts)

    def _jobs(self, part: int, parts: int) -> Iterator[PlannedJob]:
        rng = random.Random(self.seed)
        pad_source = "".join(string.ascii_letters[int(rng.random() * 52)] for _ in range(_PAD_SOURCE_BYTES))
        # The sum is in units of the mean gap, so that another rate scales the instants exactly.
        gaps = 0.0
        index = 0
        while self.jobs_max is None or index < self.jobs_max:
            gaps -= math.log(1.0 - rng.random())
            draws = [rng.random() for _ in range(15)]
            if index % parts == part:
                yield self._plan(index, round(gaps * 1000 / self.rate_per_s, 3), draws, pad_source)
            index += 1

    def _plan(self, index: int, offset_ms: float, draws: list[float], pad_source: str) -> PlannedJob:
        work_ms = self._work_ms(draws[0])
        fail_first = self._fail_first(draws[1], draws[2])
        payload: dict[str, Any] = {"index": index, "work_ms": work_ms, "fail_first": fail_first, "pad": ""}
        pad_bytes = max(0, self._payload_bytes(draws[3], draws[4]) - len(json.dumps(payload)))
        pad_start = int(draws[5] * (_PAD_SOURCE_BYTES - pad_bytes))
        payload["pad"] = pad_source[pad_start : pad_start + pad_bytes]
        usual = draws[7] < USUAL_PRIORITY_SHARE
        return PlannedJob(
            index=index,
            offset_ms=offset_ms,
            id=f"{self.id_prefix}-{index}",
            name=NAMES[int(draws[6] * len(NAMES))],
            payload=payload,
            delay_ms=self._delay_ms(draws[9]),
            priority=USUAL_PRIORITY if usual else 1 + int(draws[8] * 10),
            attempts=self.attempts,
            backoff_ms=self.backoff_ms,
            work_ms=work_ms,
            fail_first=fail_first,
            key=_one_of(KEYS, draws[10], self.keyed_share),
            unique=_one_of(UNIQUE_KEYS, draws[11], self.unique_share),
            needs=self._needs(index, draws[12], draws[13]),
            routed=draws[14] < self.routed_share,
        )

    def _work_ms(self, draw: float) -> int:
        """Quantile of the handler time at `draw`, 0 <= draw < 1: log-logistic around the median, cut at the maximum."""
        return min(self.work_max_ms, round(self.work_median_ms * (draw / (1.0 - draw)) ** WORK_SPREAD))

    def _fail_first(self, draw: float, how_often: float) -> int:
        """Number of runs that fail before one succeeds. If it equals the attempts, no run succeeds and the job ends dead."""
        if draw < self.hopeless_share:
            return self.attempts
        if draw < self.hopeless_share + self.failing_share:
            return min(1 + int(how_often * 2), self.attempts - 1)
        return 0

    def _payload_bytes(self, draw: float, size: float) -> int:
        if draw < self.large_share:
            smallest, largest = LARGE_BYTES
            return round(smallest * (largest / smallest) ** size)
        return SMALL_BYTES[0] + int(size * (SMALL_BYTES[1] - SMALL_BYTES[0] + 1))

    def _delay_ms(self, draw: float) -> int:
        """One draw decides whether the job is delayed and for how long: below the share, its position in the share gives the
        delay."""
        if draw >= self.delayed_share:
            return 0
        return DELAY_MS[0] + int(draw / self.delayed_share * (DELAY_MS[1] - DELAY_MS[0] + 1))

    def _needs(self, index: int, draw: float, which: float) -> tuple[str, ...]:
        """Ids of one or two jobs shortly before this one."""
        if draw >= self.needs_share or index < PARENTS_BACK:
            return ()
        back = 1 + int(which * PARENTS_BACK)
        return tuple(f"{self.id_prefix}-{index - each}" for each in sorted({back, 1 + PARENTS_BACK // 2}))

    def mean_work_ms(self) -> float:
        """Expected handler time of one run in ms: the mean of the quantiles."""
        return sum(self._work_ms((step + 0.5) / _MEAN_STEPS) for step in range(_MEAN_STEPS)) / _MEAN_STEPS

    def mean_runs(self) -> float:
        """Expected handler runs of one job: failing jobs run again, hopeless ones until their attempts are used up."""
        once = sum(min(failed, self.attempts - 1) for failed in (1, 2)) / 2
        return 1 + self.failing_share * once + self.hopeless_share * (self.attempts - 1)

    def offered_load(self, workers: int, concurrency: int) -> float:
        """Share of the handler slots of `workers` that the workload keeps busy; 1.0 = all slots.

        Required slot seconds per second (rate x runs per job x handler time), divided by the slots.
        """
        _check_whole("workers", workers, 1, 10_000)
        _check_whole("concurrency", concurrency, 1, 10_000)
        return self.rate_per_s * self.mean_runs() * self.mean_work_ms() / 1000 / (workers * concurrency)


def _one_of(words: tuple[str, ...], draw: float, share: float) -> str | None:
    """One draw decides whether a word is chosen and which: below the share, its position in the share selects the word."""
    return words[int(draw / share * len(words))] if draw < share else None


def _check_whole(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise WorkloadError(f"{field}: {value!r} is not a whole number from {low} to {high}")


def _check_number(field: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise WorkloadError(f"{field}: {value!r} is not a number from {low:g} to {high:g}")
