"""Rule 25: a job that needs others is claimable when the last of them has finished, and shares the fate of one that is lost."""

import pytest

from tests.engine.desk import LEASE_MS, START_MS, Desk, write_run
from tests.engine.ops import Alter, Bury, Drop, Failure, Finish, Lease, LeasedJob, Retry, Value

pytestmark = pytest.mark.feature("BQ35")


def ids(jobs: list[LeasedJob]) -> list[str]:
    return [job.lease.job for job in jobs]


def members(desk: Desk, key: str) -> set[str]:
    return {member.decode() for member in desk.redis.smembers(key)}


def handing(desk: Desk) -> list[str]:
    return [member.decode() for member in desk.redis.zrange(desk.keys.handing, 0, -1)]


def bury(desk: Desk, lease: Lease) -> None:
    assert desk.run(Bury((Failure(lease, "no"),))).items == (("ok", "buried"),)


def requeue(desk: Desk, job: str) -> None:
    """What an administrator does with a dead job: back into its lane, with no failure behind it."""
    desk.redis.zrem(desk.keys.dead, job)
    write_run(desk.redis, desk.keys.run(job), failures="")
    desk.redis.zadd(desk.keys.lane("main"), {job: 1})
    desk.redis.zadd(desk.keys.ready("main"), {"main": 1})


def nothing_is_left(desk: Desk) -> bool:
    """No trace of any dependency."""
    keys = [desk.keys.blocked, desk.keys.feeding, desk.keys.handing, desk.keys.needs("*"), desk.keys.feeds("*")]
    return [key for pattern in keys for key in desk.redis.scan_iter(pattern)] == []


# -- before, while and after a parent runs


def test_a_child_waits_in_no_lane_and_goes_when_its_last_parent_has_finished(desk: Desk) -> None:
    assert desk.enqueue("p1", "p2").enqueue("child", needs=("p1", "p2"), priority=9).places("child") == {"blocked"}
    assert desk.redis.zrange(desk.keys.blocked, 0, -1, withscores=True) == [(b"child", START_MS)]
    assert members(desk, desk.keys.needs("child")) == {"p1", "p2"}
    assert members(desk, desk.keys.feeds("p1")) == members(desk, desk.keys.feeds("p2")) == {"child"}
    assert members(desk, desk.keys.feeding) == {"p1", "p2"}
    first, second = desk.claim()
    assert ids([first, second]) == ["p1", "p2"], "not the child, whatever its priority"
    desk.finish(first.lease)
    assert (desk.places("child"), members(desk, desk.keys.needs("child"))) == ({"blocked"}, {"p2"})
    assert desk.claim("b") == []
    desk.redis.delete(desk.keys.wake("main"))
    assert desk.finished(second.lease).places("child") == {"lane"}
    assert desk.redis.llen(desk.keys.wake("main")) == 1, "an idle worker hears of it"
    assert nothing_is_left(desk)
    child = desk.one("b")
    assert (child.lease.job, child.options.needs) == ("child", ("p1", "p2"))


@pytest.mark.parametrize("known_by", ["tombstone", "done", "result"])
def test_a_parent_that_has_finished_is_done(desk: Desk, known_by: str) -> None:
    desk.enqueue("p").run(Finish((desk.claim()[0].lease,), values=(Value(0, b"1", 3_600_000, 3),)))
    if known_by != "tombstone":
        assert desk.tick(60_000).redis.exists(desk.keys.job("p")) == 0
    if known_by == "result":
        assert desk.did(desk.sweep_operation(done_max=0)).redis.exists(desk.keys.done) == 0
    assert desk.enqueue("child", needs=("p",)).places("child") == {"lane"} and nothing_is_left(desk)


@pytest.mark.parametrize(("policy", "place"), [("bury", "dead"), ("ignore", "lane")])
@pytest.mark.parametrize("known_by", ["tombstone", "done", "result"])
def test_rule_25_a_parent_that_was_skipped_is_lost_while_it_is_known(desk: Desk, known_by: str, policy: str, place: str) -> None:
    desk.run(Drop((desk.leased("p")[0].lease,), ("skipped",), ("E: no",)))
    if known_by != "tombstone":
        assert desk.tick(60_000).redis.exists(desk.keys.job("p")) == 0
    if known_by == "result":
        desk.run(desk.sweep_operation(done_max=0))
    result, info = desk.queue.results.get("p"), desk.queue.jobs.get("p")
    assert result is not None and (result.outcome, result.error) == ("skipped", "E: no")
    assert known_by == "result" or (info is not None and (info.state, info.last_error) == ("skipped", "E: no"))
    assert desk.enqueue("child", needs=("p",), on_parent_failure=policy).swept().places("child") == {place}
    assert nothing_is_left(desk)


