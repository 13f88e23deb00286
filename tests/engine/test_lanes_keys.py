"""Lanes in raw keys: the envelope, scores and order, delays, promotion, reaping, wake markers, counts (rules 13, 15, 16, 22)."""

import struct
from typing import Any

import pytest

from engine import Malformed, Queue, ScriptFault
from tests.engine.using import LEASE_MS, START_MS, Bury, Claim, Desk, Finish, refused

BAND = 2**49
MIDDLE = 2**48
#: Envelopes that are none.
DAMAGE = (b"", b"\xa5", b"\x09" + b"J" * 80, b"\xb5" + b"\xff" * 58, b"\xa5" + b"\xff" * 58, b"\xab" + b"\0" * 80)


def order(desk: Desk) -> list[str]:
    return [job.lease.job for job in desk.claim("o", limit=100)]


@pytest.mark.feature("BN01", "MQ01", "BQ05")
def test_rule_15_a_waiting_job_is_one_string_and_its_place_in_the_lane(desk: Desk) -> None:
    empty = set(desk.dump())
    desk.enqueue("j1", payload={"n": 1}, priority=7, attempts=4, backoff_ms=250, timeout_ms=60_000)
    keys = desk.dump()
    job, lane, ready = desk.keys.job("j1"), desk.keys.lane("main"), desk.keys.ready("main")
    assert set(keys) - empty == {job, lane, ready, desk.keys.seq, desk.keys.classes, desk.keys.wake("main")}
    raw = keys[job][1]
    assert raw[:19] == bytes((176 + 7, 64 + 4)) + ((1 << 42) + START_MS).to_bytes(9, "big") + b"nonce---"
    assert struct.unpack(">HBBIIBBB", raw[19:34]) == (4, 0, 3, 250, 60_000, 0, 0, 0)
    assert raw[34:] == b"\x04main" + b'{"n":1}' and keys[lane][1] == [(b"j1", (10 - 7) * BAND + MIDDLE + 1)]
    assert keys[ready][1] == [(b"main", float((10 - 7) * BAND))] and keys[desk.keys.wake("main")][1] == [b"1"]


@pytest.mark.feature("MQ05")
def test_rule_15_run_lives_from_the_first_claim_to_the_end_and_a_tombstone_follows(desk: Desk) -> None:
    assert desk.enqueue("j1").run_hash("j1") == {}
    job = desk.one()
    assert desk.run_hash("j1") == {"fence": str(START_MS), "nonce": "a" * 16 + ":1", "owner": "a", "claims": "1"}
    assert desk.finished(job.lease).run_hash("j1") == {}
    raw = desk.redis.get(desk.keys.job("j1"))
    assert raw == struct.pack(">BB8s7s9s", 160, 16 + 1, b"nonce---", START_MS.to_bytes(7, "big"), b"\xaa" * 8 + b"\1")
    assert desk.redis.zrange(desk.keys.done, 0, -1, withscores=True) == [(b"j1", float(START_MS))]


@pytest.mark.feature("BQ11", "BL03")
def test_rule_16_higher_priority_first_then_first_in_first_out_and_lifo_before_its_equals(desk: Desk) -> None:
    desk.enqueue("low", priority=1).enqueue("a", "b").enqueue("stack1", "stack2", lifo=True)
    desk.enqueue("c").enqueue("high", priority=10)
    assert order(desk) == ["high", "stack2", "stack1", "a", "b", "c", "low"]


def test_rule_16_sequences_refuse_loudly_at_2_to_the_48(desk: Desk) -> None:
    desk.redis.set(desk.keys.seq, 2**48 - 2)
    desk.enqueue("last", priority=1)
    assert desk.redis.zscore(desk.keys.lane("main"), "last") == 9 * BAND + MIDDLE + 2**48 - 1
    with desk.unchanged():
        refused(ScriptFault, "sequence exhausted", desk.run, desk.enqueue_operation("beyond"))


@pytest.mark.feature("BL04")
def test_rule_16_equal_due_times_keep_the_order_of_enqueue_past_every_digit(desk: Desk) -> None:
    desk.redis.set(desk.keys.seq, 32**2 - 3)
    jobs = [f"j{number}" for number in (5, 1, 4, 2, 3)]
    desk.enqueue(*jobs, delay_ms=500)
    members = [member.decode() for member in desk.redis.zrange(desk.keys.due, 0, -1)]
    assert [member[10:] for member in members] == jobs
    # Sequences 1022 to 1026 cross from two base-32 digits to three.
    assert [member[:10] for member in members] == ["00000000vu", "00000000vv", "0000000100", "0000000101", "0000000102"]
    assert order(desk.tick(501)) == jobs


@pytest.mark.feature("BL18")
def test_a_reaped_job_goes_back_to_its_old_place_and_a_crash_is_counted(desk: Desk) -> None:
    first, _ = (job.lease for job in desk.leased("j1", "j2"))
    assert desk.later(LEASE_MS).leases == (), "a lease holds to the end of its last millisecond"
    reaped = desk.later(1)
    assert [(lease.job, crashes) for lease, crashes in reaped.leases] == [("j1", 1), ("j2", 1)] and reaped.leases[0][0] == first
    assert (desk.run_hash("j1").get("nonce"), desk.run_hash("j1")["crashes"]) == (None, "1")
    assert desk.sweep().leases == () and order(desk) == ["j1", "j2"]


