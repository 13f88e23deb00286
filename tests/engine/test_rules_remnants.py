"""Rule 1: what a call that was cut off and never sent again leaves behind is gone after the next sweeps."""

from typing import Any

import pytest

from tests.engine.helpers.scenes import saved
from tests.engine.ops import EnableSchedule, EnqueueMany, Operation, PutSchedule, RemoveSchedule, TickPolicy, Timing
from tests.engine.using import HOUR_MS, LEASE_MS, Desk, names_of


def remnants(desk: Desk) -> set[str]:
    """Keys that do not expire, of jobs that there are none of any more."""
    keys = names_of(desk, f"{desk.keys.prefix}*")
    return {key for key in keys if desk.redis.pexpiretime(desk.keys.prefix + key) < 0} - {"seq", "sweep", "stats", "classes"}


def work_off(desk: Desk) -> None:
    """What healthy workers do until nothing is left that may run, and then a minute."""
    for _ in range(8):
        desk.past(LEASE_MS).swept().finish(*(job.lease for job in desk.claim("z")))
    desk.sweeps(20, LEASE_MS // 3).redis.delete(desk.keys.done, desk.keys.wake("main"))


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_an_enqueue_that_was_cut_off_leaves_no_unique_key_without_its_job(desk: Desk, many: bool) -> None:
    def scene(desk: Desk) -> Operation:
        jobs = tuple(desk.enqueue_operation(f"j{number}", unique=f"u{number}") for number in range(3))
        return EnqueueMany(jobs) if many else jobs[0]

    writes, was_cut, start = 0, True, saved(desk, scene)
    while was_cut:
        was_cut, uniques = desk.cut_off(start(desk), writes), names_of(desk, desk.keys.unique("*"))
        jobs = names_of(desk, desk.keys.job("*"))
        assert [name.replace("u", "j") for name in uniques] == jobs, writes
        work_off(desk)
        assert remnants(desk) == set(), (writes, desk.dump())
        writes += 1
    assert writes > 3


def test_an_enqueue_that_was_cut_off_makes_no_later_job_of_its_id_early(desk: Desk) -> None:
    """Its entry among the delayed stays behind and is due at a time of its own."""
    first = desk.enqueue("other").finished(desk.claim()[0].lease).enqueue_operation("j", delay_ms=100)
    writes = next(writes for writes in range(9) if desk.cut_off(first, writes) and desk.redis.zcard(desk.keys.due))
    assert not desk.redis.exists(desk.keys.job("j")), writes
    desk.tick(50).enqueue("j", delay_ms=1_000, nonce=b"another-")
    due_ms = desk.now_ms + 1_000
    desk.later(100)
    assert [score for _, score in desk.redis.zrange(desk.keys.due, 0, -1, withscores=True)] == [due_ms]
    assert not desk.claim()
    assert [job.lease.job for job in desk.swept(900).claim()] == ["j"] and not desk.redis.zcard(desk.keys.due)


def test_a_bulk_of_unique_jobs_beyond_one_write_parts_no_job_from_its_key(desk: Desk) -> None:
    jobs = tuple(desk.enqueue_operation(f"j{number:03}", unique=f"u{number:03}" if number % 3 else "") for number in range(600))
    start = saved(desk, lambda desk: EnqueueMany(jobs))
    for writes in range(6):
        uniques, found = names_of(desk.cut(start(desk), writes), desk.keys.unique("*")), names_of(desk, desk.keys.job("*"))
        assert uniques == [name.replace("j", "u") for name in found if int(name[1:]) % 3]
    assert len(desk.claim(limit=1000)) <= 600


def test_entries_of_dead_jobs_that_are_gone_are_found_wherever_they_stand(desk: Desk) -> None:
    desk.run(EnqueueMany(tuple(desk.enqueue_operation(f"j{number:03}") for number in range(250))))
    for lease in [job.lease for job in desk.claim(limit=300)]:
        desk.redis.zadd(desk.keys.dead, {lease.job: desk.now_ms})
        desk.redis.zrem(desk.keys.active, lease.job)
    gone = ("j003", "j120", "j249")
    desk.redis.delete(*map(desk.keys.job, gone))
    left: Any = desk.sweeps(4).redis.zrange(desk.keys.dead, 0, -1)
    assert len(left) == 247 and not {job.decode() for job in left} & set(gone)
    assert desk.redis.exists(*map(desk.keys.run, gone)) == 0


# -- schedules: what is in the index may be too early for a sweep, and never too late


def put(desk: Desk, every_ms: int, *, enabled: bool | None = None) -> PutSchedule:
    due_ms = desk.now_ms + every_ms
    job, timing = desk.enqueue_operation("template"), Timing(every_ms=every_ms)
    return PutSchedule("s", timing, TickPolicy(), job, due_ms, desk.now_ms, enabled, **desk.identity())


SCHEDULES: dict[str, Any] = {
    "put: later": lambda desk: put(desk.did(put(desk, 5_000)), HOUR_MS),
    "put: earlier": lambda desk: put(desk.did(put(desk, HOUR_MS)), 5_000),
    "put: disables": lambda desk: put(desk.did(put(desk, 5_000)), 5_000, enabled=False),
    "put: new": lambda desk: put(desk, 5_000),
    "enable": lambda desk: EnableSchedule("s", 1, desk.now_ms + 5_000, **desk.did(put(desk, 5_000, enabled=False)).identity()),
    "disable": lambda desk: EnableSchedule("s", 1, 0, **desk.did(put(desk, 5_000)).identity()),
    "remove": lambda desk: RemoveSchedule("s", **desk.did(put(desk, 5_000)).identity()),
    "remove: disabled": lambda desk: RemoveSchedule("s", **desk.did(put(desk, 5_000, enabled=False)).identity()),
}


@pytest.mark.parametrize("change", SCHEDULES)
def test_a_schedule_that_was_changed_by_half_ticks_when_its_definition_says(desk: Desk, change: str) -> None:
    writes, was_cut, start = 0, True, saved(desk, SCHEDULES[change])
    while was_cut:
        was_cut = desk.cut_off(start(desk), writes)
        for _ in range(6):
            # What the hash says is due is told by the sweep, at the latest when it is due; nothing else is.
            words: Any = desk.redis.hmget(desk.keys.schedule("s"), "next_ms", "enabled")
            due_ms = int(words[0] or 0) if words[1] == b"1" else 0
            assert len(desk.sweep().due) == (0 < due_ms <= desk.now_ms), (writes, due_ms - desk.now_ms)
            desk.tick(1_000)
        if not desk.redis.exists(desk.keys.schedule("s")):
            assert not desk.redis.exists(desk.keys.cron), writes
        writes += 1
    assert writes >= 3
