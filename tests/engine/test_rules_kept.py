"""Rule 25: the result of a parent is there as long as a child of it waits or runs, whatever its time to live says; not longer."""

import pytest

from tests.engine.helpers.scenes import saved
from tests.engine.using import START_MS, Alter, Desk, Enqueue, Explain, alter
from tests.scenes import RESULT_MS, SCENES, Scene, ending, kept, scene

pytestmark = pytest.mark.feature("BQ35")

KEPT_MS = 2**48
AFTER_A_PARENT = scene("enqueue: after a parent")


def finish_all(desk: Desk, *jobs: str) -> None:
    found = {job.lease.job: job.lease for job in desk.claim("f")}
    assert set(found) == set(jobs)
    for job in jobs:
        desk.run(ending(found[job]))


def result_until(desk: Desk, job: str) -> int:
    """When the result of a job expires; 0 without one."""
    return max(desk.redis.pexpiretime(desk.keys.result(job)), 0)


def nothing_is_kept(desk: Desk) -> bool:
    keys = [key for pattern in ("keeping", "heirs:*") for key in desk.redis.scan_iter(desk.keys.prefix + pattern)]
    return keys == [] and all(result_until(desk, job) < KEPT_MS for job in ("p", "p1", "p2"))


def test_a_result_outlives_its_time_while_a_child_waits_for_another_parent_and_then_in_its_lane_and_runs(desk: Desk) -> None:
    finish_all(desk.enqueue("p1").enqueue("p2", delay_ms=60_000).enqueue("child", needs=("p1", "p2")), "p1")
    for _ in range(6):
        desk.tick(10_000).sweeps(2)
    assert result_until(desk, "p1"), "it waits for its other parent"
    told = desk.run(Explain("p1"))
    assert (told.feeds, told.children) == (1, (("child", "blocked"),)), "it may still read it"
    finish_all(desk, "p2")
    assert result_until(desk.tick(60_000).sweeps(2), "p1") and result_until(desk, "p2"), "it is in its lane"
    child = desk.one()
    assert result_until(desk.tick(1_000).sweeps(2), "p1") and result_until(desk, "p2"), "it runs"
    desk.finished(child.lease).sweeps(2).tick(0)
    assert not result_until(desk, "p1") and not result_until(desk, "p2"), "their own time was over long ago"
    assert nothing_is_kept(desk)


def test_a_result_that_is_let_go_gets_the_rest_of_its_own_time(desk: Desk) -> None:
    finish_all(desk.family(), "p")
    own_ms = desk.now_ms + RESULT_MS
    assert result_until(desk, "p") == own_ms + KEPT_MS
    assert result_until(desk.finished(desk.claim()[0].lease).sweeps(2), "p") == own_ms and nothing_is_kept(desk)


@pytest.mark.parametrize("known_by", ["tombstone", "result"])
def test_a_result_that_was_there_before_its_child_is_kept_from_its_enqueue_on(desk: Desk, known_by: str) -> None:
    finish_all(desk.enqueue("p"), "p")
    if known_by == "result":
        desk.redis.delete(desk.keys.job("p"), desk.keys.done)
    desk.tick(RESULT_MS - 1).enqueue("child", needs=("p",), delay_ms=60_000).tick(60_000).sweeps(2)
    assert result_until(desk, "p")
    assert not result_until(desk.finished(desk.claim()[0].lease).sweeps(2).tick(0), "p") and nothing_is_kept(desk)


def test_the_error_of_a_parent_is_kept_for_a_child_that_goes_on_without_it(desk: Desk) -> None:
    desk.enqueue("p", error_ttl_ms=RESULT_MS, attempts=1)
    desk.enqueue("child", needs=("p",), on_parent_failure="ignore").bury(desk.claim()[0].lease)
    assert result_until(desk.sweeps(2).tick(10 * RESULT_MS).sweeps(2), "p")
    assert not result_until(desk.finished(desk.claim()[0].lease).sweeps(2).tick(0), "p") and nothing_is_kept(desk)


