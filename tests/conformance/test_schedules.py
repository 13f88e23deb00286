"""Schedules: one job a tick, however many schedulers there are and however calls arrive (rule 24), on each model."""

import json
from typing import Any

from engine.models import Spec
from tests.conformance.desk import ModelDesk
from tests.conformance.models import FOREIGN, only
from tests.engine.using import START_MS, EnableSchedule, Listing, Missed, ReadEvents, RemoveSchedule

MINUTE_MS = 60_000
#: The first full minute after the desk's clock starts.
FIRST_MS = -(-START_MS // MINUTE_MS) * MINUTE_MS
WEEK_MS = 7 * 86_400_000
#: What becomes of the 604,800 ticks of a week in which nobody looked, by policy: jobs, and ticks that are missed. Those of the
#: last minute are in time.
AFTER_A_WEEK: dict[Missed, tuple[int, int]] = {"once": (1, 604_799), "all": (100, 604_700), "skip": (61, 604_739)}


def put(desk: ModelDesk, name: str = "clean", **more: Any) -> str:
    """A schedule that ticks at every full minute, unless told otherwise."""
    given: dict[str, Any] = {"cron": "* * * * *", **more}
    return desk.queue.schedules.put(name, "main", {"of": name}, **given)


def scheduled(desk: ModelDesk, name: str = "clean", **more: Any) -> ModelDesk:
    put(desk, name, **more)
    return desk


def stored(desk: ModelDesk, name: str = "clean") -> dict[str, str]:
    raw: Any = desk.redis.hgetall(desk.keys.schedule(name))
    return {key.decode(): value.decode(errors="replace") for key, value in raw.items()}


def waiting(desk: ModelDesk) -> list[str]:
    return [job for job, _ in desk.run(Listing(0, 100)).states["waiting"]]


def test_rule_24_a_tick_makes_the_job_and_moves_the_schedule_on(desk: ModelDesk) -> None:
    assert put(desk.keep_events()) == "new" and put(desk) == "same"
    promoted = desk.to(FIRST_MS - 1).sweep()
    assert (promoted.due, promoted.sleep_ms) == ((), 1)
    desk.to(FIRST_MS).wakes()
    (reply,) = desk.turn()
    assert reply.result == "ticked" and list(reply.jobs) == waiting(desk) and desk.wakes() == 1
    assert [(event.kind, event.job) for event in desk.run(ReadEvents("0-0", 100, 0)).events] == [("created", reply.jobs[0])]
    told = [stored(desk)[field] for field in ("next_ms", "last_ms", "last_job", "count", "missed", "skipped", "error")]
    assert told == [str(FIRST_MS + MINUTE_MS), str(FIRST_MS), reply.jobs[0], "1", "0", "0", ""]
    assert desk.redis.zscore(desk.keys.cron, "clean") == FIRST_MS + MINUTE_MS
    (job,) = desk.claim()
    assert (job.lease.job, job.name, json.loads(job.payload)) == (reply.jobs[0], "main", {"of": "clean"})


def test_rule_24_a_tick_is_one_job_however_many_schedulers_there_are(desk: ModelDesk) -> None:
    put(desk)
    for number in range(3):
        (one,), (other,) = desk.to(FIRST_MS + number * MINUTE_MS).ticks("a"), desk.ticks("b")
        call = desk.call(one)
        first = desk.send(call)
        assert (first.result, len(first.jobs)) == ("ticked", 1)
        before, again = desk.dump(), desk.send(call)
        assert (again.result, again.jobs) == ("repeated", first.jobs) and desk.run(other).result == "moved"
        assert desk.dump() == before and waiting(desk) == list(first.jobs)
        (schedule,) = desk.finished(desk.claim()[0].lease).queue.schedules.list()
        assert (schedule.count, schedule.last_job) == (number + 1, first.jobs[0])


def test_rule_24_a_tick_that_was_made_is_not_made_again_for_who_enables_the_schedule_late(desk: ModelDesk) -> None:
    (schedule,) = scheduled(desk).queue.schedules.list()
    late = EnableSchedule("clean", 1, schedule.next_ms, op_id=desk._op_id(), not_after_ms=desk.now_ms + 10 * MINUTE_MS)
    (made,) = desk.tick(MINUTE_MS).turn()
    desk.finish(desk.claim()[0].lease)
    assert len(made.jobs) == 1 and desk.queue.schedules.disable("clean")
    assert desk.tick(1).run(late).found == "changed"
    (again,) = desk.turn()
    assert (again.result, again.jobs, desk.claim()) == ("ticked", (), [])
    (schedule,) = desk.queue.schedules.list()
    assert (schedule.count, schedule.next_ms) == (1, late.next_ms + MINUTE_MS)


def test_rule_07_a_second_copy_of_a_change_of_a_schedule_changes_nothing(desk: ModelDesk) -> None:
    put(desk)
    for operation in (EnableSchedule("clean", 1, 0, **desk.identity()), RemoveSchedule("clean", **desk.identity())):
        call = desk.call(operation)
        assert desk.send(call).found == "changed"
        before, again = scheduled(desk, enabled=True).dump(), desk.send(call)
        assert (again.result, again.found, desk.dump()) == ("repeated", "changed", before)


@only(FOREIGN)
def test_rule_01_a_tick_cut_off_after_any_write_makes_one_job(desk: ModelDesk, spec: Spec) -> None:
    for writes in desk.each_cut():
        (operation,) = scheduled(desk).to(FIRST_MS).ticks()
        desk.cut_off(operation, writes)
        for again in desk.ticks():
            desk.run(again)
        assert len(waiting(desk)) == 1, writes
        assert stored(desk)["last_job"] == waiting(desk)[0] and stored(desk)["count"] == "1", writes
        assert len(desk.claim()) == 1, writes
        desk.queue.close()


def test_missed_ticks_run_once_or_each(desk: ModelDesk) -> None:
    put(scheduled(desk, "once"), "each", missed="all")
    desk.to(FIRST_MS + 3 * MINUTE_MS + 30_000)
    made = {operation.schedule: desk.run(operation).jobs for operation in desk.ticks()}
    assert {name: len(jobs) for name, jobs in made.items()} in ({"once": 2, "each": 4}, {"once": 1, "each": 4})
    assert len(waiting(desk)) == sum(map(len, made.values()))


def test_a_schedule_waits_for_its_own_job_where_it_is_told_to(desk: ModelDesk) -> None:
    (job,) = scheduled(desk, overlap="skip").to(FIRST_MS).turned().claim()
    (reply,) = desk.to(FIRST_MS + MINUTE_MS).turn()
    assert (reply.jobs, reply.skipped, stored(desk)["skipped"]) == ((), 1, "1")
    (reply,) = desk.finished(job.lease).to(FIRST_MS + 2 * MINUTE_MS).turn()
    assert len(reply.jobs) == 1


def test_a_schedule_that_is_disabled_removed_or_changed_does_not_tick(desk: ModelDesk) -> None:
    (operation,) = scheduled(desk).to(FIRST_MS).ticks()
    assert desk.to(FIRST_MS - 1).run(operation).result == "moved", "its time has not come"
    assert desk.queue.schedules.disable("clean")
    assert desk.run(operation).result == "moved" and desk.ticks() == []
    assert desk.queue.schedules.enable("clean")
    (operation,) = desk.to(FIRST_MS + MINUTE_MS).ticks()
    assert desk.queue.schedules.put("clean", "main", {"of": "other"}, cron="* * * * *") == "changed"
    assert desk.run(operation).result == "moved"
    (reply,) = desk.turn()
    assert reply.result == "ticked" and json.loads(desk.claim()[0].payload) == {"of": "other"}
    assert desk.queue.schedules.remove("clean") and not desk.queue.schedules.remove("clean")
    assert desk.to(FIRST_MS + 5 * MINUTE_MS).ticks() == [] and desk.queue.schedules.list() == ()


def test_a_schedule_is_read_back_and_may_run_now(desk: ModelDesk) -> None:
    found = scheduled(desk).queue.schedules.get("clean")
    assert found is not None and (found.job_name, found.payload, found.next_ms) == ("main", {"of": "clean"}, FIRST_MS)
    made = desk.queue.schedules.run_now("clean")
    assert made is not None and made.created
    (job,) = desk.claim()
    assert (job.lease.job, json.loads(job.payload)) == (made.job, {"of": "clean"})
    assert desk.queue.schedules.run_now("other") is None


def test_after_a_week_without_workers_the_missed_ticks_are_counted_one_by_one(desk: ModelDesk) -> None:
    start_ms = desk.now_ms + 1000 - desk.now_ms % 1000
    for missed in AFTER_A_WEEK:
        desk.queue.schedules.put(f"every-{missed}", "main", None, every_ms=1000, start_ms=start_ms, missed=missed)
        desk.queue.schedules.put(f"cron-{missed}", "main", None, cron="* * * * * *", start_ms=start_ms, missed=missed)
    desk.tick(start_ms + WEEK_MS - 1000 - desk.now_ms)
    assert {reply.result for reply in map(desk.run, desk.ticks("a"))} == {"ticked"}
    told = {schedule.name: (schedule.count, schedule.missed) for schedule in desk.queue.schedules.list()}
    assert told == {f"{kind}-{missed}": figures for kind in ("every", "cron") for missed, figures in AFTER_A_WEEK.items()}


@only(FOREIGN)
def test_a_template_that_nobody_can_read_stops_its_schedule_alone(desk: ModelDesk) -> None:
    put(scheduled(desk, "bad"), "good")
    desk.redis.hset(desk.keys.schedule("bad"), "job", b"\x00\x00\x00\xffshort")
    replies = {operation.schedule: desk.run(operation) for operation in desk.to(FIRST_MS).ticks()}
    assert len(replies["good"].jobs) == 1 and replies["bad"].jobs == ()
    assert stored(desk, "bad")["error"] and stored(desk, "bad")["next_ms"] == "0"
    assert desk.redis.zscore(desk.keys.cron, "bad") == float("inf")
    assert [found.name for found in desk.queue.schedules.list() if found.error] == ["bad"]
