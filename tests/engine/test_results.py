"""What handlers return and how dead jobs ended: raw keys, time to live, fencing, cut-off scripts, and what a look says."""

import json
from itertools import product
from typing import Any, cast

import pytest

from engine import JobFailed, Malformed, Result, UnknownJob
from engine.queue.results import Waiting, progress_of, result_of
from engine.validate import RESULT_BYTES_MAX, json_bytes
from engine.worker.machine.acknowledgements import CALL_BYTES_MAX, PendingAcknowledgements
from tests.engine.desk import LEASE_MS, Desk, run_fields
from tests.engine.helpers.machine import Machine
from tests.engine.using import Bury, Failure, Finish, Lease, Look, NoteProgress, ReadProgress, Retry, Seen, Value, refused

pytestmark = pytest.mark.feature("BN14", "BL12")

HOUR_MS = 3_600_000
TOKEN = "f" * 16
VALUES = (Value(0, b"1", HOUR_MS, 0), Value(1, b"2", HOUR_MS, 0))


def finish(desk: Desk, lease: Lease, data: bytes = b'{"total":[]}', ttl_ms: int = HOUR_MS) -> list[tuple[str, str]]:
    return list(desk.run(Finish((lease,), None, (Value(0, data, ttl_ms, 12),))).items)


def look(desk: Desk, job: str = "j1", token: str = "") -> Seen:
    return desk.run(Look(job, token))


def record(desk: Desk, job: str = "j1") -> Any:
    raw: Any = desk.redis.get(desk.keys.result(job))
    return None if raw is None else json.loads(raw)


@pytest.mark.feature("BQ27", "MQ06", "BN09")
def test_a_value_is_stored_by_the_script_that_finishes_the_job_and_expires_by_its_own_time(desk: Desk) -> None:
    first, second = (job.lease for job in desk.leased("j1", "j2"))
    reply = desk.run(Finish((first, second), None, (Value(1, b'{"total":[]}', 5_000, 12),)))
    assert reply.items == (("ok", "finished"), ("ok", "finished"))
    assert desk.redis.exists(desk.keys.result("j1")) == 0
    # Byte for byte what the handler returned: an empty list stays one.
    head = b'{"ok":true,"ended_ms":%d,"fence":%d,' % (desk.now_ms, second.fence)
    assert desk.redis.get(desk.keys.result("j2")) == head + b'"took_ms":12,"value":{"total":[]}}'
    assert desk.redis.pexpiretime(desk.keys.result("j2")) == desk.now_ms + 5_000
    assert result_of("j2", look(desk, "j2")) == Result("j2", "finished", {"total": []}, "", desk.now_ms, 12)
    assert result_of("j1", look(desk, "j1")) == Result("j1", "finished", None, "", desk.now_ms, None)
    desk.tick(5_001)
    assert result_of("j2", look(desk, "j2")) == Result("j2", "finished", None, "", desk.now_ms - 5_001, None)


def test_a_value_travels_with_a_finish_that_claims(desk: Desk) -> None:
    first, second = (job.lease for job in desk.enqueue("j1", "j2", "j3").claim(limit=2))
    reply = desk.run(Finish((first, second), desk.claim_operation(), VALUES))
    assert reply.finished.items == (("ok", "finished"),) * 2
    assert [job.lease.job for job in reply.claimed.jobs] == ["j3"]
    assert [record(desk, job)["value"] for job in ("j1", "j2")] == [1, 2]


def test_a_stale_finish_and_a_repeated_one_write_no_value(desk: Desk) -> None:
    zombie = desk.lease("j1")
    assert finish(desk.past(LEASE_MS + 1), zombie, b'"zombie"') == [("stale", "")]
    assert desk.redis.exists(desk.keys.result("j1")) == 0
    assert finish(desk, lease := desk.one("b").lease, b'"first"') == [("ok", "finished")]
    with desk.unchanged():
        assert finish(desk, lease, b'"second"') == [("repeated", "finished")]
        assert finish(desk, zombie, b'"zombie"') == [("stale", "")]


