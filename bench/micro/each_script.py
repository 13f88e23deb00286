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
from bench.micro.desk import BATCH, INCARNATION, Desk
from bench.micro.jobs import LEASE_MS
from bench.micro.payload import NAME
from bench.micro.place import client, evalsha_stats, pin_client, pinned_server
from engine.ops import admin, claims, jobs, looks, workers
from engine.ops.base import Call
from engine.ops.schedules import EnableSchedule, ListSchedules, PutSchedule, RemoveSchedule, Tick
from engine.redis.scripts import load_model, scripts_folder
from engine.worker.machine.sweeping import REAP_PAGE

BULK = 100
_DELAY_MS = 1


def _finish_and_claim(desk: Desk) -> Call[Any]:
    leases = desk.leased()
    desk.waiting()
    return desk.claims.call(BATCH, leases)


def _claim(desk: Desk) -> Call[Any]:
    desk.waiting()
    return desk.claims.call(BATCH)


def _sweep(desk: Desk, *, orphans: bool = False) -> claims.Sweep:
    return claims.Sweep(INCARNATION, desk.counter(), 1000, 1000, 1000, orphans=orphans)


def _promote(desk: Desk) -> claims.Sweep:
    desk.waiting(delay_ms=_DELAY_MS)
    time.sleep(2 * _DELAY_MS / 1000)
    return _sweep(desk)


def _schedule(desk: Desk) -> tuple[PutSchedule, str]:
    """Create a schedule; return its operation and its version."""
    put = desk.put_schedule()
    desk.prepare(put)
    return put, desk.version_of(put)


def _enable_schedule(desk: Desk) -> EnableSchedule:
    put, version = _schedule(desk)
    return EnableSchedule(put.schedule, int(version), 0, not_after_ms=desk.void_ms())


def _tick(desk: Desk) -> Tick:
    put, version = _schedule(desk)
    due_ms = put.next_ms
    return Tick(INCARNATION, desk.counter(), put.schedule, version, due_ms, (due_ms,), due_ms + 1000, 0, "allow")


def _requeue(desk: Desk) -> admin.Alter:
    failed = desk.failed()
    desk.prepare(claims.Bury(failed))
    return desk.alter("requeue", tuple(failure.lease.job for failure in failed), "dead")


def _family(desk: Desk) -> tuple[str, tuple[str, ...]]:
    """A leased job is buried, and its children with it; their ids."""
    (lease,) = desk.leased(1)
    children = desk.enqueues(BATCH, needs=(lease.job,))
    for operation in (*children, claims.Bury((claims.Failure(lease, "RuntimeError: planned"),)), _sweep(desk)):
        desk.prepare(operation)
    return lease.job, tuple(child.job for child in children)


def _revive(desk: Desk) -> admin.Revive:
    parent, children = _family(desk)
    desk.prepare(desk.alter("requeue", (parent,), "dead"))
    return admin.Revive(children, not_after_ms=desk.void_ms())


def _lock(desk: Desk) -> workers.AcquireLock:
    """Take a lock, and return its operation."""
    name = os.urandom(8).hex()
    lock = workers.AcquireLock(name, name, 60_000, not_after_ms=desk.void_ms())
    desk.prepare(lock)
    return lock


def _extend_lock(desk: Desk) -> workers.ExtendLock:
    lock = _lock(desk)
    return workers.ExtendLock(lock.name, lock.token, 1, 60_000, not_after_ms=desk.void_ms())


def _release_lock(desk: Desk) -> workers.ReleaseLock:
    lock = _lock(desk)
    return workers.ReleaseLock(lock.name, lock.token)


def _report(desk: Desk) -> workers.ReportRunTimes:
    """A report of handler run times for some names, each in a dozen buckets."""
    buckets = tuple((bucket, 100) for bucket in range(40, 52))
    items = tuple(workers.RunTimes(f"{NAME}{at}", "ok", 1_000_000, 50_000, buckets) for at in range(BATCH))
    return workers.ReportRunTimes(INCARNATION, desk.counter(), desk.void_ms(), items)


def _list_run_times(desk: Desk) -> workers.ListRunTimes:
    desk.prepare(_report(desk))
    return workers.ListRunTimes(0, 100)


def _windows(desk: Desk) -> jobs.CloseWindows:
    """The windows of jobs that were enqueued with a dedup key each."""
    made = [replace(job, options=jobs.Options(dedup=f"outbox:{job.job}", dedup_ms=60_000)) for job in desk.enqueues(BATCH)]
    desk.prepare(jobs.EnqueueMany(tuple(made)))
    return jobs.CloseWindows(tuple((job.options.dedup, job.job) for job in made))


def _clean(desk: Desk) -> admin.Clean:
    return admin.Clean("waiting", 0, None, 0, len(desk.waiting(BULK)), BULK, not_after_ms=desk.void_ms())


def _reap_lost(desk: Desk) -> claims.ReapLost:
    connected = (workers.Connected(INCARNATION, 1),)
    return claims.ReapLost(INCARNATION, desk.counter(), REAP_PAGE, desk.void_ms(), connected, "none")


