"""Rules 3 to 6: a repeat returns what the first one returned, a late copy runs nothing again, a token ends once."""

from dataclasses import replace
from typing import Any

import pytest

from engine.queue.producing import NewJob
from engine.queue.synchronous import Queue
from tests.engine.ops import AcquireLock, Call, Enqueue, EnqueueMany, Lease, Operation, Pause, PutSchedule
from tests.engine.using import LEASE_MS, START_MS, Bury, Claim, Desk, Failure, Finish, Release, Retry
from tests.scenes import scene


def test_rule_12_a_repeated_sweep_tells_again_which_leases_it_took(desk: Desk) -> None:
    """The reply that got lost was the only witness: without it a job that the sweep buried would be dead for no reason."""
    call = desk.call(scene("sweep: what kills its workers").begin(desk))
    first = desk.send(call)
    assert [lease.job for lease, _ in first.leases] == ["j1", "j2", "j3"]
    assert (first.buried, first.corrupt) == (("j1",), ("j2",))
    second = desk.tick(500).send(call)
    assert (second.leases, second.buried, second.corrupt) == (first.leases, first.buried, first.corrupt)


def test_a_sweep_that_is_older_than_the_last_one_of_its_worker_moves_nothing(desk: Desk) -> None:
    """Its rows would be nobody's: the worker has long had its answer."""
    late = desk.enqueue("j1", "j2").held(limit=1).call(desk.sweep_operation("v"))
    assert len(desk.past(5000).held("b").past(LEASE_MS - 5000).tick(1).run(desk.sweep_operation("v")).leases) == 1
    with desk.past(4999).tick(1).unchanged():
        assert desk.send(late).leases == ()
    assert desk.places("j2") == {"active"}
    assert [lease.job for lease, _ in desk.tick(1).sweep().leases] == ["j2"]


def test_rule_17_a_repeated_claim_names_the_corrupt_jobs_again(desk: Desk) -> None:
    call = desk.call(scene("claim: what nobody can read").begin(desk))
    first, second = desk.send(call), desk.send(call)
    assert (sorted(first.corrupt), [job.lease.job for job in first.jobs]) == (["j1", "j3"], ["j2"])
    assert (second.result, second.corrupt, second.jobs) == ("repeated", first.corrupt, first.jobs)


def test_rule_03_same_id_with_another_nonce_is_a_duplicate_with_state_and_fence(desk: Desk) -> None:
    def again() -> tuple[str, str, int]:
        reply = desk.run(desk.enqueue_operation("j1", nonce=b"another-"))
        return reply.result, reply.state, reply.fence

    desk.enqueue("j1", delay_ms=100)
    assert again() == ("duplicate", "delayed", 0)
    desk.later(101)
    assert again() == ("duplicate", "waiting", 0)
    job = desk.one()
    assert again() == ("duplicate", "active", job.lease.fence)
    desk.finish(job.lease)
    assert again() == ("duplicate", "finished", job.lease.fence)
    reply = desk.buried(desk.enqueue("j2").one().lease).run(desk.enqueue_operation("j2", nonce=b"another-"))
    assert (reply.result, reply.state) == ("duplicate", "dead")


def test_rule_03_a_drawn_id_is_an_identity_without_a_nonce_and_no_other_call_has_it(desk: Desk) -> None:
    def results(operation: Operation) -> list[str]:
        reply: Any = desk.run(operation)
        return [item.result for item in getattr(reply, "items", [reply])]

    drawn, given = desk.enqueue_operation("drawn", nonce=b""), desk.enqueue_operation("given")
    both, swapped = EnqueueMany((drawn, given)), EnqueueMany((replace(given, nonce=b""), replace(drawn, nonce=b"nonce---")))
    assert results(drawn) == ["created"] and results(both) == ["repeated", "created"]
    for _ in range(2):
        assert results(drawn) == results(given) == ["repeated"] and results(both) == ["repeated", "repeated"]
        assert results(replace(drawn, nonce=b"nonce---")) == ["duplicate"] and results(swapped) == ["duplicate", "duplicate"]
        # The same from the tombstones.
        desk.run(Finish(tuple(job.lease for job in desk.claim())))


def test_rule_03_only_an_id_that_the_queue_draws_goes_without_a_nonce(desk: Desk, ironclaim_url: str) -> None:
    with Queue("q", url=ironclaim_url) as queue:
        made = [queue.enqueue("main", {}).job, *(reply.job for reply in queue.enqueue_many([{"name": "main", "payload": {}}]))]
        given = [queue.enqueue("main", {}, id="a").job, queue.enqueue_many([NewJob("main", {}, id="b")])[0].job]
        raws: list[Any] = [desk.redis.get(queue.model.keys.job(job)) for job in (*made, *given)]
        assert given == ["a", "b"] and [len(job) for job in made] == [12, 12]
        assert [raw[0] for raw in raws] == [165, 165, 181, 181] and [raw[1] for raw in raws[2:]] == [64, 64]


