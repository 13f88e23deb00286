"""The drill of a soak, and what is fitted to it.

Worker 1 is never killed nor stopped, only the network is taken from it at times; its resident memory and the server's
`used_memory` are sampled every second, and from second 60 on a line is fitted to each, and to the latency of jobs, which is the
median and the p99 of those due in each 10 s. A slope of 1 MB a minute or more is a leak; so is one of the median whose whole
interval is above 1 ms a minute.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from chaos import slopes
from chaos.drill import Drill
from chaos.faults import FAULTS
from chaos.faults.base import carry_out as strike
from chaos.plan import FAULT_NAMES, NETWORK_FAULT_NAMES, PRODUCER, PlannedFault, worker_names
from chaos.progress import Progress
from chaos.slopes import Sample, Slope
from chaos.tail import Tail

STEADY, LEAKING, UNKNOWN = 0, 1, 2
WORDS = {STEADY: "steady", LEAKING: "leaking", UNKNOWN: "unknown"}

#: MB a minute from which on it is a leak, and ms a minute that the median of latency surely grows by.
SLOPE_MAX = 1.0
LATENCY_SLOPE_MAX = 1.0

SCHEMA = 1
FILE = "soak.json"

#: Of each figure so many samples at most are kept for the page.
POINTS_MAX = 2_000

#: The figure of latency that tells.
MEDIAN = "median of latency"

#: Until then caches and pools fill.
WARM_UP_S = 60
FAULT_EVERY_S = 10

#: A soak whose faults did not bite proves little: this part of them must have been seen.
WITNESSED_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Times:
    """How long a soak lasts, from the first job on, and from when on it is measured."""

    total_s: float
    warm_up_s: float = WARM_UP_S
    fault_every_s: float = FAULT_EVERY_S


def draw(seed: int, workers: Sequence[str], count: int) -> tuple[PlannedFault, ...]:
    """So many faults, a pure function of the seed: of all kinds in turn, in a new order each round. The first worker is hit by
    faults of the network alone."""
    randomness = random.Random(f"ironclaim soak {seed}")
    alive, started = list(workers), len(workers)
    kinds: list[str] = []
    faults: list[PlannedFault] = []
    for number in range(1, count + 1):
        kinds = kinds or randomness.sample(FAULT_NAMES, len(FAULT_NAMES))
        name, victim, replacement = kinds.pop(), randomness.randrange(1, len(alive)), ""
        target = alive[victim]
        if name == "worker-kill":
            started += 1
            replacement = alive[victim] = f"worker-{started}"
        elif name in NETWORK_FAULT_NAMES:
            target = ",".join([*alive, PRODUCER])
        faults.append(PlannedFault(f"{number}-{name}", name, target, 0, replacement))
    return tuple(faults)


class Soak(Drill):
    """A drill that puts a fault on every so many seconds until its time is over, and is not judged."""

    times: Times = Times(5 * 60)
    #: When the load began and ended (monotonic s); 0 = not yet.
    begun_s: float = 0.0
    ended_s: float = 0.0

    def _carry_out(self) -> None:
        """Load and faults until the time is over, then an orderly end."""
        kept_ms = self.spec.retention_ms
        if kept_ms:
            self._queue.set_retention(done_age_ms=kept_ms, dead_age_ms=kept_ms)
        self._begin_load()
        self.begun_s = time.monotonic()
        end_s = self.begun_s + self.times.total_s
        scene = self._scene()
        for number, planned in enumerate(self.plan.faults, start=1):
            due_s = max(time.monotonic(), self.begun_s + number * self.times.fault_every_s)
            # The last fault is over before the end.
            if due_s + self.times.fault_every_s > end_s:
                break
            self._hold(round(due_s * 1e9))
            self._fault = f"{planned.fault} on {planned.target}"
            strike(FAULTS[planned.name](scene, planned), planned, harness=self._harness, begin_phase=self._begin_phase)
            self._fault = ""
        self._begin_phase("settle", time.monotonic_ns())
        self._hold(round(end_s * 1e9))
        self.ended_s = time.monotonic()
        self._begin_phase("end", time.monotonic_ns())

    @cached_property
    def series(self) -> dict[str, tuple[str, list[Sample]]]:
        """Figure -> its unit and samples."""
        samples, steady = self.folder.samples, worker_names(1)[0]
        jobs = slopes.latencies(self.folder.history, self.spec.rate_per_s * self.times.total_s)
        return {
            f"memory of {steady}": (slopes.MEMORY, slopes.process_memory(samples, steady)),
            "used_memory of the server": (slopes.MEMORY, slopes.server_memory(samples)),
            MEDIAN: (slopes.LATENCY, slopes.percentiles(jobs, 0.5, self.begun_s)),
            "p99 of latency": (slopes.LATENCY, slopes.percentiles(jobs, 0.99, self.begun_s)),
        }

    def slopes(self) -> list[Slope]:
        """The lines of memory and latency."""
        begin_s, every_s = self.begun_s + self.times.warm_up_s, {slopes.MEMORY: 1.0, slopes.LATENCY: slopes.WINDOW_S}
        return [
            slopes.slope(what, samples, begin_s, self.ended_s, unit=unit, every_s=every_s[unit])
            for what, (unit, samples) in self.series.items()
        ]

    def content(self) -> dict[str, Any]:
        """What the page is drawn from. Seconds count from the begin of the load; what was not measured is null."""
        lines = [
            {
                **{name: None if value != value else value for name, value in asdict(line).items()},
                "interval": None if line.complaint else list(line.interval),
                "points": [[round(at_s - self.begun_s, 3), value] for at_s, value in thinned(self.series[line.what][1])],
            }
            for line in self.slopes()
        ]
        times = {"warm_up_s": self.times.warm_up_s, "total_s": self.ended_s - self.begun_s}
        return {"schema": SCHEMA, "id": self.spec.id, **times, "lines": lines}

    def witnessed(self) -> tuple[int, int]:
        """How many faults were put on, and how many of them were seen to bite."""
        harness = Tail(self.folder.history / "harness.jsonl")
        rows = [row for row in harness.read() if row.get("kind") == "fault" and row.get("stage") == "witness"]
        harness.close()
        return len(rows), sum(row.get("result") == "ok" for row in rows)


def thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Some of them, evenly."""
    return samples[:: max(1, math.ceil(len(samples) / POINTS_MAX))]


def grows(line: Slope) -> bool:
    """Whether a line is a leak. The p99 is only told: it is that of the faults."""
    if line.unit == slopes.MEMORY:
        return line.per_minute >= SLOPE_MAX
    return line.what == MEDIAN and line.interval[0] > LATENCY_SLOPE_MAX


def verdict(drill: Soak, progress: Progress) -> int:
    """Say what came of it; the exit code."""
    for error in drill.errors:
        progress.say(f"harness: {error}")
    if not drill.ended_s:
        progress.say("soak: unknown, it was not carried out to its end")
        return UNKNOWN
    lines = drill.slopes()
    faults, seen = drill.witnessed()
    for line in lines:
        progress.say(str(line))
    progress.say(f"faults: {faults}, seen to bite: {seen}")
    if any(map(grows, lines)):
        code = LEAKING
    elif drill.errors or any(line.complaint for line in lines) or seen < WITNESSED_SHARE * faults:
        code = UNKNOWN
    else:
        code = STEADY
    bound = f"{SLOPE_MAX:g} MB a minute or more, or surely {LATENCY_SLOPE_MAX:g} ms of the median"
    progress.say(f"soak: {WORDS[code]} (a leak is {bound}, from second {drill.times.warm_up_s:g} on)")
    return code
