"""Runs of jobs and their ends: one holder, one end, another run after a failure, and dead in the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.routing import Attributes
from engine.wire.operations import Bury, Drop, Extend, Failure, LeasedJob, Release
from tests.conformance.declared import accepts, attempts
from tests.conformance.desk import ModelDesk
from tests.engine.desk import LEASE_MS


def fail_until_dead(desk: ModelDesk, label: str) -> int:
    """Let each run of the job fail; how many there were."""
    for run in range(1, 100):
        job = desk.take(limit=1)[label]
        assert job.failures == run - 1
        result, outcome = desk.retry(job.lease, delay_ms=0, error=f"run {run}")
        assert result == "ok"
        if outcome == "buried":
            return run
        desk.tick(1_000)
        desk.sweep()
    raise AssertionError("it never died")


def test_a_job_has_one_holder_and_finishes_once(desk: ModelDesk) -> None:
    desk.put("j")
    (job,) = desk.claim("a")
    assert (job.name, job.deadline_ms, job.claims) == ("main", desk.now_ms + LEASE_MS, 1)
    assert desk.claim("b") == [] and desk.state("j") == "active"
    assert desk.finish(job.lease) == [("ok", "finished")]
    before = desk.dump()
    assert desk.finish(job.lease) == [("repeated", "finished")]
    assert desk.retry(job.lease) == ("repeated", "finished")
    assert desk.dump() == before
    assert desk.queue.counts().active == 0 and desk.queue.counts().finished == 1


def test_rule_04_a_claim_that_is_sent_again_leases_the_same_jobs(desk: ModelDesk) -> None:
    desk.put("a", "b", "c")
    call = desk.call(desk.claim_operation(limit=2))
    first, again = desk.send(call), desk.send(call)
    assert [job.lease for job in again.jobs] == [job.lease for job in first.jobs] and again.result == "repeated"
    desk.finish(first.jobs[0].lease)
    assert [job.lease for job in desk.send(call).jobs] == [first.jobs[1].lease]
    desk.tick(LEASE_MS)
    desk.put("d")
    late = desk.call(replace(desk.claim_operation("z"), not_after_ms=desk.now_ms - 1))
    assert (desk.send(late).result, desk.send(late).jobs) == ("void", ())


def test_a_failed_run_is_followed_by_another_after_its_wait(desk: ModelDesk) -> None:
    desk.put("j", **attempts(desk.queue, 3))
    (job,) = desk.claim()
    assert desk.retry(job.lease, delay_ms=3_000, error="no luck") == ("ok", "retried")
    assert desk.retry(job.lease, delay_ms=3_000) == ("repeated", "retried")
    assert desk.state("j") == "delayed" and desk.info("j").last_error == "no luck"
    desk.tick(2_000)
    desk.sweep()
    assert desk.claim() == []
    desk.tick(1_000)
    (again,) = desk.claim()
    assert (again.failures, again.claims) == (1, 2) and again.lease.fence > job.lease.fence
    # Its end is remembered: the late finish is told that, or that the token is not worth anything any more.
    assert desk.finish(job.lease)[0] in (("repeated", "retried"), ("stale", ""))
    assert desk.finish(again.lease) == [("ok", "finished")]


def test_a_job_is_dead_when_its_runs_are_used_up_and_may_run_again(desk: ModelDesk) -> None:
    desk.put("j", **attempts(desk.queue, 2))
    (job,) = desk.claim()
    runs = job.options.attempts
    desk.run(Release((job.lease,)))
    assert fail_until_dead(desk, "j") == runs >= 1
    assert desk.state("j") == "dead" and desk.queue.counts().dead == 1 and desk.queue.counts().buried == 1
    (dead,) = desk.queue.dead.list()
    assert dead.id == desk.ids["j"] and f"run {runs}" in dead.last_error
    assert desk.queue.dead.requeue(desk.ids["j"]).done
    assert desk.state("j") == "waiting" and desk.queue.counts().dead == 0
    job = desk.take()["j"]
    assert desk.finish(job.lease) == [("ok", "finished")] and desk.state("j") in ("finished", "gone")


def test_a_job_that_must_not_run_again_is_buried_at_once(desk: ModelDesk) -> None:
    desk.put("j")
    (job,) = desk.claim()
    assert desk.run(Bury((Failure(job.lease, "never"),))).items == (("ok", "buried"),)
    assert desk.run(Bury((Failure(job.lease, "never"),))).items == (("repeated", "buried"),)
    assert desk.state("j") == "dead" and "never" in desk.queue.dead.list()[0].last_error


@pytest.mark.parametrize("outcome", ["discarded", "skipped", "rerouted"])
def test_a_job_may_end_without_its_work(desk: ModelDesk, outcome: str) -> None:
    desk.put("j")
    (job,) = desk.claim()
    drop = Drop((job.lease,), (outcome,))  # type: ignore[arg-type]
    assert desk.run(drop).items == (("ok", outcome),) and desk.run(drop).items == (("repeated", outcome),)
    assert desk.state("j") == outcome
    # For those who wait for it a skipped job counts as finished.
    assert not any(labels for state, labels in desk.listed().items() if state != "done")


def test_a_lease_that_is_given_back_costs_nothing(desk: ModelDesk) -> None:
    desk.put("a", "b")
    (job,) = desk.claim(limit=1)
    assert desk.run(Release((job.lease,))).items == (("ok", "released"),)
    assert desk.run(Release((job.lease,))).items == (("repeated", "released"),)
    again = desk.take()
    assert set(again) == {"a", "b"} and (again["a"].failures, again["a"].crashes) == (0, 0)
    assert desk.finish(job.lease)[0] in (("repeated", "released"), ("stale", ""))
    assert desk.finish(again["a"].lease) == [("ok", "finished")]


def lose(desk: ModelDesk, worker: str = "a") -> LeasedJob:
    """Claim one job, and sweep until its lease has ended."""
    (job,) = desk.claim(worker)
    assert [lease for lease, _ in desk.sweep_past(LEASE_MS + 1)] == [job.lease]
    return job


def test_a_lease_that_ends_is_taken_and_its_late_finish_refused(desk: ModelDesk) -> None:
    desk.put("j")
    job = lose(desk)
    assert desk.state("j") == "waiting"
    assert desk.finish(job.lease) == [("stale", "")] and desk.retry(job.lease) == ("stale", "")
    (again,) = desk.claim("b")
    assert again.lease.fence > job.lease.fence and again.claims == 2
    assert desk.finish(again.lease) == [("ok", "finished")]
    assert desk.queue.counts().active == 0


def test_rule_11_a_lease_that_nobody_has_taken_yet_still_ends_well(desk: ModelDesk) -> None:
    desk.put("j")
    (job,) = desk.claim()
    desk.tick(3 * LEASE_MS)
    assert desk.state("j") == "stuck"
    assert desk.finish(job.lease) == [("ok", "finished")]


def test_rule_09_a_lease_is_renewed(desk: ModelDesk) -> None:
    desk.put("j")
    (job,) = desk.claim()
    for renewal in range(1, 6):
        desk.tick(LEASE_MS // 3)
        extended = desk.run(desk.extend_operation(job.lease, renewal=renewal))
        assert extended.items == (("ok", desk.now_ms + LEASE_MS),)
        assert desk.sweep().leases == ()
    late = Extend((job.lease,), 9, LEASE_MS, desk.now_ms - 1)
    assert desk.run(late).items[0][0] in ("void", "stale")
    assert desk.finish(job.lease) == [("ok", "finished")]


def test_rule_12_a_job_that_takes_its_workers_along_is_dead_in_the_end(desk: ModelDesk) -> None:
    desk.put("poison")
    for crashes in range(1, 20):
        (job,) = desk.claim("a")
        desk.mark(job.lease)
        desk.sweep_past(LEASE_MS + 1)
        if desk.state("poison") == "dead":
            assert crashes >= 2
            return
        assert desk.state("poison") == "waiting"
    raise AssertionError("it never died")


def test_a_worker_takes_only_jobs_that_it_has_handlers_for(desk: ModelDesk) -> None:
    desk.put("other", name="other")
    desk.put("mine")
    assert list(desk.take()) == ["mine"]
    assert list(desk.take(classes=("other",))) == ["other"]


def test_a_job_with_a_route_waits_for_a_worker_that_takes_it(desk: ModelDesk) -> None:
    if not accepts(desk.queue, route="gpu"):
        return
    desk.put("gpu", route="gpu")
    desk.put("plain")
    # A route is a class of its own, or the script asks what the worker takes.
    classes = ("main",) if desk.queue.model.routes_at_claim else ("main", "main@gpu")
    plain = replace(desk.claim_operation("a", classes=("main",)), worker=Attributes("a"))
    assert [job.lease.job for job in desk.run(plain).jobs] == [desk.ids["plain"]]
    gpu = replace(desk.claim_operation("b", classes=classes), worker=Attributes("b", routes=frozenset({"gpu"})))
    assert [job.lease.job for job in desk.run(gpu).jobs] == [desk.ids["gpu"]]


def test_a_limit_holds(desk: ModelDesk) -> None:
    desk.put("a", "b")
    desk.set_limit("n:main", concurrency=1)
    (job,) = desk.claim("a")
    assert desk.claim("b") == []
    desk.finish(job.lease)
    assert len(desk.claim("b")) == 1
