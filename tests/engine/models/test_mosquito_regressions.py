"""Mosquito's known defects, each with a number of its own, and what foreign programs may have written: none of it loses, doubles
or stops anything here."""

import re
from dataclasses import replace

import pytest

from engine import Queue, ScriptFault, models
from engine.models import Layout
from engine.models.foreign.mosquito import FINDINGS
from engine.worker.machine.sweeping import tick
from tests.engine.models.crystal import Crystal
from tests.engine.models.mosquito_desk import KIND, A, MosquitoDesk
from tests.engine.models.mosquito_desk import desk as desk
from tests.engine.using import LEASE_MS, Bury, EnqueueMany, Failure, Finish, Retry

OTHER: dict[Layout, Layout] = {"live": "document", "document": "live"}


def waits(failures: int) -> int:
    return 2000 * failures * failures


# -- 5.3


def test_5_3_1_a_keyspace_of_the_other_layout_is_refused_and_named(desk: MosquitoDesk, ironclaim_url: str) -> None:
    for which in ("waiting", "pending", "dead"):
        there = Crystal(ironclaim_url, "other", OTHER[desk.layout])
        there.push(getattr(there.keys, which), "1:2")
        before = {key: there.redis.dump(key) for key in there.redis.scan_iter("mosquito:*other*")}
        wrong = pytest.raises(Exception, match=f"WRONGTYPE .*{which}:other.*{OTHER[desk.layout]}")
        with Queue("other", models.Mosquito(layout=desk.layout), url=ironclaim_url) as queue, wrong:
            queue.enqueue(KIND, {})
        assert {key: there.redis.dump(key) for key in there.redis.scan_iter("mosquito:*other*")} == before
        there.redis.delete(getattr(there.keys, which))
        there.close()


def test_5_3_1_an_empty_queue_of_a_keyspace_of_the_other_layout_is_refused(desk: MosquitoDesk, ironclaim_url: str) -> None:
    there = Crystal(ironclaim_url, "other", OTHER[desk.layout])
    there.enqueue(KIND)
    before = desk.wire()
    wrong = pytest.raises(ScriptFault, match=f"given as {desk.layout}, but '{OTHER[desk.layout]}' .* mosquito:waiting:other")
    with Queue("empty", models.Mosquito(layout=desk.layout), url=ironclaim_url) as queue, wrong:
        queue.enqueue(KIND, {})
    assert desk.wire() == before
    there.close()
    with Queue("empty", models.Mosquito(layout=OTHER[desk.layout]), url=ironclaim_url) as queue:
        assert queue.enqueue(KIND, {}).result == "created"


@pytest.mark.parametrize("name", ["runners", "coordinator:football", "coordinator:leadership_lock"])
def test_5_3_1_a_keyspace_without_jobs_of_original_programs_has_lists(desk: MosquitoDesk, name: str, ironclaim_url: str) -> None:
    desk.redis.set(f"mosquito:{name}", "c0ffee00")
    if desk.layout == "live":
        assert desk.add() in desk.entries("waiting")
        return
    with pytest.raises(ScriptFault, match=f"given as document, but 'live' .* mosquito:{name}"):
        desk.add()
    assert list(desk.wire()) == [f"mosquito:{name}"]


def test_5_3_1_the_coordinator_of_an_engine_is_not_taken_for_an_original_one(ironclaim_url: str) -> None:
    leads = MosquitoDesk(ironclaim_url, "document", coordinate=True)
    leads.beat("a")
    assert leads.redis.exists(leads.there.football, leads.there.leadership) == 2
    with Queue("empty", models.Mosquito(), url=ironclaim_url) as queue:
        assert queue.enqueue(KIND, {}).result == "created"
    assert leads.redis.type("mosquito:waiting:empty") == b"zset"
    leads.close()


