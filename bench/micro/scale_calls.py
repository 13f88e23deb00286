"""The calls that `python -m bench scale` measures at each size. Each leaves the queue as large as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.micro.desk import BATCH, INCARNATION, Desk
from bench.micro.jobs import LEASE_MS, Claims
from bench.micro.place import evalsha_stats, server_cpu_s
from bench.micro.scale_states import BEAT_MS, fill_fast
from engine.ops import admin, claims, looks, workers
from engine.ops.claims import ReadWorkerUpdates, Sweep
from engine.ops.jobs import Enqueue, EnqueueMany, Lease
from engine.ops.schedules import ListSchedules, RemoveSchedule, Tick
from engine.queue.admin import PIECE as ALTER_PIECE
from engine.queue.admin import PIECE as CLEAN_PIECE
from engine.worker.machine.sweeping import DONE_MAX, ORPHANS_PAGE, SWEEP_LIMIT

# What `python -m bench scale` demands of a script.


#: No script may take longer than this (ms), judged by the 95th percentile: now and then another program takes the core.
BOUND_MS = 5.0
#: Exponent of the growth over the last decade that counts as flat or logarithmic: 1 is linear.
FLAT_BELOW = 0.3
#: Below this (ms) growth is noise, or not worth a word.
SMALL_MS = 0.25


_BULK = 1_000
#: The one call that may take longer than others: a caller asks for so many at once.
OWN_BULK = f"enqueue_many {_BULK} (own bulk)"
_PAGE = 100
_URGENT = 10
_GONE = "00000000000000b3"
#: The interval of sweeps: so long that no pause of this measurement looks like a stall of the server (rule 11).
_SWEEP_MS = 300_000
#: Class of the jobs that the sweeps move.
_SWEPT = "swept"


class Meter:
    """Sends the measured calls, and keeps how long each took on the server: by its clock, or by its processor time where that
    is less. The first also counts what other programs took meanwhile, the second the reading of the call and of that time."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        #: Milliseconds of each call, by title.
        self.took_ms: dict[str, list[float]] = {}

    def run(self, title: str, operation: Any) -> Any:
        """Run a measured operation; return its reply."""
        return self.send(title, self.desk.call(operation))

    def send(self, title: str, call: Any) -> Any:
        """Run a measured call; return its reply."""
        self.desk.plain.config_resetstat()
        before_s = server_cpu_s(self.desk.plain)
        reply = self.desk.queue.driver.run(call)
        cpu_us = 1e6 * (server_cpu_s(self.desk.plain) - before_s)
        calls, clock_us = evalsha_stats(self.desk.plain)
        if calls != 1:
            raise RuntimeError(f"scale: {title} was sent {calls} times")
        self.took_ms.setdefault(title, []).append(min(clock_us, cpu_us) / 1000)
        return reply


def _enqueue(meter: Meter) -> None:
    (job,) = meter.desk.enqueues(1)
    meter.run("enqueue", job)
    _cancel(meter, (job,), "waiting")


def _enqueue_delayed(meter: Meter) -> None:
    (job,) = meter.desk.enqueues(1, delay_ms=60_000)
    meter.run("enqueue delayed", job)
    _cancel(meter, (job,), "delayed")


def _enqueue_many(meter: Meter) -> None:
    jobs = meter.desk.enqueues(_PAGE)
    meter.run(f"enqueue_many {_PAGE}", EnqueueMany(jobs))
    _cancel(meter, jobs, "waiting")


def _enqueue_bulk(meter: Meter) -> None:
    jobs = meter.desk.enqueues(_BULK)
    meter.run(OWN_BULK, EnqueueMany(jobs))
    _cancel(meter, jobs, "waiting")


def _cancel(meter: Meter, jobs: tuple[Enqueue, ...], state: str) -> None:
    ids = [job.job for job in jobs]
    for at in range(0, len(ids), ALTER_PIECE):
        meter.desk.prepare(meter.desk.alter("cancel", tuple(ids[at : at + ALTER_PIECE]), state))