@pytest.mark.parametrize("end", ["dies again", "finishes", "gets another child"])
def test_a_result_that_is_kept_once_more_is_looked_at_in_its_turn(desk: Desk, end: str) -> None:
    desk.family(on_parent_failure="ignore").bury(desk.claim()[0].lease)
    lease = desk.did(alter(desk, "requeue", "dead", "p")).tick(1_000).one().lease
    desk.bury(lease) if end == "dies again" else desk.run(ending(lease))
    if since_ms := 1_000 * (end == "gets another child"):
        desk.swept().tick(1_000).enqueue("other", needs=("p",))
    assert desk.redis.zrange(desk.keys.keeping, 0, -1, withscores=True) == [(b"p", START_MS + since_ms)]


@pytest.mark.parametrize("end", ["cancel", "bury", "gone"])
def test_a_child_that_does_not_run_any_more_holds_nothing(desk: Desk, end: str) -> None:
    finish_all(desk.family(), "p")
    if end == "cancel":
        assert desk.run(Alter("cancel", ("child",), "waiting", op_id="0" * 16, not_after_ms=desk.now_ms + 1000)).items[0].done
    elif end == "bury":
        desk.bury(desk.claim()[0].lease)
    else:
        desk.redis.delete(desk.keys.job("child"))
    assert 0 < result_until(desk.sweeps(2), "p") < KEPT_MS and nothing_is_kept(desk)


def test_many_children_hold_a_result_until_the_last_of_them_has_ended(desk: Desk) -> None:
    finish_all(desk.enqueue("p").enqueue(*(f"c{number}" for number in range(150)), needs=("p",)), "p")
    left = 150
    while left:
        assert result_until(desk.tick(RESULT_MS).sweeps(3), "p") > KEPT_MS, left
        jobs = desk.claim(limit=50)
        desk.finish(*(job.lease for job in jobs))
        left -= len(jobs)
    assert nothing_is_kept(desk.sweeps(3))


def test_a_result_that_nobody_waits_for_lives_as_long_as_it_says(desk: Desk) -> None:
    desk.enqueue("p", "other")
    lease = next(job.lease for job in desk.leased("child", needs=("other",)) if job.lease.job == "p")
    assert result_until(desk.did(ending(lease)), "p") == desk.now_ms + RESULT_MS and not desk.redis.exists(desk.keys.keeping)


# -- cut off


@pytest.mark.parametrize("resend", [True, False], ids=["sent again", "never again"])
@pytest.mark.parametrize("scene", [AFTER_A_PARENT, *(a for a in SCENES if a.world is kept)], ids=lambda scene: scene.id)
def test_rule_01_a_script_cut_off_anywhere_neither_loses_a_result_nor_keeps_it(desk: Desk, scene: Scene, resend: bool) -> None:
    writes, was_cut, start = 0, True, saved(desk, scene.begin)
    while was_cut:
        operation = start(desk)
        was_cut = desk.cut_off(operation, writes)
        if resend:
            desk.run(operation)
        desk.sweeps(3)
        if desk.places("child") == {"lane"} and (resend or not isinstance(operation, Enqueue)):
            # Whoever may run may read it, whatever the time is.
            assert result_until(desk, "p") > KEPT_MS or (scene.script == "bury" and not resend and writes < 4), writes
        for _ in range(4):
            desk.finished(*(job.lease for job in desk.past(10_000).claim("z"))).sweeps(2)
        assert nothing_is_kept(desk.tick(86_400_001).sweeps(2).tick(0)) and not result_until(desk, "p"), (writes, desk.dump())
        writes += 1
    assert writes > 3


def test_rule_03_an_enqueue_sent_twice_keeps_a_result_once(desk: Desk) -> None:
    call = desk.call(AFTER_A_PARENT.begin(desk))
    with desk.sent(call).unchanged():
        desk.send(call)
    assert result_until(desk, "p") < 2 * KEPT_MS
