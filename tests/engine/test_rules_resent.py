"""Rule 1: a call that was cut off and sent again leaves nothing behind either, and one that was refused stays refused."""

from tests.engine.helpers.scenes import saved
from tests.engine.using import Desk, Operation, forget


def test_an_end_that_was_cut_off_tells_workers_of_their_settings_and_keeps_the_version(desk: Desk) -> None:
    def scene(desk: Desk) -> Operation:
        return forget(desk.did(desk.set_worker_operation("p:w", 0)), end=True)

    writes, was_cut, start = 0, True, saved(desk, scene)
    while was_cut:
        operation, known = start(desk), desk.news().version
        was_cut, after = desk.cut_off(operation, writes), desk.did(operation).news(known)
        assert after.version > known and desk.redis.hlen(desk.keys.settings) == 1, writes
        writes += 1
    assert writes > 3


def test_an_end_forgets_callbacks_that_nobody_can_make_any_more(desk: Desk) -> None:
    desk.redis.sadd(desk.keys.feeding, "p")
    desk.redis.sadd(desk.keys.feeds("p"), ">12")
    desk.redis.set(f"{desk.keys.prefix}calls:12", "both")
    assert not desk.run(forget(desk, end=True)).more and not desk.redis.exists(f"{desk.keys.prefix}calls:12")


# -- results that are kept: sweeps keep up with them


def keep(desk: Desk, parent: str, *children: str) -> None:
    desk.redis.zadd(desk.keys.keeping, {parent: desk.now_ms})
    desk.redis.set(desk.keys.result(parent), "1", pxat=desk.now_ms + 2**48 + 5_000)
    if children:
        desk.redis.sadd(desk.keys.heirs(parent), *children)


def test_rule_25_sweeps_follow_at_once_while_many_results_are_let_go(desk: Desk) -> None:
    for number in range(260):
        keep(desk, f"p{number}")
    sleeps_ms = [desk.sweep().sleep_ms for _ in range(4)]
    assert not desk.redis.exists(desk.keys.keeping) and sleeps_ms[:3] == [0, 0, 0] and sleeps_ms[3] > 0


def test_rule_25_a_sweep_looks_at_a_bounded_number_of_children_and_not_in_vain(desk: Desk) -> None:
    for number in range(20):
        keep(desk, f"p{number}", *(f"c{child}" for child in range(75)))
    assert desk.sweep().sleep_ms == 0
    left = sum(int(desk.redis.scard(desk.keys.heirs(f"p{number}"))) for number in range(20))
    assert left == 500 and desk.sweep().sleep_ms > 0 and not desk.redis.exists(desk.keys.keeping)


def test_rule_25_results_that_are_still_needed_call_for_no_sweep(desk: Desk) -> None:
    desk.enqueue("c", delay_ms=3_600_000)
    for number in range(260):
        keep(desk, f"p{number}", "c")
    assert all(desk.sweep().sleep_ms > 0 for _ in range(4))


def test_rule_25_a_sweep_looks_at_a_bounded_number_of_children_of_parents_that_run_again(desk: Desk) -> None:
    for parent in ("p1", "p2", "p3"):
        desk.enqueue(parent, delay_ms=3_600_000).redis.sadd(desk.keys.feeding, parent)
        desk.redis.sadd(desk.keys.feeds(parent), *(f"c{child}" for child in range(4_000)))
        desk.redis.zadd(desk.keys.handing, {f"-{parent}": desk.now_ms})
    assert desk.sweep().sleep_ms == 0 and desk.redis.zrange(desk.keys.handing, 0, -1) == [b"-p3"]
    assert desk.sweep().sleep_ms > 0 and not desk.redis.exists(desk.keys.handing)
    assert {desk.redis.scard(desk.keys.feeds(parent)) for parent in ("p1", "p2", "p3")} == {4_000}


def test_rule_07_a_late_copy_of_a_begin_that_found_jobs_in_hand_begins_nothing(desk: Desk) -> None:
    (held,) = desk.leased("j")
    call = desk.call(forget(desk))
    assert desk.send(call).busy
    late = desk.finished(held.lease).send(call)
    assert late.busy and late.era is not None and desk.redis.hgetall(desk.keys.paused) == {}