def _void(desk: Desk) -> dict[str, Any]:
    return {"not_after_ms": desk.void_ms()}


def _id() -> str:
    return os.urandom(8).hex()


#: Name of the benchmark, which begins with the script's name -> function that makes the operation, or its call.
CALLS: dict[str, Callable[[Desk], Any]] = {
    "enqueue": lambda desk: desk.enqueues(1)[0],
    f"enqueue_many {BULK}": lambda desk: jobs.EnqueueMany(desk.enqueues(BULK)),
    f"close_windows {BATCH}": _windows,
    f"claim {BATCH}": _claim,
    f"claim {BATCH} and finish {BATCH}": _finish_and_claim,
    f"finish {BATCH}": lambda desk: claims.Finish(desk.leased()),
    f"release {BATCH}": lambda desk: claims.Release(desk.leased()),
    f"retry {BATCH}": lambda desk: claims.Retry(desk.failed()),
    f"bury {BATCH}": lambda desk: claims.Bury(desk.failed()),
    f"extend {BATCH}": lambda desk: claims.Extend(desk.leased(), 1, LEASE_MS, desk.void_ms()),
    "mark": lambda desk: claims.Mark(desk.leased(1)[0]),
    f"sweep {BATCH} that are due": _promote,
    "sweep nothing": _sweep,
    "counts": lambda desk: looks.Count(),
    f"listing {BULK}": lambda desk: looks.Listing(0, BULK),
    "pause": lambda desk: admin.Pause(NAME, 0, **_void(desk)),
    "resume": lambda desk: admin.Resume(NAME, **_void(desk)),
    "set_limit": lambda desk: admin.SetLimit("k:tenant", admin.Limit(concurrency=1), **_void(desk)),
    "put_schedule": lambda desk: desk.put_schedule(),
    "enable_schedule": _enable_schedule,
    "remove_schedule": lambda desk: RemoveSchedule(_schedule(desk)[0].schedule, **_void(desk)),
    "schedules": lambda desk: ListSchedules(_schedule(desk)[0].schedule),
    "tick": _tick,
    f"run_now {BATCH}": lambda desk: desk.alter("run_now", desk.waiting(delay_ms=60_000), "delayed"),
    f"discard {BATCH}": lambda desk: desk.alter("cancel", desk.waiting(), "waiting"),
    f"requeue {BATCH}": _requeue,
    f"revive {BATCH}": _revive,
    f"drop {BATCH}": lambda desk: claims.Drop(desk.leased(), ("discarded",) * BATCH),
    f"clean {BULK}": _clean,
    "forget begin": lambda desk: admin.Forget("begin", force=True, **_void(desk)),
    "set_retention": lambda desk: admin.SetRetention((("done_max", 1000),), **_void(desk)),
    "set_events": lambda desk: admin.SetEvents(0, **_void(desk)),
    "set_history": lambda desk: admin.SetHistory(admin.HistoryRule(1000), **_void(desk)),
    f"list_history {BATCH}": lambda desk: looks.ListHistory(0, 0, 2**52, 0, BATCH),
    "set_worker": lambda desk: admin.SetWorker("c:*", 4, **_void(desk)),
    f"inspect {BATCH}": lambda desk: looks.Inspect(desk.waiting()),
    f"page {BULK}": lambda desk: looks.Page("waiting", 0, BULK),
    "obstacles": lambda desk: looks.ListObstacles(),
    "why": lambda desk: looks.Explain(desk.waiting(1)[0]),
    f"relatives with {BATCH} children": lambda desk: looks.Relatives((_family(desk)[0],), ("",)),
    "look": lambda desk: looks.Look(desk.waiting(1)[0]),
    "progress": lambda desk: looks.NoteProgress(desk.leased(1)[0], 1, b'"percent":5}'),
    "read_worker_updates": lambda desk: claims.ReadWorkerUpdates(0, "worker"),
    "beat": lambda desk: workers.Beat(INCARNATION, desk.counter(), 30_000, desk.void_ms(), LEASE_MS, 1000, "{}"),
    "reap_lost of nobody": _reap_lost,
    "orphans of nobody": lambda desk: _sweep(desk, orphans=True),
    "workers": lambda desk: workers.ListWorkers(0, 100),
    f"report_run_times {BATCH}": _report,
    f"list_run_times {BATCH}": _list_run_times,
    "lock_acquire": lambda desk: workers.AcquireLock(_id(), _id(), 60_000, **_void(desk)),
    "lock_extend": _extend_lock,
    "lock_release": _release_lock,
    "replication_probe": lambda desk: workers.ReplicationProbe(),
    "note_era": lambda desk: admin.NoteEra("first", "", "", 0),
    "make_test_queue refused": lambda desk: admin.MakeTestQueue(),
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
        return (desk.call(CALLS[title](desk)),), {}

    benchmark.group = "scripts"
    benchmark.pedantic(desk.queue.driver.run, setup=prepared, rounds=request.config.getoption("benchmark_min_rounds"))
    calls, usec = evalsha_stats(desk.plain)
    benchmark.extra_info["redis_us_per_call"] = round(usec / calls, 2)
