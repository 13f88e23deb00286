"""Rules 7, 23 and 26: what is done to jobs by hand names the state that it saw, is done once, and never touches a newer job."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.engine.helpers.by_hand import alter, altered, bury, clean, forget, set_retention
from tests.engine.helpers.lanes_state import check, ended_of, hash_of, members, names_of, take_markers
from tests.engine.helpers.scenes import drain
from tests.engine.using import DEADLINE_S, HOUR_MS, LEASE_MS, Bury, Count, Desk, Failure, Finish, Value
from tests.scenes import CLASSES, SCENES, Scene, limited

# -- cancel


@pytest.mark.feature("MQ32")
def test_rule_26_a_running_job_loses_its_token_at_once(desk: Desk) -> None:
    desk.set_limit("k:k", concurrency=1).enqueue("j", key="k", unique="u").leased("next", key="k")
    take_markers(desk)
    (told,) = altered(desk, "cancel", "active", "j")
    assert (told.done, told.state) == (True, "active")
    # What it held is free: its slot, for which a lane waited, and its unique key.
    assert take_markers(desk) == ["main"]
    check(desk, room=True)
    assert desk.redis.exists(desk.keys.unique("u"), desk.keys.run("j"), desk.keys.active) == 0
    assert [found.lease.job for found in desk.claim("b")] == ["next"]
    assert desk.past(LEASE_MS + 1).places("j") == {"ended"} and desk.tick(30_001).places("j") == set()


def published(desk: Desk) -> Callable[[], list[tuple[str, str]]]:
    """A look at what scripts have published since the last look: channel, without the queue's prefix, and text."""
    listener = desk.redis.pubsub()
    listener.psubscribe(desk.keys.prefix + "*")
    listener.get_message(timeout=DEADLINE_S)

    def look() -> list[tuple[str, str]]:
        desk.redis.publish(desk.keys.prefix + "end", "")
        found: list[tuple[str, str]] = []
        while (said := listener.get_message(timeout=DEADLINE_S)) is not None:
            channel = said["channel"].decode()[len(desk.keys.prefix) :]
            if channel == "end":
                return found
            found.append((channel, said["data"].decode()))
        raise AssertionError("the end was not heard")

    return look


def test_rule_26_the_holder_of_a_cancelled_job_is_told_on_its_channel(desk: Desk) -> None:
    """And nobody else, and of nothing else: neither of a job that nobody holds, nor of one that is removed, nor by a copy."""
    look = published(desk)
    desk.enqueue("held", "waiting", "removed").claim("a", limit=1)
    (job,) = desk.run(replace(desk.claim_operation("b", 1), owner="shop-1")).jobs
    call = desk.call(alter(desk, "cancel", "active", job.lease.job))
    for _ in range(2):
        desk.send(call)
    lease = job.lease
    assert look() == [("control:shop-1", f"cancelled {lease.fence} {lease.nonce} {lease.job}")]
    altered(desk, "cancel", "waiting", "removed")
    altered(desk, "remove", "active", "held")
    assert look() == []


@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_rule_26_what_has_not_started_never_starts(desk: Desk, state: str) -> None:
    (told,) = altered(desk.enqueue("j", unique="u", delay_ms=500 if state == "delayed" else 0), "cancel", state, "j")
    assert told.done and desk.places("j") == {"ended"} and desk.redis.exists(desk.keys.unique("u")) == 0
    assert desk.swept(1000).claim() == []
    desk.enqueue("other", unique="u")


# -- states


@pytest.mark.feature("BL25")
def test_a_job_is_removed_from_wherever_it_stands(desk: Desk) -> None:
    dead, finished = (job.lease for job in desk.leased("dead", "finished"))
    desk.buried(dead).finished(finished).enqueue("delayed", delay_ms=5000).enqueue("waiting")
    for job in ("dead", "delayed", "waiting", "finished"):
        assert altered(desk, "remove", job, job)[0].done and desk.places(job) == {"ended"}
    assert members(desk, desk.keys.done) == [] and desk.run(Count()).expired == 0
    # The tombstone of what was finished still answers a late copy of its finish.
    assert desk.finish(finished) == [("repeated", "finished")]


@pytest.mark.feature("BL24")
def test_a_delayed_job_may_run_now_at_its_place(desk: Desk) -> None:
    take_markers(desk.enqueue("first", delay_ms=50_000).enqueue("second"))
    assert altered(desk, "run_now", "delayed", "first")[0].done and take_markers(desk) == ["main"]
    assert desk.redis.exists(desk.keys.due) == 0
    assert [job.lease.job for job in desk.claim()] == ["first", "second"]