def test_rule_03_in_a_bulk_each_job_is_looked_up_by_itself(desk: Desk) -> None:
    for job in desk.enqueue("waits").enqueue("ended", "dies", "runs", priority=9).claim(limit=3):
        if job.lease.job == "ended":
            desk.finish(job.lease)
        elif job.lease.job == "dies":
            desk.bury(job.lease)
    fence = int(desk.enqueue("late", delay_ms=500).run_hash("runs")["fence"])
    desk.run(desk.enqueue_many_operation("same", nonce=b"another-"))
    operation = desk.enqueue_many_operation("new", "waits", "ended", "dies", "runs", "late", "same", "newer", nonce=b"another-")
    found = {item.job: (item.result, item.state, item.fence) for item in desk.run(operation).items}
    assert found == {
        "new": ("created", "", 0), "waits": ("duplicate", "waiting", 0), "ended": ("duplicate", "finished", fence),
        "dies": ("duplicate", "dead", fence), "runs": ("duplicate", "active", fence), "late": ("duplicate", "delayed", 0),
        "same": ("repeated", "", 0), "newer": ("created", "", 0),
    }  # fmt: skip
    assert [job.lease.job for job in desk.claim("b")] == ["waits", "same", "new", "newer"]


def test_rule_03_of_a_bulk_that_comes_late_only_what_is_new_is_refused(desk: Desk) -> None:
    operation = desk.did(desk.enqueue_many_operation("a")).enqueue_many_operation("a", "b")
    with desk.tick(10_001).unchanged():
        assert [item.result for item in desk.send(desk.call(operation)).items] == ["repeated", "refused"]


def test_rule_03_a_copy_after_not_after_is_refused_and_writes_nothing(desk: Desk) -> None:
    call = desk.call(desk.enqueue_operation("j1"))
    assert desk.tick(10_000).send(call).result == "created"
    with desk.begin().tick(10_001).unchanged():
        assert desk.send(call).result == "refused"


def test_rule_03_a_tombstone_outlives_not_after_and_the_end_by_20_s(desk: Desk) -> None:
    (job,) = desk.leased("j1")
    assert desk.finished(job.lease).redis.pexpiretime(desk.keys.job("j1")) == START_MS + 10_000 + 20_000
    (job,) = desk.leased("j2")
    desk.tick(8_000).did(desk.extend_operation(job.lease)).tick(8_000).finish(job.lease)
    assert desk.redis.pexpiretime(desk.keys.job("j2")) == START_MS + 16_000 + 20_000


def test_rule_03_enqueue_starts_once_more_when_its_estimate_of_the_time_was_off(ironclaim_url: str) -> None:
    with Queue("late", url=ironclaim_url) as queue:
        queue.driver.server_now_ms()
        now_us = queue.driver.server_now_ms() * 1000
        queue.driver.clock.learn(now_us - 3_600_000_000, __import__("time").monotonic_ns())
        assert queue.enqueue("work", {}, id="j1").result == "created" and queue.counts().waiting == 1


def test_rule_04_a_lower_counter_leases_nothing_but_its_finish_half_is_answered(desk: Desk) -> None:
    old = desk.enqueue("j1", "j2").claim_operation(limit=1)
    (job,) = desk.run(old).jobs
    reply = desk.did(desk.claim_operation(limit=0 + 1)).enqueue("j3").run(Finish((job.lease,), old))
    assert reply.finished.items == (("ok", "finished"),)
    assert (reply.claimed.result, reply.claimed.jobs) == ("stale", ()) and desk.places("j3") == {"lane"}


