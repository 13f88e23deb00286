"""Rule 1: a call that was cut off and sent again leaves nothing behind either, and one that was refused stays refused."""

from __future__ import annotations

from typing import Any

import pytest

from engine.wire.operations import Drop, Finish, Operation
from tests.engine.desk import LEASE_MS, Desk, desk
from tests.engine.helpers.by_hand import alter, bury, clean, forget
from tests.engine.helpers.lanes_state import names_of
from tests.engine.helpers.scenes import saved

__all__ = ["desk"]


def remnants(desk: Desk) -> set[str]:
    """Keys of jobs that do not expire."""
    keys = [key for kind in ("unique:*", "run:*", "needs:*", "held:*") for key in names_of(desk, desk.keys.prefix + kind)]
    return {key for key in keys if desk.redis.pexpiretime(desk.keys.prefix + key) < 0}


def limited_job(desk: Desk) -> Any:
    desk.set_limit("n:main", concurrency=5)
    desk.enqueue("j", unique="u")
    return desk.claim()[0].lease


def a_finish(desk: Desk) -> Operation:
    return Finish((limited_job(desk),))


def a_fused_finish(desk: Desk) -> Operation:
    return Finish((limited_job(desk),), desk.claim_operation())


def a_drop(desk: Desk) -> Operation:
    return Drop((limited_job(desk),), ("skipped",))


def a_cancel_of_a_running_job(desk: Desk) -> Operation:
    limited_job(desk)
    return alter(desk, "cancel", "active", "j")


def a_cancel_of_a_job_that_never_ran(desk: Desk) -> Operation:
    desk.enqueue("j", unique="u")
    return alter(desk, "cancel", "waiting", "j")


def a_cancel_of_a_delayed_job(desk: Desk) -> Operation:
    desk.enqueue("j", unique="u", delay_ms=1_000)
    return alter(desk, "cancel", "delayed", "j")


def a_cancel_of_a_child(desk: Desk) -> Operation:
    desk.enqueue("p", delay_ms=100)
    desk.enqueue("j", unique="u", needs=("p",))
    return alter(desk, "cancel", "blocked", "j")


def a_discard_of_a_dead_one(desk: Desk) -> Operation:
    desk.enqueue("j", unique="u")
    bury(desk, "j")
    # It got its key back by a requeue that was cut off.
    desk.redis.set(desk.keys.unique("u"), "j")
    return alter(desk, "discard", "dead", "j")


def a_clean(desk: Desk) -> Operation:
    desk.enqueue("j", unique="u")
    return clean(desk, "waiting")


SCENES = [
    *(a_finish, a_fused_finish, a_drop, a_cancel_of_a_running_job, a_cancel_of_a_job_that_never_ran, a_cancel_of_a_delayed_job),
    *(a_cancel_of_a_child, a_discard_of_a_dead_one, a_clean),
]


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never sent again"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_an_end_that_was_cut_off_leaves_no_key_of_its_job(desk: Desk, scene: Any, resend: bool) -> None:
    writes, was_cut, start = 0, True, saved(desk, scene)
    while was_cut:
        operation = start(desk)
        was_cut = desk.cut_off(operation, writes)
        if resend:
            desk.run(operation)
        for _ in range(6):
            desk.sweep_past(LEASE_MS)
            desk.sweep()
            desk.finish(*(job.lease for job in desk.claim("z")))
        if "ended" in desk.places("j") or not desk.redis.exists(desk.keys.job("j")):
            assert remnants(desk) == set(), (writes, desk.dump())
        writes += 1
    assert writes > 3


# -- obliterate


def test_rule_07_a_late_copy_of_a_begin_that_found_jobs_in_hand_begins_nothing(desk: Desk) -> None:
    desk.enqueue("j")
    (held,) = desk.claim()
    call = desk.call(forget(desk))
    assert desk.send(call).busy
    desk.finish(held.lease)
    late = desk.send(call)
    assert late.busy and late.era is not None
    assert desk.redis.hgetall(desk.keys.paused) == {}