@pytest.mark.feature("BQ06", "BQ08", "BN05", "MQ07")
def test_rule_13_a_claim_promotes_up_to_100_due_jobs_first(desk: Desk) -> None:
    desk.enqueue(*[f"j{number:03}" for number in range(150)], delay_ms=100).tick(100)
    assert len(desk.claim("a", limit=150)) == 100 and len(desk.claim("b", limit=150)) == 50


@pytest.mark.feature("BL19")
def test_rule_13_claims_and_sweeps_say_how_long_one_may_sleep(desk: Desk) -> None:
    assert desk.run(desk.claim_operation()).sleep_ms == 1000
    desk.enqueue("soon", delay_ms=300)
    assert desk.run(desk.claim_operation()).sleep_ms == 300 and desk.sweep().sleep_ms == 300 and desk.later(100).sleep_ms == 200
    desk.enqueue("now")
    claimed = desk.run(Claim("z" * 16, 1, 1, 150, desk.now_ms + 100, "z", 1000, ("main",)))
    assert (len(claimed.jobs), claimed.sleep_ms) == (1, 150)


def test_rule_22_at_most_one_marker_and_who_pushes_it(desk: Desk) -> None:
    wake = desk.keys.wake("main")

    def marker_taken() -> bool:
        assert desk.redis.llen(wake) in (0, 1)
        return desk.redis.lpop(wake) is not None

    desk.enqueue("j1", "j2", "j3")
    assert marker_taken()
    assert not marker_taken(), "one marker for three jobs"
    (first,) = desk.claim(limit=1)
    assert marker_taken(), "a claim that leaves claimable work pushes one"
    second, third = desk.claim("b")
    assert not marker_taken(), "a claim that leaves nothing pushes none"
    desk.release(first.lease)
    assert marker_taken(), "release"
    desk.retry(second.lease, delay_ms=400)
    assert marker_taken(), "the new head of due: sleepers must look again"
    desk.enqueue("later", delay_ms=800)
    assert not marker_taken(), "not the head of due"
    desk.enqueue("sooner", delay_ms=350)
    assert marker_taken(), "a delayed job that becomes the head of due"
    desk.held("c").later(400)
    assert marker_taken(), "a sweep that promotes"
    desk.tick(400).claim("d")
    assert not marker_taken()
    desk.sweep_past(LEASE_MS + 1)
    assert marker_taken(), "a sweep that reaps"
    for _ in range(3):
        desk.sweep()
        assert marker_taken(), "every sweep re-arms while work is claimable"
    left = [job.lease for job in desk.claim("e", limit=1)]
    assert marker_taken()
    desk.run(Finish(tuple(left), desk.claim_operation("e", limit=1)))
    assert marker_taken(), "a fused call that leaves claimable work"
    desk.held("f").sweep()
    assert not marker_taken(), "and no sweep while none is"
    assert third.lease.job == "j3"


@pytest.mark.feature("BN12")
@pytest.mark.parametrize("damage", [*DAMAGE, *(slice(length) for length in (1, 2, 10, 19, 23))])
def test_rule_17_a_corrupt_envelope_is_buried_and_the_claim_goes_on(desk: Desk, damage: Any) -> None:
    raw: Any = desk.enqueue("bad", "j1").redis.get(desk.keys.job("bad"))
    desk.redis.set(desk.keys.job("bad"), raw[damage] if isinstance(damage, slice) else damage)
    claimed = desk.run(desk.claim_operation())
    assert [job.lease.job for job in claimed.jobs] == ["j1"]
    if claimed.unreadable and isinstance(damage, slice):
        assert [failure.lease.job for failure in claimed.unreadable] == ["bad"]
        desk.run(Bury(claimed.unreadable))
    elif damage:
        assert claimed.corrupt == ("bad",) and desk.run_hash("bad")["error"] == "corrupt envelope"
    assert not damage or desk.places("bad") == {"dead"}


@pytest.mark.parametrize("by", ["claim", "claim that promotes", "promote", "reap"])
def test_rule_17_whatever_buries_a_corrupt_job_names_it(desk: Desk, by: str) -> None:
    """The history explains the burial by that name; nothing else would."""
    delayed = by in ("claim that promotes", "promote")
    desk.enqueue("bad", delay_ms=50 if delayed else 0)
    if by == "reap":
        desk.held().sweep_past(LEASE_MS)
    desk.redis.setrange(desk.keys.job("bad"), 0, b"\xff")
    desk.tick(50 if delayed else 1)
    operation = desk.claim_operation() if "claim" in by else desk.sweep_operation()
    assert desk.run(operation).corrupt == ("bad",) and desk.places("bad") == {"dead"}
    assert desk.run_hash("bad")["error"] == "corrupt envelope"


def test_rule_17_a_claim_stops_at_one_mebibyte_but_takes_one_job(desk: Desk) -> None:
    desk.enqueue("a", "b", "c", payload="x" * 500_000)
    assert [[job.lease.job for job in desk.claim(worker)] for worker in "ab"] == [["a", "b"], ["c"]]


def test_done_is_bounded_by_the_sweep(desk: Desk) -> None:
    for number in range(5):
        desk.finished(desk.lease(f"j{number}")).tick(1)
    desk.run(desk.sweep_operation(done_max=2))
    assert desk.redis.zrange(desk.keys.done, 0, -1) == [b"j3", b"j4"]


def test_the_time_of_a_test_is_refused_on_a_queue_that_is_in_use(desk: Desk, ironclaim_url: str) -> None:
    with Queue("used", url=ironclaim_url) as used:
        used.enqueue("work", {})
        refused(Malformed, "never held a job", used.use_test_clock, START_MS)
        used.model.now_ms = START_MS
        refused(ScriptFault, "queues created for tests", used.counts)
