"""Locks that processes share: one holder at a time, a fence that rises, and no copy of a call that brings a lock back (BN20)."""

from dataclasses import replace
from typing import Any, cast

import pytest

from engine import LeaseLost, Lock, Malformed, Queue, ScriptFault
from tests.engine.using import START_MS, AcquireLock, Desk, ExtendLock, ReleaseLock, refused


def acquire(desk: Desk, token: str, ttl_ms: int = 5_000) -> AcquireLock:
    return AcquireLock("nightly", token, ttl_ms, not_after_ms=desk.now_ms + 10_000)


def extend(desk: Desk, token: str, ttl_ms: int = 5_000) -> ExtendLock:
    return ExtendLock("nightly", token, 1, ttl_ms, not_after_ms=desk.now_ms + 1_000)


@pytest.mark.feature("BN20")
def test_a_lock_has_one_holder_until_it_is_given_back(face: Any) -> None:
    lock = face.locks.acquire("nightly", ttl_ms=60_000)
    assert isinstance(lock, Lock) and face.locks.acquire("nightly") is None
    assert face.locks.acquire("other") is not None, "another name is another lock"
    longer = face.locks.extend(lock, ttl_ms=120_000)
    assert (longer.fence, longer.token, longer.renewals) == (lock.fence, lock.token, 1)
    assert longer.until_ms >= lock.until_ms + 59_000 and face.locks.release(longer) is True and face.locks.release(longer) is True
    assert (following := face.locks.acquire("nightly")) is not None and following.fence > lock.fence
    assert face.locks.release(lock) is True, "it was given back once already, and the new holder is untouched"
    assert face.locks.acquire("nightly") is None
    refused(LeaseLost, "nightly", face.locks.extend, longer)


def test_a_lock_that_cannot_be_read_is_nobodys(desk: Desk, ironclaim_url: str) -> None:
    held = desk.run(acquire(desk, "1" * 16))
    (key,) = desk.redis.keys("*:lock:*")
    sound = cast("Any", desk.redis.hgetall(key))
    for field in ("fence", "until_ms", "length_ms", "renewal"):
        for number in ("x", "", "1e400", "nan", "-1", "1.5", "9007199254740993", b"\xff"):
            desk.redis.hset(key, field, number)
            for call in (acquire(desk, "2" * 16), extend(desk, "1" * 16)):
                refused(ScriptFault, f"cannot be read: its {field} is", desk.run, call)
            assert desk.redis.hgetall(key) == {**sound, field.encode(): number if isinstance(number, bytes) else number.encode()}
        desk.redis.hset(key, mapping=sound)
    assert desk.run(ReleaseLock("nightly", "1" * 16)).result == "released" and held.result == "held"
    with Queue("q", url=ironclaim_url) as queue:
        lock = queue.locks.acquire("mine")
        assert lock is not None
        wrong: list[dict[str, Any]] = [{"name": "\ud800"}, {"name": 5}, {"token": None}, {"token": "\ud800"}, {"renewals": "1"}]
        for part in wrong:
            for call in (queue.locks.extend, queue.locks.release):
                refused(Malformed, next(iter(part)), call, replace(lock, **part))


@pytest.mark.parametrize("left_ms", [100, 1])
def test_a_lock_is_nobody_else_s_until_it_has_run_out(desk: Desk, left_ms: int) -> None:
    first = desk.run(acquire(desk, "1" * 16))
    early = desk.run(acquire(desk.tick(5_000 - left_ms), "2" * 16))
    assert (early.result, early.until_ms) == ("taken", first.until_ms)
    longer = desk.run(extend(desk, "1" * 16))
    assert (longer.result, longer.fence, longer.until_ms) == ("held", first.fence, desk.now_ms + 5_000)
    assert desk.run(acquire(desk.tick(5_000), "2" * 16)).result == "held"


@pytest.mark.parametrize("over_ms", [0, 60_000])
def test_a_lock_that_has_run_out_is_not_extended_though_nobody_has_taken_it(desk: Desk, over_ms: int) -> None:
    lock = desk.queue.locks.acquire("nightly", ttl_ms=5_000)
    assert lock is not None and lock.until_ms == START_MS + 5_000
    before = desk.redis.hgetall(desk.keys.lock("nightly"))
    desk.tick(5_000 + over_ms)
    refused(LeaseLost, "nightly", desk.queue.locks.extend, lock)
    assert desk.redis.hgetall(desk.keys.lock("nightly")) == before


def test_late_copies_bring_nothing_back(desk: Desk) -> None:
    desk.send(call := desk.call(acquire(desk, "1" * 16)))
    longer = desk.call(extend(desk, "1" * 16))
    desk.run(ReleaseLock("nightly", "1" * 16))
    assert desk.send(call).result == "lost" and desk.send(longer).result == "lost"
    assert desk.run(acquire(desk, "2" * 16)).result == "held"
    late = desk.call(extend(desk, "2" * 16))
    assert desk.tick(1_001).send(late).result == "refused"
    assert desk.tick(30_000).send(call).result == "refused", "its record is gone, and so is its time"


def test_rule_06_fences_rise_within_one_millisecond_and_rule_10_after_a_step_back(desk: Desk) -> None:
    fences = []
    for number in range(3):
        fences.append(desk.run(acquire(desk, f"{number}" * 16)).fence)
        desk.run(ReleaseLock("nightly", f"{number}" * 16))
    assert fences == [START_MS, START_MS + 1, START_MS + 2] and desk.run(acquire(desk, "a" * 16)).result == "held"
    assert desk.tick(-3_600_000).run(acquire(desk, "b" * 16)).until_ms == desk.now_ms + 5_000
    desk.tick(5_000)
    assert desk.run(acquire(desk, "b" * 16)).fence == START_MS + 4
