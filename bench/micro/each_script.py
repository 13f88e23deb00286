"""Benchmark of each script of Lanes: one round trip on a private server, and the server's time in the script.

    python -m pytest bench/micro/each_script.py --benchmark-min-rounds=300

The file name keeps it out of the test suite, because nothing here fails for being slow. Preparing calls use EVAL, so that the
statistics of EVALSHA contain only the measured calls.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import engine
from bench.micro.desk import BATCH, Desk
from bench.micro.jobs import LEASE_MS, run_as_eval
from bench.micro.payload import NAME
from bench.micro.place import client, evalsha_stats, pin_client, pinned_server
from engine.ops.admin import (
    AdminAction,
    Alter,
    Clean,
    Forget,
    HistoryRule,
    Limit,
    MakeTestQueue,
    NoteEra,
    Pause,
    Resume,
    Revive,
    SetEvents,
    SetHistory,
    SetLimit,
    SetRetention,
    SetWorker,
)
from engine.ops.claims import Bury, Drop, Extend, Failure, Finish, Mark, Release, Retry
from engine.ops.jobs import CloseWindows, EnqueueMany, Options
from engine.ops.looks import Count, Explain, Inspect, ListHistory, Listing, ListObstacles, Look, NoteProgress, Page, Relatives
from engine.ops.schedules import EnableSchedule, ListSchedules, PutSchedule, RemoveSchedule, Tick, TickPolicy, Timing
from engine.ops.sweeps import ReadWorkerUpdates, ReapLost, Sweep
from engine.ops.workers import (
    AcquireLock,
    Beat,
    Connected,
    ExtendLock,
    ListRunTimes,
    ListWorkers,
    ReleaseLock,
    ReplicationProbe,
    ReportRunTimes,
    RunTimes,
)
from engine.redis.call import Call
from engine.redis.exchange import DEADLINE_MS
from engine.redis.scripts import load_model, scripts_folder
from engine.worker.machine.sweeping import REAP_PAGE

BULK = 100
_DELAY_MS = 1
_INCARNATION = "00000000000000b2"


def _claim(desk: Desk) -> Call[Any]:
    desk.waiting()
    return desk.claims.call(BATCH)


def _finish_and_claim(desk: Desk) -> Call[Any]:
    leases = desk.leased()
    desk.waiting()
    return desk.claims.call(BATCH, leases)


def _sweep(desk: Desk, *, orphans: bool = False) -> Call[Any]:
    return desk.queue.model.call(Sweep(_INCARNATION, desk.counter(), 1000, 1000, 1000, orphans=orphans))


def _promote(desk: Desk) -> Call[Any]:
    desk.waiting(delay_ms=_DELAY_MS)
    time.sleep(2 * _DELAY_MS / 1000)
    return _sweep(desk)


def _put_schedule(desk: Desk, name: str) -> PutSchedule:
    """A schedule that is due now."""
    job = desk.enqueues(1)[0]
    due_ms = desk.void_ms() - DEADLINE_MS
    return PutSchedule(name, Timing(every_ms=1000), TickPolicy(), job, due_ms, due_ms, None, not_after_ms=desk.void_ms())


def _schedule(desk: Desk) -> tuple[PutSchedule, int]:
    """Create a schedule; return its operation and its version."""
    put = _put_schedule(desk, os.urandom(8).hex())
    run_as_eval(desk.plain, desk.queue.model.call(put))
    version: Any = desk.plain.hget(desk.queue.model.keys.schedule(put.schedule), "version")
    return put, int(version)


def _enable_schedule(desk: Desk) -> Call[Any]:
    put, version = _schedule(desk)
    return desk.queue.model.call(EnableSchedule(put.schedule, version, 0, not_after_ms=desk.void_ms()))


def _tick(desk: Desk) -> Call[Any]:
    put, version = _schedule(desk)
    due_ms = put.next_ms
    ticks = (_INCARNATION, desk.counter(), put.schedule, str(version), due_ms, (due_ms,), due_ms + 1000, 0)
    return desk.queue.model.call(Tick(*ticks, "allow"))


def _jobs(desk: Desk, count: int = BATCH, **options: Any) -> tuple[str, ...]:
    """Enqueue this many jobs; return their ids."""
    made = desk.enqueues(count, **options)
    run_as_eval(desk.plain, desk.queue.model.call(EnqueueMany(made)))
    return tuple(job.job for job in made)


def _alter(desk: Desk, action: AdminAction, jobs: tuple[str, ...], state: str) -> Call[Any]:
    return desk.queue.model.call(Alter(action, jobs, state, not_after_ms=desk.void_ms()))


def _requeue(desk: Desk) -> Call[Any]:
    failed = desk.failed()
    run_as_eval(desk.plain, desk.queue.model.call(Bury(failed)))
    return _alter(desk, "requeue", tuple(failure.lease.job for failure in failed), "dead")


def _family(desk: Desk) -> tuple[str, tuple[str, ...]]:
    """A leased job is buried, and its children with it; their ids."""
    (lease,) = desk.leased(1)
    children = desk.enqueues(BATCH, needs=(lease.job,))
    for operation in (*children, Bury((Failure(lease, "RuntimeError: planned"),))):
        run_as_eval(desk.plain, desk.queue.model.call(operation))
    run_as_eval(desk.plain, _sweep(desk))
    return lease.job, tuple(child.job for child in children)


def _revive(desk: Desk) -> Call[Any]:
    parent, children = _family(desk)
    run_as_eval(desk.plain, _alter(desk, "requeue", (parent,), "dead"))
    return desk.queue.model.call(Revive(children, not_after_ms=desk.void_ms()))


def _lock(desk: Desk) -> AcquireLock:
    """Take a lock, and return its operation."""
    name = os.urandom(8).hex()
    lock = AcquireLock(name, name, 60_000, not_after_ms=desk.void_ms())
    run_as_eval(desk.plain, desk.queue.model.call(lock))
    return lock


def _lock_extend(desk: Desk) -> Call[Any]:
    lock = _lock(desk)
    return desk.queue.model.call(ExtendLock(lock.name, lock.token, 1, 60_000, not_after_ms=desk.void_ms()))


def _lock_release(desk: Desk) -> Call[Any]:
    lock = _lock(desk)
    return desk.queue.model.call(ReleaseLock(lock.name, lock.token))


def _report(desk: Desk) -> ReportRunTimes:
    """A report of handler run times for some names, each in a dozen buckets."""
    buckets = tuple((bucket, 100) for bucket in range(40, 52))
    items = tuple(RunTimes(f"{NAME}{at}", "ok", 1_000_000, 50_000, buckets) for at in range(BATCH))
    return ReportRunTimes(_INCARNATION, desk.counter(), desk.void_ms(), items)


def _took(desk: Desk) -> Call[Any]:
    run_as_eval(desk.plain, desk.queue.model.call(_report(desk)))
    return desk.queue.model.call(ListRunTimes(0, 100))


def _windows(desk: Desk) -> Call[Any]:
    """The windows of jobs that were enqueued with a dedup key each."""
    jobs = [replace(job, options=Options(dedup=f"outbox:{job.job}", dedup_ms=60_000)) for job in desk.enqueues(BATCH)]
    run_as_eval(desk.plain, desk.queue.model.call(EnqueueMany(tuple(jobs))))
    return desk.queue.model.call(CloseWindows(tuple((job.options.dedup, job.job) for job in jobs)))


def _op_id() -> str:
    return os.urandom(8).hex()


#: Name of the benchmark, which begins with the script's name -> function that builds the call.
CALLS: dict[str, Callable[[Desk], Call[Any]]] = {
    "enqueue": lambda desk: desk.queue.model.call(desk.enqueues(1)[0]),
    f"enqueue_many {BULK}": lambda desk: desk.queue.model.call(EnqueueMany(desk.enqueues(BULK))),
    f"close_windows {BATCH}": _windows,
    f"claim {BATCH}": _claim,
    f"claim {BATCH} and finish {BATCH}": _finish_and_claim,
    f"finish {BATCH}": lambda desk: desk.queue.model.call(Finish(desk.leased())),
    f"release {BATCH}": lambda desk: desk.queue.model.call(Release(desk.leased())),
    f"retry {BATCH}": lambda desk: desk.queue.model.call(Retry(desk.failed())),
    f"bury {BATCH}": lambda desk: desk.queue.model.call(Bury(desk.failed())),
    f"extend {BATCH}": lambda desk: desk.queue.model.call(Extend(desk.leased(), 1, LEASE_MS, desk.void_ms())),
    "mark": lambda desk: desk.queue.model.call(Mark(desk.leased(1)[0])),
    f"sweep {BATCH} that are due": _promote,
    "sweep nothing": _sweep,
    "counts": lambda desk: desk.queue.model.call(Count()),
    f"listing {BULK}": lambda desk: desk.queue.model.call(Listing(0, BULK)),
    "pause": lambda desk: desk.queue.model.call(Pause(NAME, 0, not_after_ms=desk.void_ms())),
    "resume": lambda desk: desk.queue.model.call(Resume(NAME, not_after_ms=desk.void_ms())),
    "set_limit": lambda desk: desk.queue.model.call(SetLimit("k:tenant", Limit(concurrency=1), not_after_ms=desk.void_ms())),
    "put_schedule": lambda desk: desk.queue.model.call(_put_schedule(desk, os.urandom(8).hex())),
    "enable_schedule": _enable_schedule,
    "remove_schedule": lambda desk: desk.queue.model.call(
        RemoveSchedule(_schedule(desk)[0].schedule, not_after_ms=desk.void_ms())
    ),
    "schedules": lambda desk: desk.queue.model.call(ListSchedules(_schedule(desk)[0].schedule)),
    "tick": _tick,
    f"run_now {BATCH}": lambda desk: _alter(desk, "run_now", _jobs(desk, delay_ms=60_000), "delayed"),
    f"discard {BATCH}": lambda desk: _alter(desk, "cancel", _jobs(desk), "waiting"),
    f"requeue {BATCH}": _requeue,
    f"revive {BATCH}": _revive,
    f"drop {BATCH}": lambda desk: desk.queue.model.call(Drop(desk.leased(), ("discarded",) * BATCH)),
    f"clean {BULK}": lambda desk: desk.queue.model.call(
        Clean("waiting", 0, None, 0, len(_jobs(desk, BULK)), BULK, not_after_ms=desk.void_ms())
    ),
    "forget begin": lambda desk: desk.queue.model.call(Forget("begin", force=True, not_after_ms=desk.void_ms())),
    "set_retention": lambda desk: desk.queue.model.call(SetRetention((("done_max", 1000),), not_after_ms=desk.void_ms())),
    "set_events": lambda desk: desk.queue.model.call(SetEvents(0, not_after_ms=desk.void_ms())),
    "set_history": lambda desk: desk.queue.model.call(SetHistory(HistoryRule(1000), not_after_ms=desk.void_ms())),
    f"list_history {BATCH}": lambda desk: desk.queue.model.call(ListHistory(0, 0, 2**52, 0, BATCH)),
    "set_worker": lambda desk: desk.queue.model.call(SetWorker("c:*", 4, not_after_ms=desk.void_ms())),
    f"inspect {BATCH}": lambda desk: desk.queue.model.call(Inspect(_jobs(desk))),
    f"page {BULK}": lambda desk: desk.queue.model.call(Page("waiting", 0, BULK)),
    "obstacles": lambda desk: desk.queue.model.call(ListObstacles()),
    "why": lambda desk: desk.queue.model.call(Explain(_jobs(desk, 1)[0])),
    f"relatives with {BATCH} children": lambda desk: desk.queue.model.call(Relatives((_family(desk)[0],), ("",))),
    "look": lambda desk: desk.queue.model.call(Look(_jobs(desk, 1)[0])),
    "progress": lambda desk: desk.queue.model.call(NoteProgress(desk.leased(1)[0], 1, b'"percent":5}')),
    "read_worker_updates": lambda desk: desk.queue.model.call(ReadWorkerUpdates(0, "worker")),
    "beat": lambda desk: desk.queue.model.call(Beat(_INCARNATION, desk.counter(), 30_000, desk.void_ms(), LEASE_MS, 1000, "{}")),
    "reap_lost of nobody": lambda desk: desk.queue.model.call(
        ReapLost(_INCARNATION, desk.counter(), REAP_PAGE, desk.void_ms(), (Connected(_INCARNATION, 1),), "none")
    ),
    "orphans of nobody": lambda desk: _sweep(desk, orphans=True),
    "workers": lambda desk: desk.queue.model.call(ListWorkers(0, 100)),
    f"report_run_times {BATCH}": lambda desk: desk.queue.model.call(_report(desk)),
    f"list_run_times {BATCH}": _took,
    "lock_acquire": lambda desk: desk.queue.model.call(AcquireLock(_op_id(), _op_id(), 60_000, not_after_ms=desk.void_ms())),
    "lock_extend": _lock_extend,
    "lock_release": _lock_release,
    "replication_probe": lambda desk: desk.queue.model.call(ReplicationProbe()),
    "note_era": lambda desk: desk.queue.model.call(NoteEra("first", "", "", 0)),
    "make_test_queue refused": lambda desk: desk.queue.model.call(MakeTestQueue()),
}


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """A desk with its server pinned to one core and this process to the other."""
    pin_client()
    with pinned_server() as server, engine.Queue("scripts", url=server.url) as queue:
        yield Desk(queue, client(server))


#: Scripts that run once in a while, for as many jobs as there are: a restore and a resharding have their own numbers
#: (docs/guides/backups.md and docs/guides/shards.md).
RARE = {"restore_load", "restore_end", "shard_drop", "shard_gate", "shard_put", "shard_record", "shard_take"}


def test_every_script_has_a_benchmark() -> None:
    """Every script must be in the table above, but for the rare ones."""
    assert {title.split()[0] for title in CALLS} == set(load_model(scripts_folder(), "lanes")) - RARE


@pytest.mark.parametrize("title", CALLS)
def test_script(benchmark: Any, desk: Desk, title: str, request: pytest.FixtureRequest) -> None:
    """One script: one call per round, built and prepared outside of the measured time."""
    desk.plain.flushall(asynchronous=False)
    desk.waiting(BULK)
    desk.plain.config_resetstat()

    def prepared() -> tuple[tuple[Call[Any]], dict[str, Any]]:
        return (CALLS[title](desk),), {}

    benchmark.group = "scripts"
    benchmark.pedantic(desk.queue.driver.run, setup=prepared, rounds=request.config.getoption("benchmark_min_rounds"))
    calls, usec = evalsha_stats(desk.plain)
    benchmark.extra_info["redis_us_per_call"] = round(usec / calls, 2)
