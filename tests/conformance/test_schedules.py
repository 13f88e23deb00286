"""Schedules: one job a tick, on each model that has them."""

from __future__ import annotations

import json

import pytest

from engine import UnsupportedFeature
from engine.wire.operations import EnableSchedule, Missed, PutSchedule, Tick
from engine.worker.machine.sweeping import tick
from tests.conformance.declared import has
from tests.conformance.desk import ModelDesk

MINUTE_MS = 60_000
WEEK_MS = 7 * 86_400_000
#: What becomes of the 604,800 ticks of a week in which nobody looked, by policy: jobs, and ticks that are missed. Those of the
#: last minute are in time.
AFTER_A_WEEK: dict[Missed, tuple[int, int]] = {"once": (1, 604_799), "all": (100, 604_700), "skip": (61, 604_739)}


def put(desk: ModelDesk) -> bool:
    """A schedule that ticks every minute; where there are none, the model says so."""
    if has(desk.queue, PutSchedule):
        assert desk.queue.schedules.put("s", "main", {"label": "tick"}, every_ms=MINUTE_MS) == "new"
        return True
    with pytest.raises(UnsupportedFeature):
        desk.queue.schedules.put("s", "main", {"label": "tick"}, every_ms=MINUTE_MS)
    return False


def ticks(desk: ModelDesk, worker: str) -> list[Tick]:
    promoted = desk.run(desk.sweep_operation(worker))
    return [tick(due, promoted.srv_us // 1000, worker * 16, desk._count("ticks")) for due in promoted.due]


def test_rule_24_a_tick_is_one_job_however_many_schedulers_there_are(desk: ModelDesk) -> None:
    if not put(desk):
        return
    for number in range(1, 4):
        desk.tick(MINUTE_MS)
        (one,), (other,) = ticks(desk, "a"), ticks(desk, "b")
        call = desk.call(one)
        first = desk.send(call)
        assert (first.result, len(first.jobs)) == ("ticked", 1)
        assert desk.send(call).result == "repeated" and desk.run(other).result == "moved"
        job = desk.take()["tick"]
        assert job.lease.job == first.jobs[0] and json.loads(job.payload) == {"label": "tick"}
        desk.finish(job.lease)
        (schedule,) = desk.queue.schedules.list()
        assert (schedule.count, schedule.last_job, schedule.next_ms) == (number, job.lease.job, desk.now_ms + MINUTE_MS)


def test_rule_24_a_tick_that_was_made_is_not_made_again_for_who_enables_the_schedule_late(desk: ModelDesk) -> None:
    if not put(desk):
        return
    (schedule,) = desk.queue.schedules.list()
    late = EnableSchedule(desk._op_id(), desk.now_ms + 10 * MINUTE_MS, "s", 1, schedule.next_ms)
    desk.tick(MINUTE_MS)
    (made,) = [desk.run(operation) for operation in ticks(desk, "a")]
    desk.finish(desk.take()["tick"].lease)
    assert len(made.jobs) == 1 and desk.queue.schedules.disable("s")
    desk.tick(1)
    assert desk.run(late).found == "changed"
    (again,) = [desk.run(operation) for operation in ticks(desk, "a")]
    assert (again.result, again.jobs, desk.claim()) == ("ticked", (), [])
    (schedule,) = desk.queue.schedules.list()
    assert (schedule.count, schedule.next_ms) == (1, late.next_ms + MINUTE_MS)


def test_a_schedule_is_disabled_enabled_run_at_once_and_removed(desk: ModelDesk) -> None:
    if not put(desk):
        return
    schedules = desk.queue.schedules
    assert schedules.disable("s")
    desk.tick(MINUTE_MS)
    assert ticks(desk, "a") == []
    assert schedules.enable("s")
    desk.tick(MINUTE_MS)
    assert len(ticks(desk, "a")) == 1
    made = schedules.run_now("s")
    assert made is not None and made.created and [job.lease.job for job in desk.claim()] == [made.job]
    assert schedules.remove("s") and schedules.list() == () and ticks(desk, "b") == []


def test_after_a_week_without_workers_the_missed_ticks_are_counted_one_by_one(desk: ModelDesk) -> None:
    if not put(desk):
        return
    desk.queue.schedules.remove("s")
    start_ms = desk.now_ms + 1000 - desk.now_ms % 1000
    for missed in AFTER_A_WEEK:
        desk.queue.schedules.put(f"every-{missed}", "main", None, every_ms=1000, start_ms=start_ms, missed=missed)
        desk.queue.schedules.put(f"cron-{missed}", "main", None, cron="* * * * * *", start_ms=start_ms, missed=missed)
    desk.tick(start_ms + WEEK_MS - 1000 - desk.now_ms)
    assert {reply.result for reply in map(desk.run, ticks(desk, "a"))} == {"ticked"}
    told = {schedule.name: (schedule.count, schedule.missed) for schedule in desk.queue.schedules.list()}
    assert told == {f"{kind}-{missed}": figures for kind in ("every", "cron") for missed, figures in AFTER_A_WEEK.items()}