def test_rule_04_a_claim_that_comes_too_late_is_void_and_leases_nothing(desk: Desk) -> None:
    claim = desk.enqueue("j1").claim_operation()
    assert desk.tick(LEASE_MS * 4 // 5 + 1).run(claim).result == "void" and desk.places("j1") == {"lane"}
    assert desk.run(desk.claim_operation()).result == "leased"


def test_rule_04_the_record_outlives_every_copy_of_its_claim(desk: Desk) -> None:
    claim = desk.claim_operation()
    assert desk.did(claim).redis.pexpiretime(desk.keys.claim(claim.incarnation)) == START_MS + 2 * LEASE_MS
    desk.tick(2 * LEASE_MS).enqueue("j1")
    # The record is gone, the late copy is void all the same.
    assert desk.run(claim).result == "void"


@pytest.mark.parametrize("end", ["finish", "retry", "bury", "release"])
def test_rule_05_a_repeat_of_an_end_tells_how_the_lease_ended_whatever_is_asked(desk: Desk, end: str) -> None:
    lease = desk.enqueue("j1").one().lease
    ends: dict[str, Operation] = {
        **{"finish": Finish((lease,)), "retry": Retry((Failure(lease, "boom", 0),))},
        **{"bury": Bury((Failure(lease, "no"),)), "release": Release((lease,))},
    }
    outcome = {"finish": "finished", "retry": "retried", "bury": "buried", "release": "released"}[end]
    assert desk.run(ends[end]).items == (("ok", outcome),)
    assert {desk.run(other).items for other in ends.values()} == {(("repeated", outcome),)}


@pytest.mark.feature("BQ20", "BL16")
def test_rule_05_a_token_that_was_reaped_can_do_nothing(desk: Desk) -> None:
    (job,) = desk.leased("j1")
    assert [lease for lease, _ in desk.tick(LEASE_MS + 1).sweep().leases] == [job.lease]
    zombie = job.lease
    with desk.unchanged():
        assert desk.finish(zombie) == [("stale", "")], "also while nobody else holds the job"
    again = desk.one("b")
    with desk.unchanged():
        ends = Finish((zombie,)), Retry((Failure(zombie, "boom", 0),)), Bury((Failure(zombie, "no"),)), Release((zombie,))
        assert {desk.run(each).items[0][0] for each in (*ends, desk.extend_operation(zombie))} == {"stale"}
    assert desk.finish(again.lease) == [("ok", "finished")] and desk.finish(zombie) == [("stale", "")]


def test_rule_05_an_older_token_keeps_its_own_outcome_when_a_newer_one_is_reaped(desk: Desk) -> None:
    (job,) = desk.leased("j1")
    assert desk.released(job.lease).held("b").swept(LEASE_MS + 1).run(Release((job.lease,))).items == (("repeated", "released"),)


def test_rule_05_rows_of_a_batch_are_judged_one_by_one(desk: Desk) -> None:
    first, second, third = (job.lease for job in desk.leased("j1", "j2", "j3"))
    items = desk.finished(second).finish(first, second, Lease(third.job, third.fence + 1, third.nonce), third, third)
    assert items == [("ok", "finished"), ("repeated", "finished"), ("stale", ""), ("ok", "finished"), ("repeated", "finished")]


def test_rule_06_the_fence_is_the_greater_of_the_last_one_plus_1_and_the_servers_time(desk: Desk) -> None:
    desk.enqueue("j1")
    fences: list[int] = []
    for _ in range(3):
        job = desk.one()
        fences.append(job.lease.fence)
        desk.release(job.lease)
    # Three claims in one millisecond.
    assert fences == [START_MS, START_MS + 1, START_MS + 2]
    assert desk.tick(5_000).one().lease.fence == START_MS + 5_000


def test_rule_06_fences_end_loudly_at_2_to_the_53(desk: Desk) -> None:
    last = 2**53 - 1
    (job,) = desk.leased("j1", unique="key", error_ttl_ms=3_600_000)
    desk.release(job.lease)
    # As after so many claims.
    run: Any = desk.redis.get(desk.keys.run("j1"))
    desk.redis.set(desk.keys.run("j1"), run.replace(b"%d" % job.lease.fence, b"%d" % (last - 2), 1))
    fences: list[int] = []
    for _ in range(2):
        job = desk.one()
        fences.append(job.lease.fence)
        desk.release(job.lease)
    assert fences == [last - 1, last]
    reply = desk.enqueue("j2").run(desk.claim_operation())
    assert ([job.lease.job for job in reply.jobs], reply.corrupt) == (["j2"], ("j1",))
    assert desk.places("j1") == {"dead"}
    assert b"fences exhausted at 2^53" in desk.redis.get(desk.keys.run("j1"))
    ends_ms: Any = desk.redis.pexpiretime(desk.keys.result("j1"))
    assert ends_ms - desk.now_ms == 3_600_000, "its error is kept for as long as it asks"
    assert desk.run(desk.enqueue_operation("j3", unique="key")).result == "created", "its unique key comes free"


def test_rule_06_claims_failures_and_crashes_are_three_counters(desk: Desk) -> None:
    job = desk.released(desk.enqueue("j1", attempts=5).one().lease).one()
    assert (job.claims, job.failures, job.crashes) == (2, 0, 0)
    job = desk.retried(job.lease, delay_ms=0).swept().one()
    assert (job.claims, job.failures, job.crashes) == (3, 1, 0)
    job = desk.past(LEASE_MS + 1).one()
    assert (job.claims, job.failures, job.crashes) == (4, 1, 1)


@pytest.mark.feature("BQ20", "BL16")
def test_rule_06_equal_fences_with_another_nonce_are_another_token(desk: Desk) -> None:
    assert desk.finish(Lease("j1", desk.enqueue("j1").one().lease.fence, "f" * 16 + ":1")) == [("stale", "")]
    assert desk.places("j1") == {"active"}


@pytest.mark.feature("BQ21", "BL17")
def test_rule_09_a_renewal_in_time_arms_a_whole_lease_and_only_once(desk: Desk) -> None:
    (job,) = desk.leased("j1")
    extend = desk.tick(3_000).extend_operation(job.lease, renewal=7)
    assert desk.run(extend).items == (("ok", START_MS + 3_000 + LEASE_MS),)
    assert desk.tick(1_000).run(extend).items == (("repeated", START_MS + 3_000 + LEASE_MS),)
    # The counter belongs to the lease: another worker's first renewal counts, however low its number.
    again = desk.swept(LEASE_MS + 1).one("b")
    assert desk.run(desk.extend_operation(again.lease, renewal=1)).items[0][0] == "ok"


def test_rule_11_finish_and_extend_accept_a_token_that_is_late_but_not_reaped(desk: Desk) -> None:
    first, second = (job.lease for job in desk.leased("j1", "j2"))
    assert desk.tick(10 * LEASE_MS).finish(first) == [("ok", "finished")]
    assert desk.run(desk.extend_operation(second)).items[0][0] == "ok"


def test_a_claim_repeats_after_an_answer_that_leased_nothing(desk: Desk) -> None:
    claim: Claim = desk.claim_operation()
    assert desk.run(claim).result == "empty"
    assert (desk.enqueue("j1").run(claim).result, desk.places("j1")) == ("repeated", {"lane"})


@pytest.mark.parametrize("bulk", [False, True])
def test_rule_03_who_was_told_of_an_ended_job_is_told_so_by_a_late_copy_as_well(desk: Desk, bulk: bool) -> None:
    """The tombstone outlives the copies of every call that it has answered, not only those of the call that made the job."""
    ends_ms: Any = desk.enqueue("j1").finished(*(job.lease for job in desk.claim())).redis.pexpiretime(desk.keys.job("j1"))
    desk.tick(ends_ms - desk.now_ms - 1)
    other = desk.enqueue_many_operation("j1", nonce=b"another-") if bulk else desk.enqueue_operation("j1", nonce=b"another-")
    call = desk.call(other)
    assert results_of(desk.send(call)) == ["duplicate"]
    desk.tick(9_000)
    assert desk.now_ms > ends_ms and results_of(desk.send(call)) == ["duplicate"]
    assert desk.places("j1") == {"ended"}


def results_of(reply: Any) -> list[str]:
    return [item.result for item in getattr(reply, "items", None) or [reply]]


@pytest.mark.parametrize(("kind", "does"), [
    (Pause, lambda queue: queue.pause("work")), (PutSchedule, lambda queue: queue.schedules.put("s", "work", every_ms=3_600_000)),
    (AcquireLock, lambda queue: queue.locks.acquire("nightly")), (Enqueue, lambda queue: queue.enqueue("work", None, id="a")),
])  # fmt: skip
def test_rules_03_and_07_what_came_late_leaves_again_with_its_identity_and_a_new_deadline(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, kind: type[Any], does: Any
) -> None:
    """The clock of the server seemed to be a minute behind when it left first."""
    queue.counts()
    real, send, left = queue.driver.not_after_ms, queue.driver.send, list[tuple[int, Any]]()
    void_ms = [real() - 60_000]

    def sends(call: Call[Any], *rest: Any, **more: Any) -> Any:
        operation: Any = call.operation
        if isinstance(operation, kind):
            identity = [getattr(operation, name, "") for name in ("op_id", "token", "job", "nonce")]
            left.append((operation.not_after_ms, identity))
        return send(call, *rest, **more)

    monkeypatch.setattr(queue.driver, "send", sends)
    monkeypatch.setattr(queue.driver, "not_after_ms", lambda: void_ms.pop() if void_ms else real())
    does(queue)
    assert [late < real() - 30_000 for late, _ in left] == [True, False] and left[0][1] == left[1][1]