def test_the_error_of_a_parent_that_was_requeued_and_has_finished_says_nothing(desk: Desk) -> None:
    bury(desk, desk.leased("p")[0].lease)
    assert desk.run(Alter("requeue", ("p",), "dead", op_id="0" * 16, not_after_ms=desk.now_ms + 1000)).items[0].result == "done"
    desk.finished(desk.claim()[0].lease).tick(60_000).run(desk.sweep_operation(done_max=0))
    assert desk.run(desk.enqueue_operation("child", needs=("p",))).result == "orphan", "it is not taken for dead"


def test_a_delay_counts_from_the_enqueue_and_a_child_waits_for_it_as_well(desk: Desk) -> None:
    desk.enqueue("p").enqueue("soon", needs=("p",), delay_ms=500).enqueue("later", needs=("p",), delay_ms=5_000)
    assert desk.places("soon") == desk.places("later") == {"blocked"}
    parent = desk.one()
    desk.tick(1000).finish(parent.lease)
    assert (desk.places("soon"), desk.places("later")) == ({"lane"}, {"due"})
    assert ids(desk.claim("b")) == ["soon"] and ids(desk.tick(4000).claim("b")) == ["later"]


def test_children_start_in_the_order_of_their_enqueue_and_by_priority(desk: Desk) -> None:
    desk.enqueue("p").enqueue("c2", "c1", "c3", needs=("p",)).enqueue("first", needs=("p",), priority=9)
    assert ids(desk.finished(desk.claim()[0].lease).claim("b")) == ["first", "c2", "c1", "c3"]


def test_what_is_told_of_a_blocked_job(desk: Desk) -> None:
    desk.family(unique="u")
    for job in ("child", "other"):
        reply = desk.run(desk.enqueue_operation(job, nonce=b"another-", unique="u"))
        assert (reply.result, reply.state, reply.holder) == ("duplicate", "blocked", "child")


@pytest.mark.parametrize(("delay_ms", "markers"), [(5_000, 1), (500_000, 0)])
def test_a_child_that_will_be_due_before_all_others_leaves_a_marker(desk: Desk, delay_ms: int, markers: int) -> None:
    """Whoever takes it hears when that is."""
    parent = desk.enqueue("late", delay_ms=60_000).family(delay_ms=delay_ms).one()
    desk.redis.delete(desk.keys.wake("main"))
    assert desk.finished(parent.lease).redis.llen(desk.keys.wake("main")) == markers and desk.places("child") == {"due"}


# -- many children


def test_a_finish_tells_a_hundred_and_the_sweep_the_rest(desk: Desk) -> None:
    desk.enqueue("p").enqueue(*(f"c{number}" for number in range(250)), needs=("p",))
    assert desk.finish(desk.one().lease) == [("ok", "finished")]
    assert (desk.redis.zcard(desk.keys.lane("main")), desk.redis.zcard(desk.keys.blocked)) == (100, 150)
    assert (handing(desk), desk.redis.scard(desk.keys.feeds("p"))) == (["+p"], 150)
    swept = desk.run(desk.sweep_operation(limit=100))
    assert (desk.redis.zcard(desk.keys.lane("main")), swept.sleep_ms) == (200, 0), "the sweeper comes back at once"
    # A worker's next call does its share too.
    assert len(desk.claim(limit=1)) == 1
    assert (desk.redis.zcard(desk.keys.lane("main")), desk.redis.zcard(desk.keys.blocked)) == (249, 0)
    assert nothing_is_left(desk) and desk.sweep().sleep_ms > 0


def test_the_sweep_tells_them_though_the_tombstone_of_their_parent_has_expired(desk: Desk) -> None:
    desk.enqueue("p").enqueue(*(f"c{number}" for number in range(150)), needs=("p",))
    desk.finished(desk.claim()[0].lease).tick(60_000).redis.delete(desk.keys.done)
    assert (desk.swept().redis.zcard(desk.keys.lane("main")), nothing_is_left(desk)) == (150, True)


# -- parents that are lost


