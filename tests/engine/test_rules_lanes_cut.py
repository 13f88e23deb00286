"""Rules 1, 4 and 5 in a queue with limits, rates, keys and pauses: each script cut off after each of its writes and sent again,
or never again; and each call sent twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from engine.wire.operations import Bury, EnqueueMany, Failure, Finish, LeasedJob, Operation, Release, Retry
from engine.wire.scripts import scripts_folder
from tests.engine.desk import LEASE_MS, TOMBSTONE, WRITES, Desk, desk
from tests.engine.helpers.lanes_state import check, hash_of, members, names_of, parked
from tests.engine.helpers.scenes import saved

__all__ = ["desk"]

CLASSES = ("main", "sms", "push", "main@gpu", "push@gpu")


def test_the_list_of_write_commands_holds_every_one_that_a_script_calls(desk: Desk) -> None:
    """`Desk.cut_off` counts those; one that it does not know would never be cut off."""
    called = {
        name for path in scripts_folder().rglob("*.lua") for name in re.findall(r"redis\.call\(\s*'(\w+)'", path.read_text())
    }
    known: Any = desk.redis.command()
    written = {name for name in called if "write" in known[name.lower()]["flags"]}
    assert written <= set(WRITES)
    assert set(WRITES) <= called, "a command that no script calls any more"


def world(desk: Desk) -> list[LeasedJob]:
    """A queue with limits of every kind, lanes that wait and lanes that rest, and what a worker has in hand."""
    desk.set_limit("n:main", concurrency=3)
    desk.set_limit("n:sms", rate=3, per_ms=1000)
    desk.set_limit("n:push", rate=3, per_ms=1000)
    desk.set_limit("k:*", concurrency=1)
    desk.set_limit("k:r", rate=1, per_ms=1000, window="fixed")
    desk.set_limit("k:both", concurrency=1, rate=2, per_ms=1000)
    desk.enqueue("m0", "m1", key="k", priority=9)
    desk.enqueue("b0", key="both", unique="ub", attempts=1)
    desk.enqueue("b1", key="both")
    desk.enqueue("s0", "s1", name="sms", key="k")
    desk.enqueue("s2", "s3", name="sms")
    desk.enqueue("r0", "r1", name="push", key="r")
    desk.enqueue("p0", name="push", key="p", unique="up")
    desk.enqueue("p1", name="push", dedup="dp", dedup_ms=2000)
    desk.enqueue("late", key="k", delay_ms=400, unique="ul")
    found = desk.claim(limit=20, classes=CLASSES)
    assert {job.lease.job for job in found} == {"m0", "b0", "s2", "s3", "r0", "p0", "p1"}
    assert parked(desk) == {"main/k": "k:k", "main/both": "k:both", "sms/k": "k:k", "push/r": "rest"}
    return found


def leases(found: list[LeasedJob], *jobs: str) -> tuple[Any, ...]:
    return tuple(job.lease for job in found if not jobs or job.lease.job in jobs)


def a_claim(desk: Desk) -> Operation:
    """Of what has come back: freed slots, a window that is over, a job that is due; and it parks again."""
    desk.finish(*leases(world(desk), "m0", "s2", "s3", "p1"))
    desk.tick(1000)
    return desk.claim_operation("b", 20, classes=CLASSES)


def a_claim_of_corrupt_jobs(desk: Desk) -> Operation:
    desk.finish(*leases(world(desk), "m0"))
    desk.redis.setrange(desk.keys.job("m1"), 0, b"\xff")
    desk.redis.delete(desk.keys.job("s0"))
    return desk.claim_operation("b", 20, classes=CLASSES)


def a_finish(desk: Desk) -> Operation:
    return Finish(leases(world(desk)))


def a_finish_and_claim(desk: Desk) -> Operation:
    found = world(desk)
    desk.tick(450)
    return Finish(leases(found), desk.claim_operation(limit=20, classes=CLASSES))


def a_release(desk: Desk) -> Operation:
    return Release(leases(world(desk)))


def a_retry(desk: Desk) -> Operation:
    return Retry(tuple(Failure(lease, "boom", 300) for lease in leases(world(desk))))


def a_bury(desk: Desk) -> Operation:
    return Bury(tuple(Failure(lease, "no") for lease in leases(world(desk), "m0", "b0", "p0")))


def an_extend(desk: Desk) -> Operation:
    found = world(desk)
    desk.tick(2000)
    return desk.extend_operation(*leases(found))


def a_reap(desk: Desk) -> Operation:
    world(desk)
    desk.sweep_past(LEASE_MS)
    desk.tick(1)
    return desk.sweep_operation()


def a_reap_after_a_step_back(desk: Desk) -> Operation:
    world(desk)
    desk.tick(400)
    desk.sweep()
    desk.pause("push", 3000)
    desk.sweep()
    desk.tick(-1_000_000)
    return desk.sweep_operation()


def a_promote(desk: Desk) -> Operation:
    world(desk)
    desk.tick(1000)
    return desk.sweep_operation()


def an_enqueue(desk: Desk) -> Operation:
    world(desk)
    return desk.enqueue_operation("new", key="k", priority=10, unique="un", dedup="dn", dedup_ms=1000)


def an_enqueue_that_is_turned_away(desk: Desk) -> Operation:
    world(desk)
    return desk.enqueue_operation("new", unique="up")


def a_bulk(desk: Desk) -> Operation:
    world(desk)
    return EnqueueMany(
        (
            desk.enqueue_operation("new1", key="k", unique="un"),
            desk.enqueue_operation("new2", name="push", key="z", dedup="dz", dedup_ms=1000),
            desk.enqueue_operation("new3", name="sms", key="r", delay_ms=200),
            desk.enqueue_operation("new4", unique="up"),
            desk.enqueue_operation("new5", name="push", unique="un"),
        )
    )


def an_enqueue_of_a_new_class(desk: Desk) -> Operation:
    """It shares the limit of its name, which the world has used up."""
    world(desk)
    return desk.enqueue_operation("new", key="k", route="gpu")


def a_bulk_of_new_classes(desk: Desk) -> Operation:
    world(desk)
    return EnqueueMany(
        (
            desk.enqueue_operation("new1", route="gpu"),
            desk.enqueue_operation("new2", name="push", route="gpu", delay_ms=200),
            desk.enqueue_operation("new3", route="gpu", key="k"),
        )
    )


def a_claim_of_classes_with_one_name(desk: Desk) -> Operation:
    found = world(desk)
    desk.enqueue("g0", "g1", "g2", route="gpu")
    desk.enqueue("g3", name="push", route="gpu", key="r")
    desk.finish(*leases(found, "m0", "b0"))
    return desk.claim_operation("b", 20, classes=CLASSES)


def a_raised_limit(desk: Desk) -> Operation:
    world(desk)
    return desk.set_limit_operation("k:*", concurrency=2)


def a_removed_limit(desk: Desk) -> Operation:
    world(desk)
    return desk.set_limit_operation("k:r")


def a_pause(desk: Desk) -> Operation:
    world(desk)
    return desk.pause_operation("main", 2000)


def a_resume(desk: Desk) -> Operation:
    world(desk)
    desk.pause("push")
    return desk.resume_operation("push")


SCENES = [
    a_claim,
    a_claim_of_corrupt_jobs,
    a_finish,
    a_finish_and_claim,
    a_release,
    a_retry,
    a_bury,
    an_extend,
    a_reap,
    a_reap_after_a_step_back,
    a_promote,
    an_enqueue,
    an_enqueue_that_is_turned_away,
    a_bulk,
    an_enqueue_of_a_new_class,
    a_bulk_of_new_classes,
    a_claim_of_classes_with_one_name,
    a_raised_limit,
    a_removed_limit,
    a_pause,
    a_resume,
]


def waiting(desk: Desk) -> bool:
    """True while anything waits, is due or is in hand."""
    return bool(desk.redis.exists(desk.keys.active, desk.keys.due) or names_of(desk, desk.keys.lane("*")))


def drain(desk: Desk) -> dict[str, int]:
    """What healthy workers do: sweep, claim, finish, until nothing is left. Accepted finishes by job."""
    accepted: dict[str, int] = {}
    for _ in range(16):
        desk.sweep()
        # A finish frees slots for what waited for them, so more than one claim finds something.
        while found := desk.claim("z", 20, classes=CLASSES):
            for job, (result, _) in zip(found, desk.finish(*leases(found)), strict=True):
                assert result == "ok"
                accepted[job.lease.job] = accepted.get(job.lease.job, 0) + 1
        if not waiting(desk):
            return accepted
        desk.tick(LEASE_MS // 4)
        desk.sweep()
    raise AssertionError(f"stuck: {parked(desk)} {desk.dump()}")


def ended_of(desk: Desk) -> set[str]:
    """Jobs with a tombstone."""
    jobs = names_of(desk, desk.keys.job("*"))
    raws: Any = desk.redis.mget([desk.keys.job(job) for job in jobs])
    return {job for job, raw in zip(jobs, raws, strict=True) if raw[:1] == TOMBSTONE}


def check_empty(desk: Desk) -> None:
    """Assert that no slot, no lane and no key of a job that is gone is left behind."""
    check(desk, room=True)
    for pattern in (desk.keys.held("*"), desk.keys.lane("*"), desk.keys.parked_by("*")):
        assert names_of(desk, pattern) == [], pattern
    assert parked(desk) == {}
    for key in names_of(desk, desk.keys.unique("*")):
        holder: Any = desk.redis.get(desk.keys.unique(key))
        state = desk.places(holder.decode())
        # Cut off between the end and this key: it keeps nobody out.
        assert state <= {"ended", "dead"}, (key, holder, state)


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_rule_01_a_script_cut_off_after_any_write_leaks_no_slot_and_leaves_no_lane_stuck(
    desk: Desk, scene: Callable[[Desk], Operation], resend: bool
) -> None:
    writes, was_cut, start = 0, True, saved(desk, scene)
    there = set(names_of(desk, desk.keys.job("*"))) - ended_of(desk)
    while was_cut:
        writes += 1
        operation = start(desk)
        known = set(there)
        was_cut = desk.cut_off(operation, writes)
        accepted: dict[str, int] = {}
        if resend:
            reply = desk.run(operation)
            if isinstance(operation, Finish):
                items = getattr(reply, "finished", reply).items
                accepted = {
                    lease.job: int(result in ("ok", "repeated"))
                    for lease, (result, _) in zip(operation.leases, items, strict=True)
                }
            if isinstance(operation, EnqueueMany):
                known |= {item.job for item in reply.items if item.created}
            elif scene is an_enqueue:
                known.add("new")
            check(desk, cut="claim" in scene.__name__)
        for job, count in drain(desk).items():
            accepted[job] = accepted.get(job, 0) + count
        check_empty(desk)
        assert all(count == 1 for count in accepted.values()), (writes, accepted)
        dead = set(members(desk, desk.keys.dead))
        ended = known & ended_of(desk)
        assert known <= ended | dead | accepted.keys(), (writes, known - ended - dead)
        assert not dead & accepted.keys(), writes
        if resend:
            assert ended <= accepted.keys()
        if scene is not a_claim_of_corrupt_jobs:
            assert dead <= {"m0", "b0", "p0"}, (writes, dead)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_rules_04_and_05_a_call_sent_twice_leaves_the_same_keys(desk: Desk, scene: Callable[[Desk], Operation]) -> None:
    call = desk.call(scene(desk))
    before = desk.dump()
    desk.send(call)
    after = desk.dump()
    assert after != before
    desk.send(call)
    again = desk.dump()
    assert {key: value for key, value in again.items() if value != after.get(key)} == {}
    assert again.keys() == after.keys()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_rules_03_to_07_a_copy_that_arrives_when_all_is_over_starts_nothing(
    desk: Desk, scene: Callable[[Desk], Operation]
) -> None:
    call = desk.call(scene(desk))
    desk.send(call)
    drain(desk)
    desk.tick(60_000)
    definitions, pauses = hash_of(desk, desk.keys.limits), hash_of(desk, desk.keys.paused)
    desk.send(call)
    assert (hash_of(desk, desk.keys.limits), hash_of(desk, desk.keys.paused)) == (definitions, pauses) or "reap" in scene.__name__
    assert desk.claim("c", classes=CLASSES) == []
    check_empty(desk)
