"""What Mosquito does beside the life of a job, step by step and by its raw keys: rates, pauses, periodic jobs, the coordinator's
lock, counts that are set from afar, what is published, what is done by hand, and what jobs of one name share (MQ16)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from engine import Malformed, Queue, UnsupportedFeature, WrongKeyType, models
from engine.queue.admin import JobMetadata
from tests.engine.models.mosquito_desk import KIND, A, MosquitoDesk
from tests.engine.models.mosquito_desk import desk as desk
from tests.engine.using import DEADLINE_S, Bury, Failure, Release, Retry, SetMetadata, refused

MINUTE_MS = 60_000


@pytest.fixture
def heard(desk: MosquitoDesk) -> Any:
    """What the original's channel of the queue has told: event and id, and what else it says."""
    with desk.theirs.redis.pubsub() as pubsub:
        pubsub.subscribe("mosquito:queue:desk")
        pubsub.get_message(timeout=DEADLINE_S)

        def read(count: int) -> list[dict[str, str]]:
            found: list[dict[str, str]] = []
            while len(found) < count:
                message = pubsub.get_message(timeout=DEADLINE_S)
                assert message is not None, found
                found.append(json.loads(message["data"]))
            assert pubsub.get_message(timeout=0.01) is None
            return found

        yield read


# -- rates