@pytest.mark.feature("MQ11", "MQ14", model="mosquito")
def test_5_3_2_no_id_in_the_hash_and_waits_by_the_square_of_the_failures(desk: MosquitoDesk) -> None:
    id = desk.add()
    assert list(desk.theirs.fields(id)) == ["n", "enqueue_time", "type", "retry_count"]
    for failures in (1, 2, 3, 4):
        (job,) = desk.take()
        found = job.options
        assert (job.failures, found.attempts, found.backoff, found.backoff_ms) == (failures - 1, 5, "geometric", 2000)
        assert desk.retry(job.lease, waits(failures)) == ("ok", "retried")
        assert desk.theirs.fields(id)["retry_count"] == str(failures)
        assert desk.redis.zscore(desk.there.scheduled, id) == desk.now_ms + waits(failures) and desk.entries("pending") == []
        desk.tick(waits(failures))
    assert desk.retry(desk.one().lease, waits(5)) == ("ok", "buried")
    assert desk.entries("dead") == [id] and desk.entries("scheduled") == [] and desk.theirs.fields(id)["retry_count"] == "5"
    assert 86_000 < desk.redis.ttl(desk.there.run(id)) <= 86_400 and desk.redis.ttl(desk.there.dead) == -1


@pytest.mark.feature("MQ15", model="mosquito")
def test_5_3_3_entries_of_the_dead_whose_hash_has_expired_are_let_go(desk: MosquitoDesk) -> None:
    for id in ["1:1", "1:2", "1:3"]:
        desk.theirs.push(desk.there.dead, id)
    kept = desk.theirs.store(KIND)
    desk.theirs.push(desk.there.dead, kept)
    desk.tick(10)
    for nonce in (1, 2):
        desk.add(nonce)
        assert desk.run(Bury((Failure(desk.one().lease, "no"),))).items == (("ok", "buried"),)
    assert desk.entries("dead")[0] == kept and len(desk.entries("dead")) == 3


@pytest.mark.feature("MQ07", model="mosquito")
def test_5_3_4_promotion_is_one_step_and_what_others_doubled_is_leased_once(desk: MosquitoDesk) -> None:
    id = desk.add(delay_ms=1000)
    assert desk.entries("waiting") == [] and desk.redis.zscore(desk.there.scheduled, id) == desk.now_ms + 1000
    assert desk.tick(999).sweep().promoted == 0
    desk.tick(1)
    for worker in ("s", "t"):
        desk.run(desk.sweep_operation(worker))
    assert desk.entries("waiting") == [id] and desk.entries("scheduled") == []
    # Two coordinators of the original: the id stands there twice.
    if desk.layout == "live":
        desk.theirs.push(desk.there.waiting, id)
        assert desk.entries("waiting") == [id, id]
    (job,) = desk.take()
    assert desk.take(worker="b") == [] and desk.finish(job.lease) == [("ok", "finished")]
    assert desk.take() == [] and desk.take(worker="b") == [], "its end is not forgotten while its hash is still there"


def test_5_3_4_a_promotion_that_was_cut_off_anywhere_moves_the_job_once(desk: MosquitoDesk) -> None:
    for writes in desk.each_cut():
        id = desk.add(delay_ms=10)
        desk.tick(10).cut_off(desk.sweep_operation(), writes)
        assert desk.swept().entries("waiting") == [id] and desk.entries("scheduled") == [], writes
        assert desk.finish(desk.one().lease) == [("ok", "finished")]


def test_5_3_5_an_id_without_a_hash_leaves_pending_and_waiting_and_holds_up_nobody(desk: MosquitoDesk) -> None:
    desk.theirs.push(desk.there.pending, "1:1")
    desk.theirs.push(desk.there.waiting, "1:2", score=1)
    id = desk.theirs.enqueue(KIND)
    assert desk.one().lease.job == id and desk.entries("waiting") == []
    assert desk.past(5000).entries("pending") == [id], "the one of ours"
    assert desk.redis.hexists(f"{desk.keys.prefix}aside", "1:2"), "counted, with the reason"


@pytest.mark.feature("MQ22", model="mosquito")
def test_5_3_6_a_queue_with_delayed_jobs_alone_is_known(desk: MosquitoDesk) -> None:
    assert desk.redis.zscore(desk.there.queues, "desk") is None
    desk.add(delay_ms=60_000)
    assert desk.redis.zscore(desk.there.queues, "desk") == desk.now_ms // 1000 and desk.tick(60_000).sweep().promoted == 1
    assert desk.redis.zscore(desk.there.queues, "desk") == desk.now_ms // 1000