# -- requeue


@pytest.mark.feature("BL23")
def test_a_dead_job_runs_again_with_all_its_attempts(desk: Desk) -> None:
    desk.enqueue("j", attempts=2)
    for _ in range(2):
        desk.retried(desk.claim()[0].lease, delay_ms=0).later(1)
    fence = int(desk.run_hash("j")["fence"])
    assert desk.places("j") == {"dead"} and desk.run_hash("j")["failures"] == "2"
    take_markers(desk)
    assert altered(desk, "requeue", "dead", "j")[0].done
    assert (desk.places("j"), take_markers(desk)) == ({"lane"}, ["main"])
    job = desk.one()
    assert (job.failures, job.crashes, job.claims) == (0, 0, 3) and job.lease.fence > fence
    assert desk.run_hash("j")["errors"] == "2" and desk.retry(job.lease, delay_ms=0) == ("ok", "retried")


def test_rule_10_a_copy_of_a_requeue_leaves_a_job_dead_that_died_again_after_the_clock_stepped_back(desk: Desk) -> None:
    """Its entry is older than the requeue by then, as that of a requeue which was cut off would be."""
    bury(desk.enqueue("j"), "j")
    call = desk.call(alter(desk, "requeue", "dead", "j"))
    assert [told.done for told in desk.send(call).items] == [True]
    bury(desk.tick(-HOUR_MS), "j")
    assert desk.sent(call).places("j") == {"dead"}
    desk.tick(HOUR_MS)
    assert [told.done for told in altered(desk, "requeue", "dead", "j")] == [True] and desk.places("j") == {"lane"}


def test_rule_23_a_requeued_job_takes_its_unique_key_again_or_names_the_holder(desk: Desk) -> None:
    bury(desk.enqueue("first", unique="u"), "first")
    (told,) = altered(desk.enqueue("second", unique="u"), "requeue", "dead", "first")
    assert (told.result, told.state, told.holder) == ("held", "dead", "second")
    bury(desk, "second")
    # Of two that want the key in one call, the first gets it.
    one, two = altered(desk, "requeue", "dead", "first", "second")
    assert (one.result, two.result, two.holder) == ("done", "held", "first")
    assert desk.redis.get(desk.keys.unique("u")) == b"first"
    assert desk.run(desk.enqueue_operation("third", unique="u")).holder == "first"


@pytest.mark.feature("BN12")
def test_a_corrupt_job_is_not_requeued_and_may_be_discarded(desk: Desk) -> None:
    desk.enqueue("j").redis.setrange(desk.keys.job("j"), 0, b"\xff")
    assert desk.claim() == [] and desk.places("j") == {"dead"}
    assert altered(desk, "requeue", "dead", "j")[0].result == "corrupt" and desk.places("j") == {"dead"}
    assert altered(desk, "discard", "dead", "j")[0].done
    assert desk.places("j") == {"ended"} and desk.redis.exists(desk.keys.run("j")) == 0


@pytest.mark.parametrize("again", [None, False, True], ids=["alone", "never sent again", "sent again"])
def test_rule_01_a_requeue_that_was_cut_off_leaves_a_job_that_runs_and_crashes_as_any_other(desk: Desk, again: object) -> None:
    for writes in desk.each_cut(1):
        bury(desk.enqueue("j"), "j")
        operation = alter(desk.tick(10), "requeue", "dead", "j")
        desk.cut_off(operation, writes)
        assert not again or desk.did(operation).places("j") == {"lane"}, writes
        if desk.claim():
            # Another requeue leaves a job alone that runs.
            assert again is None or (altered(desk, "requeue", "dead", "j") and desk.places("j") == {"active"}), writes
            assert desk.past(LEASE_MS + 1).places("j") == {"lane"}, writes
        else:
            assert desk.places("j") == {"dead"}, writes


# -- clean and its relatives


@pytest.mark.feature("BL26")
def test_clean_forgets_the_lane_that_it_empties_and_the_results_of_what_it_removes(desk: Desk) -> None:
    desk.enqueue("old1", "old2", key="a").tick(1000).enqueue("young", priority=9)
    assert desk.run(clean(desk, "waiting", 500)).removed == 2
    assert names_of(desk, desk.keys.lane("*")) == ["main"] and members(desk, desk.keys.ready("main")) == ["main"]
    check(desk)
    desk.run(Finish((desk.claim()[0].lease,), None, (Value(0, b"7", HOUR_MS, 1),)))
    assert desk.redis.exists(desk.keys.result("young")) and desk.run(clean(desk, "finished")).removed == 1
    assert not desk.redis.exists(desk.keys.result("young"))