@pytest.mark.feature("MQ17", model="mosquito")
def test_three_executors_cannot_pass_a_limit_of_one(desk: MosquitoDesk) -> None:
    desk.set_limit(f"n:{KIND}", rate=1, per_ms=MINUTE_MS)
    jobs = [desk.add(number) for number in range(3)]
    found = [job for worker in "abc" for job in desk.take(worker=worker)]
    assert [job.lease.job for job in found] == jobs[:1]
    assert desk.theirs.redis.hgetall(desk.there.rate_limit(KIND)) == {"window_start": str(desk.now_ms // 1000), "run_count": "1"}
    ends_ms = desk.now_ms // 1000 * 1000 + MINUTE_MS + 1
    assert [desk.redis.zscore(desk.there.scheduled, job) for job in jobs[1:]] == [ends_ms, ends_ms]
    assert {desk.theirs.fields(job)["retry_count"] for job in jobs} == {"0"}, "none of it is a retry"
    assert desk.finished(found[0].lease).tick(ends_ms - desk.now_ms - 1).take() == []
    assert [job.lease.job for job in desk.tick(1).take()] == jobs[1:2]


@pytest.mark.feature("MQ17", model="mosquito")
def test_one_claim_takes_no_more_than_the_window_has_left_whoever_has_counted(desk: MosquitoDesk) -> None:
    desk.set_limit(f"n:{KIND}", rate=5, per_ms=MINUTE_MS)
    start_s = desk.now_ms // 1000 - 10
    desk.theirs.redis.hset(desk.there.rate_limit(KIND), items=["window_start", str(start_s), "run_count", "3"])
    jobs = [desk.add(number) for number in range(4)]
    assert [job.lease.job for job in desk.take()] == jobs[:2]
    assert desk.theirs.redis.hget(desk.there.rate_limit(KIND), "run_count") == "5"
    assert desk.redis.zscore(desk.there.scheduled, jobs[3]) == start_s * 1000 + MINUTE_MS + 1


@pytest.mark.feature("MQ17", model="mosquito")
def test_jobs_with_a_key_share_its_window_and_cost_what_they_say(desk: MosquitoDesk) -> None:
    first = desk.set_limit("k:tenant", rate=3, per_ms=MINUTE_MS).add(1, key="tenant", cost=2)
    other = desk.run(desk.enqueue_operation("", name="other_job", nonce=b"other---", payload={}, key="tenant")).job
    third, alone = desk.add(3, key="tenant"), desk.add(4)
    refused(UnsupportedFeature, "^mosquito has no bound of what runs at once", desk.queue.set_limit, key="tenant", concurrency=1)
    assert [job.lease.job for job in desk.claim("a", 10, classes=(KIND, "other_job"))] == [first, other, alone]
    assert desk.theirs.redis.hget(desk.there.rate_limit("tenant"), "run_count") == "3" and desk.entries("scheduled") == [third]


def test_a_window_that_is_no_hash_or_lies_ahead_keeps_nothing_back(desk: MosquitoDesk) -> None:
    desk.set_limit(f"n:{KIND}", rate=1, per_ms=MINUTE_MS)
    key = desk.there.rate_limit(KIND)
    desk.theirs.redis.set(key, "no hash")
    desk.add(1)
    assert len(desk.take()) == 1 and desk.theirs.redis.hget(key, "run_count") == "1"
    desk.theirs.redis.hset(key, items=["window_start", str(desk.now_ms // 1000 + 900_000), "run_count", "many"])
    desk.add(2)
    assert len(desk.take()) == 1


# -- pauses


@pytest.mark.feature("MQ28", model="mosquito")
def test_a_pause_stands_on_the_wire_with_its_end(desk: MosquitoDesk) -> None:
    id = desk.add()
    assert 500_000 < desk.pause("*", 600_000).redis.pttl(desk.there.pause) <= 600_000
    assert desk.take() == [] and desk.entries("waiting") == [id]
    assert desk.tick(600_001).swept().redis.exists(desk.there.pause) == 0
    (job,) = desk.take()
    assert desk.pause("*").redis.pttl(desk.there.pause) == -1
    assert desk.finish(job.lease) == [("ok", "finished")], "what is in hand goes on"
    assert desk.resume("*").redis.exists(desk.there.pause) == 0


@pytest.mark.feature("MQ28", model="mosquito")
def test_a_pause_of_theirs_holds_us_and_its_end_lets_us_go_on(desk: MosquitoDesk) -> None:
    desk.add()
    desk.theirs.redis.set(desk.there.pause, "true")
    assert desk.take() == []
    desk.theirs.redis.delete(desk.there.pause)
    assert len(desk.take()) == 1


# -- failing


@pytest.mark.feature("MQ12", model="mosquito")
def test_a_run_may_say_when_it_runs_again_and_a_job_its_own_waits(desk: MosquitoDesk) -> None:
    id = desk.add(backoff="custom", backoff_delays_ms=(10, 500))
    (job,) = desk.take()
    assert (job.options.backoff, job.options.backoff_delays_ms, job.options.attempts) == ("custom", (10, 500), 5)
    assert json.loads(desk.theirs.fields(id)["ironclaim"])["backoff_delays_ms"] == [10, 500]
    assert desk.run(Retry((Failure(job.lease, "later", 7000, charge=False),))).items == (("ok", "retried"),)
    assert desk.redis.zscore(desk.there.scheduled, id) == desk.now_ms + 7000 and desk.theirs.fields(id)["retry_count"] == "0"


@pytest.mark.feature("MQ13", model="mosquito")
def test_a_failure_without_retry_is_the_end(desk: MosquitoDesk) -> None:
    id = desk.add()
    assert desk.run(Bury((Failure(desk.one().lease, "never"),))).items == (("ok", "buried"),)
    assert desk.entries("dead") == [id] and desk.take() == []


@pytest.mark.feature("MQ32", model="mosquito")
def test_a_preempted_run_comes_next_again_and_a_cancelled_one_never(desk: MosquitoDesk) -> None:
    first, second, third = (desk.add(number) for number in range(3))
    one, two = desk.take(2)
    assert desk.run(Release((one.lease, two.lease))).items == (("ok", "released"), ("ok", "released"))
    assert desk.entries("waiting") == [first, second, third] and desk.entries("pending") == []
    assert desk.theirs.fields(first)["retry_count"] == "0"
    (one,) = desk.take(1)
    assert one.lease.job == first
    (told,) = desk.alter("cancel", "active", first)
    assert told.done and desk.finish(one.lease) == [("stale", "cancelled")]
    assert desk.nowhere(first) and [job.lease.job for job in desk.take()] == [second, third]


# -- periodic jobs


@pytest.mark.feature("MQ08", "MQ10", model="mosquito")
def test_a_periodic_job_by_span_leaves_what_the_original_does(desk: MosquitoDesk) -> None:
    desk.queue.schedules.put("hourly", "tick_job", {}, every_ms=3_600_000, overlap="skip")
    (ticked,) = desk.tick(3_600_000).turn()
    assert desk.turn("t") == []
    (id,) = ticked.jobs
    assert desk.entries("waiting") == [id] and desk.theirs.fields(id)["type"] == "tick_job"
    key = desk.there.periodic_job("TickJob")
    known = desk.theirs.redis.hgetall(key)
    assert known["pending_run_id"] == id and abs(int(known["last_executed_at"]) - desk.now_ms // 1000) <= 1  # type: ignore[index]
    assert 10_700_000 < desk.redis.pttl(key) <= 10_800_000
    # The run before is still pending: no second one.
    (ticked,) = desk.tick(3_600_000).turn()
    assert (ticked.jobs, ticked.skipped) == ((), 1) and desk.entries("waiting") == [id]
    (ticked,) = desk.finished(desk.one("a", classes=("tick_job",)).lease).tick(3_600_000).turn()
    assert len(ticked.jobs) == 1 and ticked.jobs[0] != id


@pytest.mark.feature("MQ09", model="mosquito")
def test_a_periodic_job_by_months(desk: MosquitoDesk) -> None:
    desk.queue.schedules.put("monthly", "held_out::spaced_job", {}, months=1)
    (known,) = desk.queue.schedules.list()
    (ticked,) = desk.tick(known.next_ms - desk.now_ms).turn()
    assert len(ticked.jobs) == 1
    assert 27 * 86_400_000 * 3 < desk.redis.pttl(desk.there.periodic_job("HeldOut::SpacedJob")) <= 31 * 86_400_000 * 3


# -- runners


@pytest.mark.feature("MQ23", "MQ24", model="mosquito")
def test_our_leader_holds_the_coordinators_lock_where_it_is_told_to(ironclaim_url: str, client: Any) -> None:
    desk = MosquitoDesk(ironclaim_url, "live")
    assert desk.beat("a").leads and not client.exists(desk.there.football, desk.there.leadership)
    desk.close()
    client.flushall()
    desk = MosquitoDesk(ironclaim_url, "live", coordinate=True)
    assert desk.beat("a").leads and [client.get(desk.there.football), client.get(desk.there.leadership)] == [A[:8], A[:8]]
    assert 0 < client.ttl(desk.there.football) <= 10 and 10 < client.ttl(desk.there.leadership) <= 30
    client.persist(desk.there.leadership)
    desk.beaten("a").beat("a")
    assert 0 < client.ttl(desk.there.leadership) <= 30, "renewed"
    client.set(desk.there.football, "theirs")
    desk.beat("a")
    assert (client.get(desk.there.football), client.pttl(desk.there.football)) == ("theirs", -1)
    desk.run(replace(desk.beat_operation("a"), until_ms=0))
    assert [client.get(desk.there.football), client.get(desk.there.leadership)] == ["theirs", None], "its own one it lets go"
    desk.close()


@pytest.mark.feature("MQ35", "MQ33", model="mosquito")
def test_counts_that_others_have_set_for_runners_are_ours_too(desk: MosquitoDesk) -> None:
    about = json.dumps({"name": "w"})
    known = desk.beaten("a", about=about).news(0, "w")
    desk.theirs.redis.hset(desk.there.executor_count(), "count", "8")
    told_ms = desk.beaten("a", about=about).redis.pexpiretime(desk.keys.news(known.version))
    learned = desk.news(0, "w")
    assert (known.concurrency, told_ms) == (0, desk.now_ms + 60_000), "who waits for news of that version is told"
    assert (learned.concurrency, desk.news(0, "other").concurrency) == (8, 8)
    desk.theirs.redis.hset(desk.there.executor_count("w"), "count", "3")
    desk.theirs.redis.hset(desk.there.concurrency_limits(), "desk", "5")
    desk.beat("a", about=about)
    assert (desk.news(0, "w").concurrency, desk.news(0, "other").concurrency) == (3, 5)
    assert desk.news(0, "w").version > learned.version, "and workers that wait are told"
    desk.did(desk.set_worker_operation("c:w", 2)).beat("a", about=about)
    assert desk.news(0, "w").concurrency == 2, "what our side sets stays until theirs changes again"
    for bad in ("none", "-1", "1e400"):
        desk.theirs.redis.hset(desk.there.executor_count(), "count", bad)
        desk.beat("a", about=about)
    desk.theirs.redis.delete(desk.there.executor_count(), desk.there.executor_count("w"), desk.there.concurrency_limits())
    desk.beat("a", about=about)
    assert (desk.news(0, "w").concurrency, desk.news(0, "other").concurrency) == (0, 0)


def test_a_worker_that_leaves_is_no_overseer_any_more(desk: MosquitoDesk) -> None:
    assert desk.beaten("a").redis.zcard(desk.there.overseers) == 1
    assert desk.did(replace(desk.beat_operation("a"), until_ms=0)).redis.zcard(desk.there.overseers) == 0
    assert desk.redis.exists(desk.there.overseer(A), desk.there.executor(A)) == 0


# -- what is told


@pytest.mark.feature("MQ36", model="mosquito")
def test_events_go_to_the_originals_channel(desk: MosquitoDesk, heard: Any) -> None:
    id = desk.add()
    late = desk.retried(desk.one().lease, 2000).finished(desk.tick(2000).one().lease).add(1, delay_ms=1500)
    desk.run(Bury((Failure(desk.tick(1500).one().lease, "no"),)))
    told = heard(8)
    assert [(one["event"], one["job_run"]) for one in told] == [
        *(("enqueued", id), ("dequeued", id), ("rescheduled", id), ("dequeued", id), ("forgotten", id)),
        *(("enqueued", late), ("dequeued", late), ("banished", late)),
    ]
    assert [one.get("execute_time", "")[-1:] for one in told] == ["", "", "Z", "", "", "Z", "", ""]
    assert len(told[2]["execute_time"]) == len("2100-01-01T01:06:42Z")


def test_events_of_what_is_done_by_hand(desk: MosquitoDesk, heard: Any) -> None:
    dead = desk.add()
    desk.run(Bury((Failure(desk.one().lease, "no"),)))
    late = desk.add(1, delay_ms=60_000)
    desk.ids |= {"dead": dead, "late": late}
    heard(4)
    desk.alter("requeue", "dead", "dead")
    desk.alter("run_now", "delayed", "late")
    desk.alter("cancel", "waiting", "dead", "late")
    told = [(one["event"], one["job_run"]) for one in heard(4)]
    assert told == [("enqueued", dead), ("enqueued", late), ("forgotten", dead), ("forgotten", late)]


@pytest.mark.feature("MQ36", model="mosquito")
def test_durations_of_the_last_hundred_runs(desk: MosquitoDesk) -> None:
    desk.beat("a")
    for number in range(103):
        desk.add(number)
        (job,) = desk.take()
        assert desk.tick(7).finish(job.lease) == [("ok", "finished")]
    key = desk.there.duration(KIND)
    assert desk.theirs.redis.lrange(key, 0, -1) == ["7"] * 100 and 2_591_000 < desk.redis.ttl(key) <= 2_592_000


@pytest.mark.feature("MQ37", model="mosquito")
def test_jobs_of_either_side_can_be_looked_at(desk: MosquitoDesk) -> None:
    theirs, ours = desk.theirs.enqueue(KIND, user_id="7"), desk.add(1, delay_ms=5000)
    waiting, delayed = desk.queue.jobs.get(theirs), desk.queue.jobs.get(ours)
    assert waiting is not None and (waiting.state, waiting.name, waiting.payload) == ("waiting", KIND, {"user_id": "7"})
    assert delayed is not None and (delayed.state, delayed.due_ms) == ("delayed", desk.now_ms + 5000)
    assert desk.theirs.take() == theirs
    counts = desk.queue.counts()
    assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (0, 1, 1, 0)
    assert [info.id for info in desk.queue.jobs.list("active")] == [theirs]
    desk.theirs.finish(theirs)
    assert desk.queue.jobs.state(theirs) == "finished" and desk.queue.jobs.state("1:1") == "gone"


def test_dead_jobs_of_theirs_are_requeued_with_all_their_attempts(desk: MosquitoDesk) -> None:
    id = desk.theirs.store(KIND)
    desk.theirs.redis.hset(desk.there.run(id), "retry_count", "5")
    desk.theirs.redis.expire(desk.there.run(id), 80_000)
    desk.theirs.push(desk.there.dead, id)
    assert desk.queue.dead.requeue(id).done and (desk.entries("dead"), desk.entries("waiting")) == ([], [id])
    assert desk.theirs.fields(id)["retry_count"] == "0" and desk.redis.ttl(desk.there.run(id)) == -1
    assert desk.finish(desk.one().lease) == [("ok", "finished")]


def test_a_run_that_would_be_forgotten_stays_while_it_runs(desk: MosquitoDesk) -> None:
    id = desk.theirs.enqueue(KIND)
    desk.theirs.redis.expire(desk.there.run(id), 80_000)
    held = desk.one().lease
    assert desk.redis.ttl(desk.there.run(id)) == -1 and desk.finish(held) == [("ok", "finished")]


def test_settings_have_bounds() -> None:
    for field in ("success_ttl_s", "dead_ttl_s", "adopt_after_ms"):
        for bad in (-1, 1.5, "1", None):
            refused(Malformed, f"^{field}: ", models.Mosquito, **{field: bad})
    refused(Malformed, "^layout: ", models.Mosquito, layout="both")


@pytest.mark.feature("MQ06", "MQ15", model="mosquito")
def test_how_long_hashes_live_can_be_set(ironclaim_url: str) -> None:
    desk = MosquitoDesk(ironclaim_url, "live", success_ttl_s=600, dead_ttl_s=3600)
    done, died = desk.add(1), desk.add(2)
    first, second = desk.take()
    desk.finished(first.lease).run(Bury((Failure(second.lease, "no"),)))
    assert 500 < desk.redis.ttl(desk.there.run(done)) <= 600 and 3500 < desk.redis.ttl(desk.there.run(died)) <= 3600
    assert desk.take() == [] and desk.queue.jobs.state(done) == "finished"
    desk.close()


def test_a_queue_of_another_name_does_not_see_these_jobs(desk: MosquitoDesk, ironclaim_url: str) -> None:
    desk.add()
    with Queue("other", models.Mosquito(layout=desk.layout), url=ironclaim_url) as other:
        assert other.counts().waiting == 0


@pytest.mark.feature("MQ16", model="mosquito")
def test_metadata_is_the_originals_hash(ironclaim_url: str, client: Any) -> None:
    with Queue("ok_job", models.Mosquito(layout="live"), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        assert metadata.get() == {}
        client.hset("mosquito:job_metadata:ok_job", "seen", "1")
        assert metadata.add("seen") == 2 and metadata.add("seen", -5) == -3
        metadata.set(cursor="17", owner="me")
        metadata.set(owner=None)
        assert metadata.get() == {"seen": "-3", "cursor": "17"} == client.hgetall("mosquito:job_metadata:ok_job")


@pytest.mark.feature("MQ16", model="mosquito")
def test_adding_is_done_once_however_often_it_is_sent(ironclaim_url: str) -> None:
    with Queue("ok_job", models.Mosquito(), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        metadata.add("seen")
        call = queue.model.call(_added())
        assert [queue.driver.run(call).values for _ in range(3)] == [(2,), (2,), (2,)]
        late = replace(_added(), op_id="2" * 16, not_after_ms=queue.driver.run(call).srv_us // 1000 - 1)
        assert queue.driver.run(queue.model.call(late)).result == "refused" and metadata.get() == {"seen": "2"}


@pytest.mark.feature("MQ16", model="mosquito")
def test_what_does_not_fit_is_refused(ironclaim_url: str, client: Any) -> None:
    with Queue("ok_job", models.Mosquito(), url=ironclaim_url) as queue:
        metadata = JobMetadata(queue, "ok_job")
        refused(Malformed, "1 to 1000 fields$", metadata.set)
        for bad in (lambda: metadata.set(a=5), lambda: metadata.add("a", 1.5)):  # type: ignore[arg-type]
            refused(Malformed, None, bad)
        metadata.set(a="text")
        refused(Exception, "holds no number", metadata.add, "a")
        assert metadata.get() == {"a": "text"}
        client.set("mosquito:job_metadata:bad", "x")
        refused(WrongKeyType, "job_metadata:bad is a string", JobMetadata(queue, "bad").set, a="text")
    with Queue("q", url=ironclaim_url) as queue, pytest.raises(UnsupportedFeature, match="lanes"):
        JobMetadata(queue, "ok_job")


def _added() -> SetMetadata:
    return SetMetadata("ok_job", (), (("seen", 1),), op_id="1" * 16, not_after_ms=2**45)
