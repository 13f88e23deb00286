"""What the samples of a step come to, and whether the step meets its target. Pure arithmetic."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import redis

from bench.micro.rounds import quantile
from chaos.capacity.search import MET, MISSED, VOID
from engine import Queue

#: A driver that uses more of its core sends late, and then measures itself.
DRIVER_MAX = 0.8

#: And sends that are later than this part of the target (p99) are a driver that had no turn: the machine was busy.
LATE_SHARE = 0.2

#: A load of a service that needs more of the time to yield its jobs is what is measured, and not the service.
LOAD_MAX = 0.8

#: The first part of a step, in which an empty queue fills up to its usual length, is no slope.
LEAD_SHARE = 0.2

#: Fewer samples make no interval.
SAMPLES_MIN = 8

#: Commands that clients and servers send; all others run inside of scripts.
SENT = frozenset(
    (
        *("evalsha", "eval", "fcall", "script", "blpop", "bzpopmin", "blmove", "xread", "wait"),
        *("hello", "client", "ping", "info", "config", "select", "auth", "command", "subscribe", "psubscribe"),
        *("replconf", "psync", "sentinel", "cluster", "readonly", "role"),
    )
)

#: Buckets of a histogram: each bound is so many times the one before.
BUCKET = 1.05
BUCKET_FIRST_MS = 0.1


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank in ascending values; 0 of none."""
    return quantile(ordered, share) if ordered else 0.0


def histogram(values_ms: Sequence[float]) -> list[tuple[float, float, int]]:
    """(lower, upper, count) of each bucket that is not empty, with bounds that grow by 5 %."""
    counts: dict[int, int] = {}
    for value_ms in values_ms:
        place = max(0, math.floor(math.log(max(value_ms, BUCKET_FIRST_MS) / BUCKET_FIRST_MS) / math.log(BUCKET)))
        counts[place] = counts.get(place, 0) + 1
    return [(_bound(place), _bound(place + 1), counts[place]) for place in sorted(counts)]


def _bound(place: int) -> float:
    return round(BUCKET_FIRST_MS * BUCKET**place, 4)


def void_reason(cpu_share: float, late_p99_ms: float, target_ms: float, samples: int) -> str | None:
    """Why a step proves nothing; None when it does. `samples`: of the backlog."""
    if samples < SAMPLES_MIN:
        return f"only {samples} samples of the backlog, fewer than {SAMPLES_MIN}"
    if cpu_share > DRIVER_MAX:
        return f"the driver used {cpu_share:.2f} of its core, more than {DRIVER_MAX:g}"
    if late_p99_ms > LATE_SHARE * target_ms:
        return f"the driver was {late_p99_ms:.0f} ms late (p99), more than {LATE_SHARE:g} of the target: the machine was busy"
    return None


def load_reason(made: int, made_s: float, seconds: float) -> str | None:
    """Why a step at a rate that the load itself does not yield proves nothing; None when it does."""
    if made_s <= LOAD_MAX * seconds:
        return None
    return f"the load itself yields at most {made / made_s:.4g} jobs/s: it took {made_s / max(1, made) * 1000:.3g} ms for each"


def outcome(void: str | None, *, p99_ms: float, target_ms: float, slope_low_per_s: float, dropped: int) -> str:
    """Whether a step meets: p99 within the target, no backlog that certainly grows, nothing dropped."""
    if void is not None:
        return VOID
    return MET if p99_ms <= target_ms and slope_low_per_s <= 0 and not dropped else MISSED


