"""The life of a job in a BridgeMQ keyspace, and its named defects: what the original loses, doubles or leaves behind."""

import json
from typing import Any

import pytest

from engine.models.foreign.bridge import BridgeModel
from tests.conformance.desk import ModelDesk
from tests.engine.helpers.bridge_client import KEYS, BridgeClient, client, desk, waiting
from tests.engine.ops import Bury, Drop, Failure, Finish, NoteProgress, Release, Retry

__all__ = ["client", "desk"]


def stray_sweeps(desk: ModelDesk) -> None:
    """Two looks, a second apart."""
    desk.did(desk.sweep_operation("s")).tick(1_000).run(desk.sweep_operation("s"))


def result(client: BridgeClient, job: str) -> dict[str, Any]:
    return json.loads(str(client.redis.get(KEYS.result(job))))


# -- a job's life


@pytest.mark.feature("BQ05", "BQ06", "BQ07", "BQ08", "BQ26", model="bridge")
def test_status_and_place_go_together(desk: ModelDesk, client: BridgeClient) -> None:
    desk.put("now").put("delay", delay_ms=1_000).put("at", run_at_ms=desk.now_ms + 2_000)
    desk.put("past", run_at_ms=desk.now_ms - 2_000)
    status = {label: client.status(job) for label, job in desk.ids.items()}
    assert status == {"now": "waiting", "delay": "delayed", "at": "delayed", "past": "waiting"}
    due = [(desk.ids["delay"], desk.now_ms + 1_000), (desk.ids["at"], desk.now_ms + 2_000)]
    assert client.redis.zrange(KEYS.delayed, 0, -1, withscores=True) == due
    assert client.data(desk.ids["at"])["schedule"] == {"runAt": desk.now_ms + 2_000}
    desk.tick(2_000).sweep()
    assert client.redis.zcard(KEYS.delayed) == 0 and client.status(desk.ids["at"]) == "waiting"
    assert list(desk.take()) == ["now", "past", "delay", "at"] and client.status(desk.ids["now"]) == "active"


def test_the_last_1000_finished_jobs_are_listed(desk: ModelDesk, client: BridgeClient) -> None:
    client.redis.zadd(desk.keys.done, {f"old-{number}": number for number in range(1_000)})
    desk.put("new").finish_with(desk.take()["new"].lease, b"1")
    listed = client.redis.zrange(desk.keys.done, 0, -1)
    assert (len(listed), listed[0], listed[-1]) == (1_000, "old-1", desk.ids["new"])


@pytest.mark.feature("BQ08", model="bridge")
def test_no_more_than_100_are_promoted_at_once_and_each_once(desk: ModelDesk, client: BridgeClient) -> None:
    jobs = [client.delay(desk.now_ms, "main") for _ in range(150)]
    assert desk.run(desk.sweep_operation("s", limit=100)).promoted == 100
    assert desk.run(desk.sweep_operation("t", limit=100)).promoted == 50 and sorted(waiting(client)) == sorted(jobs)


@pytest.mark.feature("BQ27", model="bridge")
def test_a_result_lives_for_a_day_and_the_rest_for_ever(desk: ModelDesk, client: BridgeClient) -> None:
    desk.put("j").finish_with(desk.take()["j"].lease, b'{"n":9007199254740993,"e":[]}')
    job, ended = desk.ids["j"], f'"completedAt":{desk.now_ms},"processingTime":5'
    assert client.redis.get(KEYS.result(job)) == '{"success":true,"data":{"n":9007199254740993,"e":[]},' + ended + "}"
    assert 86_000 < client.redis.ttl(KEYS.result(job)) <= 86_400
    assert client.redis.ttl(KEYS.data(job)) == client.redis.ttl(KEYS.status(job)) == -1
    found = desk.queue.results.get(job)
    assert found is not None and found.value == {"n": 9007199254740993, "e": []} and found.ended_ms == desk.now_ms
    # Of a run that failed nobody has told how long it took.
    desk.put("d").did(Bury((Failure(desk.take()["d"].lease, "OSError: no route"),)))
    failed = f'"completedAt":{desk.now_ms},"processingTime":0'
    error = '{"message":"no route","stack":"OSError: no route","name":"OSError"}'
    assert client.redis.get(KEYS.result(desk.ids["d"])) == '{"success":false,"error":' + error + "," + failed + "}"


