"""Rule 38: a job that nobody has started in time ends as expired, in the claim that meets it or in the next sweep; one that was
started never does."""

from typing import Any

import pytest

from tests.engine.ops import Alter, Enqueue, EnqueueMany, Failure, ListSchedules, PutSchedule, Retry, Tick, TickPolicy, Timing
from tests.engine.using import LEASE_MS, Count, Counts, Desk, Inspect, Inspected, Look, Seen, check, members

EXPIRES_MS = 1_000


def add(desk: Desk, job: str, **options: Any) -> str:
    return desk.run(desk.enqueue_operation(job, nonce=job.encode().ljust(8, b"-"), **options)).result


def state(desk: Desk, job: str) -> str:
    found: Inspected = desk.run(Inspect((job,), whole=False))
    return found.items[0].state


def counts(desk: Desk) -> Counts:
    return desk.run(Count())


def claimed(desk: Desk, limit: int = 10) -> list[str]:
    return [job.lease.job for job in desk.claim(limit=limit)]


@pytest.mark.parametrize("by", ["claim", "sweep"])
def test_rule_38_a_job_that_nobody_started_in_time_ends_as_expired(desk: Desk, by: str) -> None:
    add(desk, "late", expires_ms=EXPIRES_MS, unique="u")
    add(desk, "other")
    desk.tick(EXPIRES_MS)
    if by == "claim":
        assert claimed(desk) == ["other"]
    else:
        desk.swept()
    assert state(desk, "late") == "expired" and counts(desk).expired == 1
    assert not desk.redis.exists(desk.keys.unique("u"), desk.keys.expiring, desk.keys.run("late"))
    assert "late" not in members(desk, desk.keys.lane("main"))
    check(desk)
    seen: Seen = desk.run(Look("late"))
    assert seen.state == "expired" and add(desk, "late", expires_ms=EXPIRES_MS, unique="u") == "repeated"
    # Nothing is counted twice, nor does it come back.
    assert counts(desk.swept()).expired == 1 and "late" not in claimed(desk)


def test_rule_38_until_then_it_is_claimed_and_the_last_ms_decides(desk: Desk) -> None:
    add(desk, "in-time", expires_ms=EXPIRES_MS)
    assert claimed(desk.swept(EXPIRES_MS - 1)) == ["in-time"] and not desk.redis.exists(desk.keys.expiring)


@pytest.mark.parametrize("how", ["retry", "crash", "requeue"])
def test_rule_38_a_job_that_was_started_once_never_expires(desk: Desk, how: str) -> None:
    add(desk, "j", expires_ms=EXPIRES_MS)
    lease = desk.claim()[0].lease
    desk.later(2 * EXPIRES_MS)
    if how == "retry":
        assert desk.retry(lease, delay_ms=500) == ("ok", "retried")
    elif how == "requeue":
        desk.buried(lease).run(Alter("requeue", ("j",), "dead", op_id="0" * 16, not_after_ms=desk.now_ms + 10_000))
    else:
        desk.sweep_past(LEASE_MS + 1)
    assert claimed(desk.swept(500)) == ["j"]


def test_rule_38_a_job_that_was_given_back_unstarted_still_expires(desk: Desk) -> None:
    add(desk, "j", expires_ms=EXPIRES_MS)
    for _ in range(2):
        desk.release(desk.claim()[0].lease)
    assert claimed(desk.tick(EXPIRES_MS)) == [] and state(desk, "j") == "expired"


def test_rule_38_a_job_that_was_interrupted_and_given_back_does_not_expire(desk: Desk) -> None:
    add(desk, "j", expires_ms=EXPIRES_MS)
    assert desk.release(desk.claim()[0].lease, started=True) == [("ok", "released")]
    assert claimed(desk.swept(2 * EXPIRES_MS)) == ["j"]


def test_rule_38_a_job_that_failed_and_was_then_given_back_does_not_expire(desk: Desk) -> None:
    add(desk, "j", expires_ms=EXPIRES_MS)
    desk.did(Retry((Failure(desk.claim()[0].lease, "no", delay_ms=0),))).tick(1)
    assert claimed(desk.released(desk.claim()[0].lease).swept(2 * EXPIRES_MS)) == ["j"]