@pytest.mark.parametrize("state", ["waiting", "delayed", "dead", "finished"])
def test_rule_07_what_came_after_the_era_stays(desk: Desk, state: str) -> None:
    def one(job: str) -> None:
        desk.enqueue(job, delay_ms=HOUR_MS if state == "delayed" else 0)
        if state == "dead":
            bury(desk, job)
        elif state == "finished":
            desk.finish(desk.claim()[0].lease)

    one("old")
    era = desk.run(clean(desk, "delayed" if state == "waiting" else "waiting")).era
    desk.tick(1)
    one("new")
    reply = desk.run(clean(desk, state, era=era))
    assert (reply.removed, reply.kept) == (1, 1)
    if state != "finished":
        assert (desk.places("old"), len(desk.places("new") - {"ended"})) == ({"ended"}, 1)


def test_rule_07_a_late_copy_of_an_obliteration_touches_nothing_of_the_new_queue(desk: Desk) -> None:
    desk.set_limit("n:main", concurrency=1).pause("other").enqueue("old1", "old2")
    calls = [desk.call(forget(desk))]
    begun = desk.send(calls[0])
    assert hash_of(desk, desk.keys.limits) and desk.claim() == [], "nothing starts, least of all without its limits"
    calls += [desk.call(clean(desk, state, era=begun.era)) for state in ("waiting", "delayed", "dead", "finished")]
    assert [desk.send(call).removed for call in calls[1:]] == [2, 0, 0, 0]
    calls.append(desk.call(forget(desk, end=True)))
    desk.send(calls[-1])
    kinds = {name.split(":")[0] for name in names_of(desk, f"{desk.keys.prefix}*")}
    assert kinds == {"claim", "job", "op", "seq", "sweep"}
    # The new queue, and copies of all calls at all times.
    desk.set_limit("n:main", concurrency=2).enqueue("new1", "new2", "new3").enqueue("new4", delay_ms=HOUR_MS)
    for passed_ms in (0, 5_000, 24_000, 2_000, HOUR_MS - 1):
        before = desk.tick(passed_ms).dump()
        for call in calls:
            assert desk.send(call).result in ("repeated", "refused")
        # Copies that had never arrived before, in time: the era keeps them from the new jobs.
        if passed_ms == 0:
            assert [desk.run(clean(desk, state, era=begun.era)).removed for state in ("waiting", "delayed", "dead")] == [0, 0, 0]
        else:
            assert desk.dump() == before
    assert len(desk.claim()) == 2


def test_an_obliteration_starts_nothing_that_is_paused(desk: Desk) -> None:
    begun = desk.pause().enqueue("j1").run(forget(desk))
    assert desk.claim() == [], "what is about to be removed"
    assert desk.run(clean(desk, "waiting", era=begun.era)).removed == 1
    assert [job.lease.job for job in desk.did(forget(desk, end=True)).enqueue("new").claim()] == ["new"]


def test_an_obliteration_waits_for_jobs_in_hand_unless_it_is_forced(desk: Desk) -> None:
    (job, _) = desk.set_limit("n:main", concurrency=5).leased("j1", "j2")
    before = desk.dump()
    assert desk.run(forget(desk)).busy
    after = desk.dump()
    assert after.pop(desk.keys.op("by-hand-00000001"))[1].endswith(b" busy"), "a late copy is turned away as well"
    assert after == before
    assert desk.run(clean(desk, "active", era=desk.run(forget(desk, force=True)).era)).removed == 2
    assert desk.finish(job.lease) == [("stale", "")]
    assert desk.redis.exists(desk.keys.active, desk.keys.held("n:main")) == 0


# -- retention