@pytest.mark.feature("BQ28", "BQ30", model="bridge")
def test_retries_change_nothing_in_the_json_but_the_attempts(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.10 and 6.4: N retries are N + 1 runs, and part of a retry is none; the original rewrote the payload's numbers."""
    payload = '{"n":9007199254740993,"f":1.0,"e":[],"x":null}'
    raw = '{"type":"main","payload":' + payload + ',"own":[ 1 ],"retry":{"attempts":2.75},"attempts":%d}'
    client.redis.set(KEYS.data("j"), raw % 0)
    client.redis.rpush(KEYS.waiting, "j")
    for failures in (1, 2):
        assert desk.run(Retry((Failure(desk.one().lease, "MyErr: boom", 10, "trace"),))).items == (("ok", "retried"),)
        assert client.redis.get(KEYS.data("j")) == raw % failures and client.status("j") == "delayed"
        desk.tick(10)
    (job,) = desk.claim()
    assert job.payload == payload.encode()
    assert desk.run(Retry((Failure(job.lease, "MyErr: boom", 10, "trace"),))).items == (("ok", "buried"),)
    assert client.redis.get(KEYS.data("j")) == raw % 2, "as the original leaves it"
    assert client.status("j") == "dead" and client.redis.lrange(KEYS.dead, 0, -1) == ["j"]
    assert result(client, "j")["error"] == {"message": "boom", "stack": "trace", "name": "MyErr"}
    desk.alter("requeue", "dead", "j")
    assert client.redis.get(KEYS.data("j")) == raw % 0 and waiting(client) == ["j"] and client.redis.llen(KEYS.dead) == 0


@pytest.mark.feature("BQ25", model="bridge")
def test_progress_is_on_the_wire(desk: ModelDesk, client: BridgeClient) -> None:
    """Without `data`: the original's store has none, whatever the seed says."""
    lease = desk.put("j").take()["j"].lease
    desk.run(NoteProgress(lease, 1, b'"percent":75,"message":"step 3/4","data":{"a":1}}'))
    progress = client.redis.get(KEYS.progress(lease.job))
    assert progress == '{"percent":75,"message":"step 3/4","updatedAt":%d}' % desk.now_ms  # noqa: UP031
    found = desk.queue.results.progress(lease.job)
    assert found is not None and (found.percent, found.data) == (75, {"a": 1})


@pytest.mark.feature("BQ34", model="bridge")
@pytest.mark.parametrize("outcome", ["skipped", "rerouted", "discarded"])
def test_what_ends_without_its_work_has_failed(desk: ModelDesk, client: BridgeClient, outcome: Any) -> None:
    job = desk.put("j", skip_on=["TypeError"], reroute_on={"MemoryError": "big"}).take()["j"]
    assert job.options.skip_on == ("TypeError",) and job.options.reroute_on == (("MemoryError", "big"),)
    assert desk.run(Drop((job.lease,), (outcome,), ("TypeError: of 7",))).items == (("ok", outcome),)
    assert client.status(job.lease.job) == "failed" and client.redis.scard(KEYS.active) == 0
    error = result(client, job.lease.job)["error"]
    assert (error["name"], error["message"]) == (("TypeError", "of 7") if outcome == "skipped" else ("Ended", outcome))


@pytest.mark.feature("BQ33", model="bridge")
def test_stats_count_what_is_in_each_structure(desk: ModelDesk, client: BridgeClient) -> None:
    desk.one_of_each()
    client.dispatch("main")
    client.delay(desk.now_ms + 5_000)
    counts = desk.queue.counts()
    assert (counts.waiting, counts.delayed, counts.active, counts.dead) == (2, 2, 1, 1)
    assert (client.redis.llen(KEYS.waiting), client.redis.zcard(KEYS.delayed), client.redis.scard(KEYS.active)) == (2, 2, 1)


def test_a_release_puts_a_job_back_to_the_head(desk: ModelDesk, client: BridgeClient) -> None:
    taken = desk.put("a", "b", "c").take(limit=2)
    desk.run(Release((taken["a"].lease, taken["b"].lease)))
    assert waiting(client) == [desk.ids[label] for label in "abc"]
    assert client.redis.get(KEYS.running("main")) == "0" and client.redis.scard(KEYS.active) == 0
    assert client.redis.keys("bridge:jobs:lock:*") == []


# -- what is left behind


@pytest.mark.feature("BQ32", model="bridge")
def test_what_a_dead_foreign_worker_held_comes_back(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.2: after the lock's end the member of the active set and the count stayed for ever, and the job ran no more."""
    job = client.dispatch("main")
    client.claim()
    stray_sweeps(desk)
    assert client.redis.smembers(KEYS.active) == {job}, "its lock is there"
    client.redis.delete(KEYS.lock(job))
    stray_sweeps(desk)
    assert waiting(client) == [job] and client.status(job) == "waiting"
    assert client.redis.scard(KEYS.active) == 0 and client.redis.get(KEYS.running("main")) == "0" and desk.one().lease.job == job


@pytest.mark.feature("BQ03", "BQ32", model="bridge")
def test_a_worker_without_heartbeat_is_dead_although_its_lock_lives(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch("main")
    client.claim("worker-1", 300)
    client.register("worker-1", lastSeen=desk.now_ms)
    stray_sweeps(desk)
    assert client.redis.smembers(KEYS.active) == {job}, "its first heartbeat may be late"
    client.register("worker-1", lastSeen=desk.now_ms - 31_000)
    client.redis.set(KEYS.heartbeat("worker-1"), "1", ex=30)
    stray_sweeps(desk)
    assert client.redis.smembers(KEYS.active) == {job}
    client.redis.delete(KEYS.heartbeat("worker-1"))
    stray_sweeps(desk)
    assert waiting(client) == [job] and not client.redis.exists(KEYS.lock(job))


def test_strays_among_many_that_are_held_come_back(desk: ModelDesk, client: BridgeClient) -> None:
    """The look goes round in pieces, and each stray must be seen twice."""
    jobs = [client.dispatch("main") for _ in range(700)]
    for _ in jobs:
        client.claim(lock_s=300)
    lost = {jobs[at] for at in (3, 350, 699)}
    client.redis.delete(*map(KEYS.lock, lost))
    for _ in range(20):
        stray_sweeps(desk)
    assert {*waiting(client)} == lost and client.redis.scard(KEYS.active) == 697
    assert client.redis.get(KEYS.running("main")) == "697"


def test_what_a_foreign_worker_finished_and_could_not_release_does_not_run_again(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch("main")
    client.claim()
    client.redis.delete(KEYS.lock(job))
    client.redis.set(KEYS.status(job), "completed")
    stray_sweeps(desk)
    assert waiting(client) == [] and client.redis.scard(KEYS.active) == 0 and client.redis.get(KEYS.running("main")) == "0"


def test_leases_of_ours_are_no_strays(desk: ModelDesk, client: BridgeClient) -> None:
    lease = desk.put("j").take()["j"].lease
    client.redis.delete(KEYS.lock(lease.job))
    desk.did(desk.sweep_operation("s")).tick(1_000).run(desk.sweep_operation("s"))
    assert waiting(client) == [] and desk.finish(lease) == [("ok", "finished")]


GARBAGE: dict[str, str | None] = {
    "no data": None, "no JSON": "{oops", "null": "null", "a list": "[]", "no type": '{"jobId":"j","payload":1}',
    "null type": '{"type":null}', "a stack that is a number": '{"type":"main","target":{"stack":7}}', "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_what_cannot_be_read_is_dead_with_the_reason(desk: ModelDesk, client: BridgeClient, data: str | None) -> None:
    """1.3.7: one of these failed a claim call for each life of its lock, for ever."""
    if data is not None:
        client.redis.set(KEYS.data("bad:1"), data)
    client.redis.rpush(KEYS.waiting, "bad:1")
    assert list(desk.put("good").take()) == ["good"]
    assert client.redis.lrange(KEYS.dead, 0, -1) == ["bad:1"] and client.status("bad:1") == "dead"
    assert result(client, "bad:1")["error"]["name"] == "SetAside"
    assert not client.redis.exists(KEYS.lock("bad:1")) and waiting(client) == []


DEEP = '{"jobId":"deep","type":"main","payload":' + "[" * 1_500 + "]" * 1_500 + ',"retry":{"attempts":0}}'


def test_nesting_beyond_what_cjson_reads_stops_nothing(desk: ModelDesk, client: BridgeClient) -> None:
    """6.4: the claim script of the original aborted on it, and left its lock."""
    client.redis.set(KEYS.data("deep"), DEEP)
    client.redis.rpush(KEYS.waiting, "deep")
    (job,) = desk.claim()
    assert job.payload == b"[" * 1_500 + b"]" * 1_500 and desk.finish(job.lease) == [("ok", "finished")]


@pytest.mark.parametrize("end", ["finish", "retry", "bury", "release", "drop"])
def test_rule_01_an_end_cut_off_after_any_write_is_completed(desk: ModelDesk, client: BridgeClient, end: str) -> None:
    for writes in desk.each_cut():
        lease = desk.put("j").take()["j"].lease
        failure = Failure(lease, "E: x", 0)
        operation: Any = {
            **{"retry": Retry((failure,)), "bury": Bury((failure,)), "release": Release((lease,))},
            **{"drop": Drop((lease,), ("skipped",)), "finish": Finish((lease,))},
        }[end]
        desk.cut_off(operation, writes)
        desk.run(operation)
        places = [desk.labels(waiting(client)), desk.labels(client.redis.lrange(KEYS.dead, 0, -1))]  # type: ignore[arg-type]
        assert places == {"retry": [["j"], []], "release": [["j"], []], "bury": [[], ["j"]]}.get(end, [[], []]), writes
        assert client.redis.scard(KEYS.active) == 0 and client.redis.get(KEYS.running("main")) == "0", writes
        assert client.redis.keys("bridge:jobs:lock:*") == [], writes


# -- findings


def test_finding_the_originals_own_loop_loses_what_it_took_out_of_the_list(desk: ModelDesk, client: BridgeClient) -> None:
    """1.3.1: LPOP, then the lock; whoever dies in between, or in mid-job, leaves the job in no structure."""
    job = client.dispatch("main")
    client.redis.lpop(KEYS.waiting)
    client.redis.set(KEYS.status(job), "active")
    stray_sweeps(desk)
    assert desk.claim() == [] and waiting(client) == [] and client.redis.scard(KEYS.active) == 0
    assert "bridge-original-loop" in {finding.name for finding in BridgeModel.FINDINGS}


def test_finding_a_foreign_end_is_not_fenced(desk: ModelDesk, client: BridgeClient) -> None:
    job = client.dispatch("main")
    client.claim()
    client.redis.delete(KEYS.lock(job))
    stray_sweeps(desk)
    (leased,) = desk.claim()
    assert client.complete(job, "late") == 0
    assert client.status(job) == "completed" and result(client, job)["data"] == "late", "over the run that has the job by now"
    desk.finish_with(leased.lease, b'"ours"')
    assert result(client, job)["data"] == "ours"
    assert "bridge-unfenced-foreign-end" in {finding.name for finding in BridgeModel.FINDINGS}


def test_finding_finished_jobs_stay(desk: ModelDesk, client: BridgeClient) -> None:
    desk.put("j").finished(desk.take()["j"].lease).tick(8 * 86_400_000)
    assert client.redis.exists(KEYS.data(desk.ids["j"]), KEYS.status(desk.ids["j"])) == 2
    desk.run(desk.clean_operation("finished"))
    assert client.redis.exists(KEYS.data(desk.ids["j"]), KEYS.status(desk.ids["j"])) == 0
    assert "bridge-finished-stay" in {finding.name for finding in BridgeModel.FINDINGS}