def _claim(meter: Meter) -> None:
    claimed = meter.send(f"claim {BATCH}", meter.desk.claims.call(BATCH))
    leases = tuple(job.lease for job in claimed.jobs)
    meter.run(f"extend {BATCH}", claims.Extend(leases, 1, LEASE_MS, meter.desk.void_ms()))
    meter.run(f"release {BATCH}", claims.Release(leases))


def _drain(meter: Meter) -> None:
    leases = _urgent(meter)
    meter.desk.waiting(BATCH, priority=_URGENT)
    claimed = meter.send(f"finish and claim {BATCH}", meter.desk.claims.call(BATCH, leases)).claimed
    meter.run(f"finish {BATCH}", claims.Finish(tuple(job.lease for job in claimed.jobs)))


def _urgent(meter: Meter, count: int = BATCH) -> tuple[Lease, ...]:
    """Leases of new jobs, which a claim takes before all others."""
    return meter.desk.leased(count, priority=_URGENT)


def _ends(meter: Meter) -> None:
    failed = tuple(claims.Failure(lease, "RuntimeError: planned", 60_000) for lease in _urgent(meter))
    ids = tuple(failure.lease.job for failure in failed)
    meter.run(f"retry {BATCH}", claims.Retry(failed))
    meter.run(f"cancel {BATCH}", meter.desk.alter("cancel", ids, "delayed"))
    failed = tuple(claims.Failure(lease, "RuntimeError: planned", 0) for lease in _urgent(meter))
    ids = tuple(failure.lease.job for failure in failed)
    meter.run(f"bury {BATCH}", claims.Bury(failed))
    meter.run("look", looks.Look(ids[0]))
    meter.run(f"inspect {BATCH}", looks.Inspect(ids))
    meter.desk.prepare(meter.desk.alter("discard", ids, "dead"))


def _next_sweep(desk: Desk) -> Sweep:
    return Sweep(INCARNATION, desk.counter(), SWEEP_LIMIT, _SWEEP_MS, DONE_MAX)


def _sweep(meter: Meter) -> None:
    meter.run("sweep, nothing to do", _next_sweep(meter.desk))


