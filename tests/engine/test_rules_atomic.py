"""Rules 1 and 2: a script that is cut off anywhere loses and doubles nothing; memory pressure does not expire leases."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from engine.errors import ScriptFault, WrongKeyType
from tests.engine.using import LEASE_MS, Bury, Desk, Failure, Finish, Lease, LeasedJob, Release, Retry, alter, bury, refused
from tests.scenes import an_end_of_a_restore

JOBS = ("j1", "j2", "j3")


def leased(desk: Desk) -> tuple[Lease, ...]:
    return tuple(job.lease for job in desk.leased(*JOBS))


def claim_all(desk: Desk) -> list[LeasedJob]:
    """Claim and finish whatever may run now, in the order of the claims."""
    found: list[LeasedJob] = []
    for _ in range(20):
        claimed = desk.swept().claim("z", limit=200)
        desk.finish(*[job.lease for job in claimed])
        found += claimed
    return found


@pytest.mark.slow
@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
def test_rule_01_a_bulk_beyond_one_unpack_cut_off_after_any_write_loses_and_doubles_nothing(desk: Desk, resend: bool) -> None:
    """An index takes 500 jobs in one write: two for the 600 that are delayed, one for the others, two for the jobs themselves."""
    jobs = [f"j{number}" for number in range(1000)]
    for writes in desk.each_cut():
        operation = desk.enqueue_many_operation(*jobs, delays_ms=tuple(range(1, 601)))
        there = int(desk.cut(operation, writes).redis.exists(*[desk.keys.job(job) for job in jobs]))
        if resend:
            reply = desk.run(operation)
            results = [item.result for item in reply.items]
            assert [item.job for item in reply.items] == jobs
            assert (results.count("repeated"), results.count("created")) == (there, 1000 - there)
            there = 1000
        finished = [job.lease.job for job in claim_all(desk.swept(1000))]
        assert len(finished) == len(set(finished)) == there, writes
    assert writes == 9
    # In the order of the call, the delayed ones in that of their times.
    assert finished == jobs


def test_rule_01_a_bulk_of_4_500_is_whole_though_unpack_cannot_take_it(desk: Desk) -> None:
    """Of so many, an `unpack` without pages once left every job and no lane entry, and the re-send said "already there"."""
    jobs = [f"j{number}" for number in range(4500)]
    for result in ("created", "repeated"):
        assert {item.result for item in desk.run(desk.enqueue_many_operation(*jobs)).items} == {result}
        assert desk.redis.zrange(desk.keys.lane("main"), 0, -1) == [job.encode() for job in jobs]


def test_rule_01_bury_cut_off_keeps_the_job_in_one_place(desk: Desk) -> None:
    for writes in desk.each_cut(1):
        operation = Bury((Failure(leased(desk)[0], "no"),))
        assert desk.cut(operation, writes).run(operation).items[0] in (("ok", "buried"), ("repeated", "buried"))
        assert desk.places("j1") == {"dead"}


@pytest.mark.parametrize("end", ["bury", "retry with no attempt left"])
def test_rule_01_a_burial_cut_off_and_never_sent_again_is_completed_by_the_sweep(desk: Desk, end: str) -> None:
    for writes in desk.each_cut(1):
        failure = Failure(desk.leased("j1", attempts=1)[0].lease, "no", 0)
        desk.cut_off(Bury((failure,)) if end == "bury" else Retry((failure,)), writes)
        assert desk.swept(LEASE_MS + 1).claim("b") == [], writes
        assert desk.places("j1") == {"dead"}, writes


def test_rule_01_a_retry_cut_off_keeps_its_back_off(desk: Desk) -> None:
    (job,) = desk.leased("j1")
    assert desk.cut_off(Retry((Failure(job.lease, "boom", 3 * LEASE_MS),)), 1)
    assert desk.swept(LEASE_MS + 1).places("j1") == {"due"} and desk.claim("b") == []
    assert [job.lease.job for job in desk.tick(2 * LEASE_MS).claim("b")] == ["j1"]


def test_rule_01_a_job_whose_token_lives_is_not_leased_again_from_a_half_written_index(desk: Desk) -> None:
    first, second = (job.lease for job in desk.leased("j1", "j2"))
    # Cut off after their first index writes: j1 is in its lane again, j2 is due at once, and both tokens still live.
    assert desk.cut_off(Release((first,)), 2) and desk.cut_off(Retry((Failure(second, "boom", 0),)), 1)
    assert (desk.places("j1"), desk.places("j2")) == ({"lane", "active"}, {"due", "active"})
    assert desk.swept().claim("b") == []
    assert (desk.places("j1"), desk.places("j2")) == ({"active"}, {"active"})
    assert desk.run(Release((first,))).items == (("ok", "released"),)
    assert desk.retry(second, delay_ms=0) == ("ok", "retried")
    assert (desk.places("j1"), desk.places("j2")) == ({"lane"}, {"due"})
    assert [job.lease.job for job in desk.claim("b")] == ["j1", "j2"]


@pytest.mark.parametrize("key", ["lane", "ready", "due", "active", "dead", "wake"])
def test_rule_01_a_key_of_the_wrong_type_stops_a_script_before_its_first_write(desk: Desk, key: str) -> None:
    names = {"lane": desk.keys.lane("main"), "ready": desk.keys.ready("main"), "wake": desk.keys.wake("main")}
    desk.redis.set(names.get(key) or getattr(desk.keys, key), "not what the script expects")
    # A job that can run at once leaves the other indexes alone.
    delay_ms = 100 if key in ("due", "active", "dead") else 0
    for operation in (desk.enqueue_operation("j1", delay_ms=delay_ms), desk.enqueue_many_operation("j1", "j2", delays_ms=(100,))):
        desk.refuses(operation, "WRONGTYPE", ScriptFault)


@pytest.mark.parametrize("key", ["sweep", "classes", "seq", "job"])
def test_rule_01_a_bulk_enqueue_checks_its_other_keys_before_its_first_write_too(desk: Desk, key: str) -> None:
    name = desk.keys.job("j2") if key == "job" else getattr(desk.keys, key)
    if key == "sweep":
        desk.queue.model.now_ms = None
    desk.redis.delete(name)
    desk.redis.rpush(name, "not what the script expects")
    desk.refuses(desk.enqueue_many_operation("j1", "j2", delays_ms=(100,)), "WRONGTYPE", ScriptFault)


@pytest.mark.parametrize("key", ["era", "dead", "due"])
def test_rule_01_an_end_of_a_restore_checks_its_keys_before_its_first_write(desk: Desk, key: str) -> None:
    end = an_end_of_a_restore(desk.enqueue("j"), {})
    desk.redis.delete(getattr(desk.keys, key))
    desk.redis.pfadd(getattr(desk.keys, key), "x")
    desk.refuses(end, "WRONGTYPE", ScriptFault)


@pytest.mark.parametrize("key", ["active", "dead", "due", "rest", "done", "sweep", "parked", "stats", "claim", "ready", "wake"])
def test_rule_01_a_claim_checks_its_keys_before_its_first_write(desk: Desk, key: str) -> None:
    """There is something to write in each half: a job to end, one that is due, and one to lease."""
    (ends,) = desk.leased("ends")
    operation = desk.enqueue("waits").enqueue("due", delay_ms=100).tick(100).claim_operation()
    names = {"ready": desk.keys.ready("main"), "wake": desk.keys.wake("main"), "claim": desk.keys.claim(operation.incarnation)}
    name = names.get(key) or getattr(desk.keys, key)
    desk.redis.delete(name)
    desk.redis.pfadd(name, "x") if key != "claim" else desk.redis.rpush(name, "x")
    desk.refuses(Finish((ends.lease,), operation), f"WRONGTYPE the key {re.escape(name)} is a ", WrongKeyType)


def test_rule_01_a_requeue_cut_off_before_a_backup_leaves_the_restored_job_in_its_lane(desk: Desk) -> None:
    for writes in desk.each_cut(1):
        bury(desk.enqueue("j"), "j")
        runs = desk.tick(10).cut(alter(desk, "requeue", "dead", "j"), writes).claim() != []
        assert desk.did(an_end_of_a_restore(desk, {})).places("j") == {"lane" if runs else "dead"}, writes


def test_an_end_of_a_restore_gives_leases_back_in_pieces(desk: Desk) -> None:
    leased(desk)
    operation: Any = an_end_of_a_restore(desk, {})
    told = [desk.run(replace(operation, limit=1)) for _ in range(4)]
    assert [(one.result, one.given_back) for one in told] == [("more", 1), ("more", 2), ("ok", 3), ("ok", 3)]
    assert {desk.places(job) == {"lane"} for job in JOBS} == {True}


def test_the_fields_of_a_run_stand_in_one_order(desk: Desk) -> None:
    """Equal fields are equal bytes."""
    names = [name for name in desk.retried(desk.lease("j")).run_hash("j") if name not in ("fence", "nonce", "owner", "claims")]
    assert names == sorted(names) and len(names) > 4


@pytest.mark.parametrize(("lane", "commands"), [
    ("ready", "GET HMGET ZSCORE TIME INCR ZADD SET"),
    ("empty, its marker taken", "GET HMGET ZSCORE TIME EXISTS HEXISTS INCR ZADD ZADD SET RPUSH"),
    ("empty, its marker there", "GET HMGET ZSCORE TIME EXISTS LLEN HEXISTS INCR ZADD ZADD SET"),
])  # fmt: skip
def test_an_enqueue_of_a_plain_job_runs_these_commands(desk: Desk, lane: str, commands: str) -> None:
    desk.enqueue("first")
    if lane != "ready":
        desk.claim()
    if lane.endswith("taken"):
        desk.redis.delete(desk.keys.wake("main"))
    # The time of a test is read from a hash.
    operation, desk.queue.model.now_ms = replace(desk.enqueue_operation("second"), not_after_ms=2**47), None
    desk.redis.config_resetstat()
    assert desk.run(operation).created
    stats: Any = desk.redis.info("commandstats")
    own = ("cmdstat_info", "cmdstat_config")
    found = {name[8:].upper(): one["calls"] for name, one in stats.items() if not name.startswith(own)}
    assert found == Counter(commands.split()) + Counter(["EVALSHA"])


def test_a_claim_of_one_job_takes_few_commands(desk: Desk) -> None:
    """The reads of a claim also check the types of its keys, and what it has read once it does not read again."""

    def commands(limit: int) -> int:
        desk.redis.config_resetstat()
        assert len(desk.claim(limit=limit)) == 1
        stats: Any = desk.redis.info("commandstats")
        return sum(one["calls"] for name, one in stats.items() if name not in ("cmdstat_info", "cmdstat_config|resetstat"))

    desk.enqueue("first", "second", "last").claim(limit=1)
    # Among them the call itself, and a marker for the job that is left.
    assert commands(1) <= 28 and commands(10) <= 25


def test_rule_02_the_flags_are_what_the_server_checks(desk: Desk) -> None:
    leased(desk)
    with desk.full():
        refused(OutOfMemoryError, None, desk.redis.eval, "#!lua\nreturn redis.call('DEL', KEYS[1])", 1, "any")
        assert desk.redis.eval("#!lua flags=allow-oom\nreturn redis.call('DEL', KEYS[1])", 1, "any") == 0


@pytest.mark.feature("BL33")
def test_rule_02_a_full_server_takes_marks_burials_promotions_and_a_finish_with_a_claim(desk: Desk) -> None:
    marked, finished, buried = desk.enqueue("a", "b", "c", "d").enqueue("later", delay_ms=1).claim(limit=3)
    with desk.full():
        assert desk.mark(marked.lease) == "ok"
        answer = desk.run(Finish((finished.lease,), desk.claim_operation(limit=1)))
        assert (answer.finished.items, [job.lease.job for job in answer.claimed.jobs]) == ((("ok", "finished"),), ["d"])
        assert desk.run(Bury((Failure(buried.lease, "no"),))).items[0][0] == "ok"
        desk.later(1)
    assert [desk.places(job) for job in ("a", "b", "c", "d", "later")] == [{"active"}, {"ended"}, {"dead"}, {"active"}, {"lane"}]