def test_a_finish_with_values_that_is_cut_off_anywhere_is_completed_by_the_next_copy(desk: Desk) -> None:
    for writes in desk.each_cut():
        leases = tuple(job.lease for job in desk.leased("j1", "j2"))
        desk.cut_off(operation := Finish(leases, None, VALUES), writes)
        # What is stored before the end is not yet told.
        for job in ("j1", "j2"):
            assert (result_of(job, look(desk, job)) is not None) == ("ended" in desk.places(job)), writes
        desk.run(operation)
        for job, value in (("j1", 1), ("j2", 2)):
            found = result_of(job, look(desk, job))
            assert found is not None and found.value == value, writes
    assert writes > 4


ENDS = [*product(["bury", "retry with no attempt left", "crash"], [None, 70_000, 0]), ("corrupt", None)]


@pytest.mark.parametrize(("end", "ttl_ms"), ENDS)
def test_a_dead_job_keeps_its_error_as_its_result(desk: Desk, end: str, ttl_ms: int | None) -> None:
    more = {} if ttl_ms is None else {"error_ttl_ms": ttl_ms, "timeout_ms": 5, "headers": (("h", "x"),), "key": "acme"}
    desk.enqueue("j1", attempts=1, crashes_max=2, unique="u", **more)
    reason = 'no "way"'
    if end == "crash":
        reason = "crashed 2 times, 1 are allowed"
        for _ in range(2):
            desk.crash("j1")
    elif end == "corrupt":
        reason = "corrupt envelope"
        desk.redis.setrange(desk.keys.job("j1"), 0, b"\xff")
        desk.claim()
    else:
        failure = Failure(desk.claim()[0].lease, reason, 0)
        assert desk.run((Bury if end == "bury" else Retry)((failure,))).items == (("ok", "buried"),)
    ended_ms, found = int(desk.redis.zscore(desk.keys.dead, "j1") or 0), result_of("j1", look(desk))
    assert found is not None and found == Result("j1", "dead", None, reason, ended_ms, None)
    failed = refused(JobFailed, "is dead", found.get)
    assert (failed.job, failed.outcome, failed.error) == ("j1", "dead", reason)
    if ttl_ms == 0:
        assert desk.redis.exists(desk.keys.result("j1")) == 0
    else:
        assert record(desk) == {"ok": False, "ended_ms": ended_ms, "error": reason}
        assert desk.redis.pexpiretime(desk.keys.result("j1")) == ended_ms + (ttl_ms or 24 * HOUR_MS)


def test_a_record_of_an_earlier_life_of_the_id_is_not_taken_for_this_one(desk: Desk) -> None:
    finish(desk, desk.lease("j1"), b'"first life"')
    assert record(desk.tick(60_000).enqueue("j1", nonce=b"another-"))["value"] == "first life"
    assert look(desk).state == "pending"
    found = result_of("j1", look(desk.finished(desk.one().lease)))
    assert found == Result("j1", "finished", None, "", desk.now_ms, None)
    assert look(desk.tick(60_000)).fence == 0, "the tombstone is gone"
    assert result_of("j1", look(desk)) == found


def test_what_is_left_when_everything_else_has_expired_is_the_record(desk: Desk) -> None:
    finish(desk, desk.lease("j1"), b"7")
    ended_ms = desk.now_ms
    desk.tick(60_000).redis.delete(desk.keys.done)
    assert look(desk).state == "kept"
    assert result_of("j1", look(desk)) == Result("j1", "finished", 7, "", ended_ms, 12)
    assert look(desk.tick(HOUR_MS)) == Seen(desk.now_ms * 1000, "gone", 0, 0, b"", "")


def test_a_look_that_registers_leaves_only_what_expires(desk: Desk) -> None:
    desk.enqueue("j1")
    for _ in range(2):
        assert look(desk, token=TOKEN).state == "pending"
        assert desk.redis.get(desk.keys.waits("j1")) == b" " + TOKEN.encode()
    assert look(desk, token="e" * 16).state == "pending"
    assert desk.redis.get(desk.keys.waits("j1")) == f" {TOKEN} {'e' * 16}".encode()
    assert desk.redis.xrange(desk.keys.wait(TOKEN)) == [(b"0-1", {b"id": b""})]
    assert desk.redis.pexpiretime(desk.keys.waits("j1")) == desk.now_ms + 30_000
    assert desk.redis.pexpiretime(desk.keys.wait(TOKEN)) == desk.now_ms + 60_000
    assert desk.redis.hget(desk.keys.stats, "waits_ms") == str(desk.now_ms + 30_000).encode()
    assert look(desk, "none", TOKEN).state == "gone" and desk.redis.exists(desk.keys.waits("none")) == 0
    assert not [key for key in desk.tick(60_001).dump() if ":wait" in key]