def _full_sweeps(meter: Meter) -> None:
    """Sweeps that take as many leases as one may, that move as many due jobs, and that do both."""
    leases = SWEEP_LIMIT // 2
    for title, expired, due in (
        ("leases", leases, 0),
        ("due jobs", 0, SWEEP_LIMIT),
        ("leases and due jobs", leases, SWEEP_LIMIT // 5),
    ):
        _full_sweep(meter, f"sweep, a full piece of {title}", expired, due)


def _full_sweep(meter: Meter, title: str, expired: int, due: int) -> None:
    desk = meter.desk
    worker = Claims(desk.queue, (_SWEPT,), owner=int.from_bytes(os.urandom(7), "big"))
    jobs = desk.enqueues(expired, name=_SWEPT) if expired else ()
    if jobs:
        meter.desk.prepare(EnqueueMany(jobs))
        desk.prepare(worker.call(expired, lease_ms=1))
    if due:
        later = desk.enqueues(due, name=_SWEPT, delay_ms=1)
        meter.desk.prepare(EnqueueMany(later))
        jobs += later
    time.sleep(0.003)
    swept = meter.run(title, _next_sweep(desk))
    if (len(swept.leases), swept.promoted) != (expired, due):
        raise RuntimeError(f"scale: {len(swept.leases)} of {expired} leases were taken, {swept.promoted} of {due} jobs moved")
    _cancel(meter, jobs, "waiting")


def _beat(meter: Meter) -> None:
    desk = meter.desk
    meter.run("beat", workers.Beat(INCARNATION, desk.counter(), BEAT_MS, desk.void_ms() + BEAT_MS, LEASE_MS, _SWEEP_MS, "{}"))
    meter.desk.prepare(workers.Beat(_GONE, desk.counter(), 1, desk.void_ms(), LEASE_MS, _SWEEP_MS, "{}"))
    time.sleep(0.002)
    meter.run("orphans, a page", Sweep(INCARNATION, desk.counter(), ORPHANS_PAGE, _SWEEP_MS, 0, orphans=True))
    meter.run(f"workers {_PAGE}", workers.ListWorkers(0, _PAGE))
    meter.run("read_worker_updates", ReadWorkerUpdates(0, "worker"))


def _looks(meter: Meter) -> None:
    meter.run("counts", looks.Count())
    meter.run(f"listing {_PAGE}", looks.Listing(0, _PAGE))
    meter.run("obstacles", looks.ListObstacles())
    meter.run(f"page {_PAGE}", looks.Page("waiting", 0, _PAGE))
    meter.run(f"page {_PAGE} of names", looks.Page("waiting", 0, _PAGE, names=True))
    meter.run(f"schedules {_PAGE}", ListSchedules())
    meter.run("list_run_times", workers.ListRunTimes(0, _PAGE))


def _clean_of(meter: Meter, state: str, older_ms: int) -> admin.Clean:
    return admin.Clean(state, older_ms, None, 0, CLEAN_PIECE, CLEAN_PIECE, not_after_ms=meter.desk.void_ms())


def _clean(meter: Meter) -> None:
    """A piece of a clean that finds nothing old enough, and one that removes."""
    meter.run(f"clean {CLEAN_PIECE}, none old", _clean_of(meter, "waiting", 86_400_000))
    removed = meter.run(f"clean {CLEAN_PIECE}", _clean_of(meter, "waiting", 0))
    fill_fast(meter.desk, removed.removed)


def _clean_dead(meter: Meter) -> None:
    meter.run("clean, none of the dead", _clean_of(meter, "dead", 86_400_000))


def _administer(meter: Meter) -> None:
    desk = meter.desk
    meter.run("pause", admin.Pause("another", 0, not_after_ms=desk.void_ms()))
    meter.run("resume", admin.Resume("another", not_after_ms=desk.void_ms()))
    meter.run("set_limit", admin.SetLimit("k:another", admin.Limit(concurrency=1), not_after_ms=desk.void_ms()))
    meter.run("set_limit, none", admin.SetLimit("k:another", None, not_after_ms=desk.void_ms()))
    meter.run("set_retention", admin.SetRetention((("dead_age_ms", 90 * 86_400_000),), not_after_ms=desk.void_ms()))
    meter.run("set_worker", admin.SetWorker("c:*", 4, not_after_ms=desk.void_ms()))


def _schedule(meter: Meter) -> None:
    desk = meter.desk
    put = desk.put_schedule(priority=_URGENT)
    meter.run("put_schedule", put)
    due_ms = put.next_ms
    tick = Tick(INCARNATION, desk.counter(), put.schedule, desk.version_of(put), due_ms, (due_ms,), due_ms + 1000, 0, "allow")
    made = meter.run("tick", tick)
    meter.run("remove_schedule", RemoveSchedule(put.schedule, not_after_ms=desk.void_ms()))
    desk.prepare(desk.alter("cancel", made.jobs, "waiting"))


#: Each step, with the dimensions in which it is taken; none: in all.
STEPS: Mapping[Callable[[Meter], None], tuple[str, ...]] = {
    _sweep: (),
    _enqueue: (),
    _enqueue_delayed: (),
    _enqueue_many: (),
    _enqueue_bulk: (),
    _claim: (),
    _drain: (),
    _ends: (),
    _full_sweeps: (),
    _beat: (),
    _looks: (),
    _administer: (),
    _schedule: (),
    _clean: ("waiting",),
    _clean_dead: ("dead",),
}
