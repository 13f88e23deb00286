"""The life of a job on a foreign keyspace: what each call does once, and what another copy of it is told (rules 3 to 6)."""

from __future__ import annotations

import pytest

from engine.errors import UnsupportedFeature
from engine.wire.operations import Bury, Count, Drop, Failure, Finish, Lease, Release, Retry
from tests.engine.desk import LEASE_MS
from tests.engine.models.foreign_desk import ForeignDesk, desk

__all__ = ["desk"]


def test_rule_03_an_enqueue_sent_again_is_repeated_and_another_one_is_a_duplicate(desk: ForeignDesk) -> None:
    one = desk.call(desk.enqueue_operation("j1"))
    assert (desk.send(one).result, desk.send(one).result) == ("created", "repeated")
    other = desk.run(desk.enqueue_operation("j1", nonce=b"another-"))
    assert (other.result, other.state, other.holder) == ("duplicate", "waiting", "j1")
    many = desk.call(desk.enqueue_many_operation("j1", "j2", "j3", delays_ms=(0, 500), nonce=b"many----"))
    assert [item.result for item in desk.send(many).items] == ["duplicate", "created", "created"]
    before = desk.dump()
    assert [item.result for item in desk.send(many).items] == ["duplicate", "repeated", "repeated"]
    assert desk.dump() == before
    assert desk.names(desk.claim()) == ["j1", "j3"]


def test_rule_03_a_late_copy_of_an_enqueue_runs_no_job_again(desk: ForeignDesk) -> None:
    call = desk.call(desk.enqueue_operation("j1"))
    assert desk.send(call).result == "created"
    (job,) = desk.claim()
    assert desk.finish(job.lease) == [("ok", "finished")]
    assert desk.send(call).result == "repeated"
    desk.tick(40_000)
    assert desk.send(call).result in ("refused", "duplicate")
    assert desk.claim() == []


@pytest.mark.parametrize("jobs", [("j1",), ("j1", "j2")])
def test_rule_03_a_duplicate_stays_one_when_the_other_job_is_not_known_any_more(desk: ForeignDesk, jobs: tuple[str, ...]) -> None:
    desk.enqueue(*jobs)
    for job in desk.claim():
        desk.finish(job.lease)
    call = desk.call(desk.enqueue_many_operation(*jobs, nonce=b"another-"))
    assert {item.result for item in desk.send(call).items} == {"duplicate"}
    # As when their time is over: nothing is left but what the engine has noted of the second call.
    kept = {desk.keys.sweep.encode(), *desk.redis.scan_iter(f"*new:{b'another-'.hex()}*")}
    desk.redis.delete(*(set(desk.redis.scan_iter()) - kept))
    assert {item.result for item in desk.send(call).items} == {"duplicate"}
    assert desk.claim() == []
    # Another call may use the ids.
    assert {item.result for item in desk.run(desk.enqueue_many_operation(*jobs, nonce=b"a third-")).items} == {"created"}


def test_rule_04_a_claim_sent_again_returns_what_it_leased(desk: ForeignDesk) -> None:
    desk.enqueue("j1", "j2")
    call = desk.call(desk.claim_operation(limit=1))
    first = desk.send(call)
    again = desk.send(call)
    assert (first.result, again.result, first.jobs) == ("leased", "repeated", again.jobs)
    (second,) = desk.claim()
    assert desk.send(call).result == "stale" and desk.send(call).jobs == ()
    late = desk.call(desk.claim_operation("b"))
    desk.tick(8_000)
    assert desk.send(late).result == "void"
    assert {desk.names(list(first.jobs))[0], second.lease.job} == {"j1", "j2"}


def test_rule_06_fences_end_loudly_at_2_to_the_53(desk: ForeignDesk) -> None:
    last = 2**53 - 1
    desk.enqueue("j1")
    (job,) = desk.claim()
    desk.release(job)
    # As after so many claims.
    desk.redis.hset(desk.keys.run("j1"), "fence", last - 2)
    fences: list[int] = []
    for _ in range(2):
        (job,) = desk.claim()
        fences.append(job.lease.fence)
        desk.release(job)
    assert fences == [last - 1, last]
    desk.enqueue("j2")
    reply = desk.run(desk.claim_operation())
    assert ([job.lease.job for job in reply.jobs], reply.corrupt) == (["j2"], ("j1",))