def test_rule_38_children_of_an_expired_job_are_treated_as_after_a_discard(desk: Desk) -> None:
    add(desk, "p", expires_ms=EXPIRES_MS)
    add(desk, "child", needs=("p",))
    add(desk, "alone", needs=("p",), on_parent_failure="ignore")
    add(desk, "hasty", needs=("p",), expires_ms=EXPIRES_MS // 2)
    assert state(desk.swept(EXPIRES_MS // 2), "hasty") == "expired"
    assert members(desk, desk.keys.blocked) == ["alone", "child"]
    desk.later(EXPIRES_MS // 2)
    assert (state(desk, "p"), state(desk, "child"), state(desk, "alone")) == ("expired", "dead", "waiting")
    assert desk.run_hash("child")["error"] == "its parent p is expired"


def test_rule_38_a_child_that_was_buried_with_its_parent_does_not_expire_when_it_is_requeued(desk: Desk) -> None:
    add(desk, "p", expires_ms=EXPIRES_MS)
    add(desk, "child", needs=("p",), expires_ms=2 * EXPIRES_MS)
    desk.swept(EXPIRES_MS).run(Alter("requeue", ("child",), "dead", op_id="0" * 16, not_after_ms=desk.now_ms + 10_000))
    assert claimed(desk.swept(2 * EXPIRES_MS)) == ["child"]


def test_rule_38_jobs_of_a_bulk_and_of_schedules_expire_as_well(desk: Desk) -> None:
    jobs = [desk.enqueue_operation(f"b{at}", nonce=b"bulk----", expires_ms=EXPIRES_MS if at % 2 else 0) for at in range(6)]
    jobs.append(desk.enqueue_operation("later", nonce=b"bulk----", delay_ms=500, expires_ms=EXPIRES_MS))
    desk.run(EnqueueMany(tuple(jobs)))
    template = Enqueue("", "main", b"null", b"", desk.enqueue_operation("x", expires_ms=EXPIRES_MS).options)
    now_ms, often = desk.now_ms, Timing(every_ms=100)
    desk.run(PutSchedule("s", often, TickPolicy(), template, now_ms, now_ms, True, **desk.identity()))
    (stored,) = desk.run(ListSchedules("s")).items
    desk.run(Tick("c" * 16, 1, "s", stored.version, now_ms, (now_ms,), now_ms + 100_000, 0, "allow"))
    expiring: Any = desk.redis.zrange(desk.keys.expiring, 0, -1, withscores=True)
    assert [at_ms for _, at_ms in expiring] == [desk.now_ms + EXPIRES_MS] * 5
    assert claimed(desk.tick(EXPIRES_MS), 20) == ["b0", "b2", "b4"] and counts(desk).expired == 5


def test_rule_38_one_claim_and_one_sweep_end_a_bounded_number(desk: Desk) -> None:
    jobs = [desk.enqueue_operation(f"b{at}", nonce=b"bulk----", expires_ms=EXPIRES_MS) for at in range(1_000)]
    desk.did(EnqueueMany(tuple(jobs))).tick(EXPIRES_MS)
    before = 0
    for limit in (200, 250):
        assert desk.claim(limit=10) == [] and 0 < counts(desk).expired - before <= limit
        before = counts(desk).expired
        assert desk.sweep().sleep_ms == 0 and 0 < counts(desk).expired - before <= 500
        before = counts(desk).expired


def test_rule_38_expired_jobs_before_others_do_not_hide_them_for_long(desk: Desk) -> None:
    jobs = [desk.enqueue_operation(f"b{at}", nonce=b"bulk----", expires_ms=EXPIRES_MS) for at in range(450)]
    desk.did(EnqueueMany((*jobs, desk.enqueue_operation("last", nonce=b"bulk----")))).tick(EXPIRES_MS)
    assert [job for _ in range(6) for job in claimed(desk)] == ["last"]
    check(desk)


def test_rule_38_an_entry_that_is_left_over_ends_no_other_job_of_its_id(desk: Desk) -> None:
    desk.cut_off(desk.enqueue_operation("j", nonce=b"first---", expires_ms=EXPIRES_MS), 3)
    assert not desk.redis.exists(desk.keys.job("j")) and add(desk, "j") == "created"
    assert state(desk.swept(EXPIRES_MS), "j") == "waiting" and not desk.redis.exists(desk.keys.expiring)


def test_rule_38_an_entry_of_a_job_that_is_not_there_goes(desk: Desk) -> None:
    add(desk, "gone", expires_ms=EXPIRES_MS)
    desk.redis.delete(desk.keys.job("gone"))
    assert not desk.swept(EXPIRES_MS).redis.exists(desk.keys.expiring) and counts(desk).expired == 0


def test_rule_38_jobs_without_an_expiry_send_nothing_more(desk: Desk) -> None:
    plain, expires = desk.call(desk.enqueue_operation("j")), desk.call(desk.enqueue_operation("k", expires_ms=EXPIRES_MS))
    assert (len(plain.keys), len(plain.arguments)) == (5, 5)
    assert (len(expires.keys), len(expires.arguments)) == (23, 13)


@pytest.mark.parametrize("by", ["claim", "sweep"])
def test_rule_38_cut_off_after_any_write_it_is_ended_all_the_same(desk: Desk, by: str) -> None:
    for writes in desk.each_cut():
        add(desk, "p", expires_ms=EXPIRES_MS, unique="u", key="k")
        add(desk, "child", needs=("p",))
        desk.tick(EXPIRES_MS)
        operation = desk.claim_operation() if by == "claim" else desk.sweep_operation()
        assert desk.cut(operation, writes).run(operation) is not None and desk.swept().claim() == []
        assert (state(desk.swept(), "p"), state(desk, "child")) == ("expired", "dead"), writes
        keys = desk.keys.unique("u"), desk.keys.expiring, desk.keys.run("p"), desk.keys.lane("main/k")
        assert not desk.redis.exists(*keys), writes
    assert writes > 5
