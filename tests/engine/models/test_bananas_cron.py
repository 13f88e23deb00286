"""Schedules and their locks on a Bananas keyspace, next to schedulers of the original."""

import json

import pytest

from chaos.foreign_keys import BananasKeys
from engine import LeaseLost
from engine.worker.machine.sweeping import tick
from tests.engine.models.bananas_desk import BananasDesk, desk

__all__ = ["desk"]

MINUTE_MS = 60_000


def keys_of(desk: BananasDesk) -> BananasKeys:
    return BananasKeys(layout=desk.layout)


def state(desk: BananasDesk, schedule: str = "s") -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in desk.redis.hgetall(keys_of(desk).cron_state(schedule)).items()}


def every_minute(desk: BananasDesk) -> BananasDesk:
    desk.queue.schedules.put("s", "main", {}, cron="* * * * *")
    return desk


def to_the_next_minute(desk: BananasDesk) -> BananasDesk:
    return desk.move(MINUTE_MS - desk.now_ms % MINUTE_MS)


def made_then(desk: BananasDesk) -> list[int]:
    """How many jobs each tick of the next minute makes."""
    return [len(ticked.jobs) for ticked in to_the_next_minute(desk).turn()]


@pytest.mark.feature("BN16", "BN19", model="bananas")
def test_a_tick_makes_a_job_with_an_id_and_tells_it_in_the_state(desk: BananasDesk) -> None:
    desk.queue.schedules.put("s", "main", {"day": 1}, cron="*/2 * * * *", priority=9, route="gpu")
    (ticked,) = desk.move(80_000).turn()
    job = f"cron:s:{desk.now_ms}"
    assert ticked.jobs == (job,) and desk.waiting("gpu", "high") == [job]
    body = desk.body(job)
    assert (body["id"], body["payload"], body["max_retries"]) == (job, {"day": 1}, 3)
    last = {"last_run": "2100-01-01T01:08:00Z", "last_success": "2100-01-01T01:08:00Z"}
    assert state(desk) == {**last, "next_run": "2100-01-01T01:10:00Z", "run_count": "1"}
    desk.move(2 * MINUTE_MS).redis.hset(keys_of(desk).cron_state("s"), "last_error", "boom")
    assert state(desk.turned())["run_count"] == "2" and "last_error" not in state(desk)


@pytest.mark.feature("BN17", model="bananas")
def test_ticks_follow_a_zone(desk: BananasDesk) -> None:
    desk.queue.schedules.put("s", "main", {}, cron="37 6 * * *", zone="Asia/Kolkata")
    assert made_then(desk) == [1], "01:07 is 06:37 there"
    assert state(desk)["next_run"] == "2100-01-02T01:07:00Z"


@pytest.mark.feature("BN18", model="bananas")
def test_a_disabled_schedule_does_not_tick(desk: BananasDesk) -> None:
    assert every_minute(desk).queue.schedules.disable("s")
    assert made_then(desk) == [] and desk.queue.schedules.enable("s") and made_then(desk) == [1]


@pytest.mark.parametrize("early_ms", [0, 986])
def test_a_tick_that_a_foreign_scheduler_has_run_makes_no_job(desk: BananasDesk, early_ms: int) -> None:
    """Theirs fire at 59.014, and tell whole seconds."""
    to_the_next_minute(every_minute(desk))
    ran = "2100-01-01T01:07:00Z" if early_ms == 0 else "2100-01-01T01:06:59Z"
    desk.redis.hset(keys_of(desk).cron_state("s"), mapping={"last_run": ran, "run_count": "1"})
    (ticked,) = desk.turn()
    assert (ticked.result, ticked.jobs, ticked.skipped) == ("ticked", (), 1) and made_then(desk) == [1]


def test_a_foreign_scheduler_that_holds_the_lock_runs_the_tick(desk: BananasDesk) -> None:
    every_minute(desk).redis.set(keys_of(desk).cron_lock("s"), "a-foreign-token", ex=60)
    assert made_then(desk) == [0] and desk.redis.get(keys_of(desk).cron_lock("s")) == b"a-foreign-token"


def test_after_a_tick_the_lock_keeps_others_out_for_two_seconds(desk: BananasDesk) -> None:
    (due,) = to_the_next_minute(every_minute(desk)).sweep().due
    call, lock = desk.call(tick(due, desk.now_ms, "s" * 16, 1)), keys_of(desk).cron_lock("s")
    assert call.script is not None
    # At one instant of the server: the two seconds are real ones.
    with desk.redis.pipeline(transaction=True) as at_once:
        at_once.eval(call.script.text, len(call.keys), *call.keys, *call.arguments)  # type: ignore[arg-type]
        at_once.set(lock, "late", nx=True, ex=60)
        at_once.pttl(lock)
        _, late, left_ms = at_once.execute()
    assert late is None and 0 < left_ms <= 2_000