def test_an_end_that_was_cut_off_tells_workers_of_their_settings_and_keeps_the_version(desk: Desk) -> None:
    def scene(desk: Desk) -> Operation:
        desk.run(desk.set_worker_operation("p:w", 0))
        desk.run(desk.set_worker_operation("c:*", 3))
        return forget(desk, end=True)

    writes, was_cut, start = 0, True, saved(desk, scene)
    while was_cut:
        operation = start(desk)
        known = desk.news().version
        was_cut = desk.cut_off(operation, writes)
        desk.run(operation)
        after = desk.news(known)
        assert after.version > known and desk.redis.hlen(desk.keys.settings) == 1, writes
        writes += 1
    assert writes > 3


def test_an_end_ends_whatever_the_children_of_kept_results_are_taken_for(desk: Desk) -> None:
    desk.redis.zadd(desk.keys.keeping, {"p": desk.now_ms})
    desk.redis.sadd(desk.keys.heirs("p"), "c")
    desk.redis.set(desk.keys.result("p"), "1", pxat=desk.now_ms + 2**48 + 5_000)
    desk.redis.set(desk.keys.job("c"), "foreign")
    assert not desk.run(forget(desk, end=True)).more
    assert desk.redis.pexpiretime(desk.keys.result("p")) == desk.now_ms + 5_000
    assert desk.redis.exists(desk.keys.keeping, desk.keys.heirs("p")) == 0


# -- results that are kept: sweeps keep up with them


def test_rule_25_sweeps_follow_at_once_while_many_results_are_let_go(desk: Desk) -> None:
    for number in range(260):
        desk.redis.zadd(desk.keys.keeping, {f"p{number}": desk.now_ms})
        desk.redis.set(desk.keys.result(f"p{number}"), "1", pxat=desk.now_ms + 2**48 + 5_000)
    sleeps_ms = [desk.sweep().sleep_ms for _ in range(4)]
    assert not desk.redis.exists(desk.keys.keeping)
    assert sleeps_ms[:3] == [0, 0, 0] and sleeps_ms[3] > 0


def test_rule_25_a_sweep_looks_at_a_bounded_number_of_children_and_not_in_vain(desk: Desk) -> None:
    for number in range(20):
        desk.redis.zadd(desk.keys.keeping, {f"p{number}": desk.now_ms})
        desk.redis.set(desk.keys.result(f"p{number}"), "1", pxat=desk.now_ms + 2**48 + 5_000)
        desk.redis.sadd(desk.keys.heirs(f"p{number}"), *(f"c{child}" for child in range(75)))
    assert desk.sweep().sleep_ms == 0
    left = sum(int(desk.redis.scard(desk.keys.heirs(f"p{number}"))) for number in range(20))  # type: ignore[arg-type]
    assert left == 500
    assert desk.sweep().sleep_ms > 0 and not desk.redis.exists(desk.keys.keeping)


def test_rule_25_results_that_are_still_needed_call_for_no_sweep(desk: Desk) -> None:
    desk.enqueue("c", delay_ms=3_600_000)
    for number in range(260):
        desk.redis.zadd(desk.keys.keeping, {f"p{number}": desk.now_ms})
        desk.redis.set(desk.keys.result(f"p{number}"), "1", pxat=desk.now_ms + 2**48 + 5_000)
        desk.redis.sadd(desk.keys.heirs(f"p{number}"), "c")
    assert all(desk.sweep().sleep_ms > 0 for _ in range(4))


def test_rule_25_a_sweep_looks_at_a_bounded_number_of_children_of_parents_that_run_again(desk: Desk) -> None:
    for parent in ("p1", "p2", "p3"):
        desk.enqueue(parent, delay_ms=3_600_000)
        desk.redis.sadd(desk.keys.feeding, parent)
        desk.redis.sadd(desk.keys.feeds(parent), *(f"c{child}" for child in range(4_000)))
        desk.redis.zadd(desk.keys.handing, {f"-{parent}": desk.now_ms})
    assert desk.sweep().sleep_ms == 0
    assert desk.redis.zrange(desk.keys.handing, 0, -1) == [b"-p3"]
    assert desk.sweep().sleep_ms > 0
    assert not desk.redis.exists(desk.keys.handing)
    assert {desk.redis.scard(desk.keys.feeds(parent)) for parent in ("p1", "p2", "p3")} == {4_000}