ENDS = {
    "finish": (lambda lease: Finish((lease,)), "finished"),
    "release": (lambda lease: Release((lease,)), "released"),
    "retry": (lambda lease: Retry((Failure(lease, "boom", 500),)), "retried"),
    "bury": (lambda lease: Bury((Failure(lease, "boom"),)), "buried"),
    "drop": (lambda lease: Drop((lease,), ("discarded",)), "discarded"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_rule_05_a_lease_ends_once_and_a_repeat_is_told_how(desk: ForeignDesk, kind: str) -> None:
    desk.enqueue("j1")
    (job,) = desk.claim()
    operation, outcome = ENDS[kind][0](job.lease), ENDS[kind][1]
    assert desk.run(operation).items == (("ok", outcome),)
    before = desk.dump()
    assert desk.run(operation).items == (("repeated", outcome),)
    assert desk.dump() == before
    stranger = Lease("j1", job.lease.fence + 1, "b" * 16 + ":1")
    assert desk.run(ENDS[kind][0](stranger)).items == (("stale", ""),)
    assert desk.run(desk.extend_operation(job.lease)).items == (("stale", 0),)
    assert desk.mark(job.lease) == "stale"


def test_rule_06_the_fence_of_each_lease_is_greater_and_the_old_token_is_void(desk: ForeignDesk) -> None:
    desk.enqueue("j1")
    (first,) = desk.claim("a")
    assert desk.release(first) == [("ok", "released")]
    (second,) = desk.claim("b")
    assert second.lease.fence > first.lease.fence and (second.claims, second.failures, second.crashes) == (2, 0, 0)
    assert desk.finish(first.lease) == [("repeated", "released")]
    assert desk.finish(second.lease) == [("ok", "finished")]


def test_a_zombie_s_finish_is_refused_after_its_lease_was_reaped(desk: ForeignDesk) -> None:
    desk.enqueue("j1")
    (zombie,) = desk.claim("a")
    ((lease, crashes),) = desk.sweep_past(9_001)
    assert (lease, crashes) == (zombie.lease, 1)
    (other,) = desk.claim("b")
    assert desk.finish(zombie.lease) == [("stale", "")] and other.crashes == 1
    assert desk.finish(other.lease) == [("ok", "finished")]


def test_released_jobs_go_back_to_the_head_in_their_order(desk: ForeignDesk) -> None:
    desk.enqueue("j1", "j2", "j3", "j4")
    jobs = desk.claim(limit=3)
    desk.release(*jobs)
    assert desk.names(desk.claim("b")) == ["j1", "j2", "j3", "j4"]


def test_a_retry_waits_for_its_back_off_and_the_last_one_buries(desk: ForeignDesk) -> None:
    desk.enqueue("j1", attempts=2)
    (job,) = desk.claim()
    assert desk.retry(job.lease, 2_000) == ("ok", "retried")
    assert desk.claim() == []
    desk.tick(2_001)
    (job,) = desk.claim()
    assert (job.failures, job.due_ms >= 0) == (1, True)
    assert desk.retry(job.lease, 2_000) == ("ok", "buried")
    desk.tick(10_000)
    assert desk.claim() == []


def test_the_token_of_a_job_that_runs_again_does_not_expire(desk: ForeignDesk) -> None:
    """What a failed run leaves is kept for a week; a handler that runs for longer would lose its token with it."""
    desk.enqueue("j1", attempts=3)
    (first,) = desk.claim()
    run = desk.keys.run(first.lease.job)
    assert desk.redis.pttl(run) == -1
    desk.run(Retry((Failure(first.lease, "no luck", 0),)))
    assert desk.redis.pttl(run) > 0
    desk.tick(1_000)
    desk.sweep()
    (second,) = desk.claim()
    assert desk.redis.pttl(run) == -1 and second.lease.fence > first.lease.fence


def test_rule_20_a_limit_of_a_name_bounds_what_is_in_hand(desk: ForeignDesk) -> None:
    desk.set_limit("n:main", concurrency=2)
    desk.enqueue("j1", "j2", "j3")
    first, second = desk.claim()
    assert desk.claim("b") == []
    desk.finish(first.lease)
    desk.release(second)
    assert len(desk.claim("b")) == 2
    desk.set_limit("n:main")
    desk.set_limit("n:main", rate=1, per_ms=60_000)
    desk.enqueue("j4", "j5")
    assert len(desk.claim("c")) == 1 and desk.claim("c") == []
    desk.tick(60_001)
    assert len(desk.claim("c")) == 1


def test_a_limit_of_a_key_is_refused_before_any_io(desk: ForeignDesk) -> None:
    before = desk.dump()
    if desk.model.name == "mosquito":
        # The format has rates of keys.
        desk.queue.set_limit(key="tenant", rate=1, per_ms=1000)
        assert desk.dump() != before
        return
    with pytest.raises(UnsupportedFeature, match="has no limits of keys"):
        desk.queue.set_limit(key="tenant", concurrency=1)
    assert desk.dump() == before


def test_rule_09_a_late_renewal_arms_nothing_and_one_that_was_applied_is_not_applied_again(desk: ForeignDesk) -> None:
    desk.enqueue("j1")
    (job,) = desk.claim()
    late, again = desk.call(desk.extend_operation(job.lease)), desk.call(desk.extend_operation(job.lease, renewal=2))
    desk.tick(1_000)
    assert desk.send(again).items == (("ok", desk.now_ms + LEASE_MS),)
    desk.tick(1_000)
    assert desk.send(again).items == (("repeated", desk.now_ms - 1_000 + LEASE_MS),)
    assert desk.send(late).items[0][0] == "repeated"
    third = desk.call(desk.extend_operation(job.lease, renewal=3))
    desk.tick(3_500)
    before = desk.dump()
    assert desk.send(third).items[0][0] == "void" and desk.dump() == before


def test_rule_10_a_clock_that_steps_back_holds_no_lease_longer_than_one(desk: ForeignDesk) -> None:
    desk.enqueue("j1")
    (job,) = desk.claim()
    desk.sweep()
    desk.tick(-900_000)
    desk.sweep()
    assert desk.redis.zscore(desk.keys.active, "j1") == desk.now_ms + LEASE_MS
    assert [lease for lease, _ in desk.sweep_past(LEASE_MS + 1)] == [job.lease]
    assert desk.names(desk.claim("b")) == ["j1"]


def test_rule_12_the_first_crash_is_free_and_the_third_that_was_marked_buries(desk: ForeignDesk) -> None:
    desk.enqueue("j1")
    crashes = [desk.crash("j1", mark=mark)[1] for mark in (False, False, True)]
    assert crashes == [1, 1, 2]
    (job,) = desk.claim()
    assert (desk.mark(job.lease), desk.mark(job.lease)) == ("ok", "repeated")
    desk.sweep_past(LEASE_MS + 1)
    assert desk.claim("b") == [] and desk.run(Count()).dead == 1


def test_a_fused_call_ends_and_claims_and_is_repeated_whole(desk: ForeignDesk) -> None:
    desk.enqueue("j1", "j2")
    (first,) = desk.claim(limit=1)
    call = desk.call(Finish((first.lease,), desk.claim_operation(limit=1)))
    reply = desk.send(call)
    assert (reply.finished.items, desk.names(list(reply.claimed.jobs))) == ((("ok", "finished"),), ["j2"])
    again = desk.send(call)
    assert (again.finished.items, again.claimed.result) == ((("repeated", "finished"),), "repeated")
    assert again.claimed.jobs == reply.claimed.jobs


def test_a_job_that_is_promoted_twice_is_there_once(desk: ForeignDesk) -> None:
    desk.enqueue("j1", "j2", delay_ms=500)
    assert desk.claim() == []
    desk.tick(2_000)
    call = desk.call(desk.sweep_operation())
    assert desk.send(call).promoted == desk.send(call).promoted == 2
    assert desk.sweep().promoted == 0
    assert sorted(desk.names(desk.claim())) == ["j1", "j2"]


def test_a_queue_of_which_nothing_is_ours_works_from_the_first_claim(desk: ForeignDesk) -> None:
    desk.enqueue("j1", "j2")
    desk.enqueue("j3", delay_ms=500)
    for key in desk.redis.scan_iter("*ironclaim:*"):
        if not key.endswith((b":sweep", b":routes")):
            desk.redis.delete(key)
    desk.tick(2_000)
    jobs = desk.claim()
    assert sorted(desk.names(jobs)) == ["j1", "j2", "j3"]
    assert set(desk.finish(*[job.lease for job in jobs])) == {("ok", "finished")}


def _waiting_list(desk: ForeignDesk) -> str:
    """The list in which the one job waits."""
    (line,) = [key for key, (kind, *_) in desk.wire_dump().items() if kind == "list"]
    return line


@pytest.mark.parametrize("end", ["finish", "bury"])
def test_a_second_entry_of_a_job_that_has_ended_runs_nothing(desk: ForeignDesk, end: str) -> None:
    desk.enqueue("j1", attempts=1)
    if desk.model.name == "mosquito":
        # A sorted set has no second entry; and a hash that has a second to live tells nothing of who ended the job.
        assert desk.names(desk.claim("a")) == ["j1"] and desk.claim("b") == []
        return
    line = _waiting_list(desk)
    desk.redis.lpush(line, "j1")
    (job,) = desk.claim("a")
    assert desk.claim("b") == [], "one job is not run twice at once"
    assert desk.run(ENDS[end][0](job.lease)).items == (("ok", ENDS[end][1]),)
    assert desk.claim("b") == [] and not desk.redis.exists(line), "the entry is gone"
    counts = desk.queue.counts()
    assert (counts.finished, counts.buried, counts.active) == ((1, 0, 0) if end == "finish" else (0, 1, 0))