def test_schedules_of_ours_may_tick_more_often_than_once_a_second(desk: BananasDesk) -> None:
    desk.queue.schedules.put("s", "main", {}, every_ms=200)
    made = sum(len(ticked.jobs) for _ in range(12) for ticked in desk.move(200).turn())
    assert made >= 11 and state(desk)["run_count"] == str(made)


def test_a_state_of_any_bytes_stops_no_tick(desk: BananasDesk) -> None:
    every_minute(desk).redis.hset(keys_of(desk).cron_state("s"), mapping={"last_run": "soon", "run_count": "4", "x": "\x00"})
    assert made_then(desk) == [1]


@pytest.mark.feature("BN20", model="bananas")
def test_the_lock_of_a_schedule_is_the_one_on_the_wire(desk: BananasDesk) -> None:
    locks, key = desk.queue.locks, keys_of(desk).cron_lock("s")
    lock = locks.acquire("cron:s", ttl_ms=300_000)
    assert lock is not None and desk.redis.get(key) == lock.token.encode() and 200 < (desk.ttl_s(key) or 0) <= 300
    assert locks.acquire("cron:s") is None and locks.acquire("cron:other") is not None
    longer = locks.extend(lock, ttl_ms=600_000)
    assert (longer.fence, longer.renewals) == (lock.fence, 1) and 300 < (desk.ttl_s(key) or 0) <= 600
    assert locks.release(longer) and not desk.redis.exists(key)
    desk.redis.set(key, "a-foreign-token", ex=60)
    assert locks.acquire("cron:s") is None and locks.release(longer) is True
    with pytest.raises(LeaseLost):
        locks.extend(longer)
    assert desk.redis.get(key) == b"a-foreign-token", "whoever holds it is untouched"
    desk.redis.delete(key)
    following = locks.acquire("cron:s")
    assert following is not None and following.fence > lock.fence
    # Of a lock whose renewals were lost, the first one counts.
    desk.redis.hdel(desk.keys.lock("cron:s"), "renewal")
    assert locks.extend(following, ttl_ms=600_000).renewals == 1 and (desk.ttl_s(key) or 0) > 300


@pytest.mark.feature("BN20", model="bananas")
def test_other_locks_are_keys_of_ours(desk: BananasDesk) -> None:
    def foreign() -> list[str]:
        return [key.decode() for key in desk.redis.scan_iter("bananas:*") if not key.startswith(b"bananas:ironclaim:")]

    before, lock = foreign(), desk.queue.locks.acquire("nightly")
    assert lock is not None and desk.queue.locks.acquire("nightly") is None and desk.queue.locks.release(lock)
    assert foreign() == before


def test_what_a_schedule_has_made_runs_like_any_other_job(desk: BananasDesk) -> None:
    desk.queue.schedules.put("s", "main", {"a": [1.0, {}]}, cron="* * * * *")
    made = desk.queue.schedules.run_now("s")
    assert made is not None and made.created
    (leased,) = desk.take()
    assert leased.lease.job == made.job and json.loads(leased.payload) == {"a": [1.0, {}]}
    assert desk.succeed(leased.lease)[0] == "ok"


@pytest.mark.feature("BN19", "BN20", model="bananas")
def test_each_line_of_programs_finds_its_keys_of_schedules(desk: BananasDesk) -> None:
    """Theirs, spelled out: programs without and with routes have the same ones, the document has others."""
    lock, told = {"document": ("cron:lock", "cron:state")}.get(desk.layout, ("schedule_lock", "schedules"))
    every_minute(desk).redis.set(f"bananas:{lock}:s", "a-foreign-token", ex=60)
    assert made_then(desk) == [0]
    desk.redis.delete(f"bananas:{lock}:s")
    (ticked,) = to_the_next_minute(desk).turn()
    assert desk.waiting() == list(ticked.jobs) and len(ticked.jobs) == 1
    assert desk.redis.hget(f"bananas:{told}:s", "last_run") == b"2100-01-01T01:08:00Z"
    listed = desk.redis.lrange("bananas:queue:normal" if desk.layout == "live" else "bananas:route:default:queue:normal", 0, -1)
    assert listed == [job.encode() for job in ticked.jobs]