def test_a_look_that_is_cut_off_anywhere_registers_with_the_next_copy(desk: Desk) -> None:
    for writes in desk.each_cut():
        look(desk.enqueue("j1").cut(Look("j1", TOKEN), writes), token=TOKEN)
        kept = {key: value for key, value in desk.dump().items() if ":wait" in key}
        assert set(kept) == {desk.keys.waits("j1"), desk.keys.wait(TOKEN)}
        assert all(expiry > 0 for _, _, expiry in kept.values())


@pytest.mark.feature("BN15")
@pytest.mark.parametrize("end", ["finish", "finish and claim", "bury", "crash"])
def test_the_script_that_ends_a_job_tells_those_who_wait_and_nobody_else(desk: Desk, end: str) -> None:
    look(desk.enqueue("j1", "other", crashes_max=2), token=TOKEN)
    look(desk, token="e" * 16)
    if end == "crash":
        (job, other) = desk.held().past(LEASE_MS + 1).claim()
        look(desk.marked(job.lease), token=TOKEN)
        look(desk, token="e" * 16)
        desk.finished(other.lease).sweep_past(LEASE_MS + 1)
    else:
        job, other = (job.lease for job in desk.claim())
        desk.finish(other)
        if end == "bury":
            desk.bury(job)
        else:
            desk.run(Finish((job,), desk.claim_operation() if end != "finish" else None))
    for token in (TOKEN, "e" * 16):
        assert [fields[b"id"] for _, fields in desk.redis.xrange(desk.keys.wait(token))] == [b"", b"j1"]
    assert desk.redis.exists(desk.keys.waits("j1")) == 0


def test_a_key_of_another_type_in_place_of_a_registration_does_not_stop_a_finish(desk: Desk) -> None:
    look(desk.enqueue("j1", "j2"), "j1", TOKEN)
    look(desk, "j2", TOKEN)
    desk.redis.delete(desk.keys.waits("j1"), desk.keys.wait(TOKEN))
    desk.redis.rpush(desk.keys.waits("j1"), "someone else's")
    desk.redis.rpush(desk.keys.wait(TOKEN), "someone else's")
    assert desk.finish(*[job.lease for job in desk.claim()]) == [("ok", "finished")] * 2


# -- progress


@pytest.mark.feature("BQ25", "BL11")
def test_progress_is_noted_under_the_token_and_an_older_copy_changes_nothing(desk: Desk) -> None:
    lease = desk.lease("j1")

    def noted_by(lease: Lease, number: int, text: bytes = b'"percent":9}') -> str:
        return desk.run(NoteProgress(lease, number, text)).result

    assert noted_by(lease, 1, b'"percent":5}') == noted_by(lease, 2, b'"percent":7,"data":[]}') == "ok"
    with desk.unchanged():
        assert noted_by(lease, 1, b'"percent":5}') == noted_by(lease, 2) == "repeated"
    noted = b'{"at_ms":%d,"percent":7,"data":[]}' % desk.now_ms
    assert run_fields(desk.redis, desk.keys.run("j1"))["progress"] == noted == desk.run(ReadProgress("j1"))
    # Its failed run leaves it to be read; the next run begins to count anew.
    desk.retry(lease, delay_ms=0)
    assert noted_by(lease, 3) == "stale" and desk.run(ReadProgress("j1")) == noted
    again = desk.one("b").lease
    assert noted_by(lease, 4) == "stale" and noted_by(again, 1) == "ok"
    assert desk.finished(again).run(ReadProgress("j1")) is None
    with desk.unchanged():
        assert noted_by(again, 2) == "stale"


# -- without a server