@pytest.mark.feature("MQ30", "MQ31", model="mosquito")
def test_5_3_7_jobs_of_an_overseer_come_back_when_it_is_dead_and_only_then(desk: MosquitoDesk) -> None:
    lives, died, left = (desk.theirs.enqueue(KIND) for _ in range(3))
    for id, overseer in ((lives, "lives"), (died, "died"), (left, "left")):
        assert desk.theirs.take() == id
        desk.theirs.redis.hset(desk.there.run(id), "overseer_id", overseer)
    for _ in range(4):
        heard_s = desk.now_ms // 1000
        desk.theirs.redis.zadd(desk.there.overseers, {"lives": heard_s, "died": heard_s - 200})
        desk.sweep_past(1000)
    assert desk.entries("pending") == [lives] and sorted(desk.entries("waiting")) == sorted([died, left])
    found = desk.take()
    assert sorted(job.lease.job for job in found) == sorted([died, left])
    for job in found:
        assert desk.finish(job.lease) == [("ok", "finished")]


@pytest.mark.feature("MQ30", model="mosquito")
def test_5_3_7_our_workers_are_overseers_and_their_jobs_name_them(desk: MosquitoDesk) -> None:
    first = desk.add(1)
    (job,) = desk.tick(5_000).take()
    assert desk.theirs.fields(first)["overseer_id"] == A and desk.heard_s() == desk.now_ms // 1000, "before its first heartbeat"
    desk.tick(LEASE_MS // 2).run(desk.extend_operation(job.lease))
    assert desk.heard_s() == desk.now_ms // 1000, "one that renews its leases lives"
    second = desk.finished(job.lease).tick(1_000).beaten("a", about=f'{{"jobs": ["{first}"]}}').add(2)
    (job,) = desk.take()
    assert desk.theirs.fields(second)["overseer_id"] == A and int(desk.theirs.fields(second)["started_at"]) == desk.now_ms
    assert desk.heard_s() == desk.now_ms // 1000
    overseer, executor = desk.there.overseer(A), desk.there.executor(A)
    assert desk.theirs.redis.hgetall(overseer) == {"heartbeat": str(desk.now_ms // 1000), "executors": A}
    told = desk.theirs.redis.hgetall(executor)
    assert (told["current_job"], told["current_job_queue"]) == (first, "desk")  # type: ignore[index]
    assert 3500 < desk.redis.ttl(overseer) <= 3600 and 3500 < desk.redis.ttl(executor) <= 3600
    # An overseer of theirs that takes the job for an orphan and runs it: our lease is over.
    desk.theirs.redis.hset(desk.there.run(second), "overseer_id", "theirs")
    assert desk.finish(job.lease)[0][0] == "stale"


@pytest.mark.feature("MQ31", model="mosquito")
@pytest.mark.parametrize("left", [False, True])
def test_a_job_that_a_living_overseer_took_from_a_dead_worker_stays_there(desk: MosquitoDesk, left: bool) -> None:
    id = desk.add()
    desk.beaten("a").take()
    if left:
        desk.run(replace(desk.beat_operation("a"), until_ms=0))
    desk.theirs.redis.hset(desk.there.run(id), "overseer_id", "theirs")
    desk.theirs.redis.zadd(desk.there.overseers, {"theirs": (desk.now_ms + 2 * LEASE_MS) // 1000})
    desk.past(LEASE_MS).sweep_past(LEASE_MS)
    assert (desk.entries("pending"), desk.entries("waiting")) == ([id], []) and desk.take(worker="b") == []
    assert desk.redis.zcard(desk.queue.model.keys.active) == 0


def test_a_runner_that_took_a_job_holds_a_second_entry_of_it_off(desk: MosquitoDesk) -> None:
    """Lists are searched for their newest 1,000, because v2 leaves entries behind."""
    id = desk.theirs.enqueue(KIND)
    for entry in (id, *(f"left{number}" for number in range(999))):
        desk.theirs.push(desk.there.pending, entry)
    assert desk.take() == []
    desk.theirs.push(desk.there.pending, "left999")
    assert [job.lease.job for job in desk.take()] == ([id] if desk.layout == "live" else [])


@pytest.mark.slow
def test_5_3_8_five_thousand_ids_of_one_moment_are_all_different(desk: MosquitoDesk) -> None:
    found: set[str] = set()
    for batch in range(5):
        made = [desk.enqueue_operation("", name=KIND, nonce=bytes([batch] * 8), payload={"n": number}) for number in range(1000)]
        found |= {item.job for item in desk.queue.driver.run(desk.call(EnqueueMany(tuple(made)))).items}
    assert len(found) == 5000 == len(desk.entries("waiting"))
    assert all(re.fullmatch(r"\d{13}:\d{9}", id) for id in found) and len(desk.theirs.fields(min(found))) == 4


@pytest.mark.feature("MQ29", model="mosquito")
def test_5_3_9_a_unique_job_says_what_kept_it_out_until_its_time_is_over(desk: MosquitoDesk) -> None:
    first, key = desk.add(1, dedup="params", dedup_ms=600_000), desk.there.unique_job(f"{KIND}:n=1")
    assert desk.theirs.redis.get(key) == first and 500_000 < desk.redis.pttl(key) <= 600_000
    again = desk.enqueue_operation("", name=KIND, nonce=b"again---", payload={"n": 1}, dedup="params", dedup_ms=60_000)
    told = desk.run(again)
    assert (told.result, told.holder) == ("duplicate", first)
    desk.finish(desk.one().lease)
    assert desk.run(again).result == "duplicate", "its end does not release it, as in the original"
    desk.redis.delete(key)
    later = desk.enqueue_operation("", name=KIND, nonce=b"later---", payload={"n": 1}, dedup="params", dedup_ms=60_000)
    assert desk.run(later).result == "created"


# -- 6.3


def test_6_3_a_type_that_nobody_knows_waits_for_who_does_and_holds_up_nobody(desk: MosquitoDesk) -> None:
    unknown = [desk.theirs.enqueue("held_out::spaced_job") for _ in range(5)]
    known = desk.theirs.enqueue(KIND)
    assert [job.lease.job for job in desk.take()] == [known] and desk.entries("waiting") == unknown
    assert [job.lease.job for job in desk.claim("b", classes=("held_out::spaced_job",))] == unknown, "in the order of the list"


def test_6_3_a_hash_with_a_bad_count_or_time_is_set_aside_as_dead(desk: MosquitoDesk) -> None:
    bad = [desk.theirs.enqueue(KIND) for _ in range(4)]
    fields = (("retry_count", "many"), ("enqueue_time", "today"), ("retry_count", "-1"), ("ironclaim", "5"))
    for id, (field, value) in zip(bad, fields, strict=True):
        desk.theirs.redis.hset(desk.there.run(id), mapping={field: value, "overseer_id": "gone", "started_at": "1"})
    uncounted = desk.theirs.enqueue(KIND)
    desk.theirs.redis.hdel(desk.there.run(uncounted), "retry_count")
    other_type = "1:9"
    desk.theirs.redis.set(desk.there.run(other_type), "no hash")
    desk.theirs.push(desk.there.waiting, other_type, score=1)
    desk.theirs.push(desk.there.waiting, bad[0], score=1)
    kept_in_a_list = desk.theirs.redis.type(desk.there.waiting) == "list"
    (job,) = desk.take()
    assert (job.lease.job, job.failures) == (uncounted, 0)
    assert desk.entries("waiting") == bad[:1] * kept_in_a_list, "of two entries the one that is reached goes"
    assert desk.take() == [] and desk.entries("waiting") == [] and desk.entries("dead") == bad
    why = desk.theirs.redis.hgetall(f"{desk.keys.prefix}aside")
    assert set(why) == {*bad, other_type}  # type: ignore[arg-type]
    assert not any({"overseer_id", "started_at"} & desk.theirs.fields(id).keys() for id in bad), "nobody runs it"
    assert "retry_count" in why[bad[0]]  # type: ignore[index]


@pytest.mark.parametrize("field", ["type", "enqueue_time"])
def test_6_3_a_hash_without_type_or_time_counts_as_missing(desk: MosquitoDesk, field: str) -> None:
    missing, fine = desk.theirs.enqueue(KIND), desk.theirs.enqueue(KIND)
    late = desk.theirs.schedule(KIND, desk.now_ms)
    for id in (missing, late):
        desk.theirs.redis.hdel(desk.there.run(id), field)
    assert [job.lease.job for job in desk.take()] == [fine]
    assert desk.swept().take() == [] and desk.nowhere(missing) and desk.nowhere(late)


@pytest.mark.feature("MQ07", model="mosquito")
def test_6_3_promotion_drops_an_id_whose_hash_is_gone_and_tells_of_the_queue(desk: MosquitoDesk) -> None:
    desk.theirs.redis.zadd(desk.there.scheduled, {"1:1": 5})
    id = desk.theirs.schedule(KIND, desk.now_ms)
    assert desk.redis.zscore(desk.there.queues, "desk") is None
    assert desk.swept().entries("waiting") == [id] and desk.entries("scheduled") == []
    assert desk.redis.zscore(desk.there.queues, "desk") == desk.now_ms // 1000


def test_scores_that_no_clock_tells_are_early_or_late_and_no_error(desk: MosquitoDesk) -> None:
    early, far, never = (desk.theirs.store(KIND) for _ in range(3))
    desk.theirs.redis.zadd(desk.there.scheduled, {early: "-inf", far: 2**60, never: "+inf"})  # type: ignore[dict-item]
    assert desk.sweep().sleep_ms >= 0 and [job.lease.job for job in desk.take()] == [early]
    assert desk.entries("scheduled") == [far, never]
    if desk.layout == "document":
        for score in (2.0**60, float("inf"), float("-inf")):
            desk.theirs.redis.zadd(desk.there.waiting, {desk.theirs.store(KIND): score})
        last = desk.add(7)
        assert len(desk.take()) == 4 and last in desk.entries("pending")


def test_ids_of_any_text_run(desk: MosquitoDesk) -> None:
    ids = [desk.theirs.enqueue(KIND, id=id) for id in ("a:b:c", "with space", "new\nline", "ü", '"quoted"')]
    jobs = desk.take()
    assert sorted(job.lease.job for job in jobs) == sorted(ids)
    assert [desk.finish(job.lease) for job in jobs] == [[("ok", "finished")]] * 5
    assert desk.entries("waiting") == desk.entries("pending") == desk.entries("dead") == []


# -- tokens, which the wire does not have


@pytest.mark.feature("MQ04", "MQ05", "MQ06", model="mosquito")
def test_a_run_moves_to_pending_at_once_and_leaves_it_with_its_end(desk: MosquitoDesk) -> None:
    id = desk.theirs.enqueue(KIND, user_id="7")
    (job,) = desk.take()
    assert (desk.entries("waiting"), desk.entries("pending")) == ([], [id])
    assert job.payload == b'{"user_id":"7"}' and desk.finish(job.lease) == [("ok", "finished")]
    assert desk.nowhere(id) and 500_000 < desk.redis.pttl(desk.there.run(id)) <= 600_000
    assert desk.finish(job.lease) == [("repeated", "finished")]


def test_a_job_that_their_side_has_ended_is_not_ours_to_end(desk: MosquitoDesk) -> None:
    id = desk.theirs.enqueue(KIND)
    (job,) = desk.take()
    desk.theirs.finish(id)
    assert desk.run(Finish((job.lease,))).items[0][0] == "stale"
    assert desk.run(Retry((Failure(job.lease, "no"),))).items[0][0] == "stale"
    assert desk.past(LEASE_MS + 1).nowhere(id), "and it does not come back"


def test_a_lost_worker_costs_a_lease_and_no_job(desk: MosquitoDesk) -> None:
    id = desk.theirs.enqueue(KIND)
    (job,) = desk.take()
    ((lease, crashes),) = desk.sweep_past(LEASE_MS + 1)
    assert (lease, crashes) == (job.lease, 1) and (desk.entries("waiting"), desk.entries("pending")) == ([id], [])
    (again,) = desk.take(worker="b")
    assert desk.finish(job.lease)[0][0] == "stale" and desk.finish(again.lease) == [("ok", "finished")]


# -- findings


@pytest.mark.parametrize("layout", ["live", "document"])
@pytest.mark.parametrize("adopt_ms", [0, 60_000])
def test_finding_v2_leaves_jobs_in_pending_unless_they_may_be_adopted(ironclaim_url: str, layout: Layout, adopt_ms: int) -> None:
    assert any("adopt_after_ms" in finding.text for finding in FINDINGS)
    desk = MosquitoDesk(ironclaim_url, layout, adopt_after_ms=adopt_ms)
    id = desk.theirs.enqueue(KIND)
    assert desk.theirs.take() == id and desk.past(30_000).entries("pending") == [id]
    assert desk.past(60_000).entries("waiting") == ([id] if adopt_ms else [])
    desk.close()


def test_finding_the_original_does_not_fence_but_our_lease_is_over(desk: MosquitoDesk) -> None:
    id = desk.theirs.enqueue(KIND)
    assert desk.theirs.take() == id
    desk.theirs.redis.hset(desk.there.run(id), "overseer_id", "died")
    for _ in range(4):
        desk.sweep_past(1000)
    (job,) = desk.take()
    assert job.lease.job == id
    desk.theirs.finish(id)
    assert desk.finish(job.lease)[0][0] == "stale"


def test_finding_a_promotion_of_theirs_that_dies_half_way_loses_the_job(desk: MosquitoDesk) -> None:
    id = desk.theirs.schedule(KIND, desk.now_ms)
    # A coordinator of the original: the id is taken out, and it dies before it pushes it.
    desk.theirs.redis.zrem(desk.there.scheduled, id)
    desk.past(30_000).sweep()
    assert desk.take() == [] and desk.nowhere(id) and desk.theirs.fields(id)["type"] == KIND


def test_finding_a_periodic_job_of_both_sides_runs_twice(desk: MosquitoDesk) -> None:
    desk.queue.schedules.put("tick", "tick_job", {}, every_ms=60_000)
    desk.tick(60_000)
    # Their coordinator has made the run of this minute.
    theirs = desk.theirs.enqueue("tick_job")
    desk.theirs.redis.hset(desk.there.periodic_job("TickJob"), "last_executed_at", str(desk.now_ms // 1000))
    (due,) = desk.sweep().due
    ticked = desk.run(tick(due, desk.now_ms, "5" * 16, 1))
    assert desk.entries("waiting") == [theirs, *ticked.jobs] and len(ticked.jobs) == 1


def test_finding_no_type_is_on_the_wire(desk: MosquitoDesk) -> None:
    job = desk.did(desk.enqueue_operation("", name=KIND, payload={"n": 7, "last": True})).one()
    assert job.payload == b'{"n":"7","last":"true"}'


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["live", "document"])
def test_the_time_until_an_adoption_begins_anew_with_each_run(ironclaim_url: str, layout: Layout) -> None:
    desk = MosquitoDesk(ironclaim_url, layout, adopt_after_ms=60_000)
    id = desk.theirs.enqueue(KIND)
    assert desk.theirs.take() == id
    desk.sweep_past(50_000)
    # It fails, waits, and a runner of v2 takes it once more: the times of both runs are not added up.
    desk.theirs.drop(desk.there.pending, id)
    desk.theirs.redis.zadd(desk.there.scheduled, {id: desk.now_ms + 2_000})
    desk.sweep_past(3_000)
    assert desk.theirs.take() == id
    desk.sweep_past(50_000)
    assert (desk.entries("pending"), desk.entries("waiting")) == ([id], []), "its runner has had it for 50 s"
    assert (desk.past(13_000).entries("pending"), desk.entries("waiting")) == ([], [id])
    # The same where a sweep does not see all of them: it reads 200.
    many = [desk.theirs.enqueue(KIND) for _ in range(450)]
    assert {desk.theirs.take() for _ in range(451)} == {id, *many}
    assert desk.past(50_000).entries("waiting") == [] and len(desk.past(40_000).entries("waiting")) == 451
    desk.close()


def test_ends_of_a_job_whose_hash_is_gone_leave_no_hash_behind(desk: MosquitoDesk) -> None:
    for end in ("retry", "bury"):
        id = desk.add(len(end))
        (job,) = desk.take()
        # A runner of theirs has ended a second entry of it: its hash expires while the engine's run goes on.
        desk.redis.delete(desk.there.run(id))
        failure = Failure(job.lease, "no", 1_000, charge=False)
        assert desk.did(Retry((failure,)) if end == "retry" else Bury((failure,))).past(5_000).take() == []
        assert desk.redis.exists(desk.there.run(id)) == 0, end


def test_a_job_that_fails_is_no_foreign_one_any_more(ironclaim_url: str) -> None:
    desk = MosquitoDesk(ironclaim_url, "live", adopt_after_ms=60_000)
    desk.redis.zadd(f"{desk.keys.prefix}foreign", {desk.add(1): desk.now_ms})
    desk.did(Bury((Failure(desk.take()[0].lease, "no"),)))
    assert not desk.redis.exists(f"{desk.keys.prefix}foreign")
    desk.close()