def test_a_child_is_buried_with_its_parent_and_its_own_children_after_it(desk: Desk) -> None:
    desk.enqueue("p", attempts=1).enqueue("other").enqueue("child", needs=("p", "other"), unique="u")
    assert desk.retry(desk.leased("grandchild", needs=("child",))[0].lease) == ("ok", "buried")
    assert handing(desk) == ["-p"] and desk.sweep().sleep_ms == 0
    assert (desk.places("child"), desk.run_hash("child")["error"]) == ({"dead"}, "its parent p is dead")
    assert desk.redis.exists(desk.keys.unique("u"), desk.keys.needs("child")) == 0 and desk.sweep().sleep_ms > 0
    assert (desk.places("grandchild"), desk.run_hash("grandchild")["error"]) == ({"dead"}, "its parent child is dead")
    assert desk.run(desk.enqueue_operation("more")).result == "created"
    # The other parent forgets the child when it ends.
    (other,) = [job for job in desk.claim("b") if job.lease.job == "other"] or [None]
    assert other is None or desk.finish(other.lease) == [("ok", "finished")]


def test_a_child_may_go_on_without_a_lost_parent(desk: Desk) -> None:
    desk.enqueue("p1", "p2").enqueue("child", needs=("p1", "p2"), on_parent_failure="ignore")
    first, second = desk.leased("strict", needs=("p1",))
    bury(desk, first.lease)
    assert (desk.swept().places("child"), desk.places("strict")) == ({"blocked"}, {"dead"})
    assert desk.finished(second.lease).places("child") == {"lane"} and nothing_is_left(desk)


@pytest.mark.parametrize(
    ("how", "parent", "state"), [("crashes", {"dead"}, "dead"), ("corrupt", {"dead"}, "dead"), ("gone", set(), "gone")]
)
def test_a_parent_that_is_lost_takes_its_child_along(desk: Desk, how: str, parent: set[str], state: str) -> None:
    """It kills its workers, cannot be read, or its key was taken by an eviction or a hand, which did not say so."""
    desk.enqueue("p", crashes_max=2).enqueue("child", needs=("p",))
    if how == "crashes":
        desk.crashed("p").crash("p")
    elif how == "corrupt":
        desk.redis.setrange(desk.keys.job("p"), 0, b"\xff")
        desk.claim()
    else:
        desk.redis.delete(desk.keys.job("p"))
        desk.redis.zrem(desk.keys.lane("main"), "p")
    assert desk.places("p") == parent
    desk.swept()
    assert (desk.places("child"), desk.run_hash("child")["error"]) == ({"dead"}, f"its parent p is {state}")


@pytest.mark.parametrize(("policy", "place"), [("bury", "dead"), ("ignore", "lane")])
@pytest.mark.parametrize("left", ["its entry", "its error"])
def test_a_parent_that_is_dead_already(desk: Desk, left: str, policy: str, place: str) -> None:
    bury(desk, desk.leased("p")[0].lease)
    # As it is found when its envelope was lost with its entry: its error is kept apart.
    if left == "its error":
        desk.redis.delete(desk.keys.job("p"), desk.keys.run("p"), desk.keys.dead)
    assert desk.enqueue("child", needs=("p",), on_parent_failure=policy).swept().places("child") == {place}
    assert nothing_is_left(desk)


def test_of_a_lost_parent_that_a_child_does_without_nobody_is_told(desk: Desk) -> None:
    """Found by the mixed walk: it was noted as one whose children are still to be told."""
    leased = desk.enqueue("p1", "p2").one(limit=1)
    assert desk.run(Bury((Failure(leased.lease, "no"),))).items == (("ok", "buried"),)
    desk.enqueue("child", needs=("p1", "p2"), on_parent_failure="ignore")
    assert desk.places("child") == {"blocked"} and desk.queue.counts().handing == 0


def test_a_dead_parent_that_runs_again_sends_on_who_still_waits(desk: Desk) -> None:
    bury(desk.enqueue("p"), desk.leased("child", needs=("p",))[0].lease)
    requeue(desk, "p")
    desk.swept()
    # Nobody had been told when it came back: its next end counts.
    assert (desk.places("child"), handing(desk)) == ({"blocked"}, [])
    assert desk.finished(desk.claim()[0].lease).places("child") == {"lane"}