def test_a_waiting_job_is_pending_and_a_rejected_one_unknown() -> None:
    waiting = Waiting("j1", 1000)
    assert waiting.take(Seen(1, "pending", 0, 0, b"", "")) is None and 0 < waiting.block_ms <= 1000
    for state in ("gone", "rejected"):
        refused(UnknownJob, "j1", waiting.take, Seen(1, state, 0, 0, b"", ""))


def test_a_record_with_a_part_of_another_type_is_unreadable() -> None:
    sound = {"ok": "true", "ended_ms": "5", "fence": "3", "took_ms": "1", "value": "7", "error": '""'}
    told = {"percent": "50", "message": '"half"', "data": "null", "at_ms": "5"}
    texts, numbers = ("{}", "[1]", '"x"', '"\\ud800"', "1e400", "NaN"), ('"5"', "true", "1.5", "-1")
    odd = {"ok": (*texts, "null", "1", "0"), "error": ("{}x", "5", "[1]", '{"a":1}'), "percent": ('"5"', "true", "101", *texts)}
    odd |= {"message": ("5", "true", "[]"), **dict.fromkeys(("ended_ms", "fence", "took_ms", "at_ms"), (*texts, *numbers))}

    def body(parts: dict[str, str]) -> bytes:
        return ("{" + ",".join(f'"{name}":{value}' for name, value in parts.items()) + "}").encode()

    for state, ok in (("finished", "true"), ("dead", "false"), ("kept", "true"), ("kept", "false")):
        for name in sound:
            for value in odd.get(name, ()):
                found = result_of("j1", Seen(1, cast("Any", state), 3, 5, body({**sound, "ok": ok, name: value}), "own"))
                assert found is not None and "cannot be read" in found.unreadable and found.value is None, (state, name, value)
                assert found.outcome == ("dead" if state == "dead" else "finished") and found.took_ms is None
    for name in told:
        for value in odd.get(name, ()):
            progress = progress_of(body({**told, name: value}))
            assert progress is not None and "cannot be read" in progress.unreadable, (name, value)
            assert (progress.percent, progress.data, progress.at_ms) == (0, None, 0)
    kept = result_of("j1", Seen(1, "kept", 0, 0, body({**sound, "took_ms": "1.0"}), ""))
    assert kept is not None and kept == Result("j1", "finished", 7, "", 5, 1) and type(kept.took_ms) is int
    for skipped, outcome in (("true", "skipped"), ("false", "dead")):
        record = body({"ok": "false", "ended_ms": "5", "error": '"no"', "skipped": skipped})
        assert result_of("j1", Seen(1, "kept", 0, 0, record, "")) == Result("j1", cast("Any", outcome), None, "no", 5)


def test_a_discarded_job_has_failed() -> None:
    found = result_of("j1", Seen(1, "discarded", 3, 0, b"", ""))
    assert found is not None and found == Result("j1", "discarded") and not found.ok
    refused(JobFailed, "is discarded", found.get)


def test_a_result_has_a_bound() -> None:
    most = "x" * (RESULT_BYTES_MAX - 2)
    assert len(json_bytes("result", most, RESULT_BYTES_MAX)) == RESULT_BYTES_MAX
    refused(Malformed, "result: '524289 bytes'", json_bytes, "result", most + "x", RESULT_BYTES_MAX)


def test_values_go_out_in_calls_of_bounded_size() -> None:
    machine, owed = Machine(), PendingAcknowledgements()
    half, jobs = b"x" * (CALL_BYTES_MAX // 2), [machine.job(name) for name in "abcde"]
    for job in jobs:
        owed.finish(job.lease, 0)
    for job, data in ((jobs[1], half), (jobs[2], half), (jobs[3], b"1"), (jobs[4], 3 * half)):
        owed.keep(job, data, 7_000_000)
    leases = [job.lease for job in jobs]
    assert owed.take_finishes() == (tuple(leases[:3]), (Value(1, half, HOUR_MS, 7), Value(2, half, HOUR_MS, 7)))
    assert owed.take_finishes() == ((leases[3],), (Value(0, b"1", HOUR_MS, 7),))
    assert owed.take_finishes() == ((leases[4],), (Value(0, 3 * half, HOUR_MS, 7),))
    assert owed.take_finishes() == ((), ()) and not owed
