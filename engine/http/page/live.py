"""The live numbers of a queue: one sampler for all who look at it, which makes two calls a second and keeps
five minutes.

With more lanes than one call looks at, each look is a part; the parts of a whole round make the number that
is shown.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import EngineError
from engine.http.page.looks import LanesRound, ObstaclesRound, SomeWorkers, looks_at
from engine.ops.looks import Counts
from engine.ops.workers import Durations, HandlerTimes
from engine.queue.asynchronous.queue import AsyncQueue

EVERY_S = 1.0
#: Samples that a page which is opened gets at once, and queues that are kept while nobody looks.
KEPT = 300
QUEUES_KEPT = 64
#: Run times are of the runs of the last minute: workers tell of theirs every ten seconds.
_TIMES_SPAN_MS = 60_000
_WORKERS_MAX = 200
#: Names in a sample.
_NAMES_MAX = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """A queue at one instant (`at_ms`, server time). `least`: not all lanes have been counted yet. Rates are
    since the sample before, None in the first. Run times are of the last minute, None where nothing ran.
    `arrived_per_s` counts what came less what was cancelled. `error`: why the server was not asked, '' where
    it was."""

    at_ms: int
    waiting: int = 0
    least: bool = False
    delayed: int = 0
    blocked: int = 0
    active: int = 0
    dead: int = 0
    finished: int = 0
    dead_total: int = 0
    arrived_per_s: float | None = None
    finished_per_s: float | None = None
    dead_per_s: float | None = None
    oldest_ms: int | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    workers: int | None = None
    in_hand: int | None = None
    places: int | None = None
    names: tuple[tuple[str, int], ...] = ()
    error: str = ""

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class RunTimes:
    """Run times of the last minute, from sums that only grow."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, dict[int, int]]] = deque()

    def add(self, now_ms: int, times: tuple[HandlerTimes, ...]) -> None:
        """What the server has counted by now."""
        buckets: dict[int, int] = {}
        for found in times:
            for durations in (found.succeeded, found.failed):
                for bucket, runs in durations.buckets:
                    buckets[bucket] = buckets.get(bucket, 0) + runs
        self._kept.append((now_ms, buckets))
        while len(self._kept) > 1 and self._kept[1][0] <= now_ms - _TIMES_SPAN_MS:
            self._kept.popleft()

    def percentiles_ms(self) -> tuple[float | None, float | None]:
        """p50 and p99; None where nothing ran."""
        if len(self._kept) < 2:
            return None, None
        before, now = self._kept[0][1], self._kept[-1][1]
        grown = tuple((bucket, runs - before.get(bucket, 0)) for bucket, runs in sorted(now.items()))
        ran = tuple((bucket, runs) for bucket, runs in grown if runs > 0)
        if not ran:
            return None, None
        # How long the longest of them took is not known: its bucket bounds it.
        durations = Durations(sum(runs for _, runs in ran), 0, 2**53, ran)
        return durations.percentile_ms(50), durations.percentile_ms(99)


class Sampler:
    """The samples of one queue."""

    def __init__(self, queue: AsyncQueue) -> None:
        self.queue = queue
        self._looks = looks_at(queue)
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.waiting = LanesRound()
        self.obstacles = ObstaclesRound()
        self._times = RunTimes()
        self.workers: SomeWorkers | None = None
        self._workers: tuple[int, int, int] | None = None
        self._round = 0
        self._before: Counts | None = None
        self._arrived: tuple[int, int] | None = None
        self._viewers = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: Those that were told to end: until they have, somebody has to know them.
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def watched(self) -> bool:
        """Whether somebody looks at it."""
        return self._viewers > 0

    @contextmanager
    def watching(self) -> Generator[None]:
        """Samples are taken while somebody is inside."""
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._sample_on())
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._end()

    def _end(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()
        self._before = self._arrived = None

    async def next(self) -> Sample:
        """The next sample."""
        await self._changed.wait()
        return self.samples[-1]

    async def _sample_on(self) -> None:
        while True:
            begun_s = time.monotonic()
            try:
                sample = await self._sample()
            except EngineError as error:
                sample = Sample(round(time.time() * 1000), error=str(error) or type(error).__name__)
                self._before = self._arrived = None
            self.samples.append(sample)
            self._changed.set()
            self._changed = asyncio.Event()
            await asyncio.sleep(max(0.05, EVERY_S - (time.monotonic() - begun_s)))

    async def _sample(self) -> Sample:
        """Two calls: one counts, the other one in turn looks at lanes, run times and workers."""
        counts = await self._looks.count_on(self.waiting)
        now_ms = counts.srv_us // 1000
        if self._round % 4 == 3:
            self._times.add(now_ms, await self._looks.run_times())
        elif self._round % 4 == 1:
            self.workers = await self._looks.workers(0, _WORKERS_MAX)
            alive = [info for info in self.workers.workers if info.alive]
            self._workers = (
                len(alive),
                sum(info.in_hand for info in alive),
                sum(info.concurrency for info in alive),
            )
        else:
            await self._looks.look_on(self.obstacles)
        self._round += 1
        before, self._before = self._before, counts
        passed_s = (counts.srv_us - before.srv_us) / 1e6 if before is not None else 0.0
        held, (p50_ms, p99_ms) = self.obstacles.whole, self._times.percentiles_ms()
        names = (
            sorted(held.waiting_by_name.items(), key=lambda pair: (-pair[1], pair[0]))
            if held is not None
            else []
        )
        workers = self._workers or (None, None, None)
        return Sample(
            now_ms,
            *(
                self.waiting.waiting,
                self.waiting.least,
                counts.delayed,
                counts.blocked,
                counts.active,
                counts.dead,
            ),
            *(counts.finished, counts.dead_total, self._arrivals(counts)),
            rate(counts.finished, before and before.finished, passed_s),
            rate(counts.dead_total, before and before.dead_total, passed_s),
            None if held is None else held.oldest_age_ms,
            *(p50_ms, p99_ms),
            *workers,
            tuple(names[:_NAMES_MAX]),
        )

    def _arrivals(self, counts: Counts) -> float | None:
        """Jobs a second that came, less those that were cancelled, between two ends of rounds over all
        lanes."""
        if self.waiting.least or counts.cursor:
            return None
        there = self.waiting.waiting + counts.delayed + counts.blocked + counts.active + counts.dead
        total = there + counts.finished + counts.expired + counts.skipped
        before, self._arrived = self._arrived, (total, counts.srv_us)
        if before is None:
            return None
        return max(0.0, rate(total, before[0], (counts.srv_us - before[1]) / 1e6) or 0.0)


def rate(now: int, before: int | None, passed_s: float) -> float | None:
    """How much a counter grows in a second."""
    return round((now - before) / passed_s, 1) if before is not None and passed_s > 0 else None


class Samplers:
    """The samplers of the queues that somebody looks at, and of some that somebody looked at lately."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, Sampler] = OrderedDict()

    def of(self, queue: AsyncQueue) -> Sampler:
        """The sampler of a queue."""
        found = self._made.get(queue.name)
        if found is None or found.queue is not queue:
            found = self._made[queue.name] = Sampler(queue)
            for name in [
                name for name, other in self._made.items() if not other.watched and other is not found
            ]:
                if len(self._made) <= QUEUES_KEPT:
                    break
                del self._made[name]
        self._made.move_to_end(queue.name)
        return found

    def known(self, name: str) -> Sampler | None:
        """The sampler of this queue, where somebody has looked at it."""
        return self._made.get(name)
