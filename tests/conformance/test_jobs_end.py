"""Runs of jobs and their ends: one holder, one end, another run after a failure, and dead in the end."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine import errors, models
from engine.ops import base, jobs
from engine.routing import Attributes
from tests.conformance.declared import accepts, attempts
from tests.conformance.desk import ModelDesk
from tests.conformance.models import FOREIGN, WITH_LISTS, key_of, only, take_over, waiting_of
from tests.engine.desk import HOUR_MS, LEASE_MS
from tests.engine.ops import Bury, Drop, DropOutcome, Extend, Failure, Finish, LeasedJob, ReadEvents, Release, Retry


def fail_until_dead(desk: ModelDesk, label: str) -> int:
    """Let each run of the job fail; how many there were."""
    for run in range(1, 100):
        job = desk.take(limit=1)[label]
        assert job.failures == run - 1
        result, outcome = desk.retry(job.lease, delay_ms=0, error=f"run {run}")
        assert result == "ok"
        if outcome == "buried":
            return run
        desk.tick(1_000).sweep()
    raise AssertionError("it never died")


#: Each end of a lease, and what it is called.
ENDS: dict[str, Callable[[jobs.Lease], base.Operation]] = {
    "finished": lambda lease: Finish((lease,)),
    "released": lambda lease: Release((lease,)),
    "retried": lambda lease: Retry((Failure(lease, "boom", 500),)),
    "buried": lambda lease: Bury((Failure(lease, "boom"),)),
    "discarded": lambda lease: Drop((lease,), ("discarded",)),
}


def test_rule_05_a_lease_ends_once_and_a_repeat_is_told_how(desk: ModelDesk) -> None:
    for outcome, end in ENDS.items():
        (job,) = desk.begin().leased("j1", **attempts(desk.queue, 3))
        operation = end(job.lease)
        assert desk.run(operation).items == (("ok", outcome),)
        before = desk.dump()
        assert desk.run(operation).items == (("repeated", outcome),)
        assert desk.dump() == before, outcome
        assert desk.run(end(jobs.Lease("j1", job.lease.fence + 1, "b" * 16 + ":1"))).items == (("stale", ""),), outcome
        assert desk.run(desk.extend_operation(job.lease)).items == (("stale", 0),), outcome
        assert desk.mark(job.lease) == "stale", outcome


def test_a_job_has_one_holder_and_finishes_once(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j")
    assert (job.name, job.deadline_ms, job.claims) == ("main", desk.now_ms + LEASE_MS, 1)
    assert desk.claim("b") == [] and desk.state("j") == "active"
    assert (desk.finish(job.lease), desk.retry(job.lease)) == ([("ok", "finished")], ("repeated", "finished"))
    assert desk.queue.counts().active == 0 and desk.queue.counts().finished == 1


def test_rule_04_a_claim_that_is_sent_again_leases_the_same_jobs(desk: ModelDesk) -> None:
    call = desk.put("a", "b", "c").call(desk.claim_operation(limit=2))
    first, again = desk.send(call), desk.send(call)
    assert [job.lease for job in again.jobs] == [job.lease for job in first.jobs] and again.result == "repeated"
    assert [job.lease for job in desk.finished(first.jobs[0].lease).send(call).jobs] == [first.jobs[1].lease]
    assert list(desk.take()) == ["c"] and (desk.send(call).result, desk.send(call).jobs) == ("stale", ())
    late = desk.call(desk.claim_operation("z"))
    assert (desk.tick(LEASE_MS).put("d").send(late).result, desk.send(late).jobs) == ("void", ())


def test_a_failed_run_is_followed_by_another_after_its_wait(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j", **attempts(desk.queue, 3))
    assert desk.retry(job.lease, delay_ms=3_000, error="no luck") == ("ok", "retried")
    assert desk.retry(job.lease, delay_ms=3_000) == ("repeated", "retried")
    assert desk.state("j") == "delayed" and desk.info("j").last_error == "no luck"
    assert desk.tick(2_000).swept().claim() == []
    (again,) = desk.tick(1_000).claim()
    assert (again.failures, again.claims) == (1, 2) and again.lease.fence > job.lease.fence
    assert desk.finish(job.lease) == [("repeated", "retried")] and desk.finish(again.lease) == [("ok", "finished")]


def test_a_job_is_dead_when_its_runs_are_used_up_and_may_run_again(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j", **attempts(desk.queue, 2))
    runs = job.options.attempts
    assert fail_until_dead(desk.did(Release((job.lease,))), "j") == runs >= 1
    assert desk.state("j") == "dead" and desk.queue.counts().dead == 1 and desk.queue.counts().buried == 1
    (dead,) = desk.queue.dead.list()
    assert dead.id == desk.ids["j"] and f"run {runs}" in dead.last_error
    assert desk.queue.dead.requeue(desk.ids["j"]).done
    assert desk.state("j") == "waiting" and desk.queue.counts().dead == 0
    job = desk.take()["j"]
    assert job.crashes == 0
    assert desk.finish(job.lease) == [("ok", "finished")] and desk.state("j") in ("finished", "gone")


def test_a_job_that_must_not_run_again_is_buried_at_once(desk: ModelDesk) -> None:
    assert desk.run(Bury((Failure(desk.put_and_claim("j").lease, "never"),))).items == (("ok", "buried"),)
    assert desk.state("j") == "dead" and "never" in desk.queue.dead.list()[0].last_error


def test_a_job_may_end_without_its_work(desk: ModelDesk) -> None:
    outcomes: tuple[DropOutcome, ...] = ("discarded", "skipped", "rerouted")
    for outcome in outcomes:
        drop = Drop((desk.begin().put_and_claim("j").lease,), (outcome,), (f"ValueError: {outcome}",))
        assert desk.run(drop).items == (("ok", outcome),) and desk.run(drop).items == (("repeated", outcome),)
        assert desk.state("j") == outcome
        result, skipped = desk.queue.results.get(desk.ids["j"]), outcome == "skipped"
        found = ("skipped", "ValueError: skipped") if skipped else ("discarded", "")
        assert result is not None and (result.outcome, result.error) == found
        info = desk.queue.jobs.get(desk.ids["j"])
        assert info is not None and info.state == outcome and (info.last_error == found[1] or not skipped)
        assert desk.queue.counts().skipped == skipped
        # Lanes lists what was skipped among the finished ones.
        assert not any(labels for state, labels in desk.listed().items() if state != "done"), outcome


def test_a_lease_that_is_given_back_costs_nothing(desk: ModelDesk) -> None:
    first = desk.put(*"abcd").take(limit=3)
    assert set(desk.run(Release(tuple(job.lease for job in first.values()))).items) == {("ok", "released")}
    again = desk.take("b")
    assert list(again) == [*"abcd"], "at the head, in their order"
    assert (again["a"].claims, again["a"].failures, again["a"].crashes) == (2, 0, 0)
    assert again["a"].lease.fence > first["a"].lease.fence
    assert desk.finish(first["a"].lease) == [("repeated", "released")]
    assert desk.finish(again["a"].lease) == [("ok", "finished")]


def lose(desk: ModelDesk, worker: str = "a") -> LeasedJob:
    """Claim one job, and sweep until its lease has ended."""
    (job,) = desk.claim(worker)
    assert desk.sweep_past(LEASE_MS + 1) == [(job.lease, 1)]
    return job


def test_a_lease_that_ends_is_taken_and_its_late_finish_refused(desk: ModelDesk) -> None:
    job = lose(desk.put("j"))
    assert desk.state("j") == "waiting"
    assert desk.finish(job.lease) == [("stale", "")] and desk.retry(job.lease) == ("stale", "")
    (again,) = desk.claim("b")
    assert again.lease.fence > job.lease.fence and (again.claims, again.crashes) == (2, 1)
    assert desk.finish(job.lease) == [("stale", "")] and desk.finish(again.lease) == [("ok", "finished")]
    assert desk.queue.counts().active == 0


def test_rule_13_a_sweep_takes_half_as_many_leases_as_it_may_move(desk: ModelDesk) -> None:
    desk.enqueue("j1", "j2", "j3").held().swept().sweeps(3, LEASE_MS // 3).tick(1)
    swept = [desk.run(desk.sweep_operation(limit=3)) for _ in range(3)]
    assert [len(one.leases) for one in swept] == [2, 1, 0] and swept[0].sleep_ms == 0


def test_rules_11_and_13_at_the_end_of_a_lease_a_sweep_after_a_stall_sleeps_until_it_may_take_it(desk: ModelDesk) -> None:
    swept = desk.enqueue("j").swept().held().tick(LEASE_MS).sweep()
    assert (swept.leases, swept.sleep_ms) == ((), 1_000)


def test_rule_13_leases_of_a_worker_that_beats_no_more_are_taken_and_told(desk: ModelDesk) -> None:
    beat = replace(desk.beat_operation(lease_ms=HOUR_MS), incarnation=desk.claim_operation().incarnation)
    job = desk.keep_events().did(beat).put("j").one(lease_ms=HOUR_MS)
    assert [desk.tick(10_000).beat("b").orphaned for _ in range(4)] == [False, False, False, True] and desk.wakes() >= 0
    call = desk.orphans_operation()
    replies = [desk.run(operation).leases for operation in (call, call, desk.orphans_operation())]
    assert replies == [((job.lease, 1),)] * 2 + [()] and desk.wakes() == 1
    assert desk.run(ReadEvents("0-0", 100, 0)).events[-1].kind == "reaped" and desk.one("b").lease.job == job.lease.job


def test_rule_11_a_lease_that_nobody_has_taken_yet_still_ends_well(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j")
    assert desk.tick(3 * LEASE_MS).state("j") == "stuck" and desk.finish(job.lease) == [("ok", "finished")]


def test_rule_09_a_lease_is_renewed(desk: ModelDesk) -> None:
    job = desk.put_and_claim("j")
    for renewal in range(1, 6):
        extended = desk.tick(LEASE_MS // 3).run(desk.extend_operation(job.lease, renewal=renewal))
        assert extended.items == (("ok", desk.now_ms + LEASE_MS),) and desk.sweep().leases == ()
    long, until_ms = Extend((job.lease,), 6, HOUR_MS, desk.now_ms + 3_000), desk.now_ms + HOUR_MS
    assert desk.did(long).swept().redis.zscore(desk.keys.active, desk.ids["j"]) == until_ms, "no sweep cuts it short"
    assert desk.run(Extend((job.lease,), 9, LEASE_MS, desk.now_ms - 1)).items[0][0] in ("void", "stale")
    assert desk.finish(job.lease) == [("ok", "finished")]


def test_rule_09_a_late_renewal_arms_nothing_and_one_that_was_applied_is_not_applied_again(desk: ModelDesk) -> None:
    (job,) = desk.leased("j1")
    late, again = desk.call(desk.extend_operation(job.lease)), desk.call(desk.extend_operation(job.lease, renewal=2))
    assert desk.tick(1_000).send(again).items == (("ok", desk.now_ms + LEASE_MS),)
    assert desk.tick(1_000).send(again).items == (("repeated", desk.now_ms - 1_000 + LEASE_MS),)
    assert desk.send(late).items[0][0] == "repeated"
    third, before = desk.call(desk.extend_operation(job.lease, renewal=3)), desk.tick(3_500).dump()
    assert desk.send(third).items[0][0] == "void" and desk.dump() == before


def test_rule_10_a_clock_that_steps_back_holds_no_lease_longer_than_one(desk: ModelDesk) -> None:
    (job,) = desk.set_limit("n:main", concurrency=1).leased("j1")
    held = f"{desk.keys.prefix}held:n:main"
    assert desk.swept().tick(-900_000).swept().redis.zscore(desk.keys.active, "j1") == desk.now_ms + LEASE_MS
    assert desk.redis.zscore(held, "j1") == desk.now_ms + LEASE_MS, "its place in the limit as well"
    assert [lease for lease, _ in desk.sweep_past(LEASE_MS + 1)] == [job.lease]
    assert [job.lease.job for job in desk.claim("b")] == ["j1"]


def test_rule_12_the_first_crash_is_free_and_the_third_that_was_marked_buries(desk: ModelDesk) -> None:
    desk.keep_events().enqueue("j1")
    assert [desk.crash("j1", mark=mark)[1] for mark in (False, False, True)] == [1, 1, 2]
    (job,) = desk.claim()
    assert (desk.mark(job.lease), desk.mark(job.lease)) == ("ok", "repeated")
    assert desk.past(LEASE_MS + 1).claim("b") == [] and desk.queue.counts().dead == 1
    (told,) = [event for event in desk.run(ReadEvents("0-0", 100, 0)).events if event.kind == "buried"]
    assert told.job == job.lease.job and told.name and "crashed 3 times" in told.detail


def test_rule_12_a_worker_takes_one_job_with_a_crash_behind_it(desk: ModelDesk) -> None:
    assert len(desk.enqueue("j1", "j2", "j3").claim("x", 2)) == 2
    assert len(desk.past(LEASE_MS + 1).claim("w", 10, crashed_max=1)) == 2
    assert desk.claim("w", 10, crashed_max=0) == [] and len(desk.claim("v", 10, crashed_max=1)) == 1


def test_a_fused_call_ends_and_claims_and_is_repeated_whole(desk: ModelDesk) -> None:
    call = desk.call(Finish((desk.enqueue("j1", "j2").one(limit=1).lease,), desk.claim_operation(limit=1)))
    reply = desk.send(call)
    assert (reply.finished.items, [job.lease.job for job in reply.claimed.jobs]) == ((("ok", "finished"),), ["j2"])
    again = desk.send(call)
    assert (again.finished.items, again.claimed.result) == ((("repeated", "finished"),), "repeated")
    assert again.claimed.jobs == reply.claimed.jobs


def test_a_worker_takes_only_jobs_that_it_has_handlers_for(desk: ModelDesk) -> None:
    assert list(desk.put("other", name="other").put("mine").take()) == ["mine"]
    assert list(desk.take(classes=("other",))) == ["other"]


def test_a_job_with_a_route_waits_for_a_worker_that_takes_it(desk: ModelDesk) -> None:
    if not accepts(desk.queue, route="gpu"):
        return
    desk.put("gpu", route="gpu").put("plain")
    # A route is a class of its own, or the script asks what the worker takes.
    classes = ("main",) if desk.queue.model.routes_at_claim else ("main", "main@gpu")
    plain = replace(desk.claim_operation("a", classes=("main",)), worker=Attributes("a"))
    assert [job.lease.job for job in desk.run(plain).jobs] == [desk.ids["plain"]]
    gpu = replace(desk.claim_operation("b", classes=classes), worker=Attributes("b", routes=frozenset({"gpu"})))
    assert [job.lease.job for job in desk.run(gpu).jobs] == [desk.ids["gpu"]]


def test_rule_20_a_limit_of_a_name_bounds_what_is_in_hand(desk: ModelDesk) -> None:
    first, second = desk.set_limit("n:main", concurrency=2).leased("j1", "j2", "j3")
    assert desk.claim("b") == []
    assert len(desk.finished(first.lease).did(Release((second.lease,))).claim("b")) == 2
    desk.set_limit("n:main").set_limit("n:main", rate=1, per_ms=60_000).enqueue("j4", "j5")
    assert len(desk.claim("c")) == 1 and desk.claim("c") == [] and len(desk.tick(60_001).claim("c")) == 1


@only(FOREIGN)
def test_rule_20_a_sweep_frees_places_that_no_lease_holds(desk: ModelDesk) -> None:
    held = f"{desk.keys.prefix}held:n:main"
    desk.set_limit("n:main", concurrency=2).leased("j1")
    desk.redis.zadd(held, {"left": desk.now_ms})
    assert desk.swept().redis.zrange(held, 0, -1) == [b"j1"]


def test_rule_20_a_job_that_goes_back_unstarted_gives_its_place_in_the_window_back(desk: ModelDesk, spec: models.Spec) -> None:
    (given,) = desk.set_limit("n:main", rate=1, per_ms=60_000).leased("j1")
    again = desk.did(Release((given.lease,))).claim("b")
    # The window of Mosquito is that of its own workers, who count each claim.
    assert len(again) == (0 if isinstance(spec, models.Mosquito) else 1)
    for job in again:
        assert desk.did(Release((job.lease,), frozenset({job.lease}))).claim("b") == []
    assert len(desk.tick(60_001).claim("c")) == 1


@only(WITH_LISTS)
def test_a_second_entry_of_a_job_that_has_ended_runs_nothing(desk: ModelDesk, spec: models.Spec) -> None:
    for outcome, told in {"finished": (1, 0, 0), "buried": (0, 1, 0)}.items():
        desk.begin().enqueue("j1", attempts=1)
        line = waiting_of(spec, "desk")
        desk.redis.lpush(line, "j1")
        (job,) = desk.claim("a")
        assert desk.claim("b") == [], "one job is not run twice at once"
        assert desk.run(ENDS[outcome](job.lease)).items == (("ok", outcome),)
        assert desk.claim("b") == [] and not desk.redis.exists(line), "the entry is gone"
        counts = desk.queue.counts()
        assert (counts.finished, counts.buried, counts.active) == told


@only(FOREIGN)
def test_a_run_ends_although_nobody_can_read_its_job_any_more(desk: ModelDesk, spec: models.Spec) -> None:
    uncharged = {"uncharged": lambda lease: Retry((Failure(lease, "later", 500, charge=False),))}
    for outcome, end in {**ENDS, **uncharged}.items():
        lease, key = desk.begin().enqueue("j1", attempts=3).one().lease, key_of(spec, "desk", "j1")
        if desk.redis.type(key) == b"hash":
            desk.redis.hset(key, mapping={"opts": "{oops", "enqueue_time": "today"})
        else:
            desk.redis.set(key, "{oops")
        assert desk.run(end(lease)).items[0][0] == "ok" and desk.queue.counts().active == 0, outcome
        assert desk.tick(1_000).swept().claim("b") == []
        counts = desk.queue.counts()
        assert (counts.waiting, counts.delayed, counts.active) == (0, 0, 0), outcome


@only(FOREIGN)
def test_rule_06_fences_end_loudly_at_2_to_the_53(desk: ModelDesk) -> None:
    last = 2**53 - 1
    desk.enqueue("j1").run(Release((desk.claim()[0].lease,)))
    # As after so many claims.
    desk.redis.hset(desk.keys.run("j1"), "fence", last - 2)
    fences: list[int] = []
    for _ in range(2):
        (job,) = desk.claim()
        fences.append(job.lease.fence)
        desk.run(Release((job.lease,)))
    assert fences == [last - 1, last]
    reply = desk.enqueue("j2").run(desk.claim_operation())
    assert ([job.lease.job for job in reply.jobs], reply.corrupt) == (["j2"], ("j1",))


@only(FOREIGN)
def test_the_token_of_a_job_that_runs_again_does_not_expire(desk: ModelDesk) -> None:
    """What a failed run leaves is kept for a week; a handler that runs for longer would lose its token with it."""
    (first,) = desk.leased("j1", attempts=3)
    run = desk.keys.run(first.lease.job)
    assert desk.redis.pttl(run) == -1 and desk.did(Retry((Failure(first.lease, "no luck", 0),))).redis.pttl(run) > 0
    (second,) = desk.tick(1_000).swept().claim()
    assert desk.redis.pttl(run) == -1 and second.lease.fence > first.lease.fence


@only(FOREIGN)
def test_a_limit_of_a_key_is_refused_before_any_io(desk: ModelDesk) -> None:
    before = desk.dump()
    if desk.queue.model.name == "mosquito":
        # The format has rates of keys.
        desk.queue.set_limit(key="tenant", rate=1, per_ms=1000)
        assert desk.dump() != before
        return
    with pytest.raises(errors.UnsupportedFeature, match="has no limits of keys"):
        desk.queue.set_limit(key="tenant", concurrency=1)
    assert desk.dump() == before


@only(FOREIGN)
def test_a_refused_finish_takes_the_lease_along(desk: ModelDesk, spec: models.Spec) -> None:
    """A foreign client has taken the job over."""
    desk.queue.set_limit("main", concurrency=1)
    job = desk.put_and_claim("j")
    id = job.lease.job
    take_over(spec, desk.redis, "desk", id)
    assert desk.redis.zscore(desk.keys.active, id) is not None and desk.finish(job.lease) == [("stale", "")]
    assert desk.redis.zscore(desk.keys.active, id) is None and desk.redis.hget(desk.keys.run(id), "nonce") == b""
    assert desk.redis.keys(f"{desk.keys.prefix}held:*") == [] and desk.redis.pttl(desk.keys.run(id)) > 0
    assert desk.finish(job.lease) == [("stale", "")], "a copy"
    desk.tick(LEASE_MS + 1_000)
    assert [lease for lease, _ in desk.sweep().leases if lease.fence] == [], "no sweep tells of a worker that was lost"
