"""The measures of one library: how fast it enqueues and drains, how soon a job starts, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

from bench.micro.rounds import quantile
from bench.peers.libraries import Library
from bench.peers.processes import ENDED, ENQUEUED, STARTED, Bench, PeerFailed, busy_cpu_s, server_use, wait_for

#: Column -> value; a column that a library has not is missing.
Values = dict[str, float]

ENQUEUE_JOBS, BULK_JOBS = 4_000, 10_000
PICKUP_RATE, PICKUP_JOBS, PICKUP_SKIPPED = 100, 500, 50
_IDLE_SETTLE_S, _IDLE_S = 2.0, 3.0
#: A drain ends after this time, however many jobs are left: slow settings have shown their rate by then.
_DRAIN_S = 5.0
_START_S = 30.0
#: More than this share of the time used by other processes spoils a measurement.
FOREIGN_MAX = 0.05


def measure(bench: Bench, library: Library) -> Values:
    """All measures once. Those during which other processes took more than 5 % of a core, twice in a row, are left out."""
    found: Values = {}
    for name, step in _STEPS.items():
        for _ in range(2):
            bench.server.flushall()
            from_s, busy_s, own_s = time.monotonic(), busy_cpu_s(), bench.own_cpu_s()
            values = step(bench, library)
            foreign = (busy_cpu_s() - busy_s - bench.own_cpu_s() + own_s) / (time.monotonic() - from_s)
            found[f"foreign_{name}"] = foreign
            if foreign <= FOREIGN_MAX:
                found |= values
                break
    return found


def _enqueue(way: str, in_flight: int, jobs: int, column: str) -> Callable[[Bench, Library], Values]:
    def step(bench: Bench, library: Library) -> Values:
        if way not in library.ways:
            return {}
        records = bench.records(library, jobs)
        bench.server.config_resetstat()
        before = server_use(bench.server)
        run = bench.produce(library, records, way=way, in_flight=in_flight)
        after = server_use(bench.server)
        return {
            column: jobs / run["seconds"],
            f"{column}_client_us": run["cpu_s"] / jobs * 1e6,
            f"{column}_server_us": (after.cpu_s - before.cpu_s) / jobs * 1e6,
            f"{column}_commands": after.commands / jobs,
            f"{column}_round_trips": after.reads / jobs,
        }

    return step


def fill(bench: Bench, library: Library, jobs: int) -> None:
    """Enqueue jobs in the fastest way that the library has."""
    way = next(way for way in ("bulk", "in_flight", "one") if way in library.ways)
    bench.produce(library, bench.records(library, jobs), way=way, in_flight=50, warm_up=0)


def _bytes(bench: Bench, library: Library) -> Values:
    """What a waiting job takes, without what a queue takes that has any."""
    fill(bench, library, 100)
    before = int(bench.server.info("memory")["used_memory"])
    fill(bench, library, ENQUEUE_JOBS)
    return {"bytes": (int(bench.server.info("memory")["used_memory"]) - before) / ENQUEUE_JOBS}


def _drain(workers: int, tuned: bool, column: str) -> Callable[[Bench, Library], Values]:
    def step(bench: Bench, library: Library) -> Values:
        jobs = library.drain_jobs * workers
        fill(bench, library, jobs)
        records = bench.records(library, jobs)
        settings = dict(library.tuned if tuned else library.default)
        pinned = workers == 1
        bench.server.config_resetstat()
        adapters = [bench.start(library, records, pinned=pinned, role="work", settings=settings) for _ in range(workers)]
        try:
            if not wait_for(lambda: records.count(STARTED), _START_S, adapters):
                raise PeerFailed(f"{library.name}: no job was started within {_START_S:.0f} s")
            before, cpu_s, done = server_use(bench.server), sum(one.cpu_s() for one in adapters), records.count(ENDED)
            wait_for(lambda: records.count(ENDED) == jobs, _DRAIN_S, adapters)
            after, ran = server_use(bench.server), max(1, records.count(ENDED) - done)
            cpu_s = sum(one.cpu_s() for one in adapters) - cpu_s
        finally:
            for adapter in adapters:
                bench.end(adapter)
        return {
            column: middle_rate(sorted(at for at in records.times(STARTED) if at)),
            f"{column}_client_us": cpu_s / ran * 1e6,
            f"{column}_server_us": (after.cpu_s - before.cpu_s) / ran * 1e6,
            f"{column}_commands": (after.commands - before.commands) / ran,
            f"{column}_round_trips": (after.reads - before.reads) / ran,
        }

    return step


def middle_rate(times_ns: list[int]) -> float:
    """Jobs a second between the first 30 % and the last 5 % of them: all workers have started, and none has run dry."""
    low, high = int(len(times_ns) * 0.3), int(len(times_ns) * 0.95) - 1
    if high - low < 1 or times_ns[high] == times_ns[low]:
        return 0.0
    return (high - low) / (times_ns[high] - times_ns[low]) * 1e9


def _live(bench: Bench, library: Library) -> Values:
    """One worker: from its start to its first job, idle, and at 100 jobs a second."""
    settings = dict(library.tuned)
    fill(bench, library, 1)
    first = bench.records(library, PICKUP_JOBS)
    with bench.worker(library, first, pinned=False, settings=settings) as worker:
        if not wait_for(lambda: first.times(STARTED)[0], _START_S, [worker]):
            raise PeerFailed(f"{library.name}: no job was started within {_START_S:.0f} s")
        start_ms = (first.times(STARTED)[0] - worker.started_ns) / 1e6
        time.sleep(_IDLE_SETTLE_S)
        bench.server.config_resetstat()
        cpu_s, from_s = worker.cpu_s(), time.monotonic()
        time.sleep(_IDLE_S)
        seconds = time.monotonic() - from_s
        idle, idle_cpu = server_use(bench.server).commands / seconds, (worker.cpu_s() - cpu_s) / seconds
    bench.server.flushall()
    paced = bench.records(library, PICKUP_JOBS)
    with bench.worker(library, paced, pinned=False, settings=settings) as worker:
        # The jobs that warm the producer up leave no record; the worker is ready when the first of the paced ones starts.
        time.sleep(_IDLE_SETTLE_S)
        bench.produce(library, paced, pinned=False, way="paced", rate=PICKUP_RATE, settings=settings)
        if not wait_for(lambda: paced.count(STARTED) == PICKUP_JOBS, 10, [worker]):
            raise PeerFailed(f"{library.name}: {PICKUP_JOBS - paced.count(STARTED)} of {PICKUP_JOBS} jobs were not started")
        pairs = list(zip(paced.times(ENQUEUED), paced.times(STARTED), strict=True))[PICKUP_SKIPPED:]
    waits_ms = [(started - enqueued) / 1e6 for enqueued, started in pairs]
    return {
        "start_ms": start_ms,
        "idle_commands": idle,
        "idle_cpu": idle_cpu,
        "pickup_p50_ms": median(waits_ms),
        "pickup_p99_ms": quantile(waits_ms, 0.99),
    }


_STEPS: Mapping[str, Callable[[Bench, Library], Values]] = {
    "enqueue": _enqueue("one", 1, ENQUEUE_JOBS, "enqueue"),
    "in_flight_50": _enqueue("in_flight", 50, BULK_JOBS, "in_flight_50"),
    "in_flight_200": _enqueue("in_flight", 200, BULK_JOBS, "in_flight_200"),
    "bulk": _enqueue("bulk", 1, BULK_JOBS, "bulk"),
    "bytes": _bytes,
    "drain": _drain(1, True, "drain"),
    "drain_default": _drain(1, False, "drain_default"),
    "drain_2": _drain(2, True, "drain_2"),
    "live": _live,
}