def test_a_child_that_was_buried_stays_dead_when_its_parent_runs_again(desk: Desk) -> None:
    bury(desk.enqueue("p"), desk.leased("child", needs=("p",))[0].lease)
    requeue(desk.swept(), "p")
    assert desk.finished(desk.claim()[0].lease).swept().places("child") == {"dead"}
    requeue(desk, "child")
    assert ids(desk.claim("b")) == ["child"], "and runs without asking for its parents when somebody wants that"


def test_a_key_of_another_type_in_place_of_the_children_of_a_job_holds_up_those_of_no_other(desk: Desk) -> None:
    desk.enqueue("p1", "p2").enqueue("c1", needs=("p1",)).enqueue("c2", needs=("p2",)).redis.delete(desk.keys.feeds("p1"))
    desk.redis.rpush(desk.keys.feeds("p1"), "x")
    assert desk.finish(*(job.lease for job in desk.claim())) == [("ok", "finished")] * 2
    assert (desk.swept().places("c1"), desk.places("c2"), handing(desk)) == ({"blocked"}, {"lane"}, ["+p1"])
    assert desk.sweep().sleep_ms == 1_000, "no sweep can do anything for them"


# -- cut off and sent twice


def test_a_finish_cut_off_before_it_noted_a_parent_is_noted_by_the_sweep_that_takes_its_lease(desk: Desk) -> None:
    """Not only by the random look of every sweep, which finds one of many parents late."""
    (job,) = desk.enqueue("p1").leased("c1", needs=("p1",))
    for writes in range(1, 10):
        assert desk.cut_off(Finish((job.lease,)), writes), "before it notes the parent"
        if "ended" in desk.places("p1"):
            break
    assert not desk.redis.exists(desk.keys.handing)
    # So many that the look of a sweep for parents, ten at random, finds it in one of a hundred runs of this test.
    desk.redis.sadd(desk.keys.feeding, *(f"other-{number}" for number in range(5000)))
    assert desk.places("c1") == {"blocked"} and desk.past(LEASE_MS + 1).places("c1") == {"lane"}


def test_a_retry_of_a_parent_is_no_end(desk: Desk) -> None:
    (parent,) = desk.enqueue("p").leased("child", needs=("p",))
    assert desk.run(Retry((Failure(parent.lease, "boom", 100),))).items == (("ok", "retried"),)
    assert (desk.swept().places("child"), handing(desk)) == ({"blocked"}, [])


# -- an id that is used again


def used_again(desk: Desk, how: str, children: int = 3) -> None:
    """`p` has ended, and its children were not told when its id was used again."""
    parent = desk.enqueue("p").enqueue(*(f"old{number}" for number in range(children)), needs=("p",)).one()
    told = desk.redis.smembers(desk.keys.feeding)
    desk.redis.delete(desk.keys.feeding)
    desk.finish(parent.lease) if how == "finished" else bury(desk, parent.lease)
    desk.redis.sadd(desk.keys.feeding, *told)
    desk.redis.zadd(desk.keys.handing, {"+p" if how == "finished" else "-p": desk.now_ms})
    if how == "lost":
        assert desk.run(Alter("discard", ("p",), "dead", op_id="0" * 16, not_after_ms=desk.now_ms + 1000)).items[0].done
    assert desk.tick(60_000).redis.exists(desk.keys.job("p")) == 0
    desk.enqueue("p", nonce=b"another-").enqueue("new", needs=("p",))


@pytest.mark.parametrize(("how", "place"), [("finished", "lane"), ("lost", "dead")])
def test_children_of_a_job_that_has_ended_do_not_wait_for_the_next_one_of_its_id(desk: Desk, how: str, place: str) -> None:
    used_again(desk, how)
    desk.swept()
    assert [desk.places(f"old{number}") for number in range(3)] == [{place}] * 3
    assert (desk.places("new"), handing(desk), members(desk, desk.keys.feeds("p"))) == ({"blocked"}, [], {"new"})
    parent = desk.claim(limit=1)[0]
    assert parent.lease.job == "p" or how == "finished"
    assert desk.finished(*(job.lease for job in [parent, *desk.claim()])).places("new") == {"lane"} and nothing_is_left(desk)


def test_they_are_told_in_pieces_and_then_the_new_ones_wait_alone(desk: Desk) -> None:
    used_again(desk, "finished", 25)
    for left in (15, 5, 0, 0):
        assert desk.did(desk.sweep_operation(limit=10)).redis.scard(desk.keys.feeds("p")) == left + 1
    assert (handing(desk), members(desk, desk.keys.feeding)) == ([], {"p"})