@pytest.mark.feature("BL15", "MQ15", "BN11")
def test_the_sweep_keeps_the_dead_and_the_done_within_their_bounds(desk: Desk) -> None:
    def one(job: str, *, dies: bool) -> None:
        desk.enqueue(job, unique=job)
        bury(desk, job) if dies else desk.finish(desk.claim()[0].lease)

    for number in range(4):
        one(f"d{number}", dies=True)
        one(f"f{number}", dies=False)
        desk.tick(100)
    desk.did(set_retention(desk, dead_max=3, done_max=3)).sweep()
    assert (members(desk, desk.keys.dead), members(desk, desk.keys.done)) == (["d1", "d2", "d3"], ["f1", "f2", "f3"])
    assert desk.places("d0") == {"ended"} and desk.redis.exists(desk.keys.run("d0")) == 0
    desk.run(set_retention(desk, dead_age_ms=250, done_age_ms=150))
    assert hash_of(desk, desk.keys.retention) == {"dead_max": "3", "done_max": "3", "dead_age_ms": "250", "done_age_ms": "150"}
    assert (members(desk.swept(), desk.keys.dead), members(desk, desk.keys.done)) == (["d2", "d3"], ["f3"])
    assert (members(desk.swept(151), desk.keys.dead), members(desk, desk.keys.done)) == ([], [])


def test_retention_discards_fifty_at_a_time_and_the_sweep_comes_back_at_once(desk: Desk) -> None:
    desk.run(desk.enqueue_many_operation(*[f"j{number:03}" for number in range(250)]))
    for _ in range(3):
        desk.run(Bury(tuple(Failure(job.lease, "no") for job in desk.claim(limit=100))))
    desk.run(set_retention(desk, dead_max=0))
    assert [desk.sweep().sleep_ms for _ in range(5)] == [0, 0, 0, 0, 1000]
    assert desk.redis.exists(desk.keys.dead) == 0 and len(ended_of(desk)) == 250


# -- identity

#: What is done by hand in a queue with limits.
BY_HAND = ("discard", "requeue", "run_now", "clean", "forget", "set_retention", "set_events")


@pytest.mark.parametrize(
    "scene", [one for one in SCENES if one.world is limited and one.script in BY_HAND], ids=lambda one: one.id
)
def test_rule_07_a_copy_that_arrives_when_all_is_over_does_nothing(desk: Desk, scene: Scene) -> None:
    call = desk.call(scene.begin(desk))
    drain(desk.sent(call), call.operation)
    desk.tick(60_000)
    # The ids are used again, in the state that the call names.
    desk.redis.delete(desk.keys.dead)
    for job in ("m0", "m1"):
        desk.redis.delete(desk.keys.job(job), desk.keys.run(job))
        desk.enqueue(job)
    bury(desk, "m0", "m1")
    with desk.enqueue("s0").unchanged():
        assert desk.send(call).result == "refused"
    assert [job.lease.job for job in desk.claim("c", classes=CLASSES)] == ["s0"]


def test_finish_reads_no_envelope_and_is_refused_all_the_same_after_a_cancel_that_was_cut_off(desk: Desk) -> None:
    (job,) = desk.leased("j")
    operation = alter(desk, "cancel", "active", "j")
    assert desk.cut_off(operation, 1) and desk.run(Finish((job.lease,))).items == (("stale", ""),)
    assert desk.run(operation).items[0].done and desk.places("j") == {"ended"}


def test_rule_25_what_needs_a_cancelled_job_is_buried_and_a_cancelled_child_is_waited_for_by_nobody(desk: Desk) -> None:
    desk.enqueue("parent", "other").enqueue("child", needs=("parent",)).enqueue("second", needs=("other",))
    assert altered(desk, "cancel", "blocked", "second")[0].done
    assert desk.places("second") == {"ended"} and desk.redis.exists(desk.keys.needs("second")) == 0
    assert altered(desk, "cancel", "waiting", "parent")[0].done and desk.swept().places("child") == {"dead"}
    assert desk.run_hash("child")["error"] == "its parent parent is cancelled"
    assert desk.finish(desk.one().lease) == [("ok", "finished")] and desk.claim() == []


@pytest.mark.parametrize("state", ["waiting", "dead", "finished"])
def test_rule_10_what_a_clock_that_stepped_back_has_left_ahead_of_now_is_obliterated_all_the_same(desk: Desk, state: str) -> None:
    desk.enqueue("j1")
    if state != "waiting":
        job = desk.one()
        desk.run(Finish((job.lease,)) if state == "finished" else Bury((Failure(job.lease, "no use"),)))
    assert desk.tick(-60_000).run(clean(desk, state, 1)).removed == 0, "it has no age yet"
    assert desk.queue.obliterate()
    assert getattr(desk.queue.counts(), "done" if state == "finished" else state) == 0