#: Looks whose mean is the cost of one.
COST_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Used:
    """What a server has done since it began, or between two looks. Calls and microseconds are by command: those of a script
    contain those of the commands that it calls, which are counted once more under their own names. `exchanges`: requests that
    were answered, of which a pipeline is one."""

    cpu_s: float = 0.0
    net_bytes: float = 0
    exchanges: float = 0
    calls: Mapping[str, float] = field(default_factory=dict[str, float])
    us: Mapping[str, float] = field(default_factory=dict[str, float])

    def less(self, other: Used, times: float = 1) -> Used:
        """What is left without so many times the other; nothing falls below 0."""
        return Used(
            max(0.0, self.cpu_s - times * other.cpu_s),
            max(0, self.net_bytes - times * other.net_bytes),
            max(0, self.exchanges - times * other.exchanges),
            {name: max(0, value - times * other.calls.get(name, 0)) for name, value in self.calls.items()},
            {name: max(0, value - times * other.us.get(name, 0)) for name, value in self.us.items()},
        )

    def shared(self, parts: float) -> Used:
        """The part of one of so many jobs, or looks."""
        each = [{name: value / parts for name, value in one.items()} for one in (self.calls, self.us)]
        return Used(self.cpu_s / parts, self.net_bytes / parts, self.exchanges / parts, *each)


@dataclass(frozen=True, slots=True)
class Look:
    """One look. The jobs were counted between its two instants. `server` and `workers_cpu_s` are totals."""

    from_ns: int
    until_ns: int
    in_system: int
    server: Used
    workers_cpu_s: float

    @property
    def t_ns(self) -> int:
        """When it was."""
        return (self.from_ns + self.until_ns) // 2


class Looker:
    """Looks at the queue, its server, and the worker processes."""

    def __init__(self, queue: Queue, server: redis.Redis, pids: Callable[[], Mapping[str, int]]) -> None:
        self._queue, self._server, self._pids = queue, server, pids

    def cost(self) -> Used:
        """What one look costs the server, which is no part of what jobs cost it; while nothing else goes on."""
        # The first one connects and loads its script.
        before, after = [self.look() for _ in range(COST_LOOKS + 2)][1::COST_LOOKS]
        return after.server.less(before.server).shared(COST_LOOKS)

    def look(self) -> Look:
        """One look. Raises EngineError and redis.RedisError."""
        from_ns = time.monotonic_ns()
        counts = self._queue.counts()
        until_ns = time.monotonic_ns()
        times = [psutil.Process(pid).cpu_times() for name, pid in self._pids().items() if name.startswith("worker-")]
        return Look(
            from_ns,
            until_ns,
            counts.waiting + counts.active + counts.delayed,
            used(self._server.info("everything")),
            sum(each.user + each.system for each in times),
        )


def used(info: Any) -> Used:
    """The totals in the answer to INFO."""
    calls, us = Counter[str](), Counter[str]()
    for name, value in info.items():
        if name.startswith("cmdstat_"):
            command = name.removeprefix("cmdstat_").partition("|")[0]
            calls[command] += value["calls"]
            us[command] += value["usec"]
    return Used(
        info["used_cpu_user"] + info["used_cpu_sys"],
        info["total_net_input_bytes"] + info["total_net_output_bytes"],
        # A large request is read in several parts, and what nobody asked for is written too.
        min(info["total_reads_processed"], info["total_writes_processed"]),
        calls,
        us,
    )


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a handler, on the monotonic clock: its begin and end, and when the server had answered the call that reported
    the end."""

    start_ns: int
    end_ns: int
    reported_ns: int


class HandlerTimes:
    """The lines of `bench.handler_times`, read as they come. Of a job that ran again the first line counts. `configured`: what
    the worker of a file has configured."""

    def __init__(self) -> None:
        self.ran: dict[str, Ran] = {}
        self.configured: dict[Path, dict[str, Any]] = {}
        self._read: dict[Path, int] = {}
        self._noted: Counter[Path] = Counter()

    def read(self, path: Path) -> int:
        """Read what was added to a file; how many ends of jobs it has noted so far."""
        if path.exists():
            done = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(done)
                whole = file.read()
            whole = whole[: whole.rfind(b"\n") + 1]
            for line in whole.decode().splitlines():
                if line.startswith("{"):
                    self.configured[path] = json.loads(line)
                    continue
                job, *instants = line.split()
                self.ran.setdefault(job, Ran(*map(int, instants)))
                self._noted[path] += 1
            self._read[path] = done + len(whole)
        return self._noted[path]
