"""Rule 24, and rules 1, 7 and 10 for schedules: one job a tick, however many schedulers there are and however calls arrive."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import Malformed, ScriptFault, ServerUnavailable
from engine.ops import schedules
from tests.engine.desk import LEASE_MS, START_MS, Desk
from tests.engine.helpers.lanes_state import members, zsets
from tests.engine.using import Call, EnableSchedule, Operation, PutSchedule, RemoveSchedule, Tick, TickPolicy, Timing, refused

MINUTE_MS = 60_000
#: The first full minute after the desk's clock starts.
FIRST_MS = -(-START_MS // MINUTE_MS) * MINUTE_MS


def put(desk: Desk, name: str = "clean", **more: Any) -> str:
    """A schedule that ticks at every full minute, unless told otherwise."""
    if not {"every_ms", "months", "cron"} & set(more):
        more["cron"] = "* * * * *"
    return desk.queue.schedules.put(name, "main", {"of": name}, **more)


def scheduled(desk: Desk, name: str = "clean", **more: Any) -> Desk:
    put(desk, name, **more)
    return desk


def first_tick(desk: Desk) -> Tick:
    """The call of the first tick of a schedule, when it is due."""
    (operation,) = scheduled(desk).to(FIRST_MS).ticks()
    return operation


def state(desk: Desk, name: str = "clean") -> dict[str, str]:
    raw: Any = desk.redis.hgetall(desk.keys.schedule(name))
    return {key.decode(): value.decode(errors="replace") for key, value in raw.items()}


def index(desk: Desk) -> dict[str, float]:
    return zsets(desk, [desk.keys.cron])[0]


def jobs(desk: Desk) -> list[str]:
    """The ids of the jobs that wait, as a claim would take them."""
    return members(desk, desk.keys.lane("main"))


def job_of(tick_ms: int, name: str = "clean") -> str:
    return f"cron:{name}:{tick_ms}"


def work_off(desk: Desk) -> list[str]:
    """Claim and finish all that waits."""
    claimed = desk.claim("w", limit=200)
    if claimed:
        desk.finish(*[job.lease for job in claimed])
    return [job.lease.job for job in claimed]


# -- what is stored


@pytest.mark.feature("BQ09", "BN19")
def test_rule_24_a_tick_makes_the_job_and_moves_the_schedule_on(desk: Desk) -> None:
    assert put(desk, priority=7, key="acme", headers={"trace": "t"}, attempts=2) == "new"
    assert index(desk) == {"clean": FIRST_MS}
    assert {key: value for key, value in state(desk).items() if key != "job"} == {
        **{"version": "1", "timing": '{"cron":"* * * * *"}', "policy": "{}", "enabled": "1"},
        **{"next_ms": str(FIRST_MS), "anchor_ms": str(START_MS), "error": ""},
    }
    promoted = desk.to(FIRST_MS - 1).sweep()
    assert (promoted.due, promoted.sleep_ms) == ((), 1)
    assert [reply.jobs for reply in desk.to(FIRST_MS).turn()] == [(job_of(FIRST_MS),)]
    assert index(desk) == {"clean": FIRST_MS + MINUTE_MS}
    told = [state(desk)[field] for field in ("next_ms", "last_ms", "last_job", "count", "missed", "skipped")]
    assert told == [str(FIRST_MS + MINUTE_MS), str(FIRST_MS), job_of(FIRST_MS), "1", "0", "0"]
    assert desk.redis.llen(desk.keys.wake("main")) == 1
    job = desk.one()
    found = (job.lease.job, job.name, job.lane, json.loads(job.payload))
    assert found == (job_of(FIRST_MS), "main", "main/acme", {"of": "clean"})
    assert (job.options.priority, job.options.attempts, job.options.headers) == (7, 2, (("trace", "t"),))
    assert (job.enqueued_ms, job.due_ms) == (FIRST_MS, 0)


def test_rule_24_a_scheduled_job_is_byte_for_byte_what_an_enqueue_makes(desk: Desk) -> None:
    options: dict[str, Any] = {"priority": 2, "lifo": True, "key": "k", "unique": "u", "timeout_ms": 5000}
    put(desk, **options, headers={"a": "b"})
    made: Any = desk.to(FIRST_MS).turned().redis.get(desk.keys.job(job_of(FIRST_MS)))
    desk.redis.delete(desk.keys.unique("u"))
    desk.enqueue("plain", payload={"of": "clean"}, **options, headers=(("a", "b"),))
    plain: Any = desk.redis.get(desk.keys.job("plain"))
    # But for the sequence and the nonce: the tick is the identity of a scheduled job.
    made_numbers, plain_numbers = (int.from_bytes(raw[2:11], "big") for raw in (made, plain))
    assert (made_numbers >> 42, plain_numbers >> 42) == (1, 2) and (made_numbers - plain_numbers) % (1 << 42) == 0
    assert (made[0], made[1] | 64, made[11:]) == (plain[0], plain[1], plain[19:]) and made[1] & 64 == 0
    assert desk.redis.zcard(desk.keys.lane("main/k")) == 2 and desk.redis.get(desk.keys.unique("u")) == b"plain"


@pytest.mark.feature("BQ10", "MQ10")
def test_rule_24_of_many_schedulers_one_fires_each_tick(desk: Desk) -> None:
    """All of them read that it is due before the first of them ticks."""
    put(desk, every_ms=1000, start_ms=FIRST_MS)
    for passed in range(5):
        desk.to(FIRST_MS + 1000 * passed)
        calls = [desk.call(operation) for worker in "abcdef" for operation in desk.ticks(worker)]
        assert [reply.result for reply in [desk.send(call) for call in calls]] == ["ticked"] + ["moved"] * 5
        assert jobs(desk) == [job_of(FIRST_MS + 1000 * at) for at in range(passed + 1)]
    assert state(desk)["count"] == "5"


def test_rule_24_a_tick_sent_twice_answers_the_same_and_changes_nothing(desk: Desk) -> None:
    (call,) = (desk.call(operation) for operation in scheduled(desk).to(FIRST_MS).ticks())
    first = desk.send(call)
    with desk.unchanged():
        assert (first.result, desk.send(call)) == ("ticked", replace(first, result="repeated"))


@pytest.mark.parametrize("gone", [False, True], ids=["its job is kept", "its job is gone"])
def test_rule_24_a_tick_that_was_made_is_not_made_again_for_who_enables_the_schedule_late(desk: Desk, gone: bool) -> None:
    """The next tick that the call has was computed before that tick came."""
    put(desk)
    late = EnableSchedule("clean", 1, FIRST_MS, op_id=desk._op_id(), not_after_ms=desk.now_ms + 10 * MINUTE_MS)
    desk.to(FIRST_MS)
    assert [reply.jobs for reply in desk.turn()] == [(job_of(FIRST_MS),)] and work_off(desk) == [job_of(FIRST_MS)]
    if gone:
        desk.redis.delete(desk.keys.job(job_of(FIRST_MS)))
    assert desk.queue.schedules.disable("clean")
    assert desk.tick(1).run(late).found == "changed" and state(desk)["next_ms"] == str(FIRST_MS)
    assert [(reply.result, reply.jobs, reply.skipped) for reply in desk.turn()] == [("ticked", (), 0)]
    assert (jobs(desk), state(desk)["count"], index(desk)) == ([], "1", {"clean": FIRST_MS + MINUTE_MS})
    assert [reply.jobs for reply in desk.to(FIRST_MS + MINUTE_MS).turn()] == [(job_of(FIRST_MS + MINUTE_MS),)]


def test_rule_24_a_schedule_that_ticked_by_a_clock_that_was_ahead_ticks_again_once_it_is_enabled_anew(desk: Desk) -> None:
    work_off(scheduled(desk).to(FIRST_MS + 1_000 * MINUTE_MS).turned())
    assert desk.to(FIRST_MS - 1_000).queue.schedules.disable("clean") and desk.queue.schedules.enable("clean")
    assert [reply.jobs for reply in desk.to(FIRST_MS).turn()] == [(job_of(FIRST_MS),)]


def test_rule_24_a_late_copy_of_a_tick_makes_nothing_whatever_became_of_the_job_and_the_schedule(desk: Desk) -> None:
    scheduled(desk).to(FIRST_MS)
    late = [desk.call(operation) for worker in "ab" for operation in desk.ticks(worker)]
    work_off(desk.sent(late[0]))
    assert desk.tick(10 * MINUTE_MS).places(job_of(FIRST_MS)) == set()
    desk.turn()
    changes: list[Callable[[], object]] = [
        lambda: None, lambda: put(desk, cron="*/2 * * * *"), lambda: desk.queue.schedules.remove("clean"), lambda: put(desk),
    ]  # fmt: skip
    for change in changes:
        change()
        with desk.unchanged():
            assert [desk.send(call).result for call in late] == ["moved", "moved"]


def test_rule_24_a_tick_that_is_not_due_by_the_servers_clock_makes_nothing(desk: Desk) -> None:
    """A scheduler whose clock is ahead, or a server whose clock stepped back in between."""
    operation = first_tick(desk)
    with desk.to(FIRST_MS - 1).unchanged():
        assert desk.run(operation).result == "moved"
        early = replace(operation, ticks_ms=(FIRST_MS, FIRST_MS + MINUTE_MS), next_ms=FIRST_MS + 2 * MINUTE_MS)
        assert desk.to(FIRST_MS).run(early).result == "moved"
    assert desk.run(operation).result == "ticked"


@pytest.mark.parametrize("next_ms", [FIRST_MS, FIRST_MS - 1, 0])
def test_rule_24_the_next_tick_must_come_after_the_expected_one(desk: Desk, next_ms: int) -> None:
    desk.refuses(replace(first_tick(desk), next_ms=next_ms), "must come after", ScriptFault)


def test_rule_24_a_tick_that_was_reckoned_for_another_version_moves_nothing(desk: Desk) -> None:
    """Both versions wait for the same tick, and the one after it differs."""
    hour_ms = int(index(scheduled(desk, cron="0 * * * *", priority=2))["clean"])
    (late,) = desk.to(hour_ms).ticks()
    assert index(scheduled(desk.to(hour_ms - 1000), cron="* * * * *")) == {"clean": hour_ms}
    with desk.to(hour_ms).unchanged():
        assert desk.run(late).result == "moved"
    assert index(desk.turned()) == {"clean": hour_ms + MINUTE_MS}
    assert [job.options.priority for job in desk.claim()] == [5]


# -- cut off


@pytest.mark.parametrize("end", ["running", "finished"])
def test_rules_01_and_24_a_tick_cut_off_after_its_job_makes_it_no_second_time(desk: Desk, end: str) -> None:
    """The job is claimed, or finished, before another scheduler comes by."""
    scheduled(desk).to(FIRST_MS)
    first, second = (operation for worker in "ab" for operation in desk.ticks(worker))
    key = desk.keys.job(job_of(FIRST_MS))
    writes = next(count for count in range(1, 20) if desk.cut_off(first, count) and desk.redis.exists(key))
    assert writes > 1 and index(desk) == {"clean": FIRST_MS}
    job = desk.one()
    if end == "finished":
        desk.finish(job.lease)
    reply = desk.run(second)
    assert (reply.result, reply.jobs) == ("ticked", (job_of(FIRST_MS),))
    assert (index(desk), state(desk)["count"]) == ({"clean": FIRST_MS + MINUTE_MS}, "1")
    assert desk.claim("b") == []
    assert desk.places(job_of(FIRST_MS)) == ({"active"} if end == "running" else {"ended"})


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
def test_rules_01_and_24_a_tick_cut_off_anywhere_loses_and_doubles_no_job(desk: Desk, resend: bool) -> None:
    for unique in (None, "u"):
        for writes in desk.each_cut():
            put(desk, missed="all", late_ms=0, unique=unique)
            (operation,) = desk.to(FIRST_MS + 2 * MINUTE_MS).ticks()
            assert len(operation.ticks_ms) == 3
            desk.cut_off(operation, writes)
            if resend:
                assert desk.run(operation).result in ("ticked", "repeated")
            # Else another scheduler sees that the schedule is still due, or that it is not.
            desk.turn("t")
            expected = [job_of(FIRST_MS + MINUTE_MS * at) for at in range(1 if unique else 3)]
            assert work_off(desk) == expected, writes
            assert (index(desk), state(desk)["count"]) == ({"clean": FIRST_MS + 3 * MINUTE_MS}, str(len(expected))), writes
            assert desk.tick(30_000).turn() == [] and work_off(desk) == []
        assert writes > 3


def put_operation(desk: Desk) -> PutSchedule:
    job = replace(desk.enqueue_operation("template", nonce=bytes(8)), not_after_ms=0)
    timing, policy = Timing(cron="* * * * *"), TickPolicy()
    return PutSchedule("clean", timing, policy, job, FIRST_MS, START_MS, None, **desk.identity())


CHANGES: dict[str, Callable[[Desk], Operation]] = {
    "new": put_operation, "changed": lambda desk: put_operation(scheduled(desk, cron="0 0 * * *")),
    "disabled": lambda desk: EnableSchedule("clean", 1, 0, **scheduled(desk).identity()),
    "enabled": lambda desk: EnableSchedule("clean", 1, FIRST_MS, **scheduled(desk, enabled=False).identity()),
    "removed": lambda desk: RemoveSchedule("clean", **scheduled(desk).identity()),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_rules_01_and_07_a_change_cut_off_anywhere_is_done_by_a_copy(desk: Desk, change: str) -> None:
    for writes in desk.each_cut():
        operation = CHANGES[change](desk)
        was_cut = desk.cut_off(operation, writes)
        assert desk.tick(100).run(operation).result == ("done" if was_cut else "repeated")
        made = [job for reply in desk.turned().to(FIRST_MS).turn() for job in reply.jobs]
        ticks_now = change not in ("disabled", "removed")
        assert made == ([job_of(FIRST_MS)] if ticks_now else []), writes
        found = desk.queue.schedules.get("clean")
        assert (found is None) == (change == "removed")
        if change == "removed":
            assert (index(desk), state(desk)) == ({}, {})
        elif found is not None:
            assert (found.enabled, found.next_ms) == (ticks_now, FIRST_MS + MINUTE_MS if ticks_now else 0)
    assert writes > 1


@pytest.mark.parametrize("change", CHANGES)
def test_rule_01_a_change_cut_off_for_ever_leaves_no_schedule_that_spins(desk: Desk, change: str) -> None:
    for writes in desk.each_cut(1):
        desk.cut(CHANGES[change](desk), writes).to(FIRST_MS)
        for _ in range(3):
            desk.turn()
        assert desk.sweep().sleep_ms > 0, writes
        assert len(work_off(desk)) <= 1


@pytest.mark.parametrize("change", CHANGES)
def test_rule_07_a_change_sent_again_is_not_done_again(desk: Desk, change: str) -> None:
    call: Call[Any] = desk.call(CHANGES[change](desk))
    first = desk.send(call)
    assert first.result == "done"
    with desk.unchanged():
        assert desk.tick(500).send(call) == replace(first, result="repeated", srv_us=desk.now_ms * 1000)
    # Another operator changes it meanwhile; the copy comes late, and later than any copy may.
    other = state(scheduled(desk, cron="5 5 * * *", enabled=True)), index(desk)
    assert desk.tick(9_000).send(call).result == "repeated"
    assert desk.tick(30_000).send(call).result == "refused" and (state(desk), index(desk)) == other


# -- missed ticks and overlap


@pytest.mark.parametrize(("missed", "expected"), [("once", [9]), ("all", [*range(10)]), ("skip", [9])])
@pytest.mark.feature("BN19")
def test_ticks_that_nobody_saw(desk: Desk, missed: Any, expected: list[int]) -> None:
    """Nine are late; the tenth is not, so `skip` runs it."""
    scheduled(desk, missed=missed, late_ms=30_000).to(FIRST_MS + 9 * MINUTE_MS + 5_000).turn()
    assert jobs(desk) == [job_of(FIRST_MS + MINUTE_MS * at) for at in expected]
    assert state(desk)["missed"] == str(10 - len(expected))
    assert index(desk) == {"clean": FIRST_MS + 10 * MINUTE_MS}


def test_late_ticks_are_none_where_none_shall_run(desk: Desk) -> None:
    scheduled(desk, missed="skip", late_ms=0).to(FIRST_MS + 5_000).turn()
    assert (jobs(desk), state(desk)["missed"], index(desk)) == ([], "1", {"clean": FIRST_MS + MINUTE_MS})
    assert "last_ms" not in state(desk)


@pytest.mark.parametrize("missed", ["once", "all", "skip"])
def test_ticks_that_are_in_time_all_run(desk: Desk, missed: Any) -> None:
    put(desk, every_ms=1000, start_ms=FIRST_MS, missed=missed)
    assert jobs(desk.to(FIRST_MS + 3_000).turned()) == [job_of(FIRST_MS + 1000 * at) for at in range(4)]


@pytest.mark.parametrize(("away_ms", "made"), [(30_000, 100), (60_000, 100), (60_100, 1)])
def test_whether_ticks_are_late_is_told_by_the_first_and_not_by_the_last_hundred(desk: Desk, away_ms: int, made: int) -> None:
    put(desk, every_ms=100, start_ms=FIRST_MS, missed="once", late_ms=60_000)
    desk.to(FIRST_MS + away_ms).turn()
    assert (state(desk)["count"], state(desk)["missed"]) == (str(made), str(away_ms // 100 + 1 - made))


def test_no_more_than_a_hundred_ticks_are_made_up_for(desk: Desk) -> None:
    put(desk, every_ms=1000, start_ms=FIRST_MS, missed="all", late_ms=0)
    desk.to(FIRST_MS + 86_400_000).turn()
    assert jobs(desk) == [job_of(FIRST_MS + 86_400_000 - 1000 * back) for back in range(99, -1, -1)]
    assert desk.turn() == [] and state(desk)["missed"] == str(86_401 - 100)


@pytest.mark.feature("MQ10")
def test_no_job_is_made_while_the_one_before_waits_or_runs(desk: Desk) -> None:
    put(desk, overlap="skip")
    minutes = iter(range(100))

    def next_tick() -> list[str]:
        return [job for reply in desk.to(FIRST_MS + next(minutes) * MINUTE_MS).turn() for job in reply.jobs]

    first = next_tick()
    assert first == [job_of(FIRST_MS)]
    assert next_tick() == [], "it waits"
    leased = desk.one()
    assert next_tick() == [], "it runs"
    desk.retry(leased.lease, delay_ms=MINUTE_MS + 1)
    assert next_tick() == [], "it waits for its next run"
    assert work_off(desk.swept(1)) == first
    assert next_tick() == [job_of(FIRST_MS + 4 * MINUTE_MS)], "it has finished"
    desk.bury(desk.one().lease)
    assert next_tick() == [job_of(FIRST_MS + 5 * MINUTE_MS)], "it is dead"
    assert (state(desk)["skipped"], state(desk)["count"]) == ("3", "3")


def test_rule_23_a_schedules_job_stays_out_while_another_has_its_unique_key(desk: Desk) -> None:
    scheduled(desk, unique="u").enqueue("holder", unique="u").to(FIRST_MS)
    assert [(reply.jobs, reply.skipped) for reply in desk.turn()] == [((), 1)]
    work_off(desk)
    assert desk.to(FIRST_MS + MINUTE_MS).turned().redis.get(desk.keys.unique("u")) == job_of(FIRST_MS + MINUTE_MS).encode()


# -- clocks


def test_rule_10_a_clock_that_steps_back_fires_no_tick_twice(desk: Desk) -> None:
    put(desk)
    found: list[str] = []
    for at_ms in (0, MINUTE_MS, 2 * MINUTE_MS, -10 * MINUTE_MS, 0, MINUTE_MS, 2 * MINUTE_MS, 3 * MINUTE_MS):
        found += work_off(desk.to(FIRST_MS + at_ms).turned())
    assert found == [job_of(FIRST_MS + at * MINUTE_MS) for at in range(4)]


# -- what cannot be read


@pytest.mark.parametrize(("field", "value"), [
    ("timing", "no JSON"), ("timing", '{"cron":"61 * * * *"}'), ("timing", '{"cron":"* * * * *","zone":"Mars/Olympus"}'),
    ("timing", '{"cron":5}'), ("timing", '{"of a later version":1}'), ("timing", "[]"), ("policy", "{"), ("job", "corrupt"),
    ("anchor_ms", "x"),
])  # fmt: skip
def test_a_schedule_that_cannot_be_read_is_set_aside_with_the_reason_the_others_tick(desk: Desk, field: str, value: str) -> None:
    put(scheduled(desk, "bad"), "good")
    desk.redis.hset(desk.keys.schedule("bad"), field, value)
    for at in range(3):
        desk.to(FIRST_MS + at * MINUTE_MS).turn()
    assert [job for job in jobs(desk) if ":good:" in job] == [job_of(FIRST_MS + at * MINUTE_MS, "good") for at in range(3)]
    if field == "anchor_ms":
        # An expression needs none.
        return
    assert [job for job in jobs(desk) if ":bad:" in job] == []
    assert index(desk) == {"bad": float("inf"), "good": FIRST_MS + 3 * MINUTE_MS}
    listed = {schedule.name: schedule for schedule in desk.queue.schedules.list()}
    assert (listed["bad"].next_ms, listed["bad"].error != "", listed["good"].error) == (0, True, "")
    # Whoever puts it again knew better.
    scheduled(desk, "bad").to(FIRST_MS + 3 * MINUTE_MS).turn()
    assert jobs(desk)[-2:] == [job_of(desk.now_ms, "bad"), job_of(desk.now_ms, "good")]
    assert state(desk, "bad")["error"] == ""


@pytest.mark.parametrize("key", ["cron", "schedule", "seq", "classes", "lane"])
def test_rule_01_a_key_of_the_wrong_type_stops_a_tick_before_its_first_write(desk: Desk, key: str) -> None:
    operation, keys = first_tick(desk), desk.keys
    name = {"schedule": keys.schedule("clean"), "lane": keys.lane("main")}.get(key) or getattr(keys, key)
    desk.redis.delete(name)
    desk.redis.rpush(name, "not what the script expects")
    desk.refuses(operation, "WRONGTYPE", ScriptFault)


def test_rule_02_a_tick_is_refused_whole_when_memory_is_full_and_made_up_for_afterwards(desk: Desk) -> None:
    operation = first_tick(desk)
    with desk.full():
        desk.refuses(operation, "OOM", ServerUnavailable)
        assert desk.queue.schedules.disable("clean") and desk.queue.schedules.enable("clean")
    assert jobs(desk.to(FIRST_MS + MINUTE_MS).turned()) == [job_of(FIRST_MS + MINUTE_MS)]


def test_a_queue_has_room_for_so_many_schedules(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.cron, {f"s{number}": float("inf") for number in range(schedules.SCHEDULES_MAX - 1)})
    assert put(desk) == "new"
    with desk.unchanged():
        refused(Malformed, "10000 schedules", put, desk, "another")
        refused(Malformed, "10000 schedules", put, desk, "one-more")
    assert put(desk) == "same"


def test_a_crashed_scheduled_job_is_reaped_like_any_other(desk: Desk) -> None:
    scheduled(desk).to(FIRST_MS).turn()
    assert desk.crash(job_of(FIRST_MS))[1] == 1 and work_off(desk.tick(LEASE_MS)) == [job_of(FIRST_MS)]
