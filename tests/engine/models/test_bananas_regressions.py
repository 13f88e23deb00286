"""The known defects of the original, each with a number of its own, and what stands here instead; and what the wire
cannot be protected from, each as it happens: the names are those of the model's FINDINGS."""

import json
import threading
import time

import pytest

from engine import Handlers, Job, Queue, Worker, models
from engine.models.foreign.bananas import BananasModel
from tests.engine.models.bananas_desk import DAY_S, BananasDesk, desk, iso
from tests.engine.using import Look, Seen, at_work, some_handlers

__all__ = ["desk"]


def bananas(url: str) -> Queue:
    return Queue("q", models.Bananas(), url=url)


def look(desk: BananasDesk, job: str) -> Seen:
    return desk.run(Look(job))


def test_3_3_2_jobs_that_a_live_scheduler_has_promoted_are_found(desk: BananasDesk) -> None:
    """In `live` nothing of theirs reads the lists where it leaves them."""
    desk.go("j").redis.rename(desk.list_key(), "bananas:route:default:queue:normal")
    assert desk.one().lease.job == "j" and desk.processing() == ["j"]


def test_3_3_3_low_priority_waits_for_no_rounds(ironclaim_url: str) -> None:
    """Theirs block a second on each higher list, so a hundred jobs take a hundred seconds and more."""
    ran = threading.Semaphore(0)
    handlers = some_handlers(lambda job: ran.release())
    with bananas(ironclaim_url) as queue, at_work(Worker(queue, handlers, concurrency=1, prefetch=0)):
        for _ in range(100):
            queue.enqueue("work", {}, priority=1)
        until_s = time.monotonic() + 60
        assert all(ran.acquire(timeout=max(0.0, until_s - time.monotonic())) for _ in range(100))


def test_3_3_4_a_high_job_goes_before_low_ones_that_wait_already(desk: BananasDesk) -> None:
    desk.put(*(f"low{number}" for number in range(3)), priority=1)
    assert desk.put("high", priority=10).take(1)[0].lease.job == "high"


def test_3_3_5_what_a_crashed_worker_of_ours_held_comes_back(desk: BananasDesk) -> None:
    desk.put("j").take()
    assert desk.processing() == ["j"] and desk.past(9_001).processing() == [] and desk.waiting() == ["j"]


def test_3_3_5_a_job_type_that_a_worker_does_not_handle_stays_where_it_is(desk: BananasDesk) -> None:
    assert [leased.lease.job for leased in desk.go("other", name="other").go("main").take()] == ["main"]
    assert desk.waiting() == ["other"] and desk.processing() == ["main"]


def test_3_3_6_a_cron_job_without_an_id_gets_one(desk: BananasDesk) -> None:
    desk.go("", max_retries=0, status="").claimed()
    (leased,) = desk.take() or desk.take()
    job = leased.lease.job
    assert job.startswith("cron:unnamed:") and desk.body(job)["id"] == job
    assert desk.fail(leased.lease) == ("ok", "buried"), "max_retries 0 is one run"
    assert desk.dead() == [job]


def test_3_3_8_a_delayed_job_keeps_its_time_and_its_attempts(desk: BananasDesk) -> None:
    desk.put("ahead").put("later", delay_ms=60_000)
    assert desk.scheduled() == {"later": desk.now_ms / 1000 + 60} and desk.body("later")["attempts"] == 0
    assert desk.waiting() == ["ahead"] and desk.processing() == []


def test_3_3_9_many_promotions_bring_a_job_once(desk: BananasDesk) -> None:
    desk.put(*(f"j{number}" for number in range(50)), delay_ms=1000).tick(1000)
    assert sum(desk.run(promotion).promoted for promotion in [desk.sweep_operation(worker) for worker in "stuv"]) == 50
    assert len(desk.waiting()) == len(set(desk.waiting())) == 50


def test_3_3_9_a_missing_member_of_scheduled_is_removed_and_a_broken_one_is_dead(desk: BananasDesk) -> None:
    desk.redis.zadd("bananas:queue:scheduled", {"missing": 1, "broken": 2, "good": 3})
    desk.redis.set("bananas:job:broken", "{oops")
    desk.go("good").redis.delete(desk.list_key())
    assert desk.swept().scheduled() == {} and desk.waiting() == ["good"] and desk.dead() == ["broken"]
    assert not desk.redis.exists("bananas:job:missing")


def test_3_3_10_three_retries_are_three_runs(desk: BananasDesk) -> None:
    (leased,) = desk.go("j", max_retries=3, attempts=2).take()
    assert leased.failures == 2 and desk.fail(leased.lease)[1] == "buried"


def test_3_3_12_what_a_handler_returns_is_stored_and_given_to_who_waits(desk: BananasDesk) -> None:
    desk.put("j").succeed(desk.take()[0].lease, b'{"n":[1,2]}')
    seen = look(desk, "j")
    assert seen.state == "finished" and json.loads(seen.record)["value"] == {"n": [1, 2]}


@pytest.mark.feature("BN06", "BN15", model="bananas")
def test_3_3_12_no_call_misses_the_end_of_its_job(ironclaim_url: str, late_looks: None) -> None:
    """40 of 100 of theirs did, and sat out their time."""
    handlers = some_handlers(lambda job: 2 * job.payload, "double")
    with bananas(ironclaim_url) as queue, at_work(Worker(queue, handlers, concurrency=4, prefetch=0)):
        began_s = time.monotonic()
        assert [queue.call("double", number, wait_ms=120_000) for number in range(50)] == [2 * number for number in range(50)]
        # Who misses an end finds it with the next look, a minute later.
        assert time.monotonic() - began_s < 60


@pytest.mark.slow
def test_6_2_a_failure_that_is_made_good_is_not_told(ironclaim_url: str) -> None:
    handlers, runs = Handlers(), list[int]()

    @handlers("flaky")
    def flaky(job: Job) -> str:
        runs.append(job.attempt)
        if len(runs) == 1:
            raise ValueError("not yet")
        return "done"

    with bananas(ironclaim_url) as queue, at_work(Worker(queue, handlers)):
        assert queue.call("flaky", {}, wait_ms=60_000) == "done" and len(runs) == 2


def test_6_2_a_stored_failure_of_a_job_that_will_run_again_is_no_end(desk: BananasDesk) -> None:
    """As a foreign worker leaves it; the later success keeps its error, which says nothing any more."""
    desk.go("j", attempts=1, error="boom")
    desk.redis.hset("bananas:result:j", mapping={"status": "failed", "completed_at": "2100-01-01T01:06:40Z", "error": "boom"})
    assert look(desk, "j").state == "pending"
    desk.redis.delete(desk.list_key())
    desk.redis.set("bananas:job:j", desk.text("j").replace('"pending"', '"completed"'))
    desk.redis.hset("bananas:result:j", mapping={"status": "completed", "result": "5", "duration_ms": "3"})
    seen = look(desk, "j")
    assert (seen.state, json.loads(seen.record)["ok"], json.loads(seen.record)["value"]) == ("finished", True, 5)


def test_6_2_a_success_keeps_no_error_of_a_result_before_it(desk: BananasDesk) -> None:
    desk.go("j").redis.hset("bananas:result:j", mapping={"status": "failed", "error": "boom"})
    desk.succeed(desk.take()[0].lease, b"1")
    assert "error" not in desk.result("j") and desk.result("j")["status"] == "completed"


def test_6_2_a_failed_job_goes_back_to_its_own_route(desk: BananasDesk) -> None:
    desk.fail(desk.put("j", route="gpu").one(routes=("gpu",)).lease)
    assert desk.tick(2000).swept().waiting("gpu") == ["j"] and desk.waiting() == []


def test_6_2_a_job_of_the_python_client_goes_back_to_the_list_that_it_came_from(desk: BananasDesk) -> None:
    """Its routing key says gpu, but that client routes nothing, and its workers read no other list."""
    desk.sdk("s", routing_key="gpu").fail(desk.take()[0].lease)
    assert desk.tick(2000).swept().waiting() == ["s"] and desk.waiting("gpu") == []


def test_6_2_scores_with_a_fraction_and_the_status_scheduled(desk: BananasDesk) -> None:
    assert desk.sdk("s", due_s=desk.now_ms / 1000 + 0.75).tick(749).sweep().promoted == 0
    assert desk.tick(1).sweep().promoted == 1 and desk.waiting() == ["s"] and desk.body("s")["status"] == "pending"


@pytest.mark.feature("BN12", model="bananas")
def test_6_2_the_records_of_what_cannot_be_read(desk: BananasDesk) -> None:
    desk.redis.lpush(desk.list_key(), "missing")
    assert [leased.lease.job for leased in desk.go("broken", raw="{oops").go("good").take()] == ["good"]
    assert desk.dead() == ["missing", "broken"] and desk.waiting() == [] and desk.processing() == ["good"]
    assert desk.text("missing") == '{"error":"Job data not found (corrupted reference)","id":"missing"}'
    stub = desk.body("broken")
    assert list(stub) == ["corrupted_data", "error", "id"] and (stub["corrupted_data"], stub["id"]) == ("{oops", "broken")
    assert stub["error"].startswith("Failed to unmarshal job: ")
    for job in ("missing", "broken"):
        assert 6.9 * DAY_S < (desk.ttl_s(f"bananas:job:{job}") or 0) <= 7 * DAY_S


def test_6_2_entries_that_were_promoted_twice_run_once(desk: BananasDesk) -> None:
    desk.go("j").redis.lpush(desk.list_key(), "j", "j", "j")
    (leased,) = desk.take()
    assert leased.lease.job == "j" and desk.take() == [], "in hand already"
    assert desk.succeed(leased.lease) == ("ok", "finished")
    assert desk.take() == [] and desk.waiting() == [], "it has run"
    assert desk.body("j")["status"] == "completed"


def test_6_2_what_a_foreign_worker_has_left_behind_comes_back_where_that_is_asked_for(ironclaim_url: str) -> None:
    never = BananasDesk(ironclaim_url, "document").go("j")
    never.redis.lmove(never.list_key(), "bananas:queue:processing", "RIGHT", "LEFT")
    never.sweep_past(60_000)
    assert never.processing() == ["j"]
    never.close()
    desk = BananasDesk(ironclaim_url, "document", adopt_after_ms=30_000)
    assert desk.past(27_000).processing() == ["j"] and desk.past(12_000).processing() == [] and desk.waiting() == ["j"]
    desk.close()


def test_a_finished_job_that_a_foreign_scheduler_writes_back_does_not_run_again(desk: BananasDesk) -> None:
    """It read the job and its entry of queue:scheduled, and promotes it only after a worker of the engine has run it."""
    old = desk.put("j", delay_ms=1_000).text("j")
    (leased,) = desk.tick(1_000).take()
    assert desk.succeed(leased.lease, b'"sent"') == ("ok", "finished")
    done, result = desk.body("j"), desk.result("j")
    desk.redis.set("bananas:job:j", old.replace('"status":"scheduled"', '"status":"pending"'))
    desk.redis.lpush(desk.list_key(), "j")
    assert desk.take() == [] and desk.redis.llen(desk.list_key()) == 0 and desk.processing() == []
    assert desk.body("j") == done and done["status"] == "completed" and desk.result("j") == result
    assert 0 < desk.redis.ttl("bananas:job:j") <= 86_400
    assert desk.queue.counts().active == 0 and desk.succeed(leased.lease, b'"sent"')[0] in ("ok", "repeated")


def test_a_job_that_is_made_later_under_the_id_of_a_finished_one_runs(desk: BananasDesk) -> None:
    assert desk.succeed(desk.go("j").one().lease) == ("ok", "finished")
    assert [again.lease.job for again in desk.go("j", created_at=iso(desk.now_ms + 1)).take()] == ["j"]


@pytest.mark.parametrize(("more", "left"), [(0, "j099"), (1, "late")])
def test_of_jobs_due_together_a_mebibyte_is_read_to_begin_with_the_oldest(desk: BananasDesk, more: int, left: str) -> None:
    due_s, jobs = desk.now_ms / 1000, [f"j{number:03}" for number in range(100)]
    for at, job in enumerate(jobs, 1):
        size = len(desk.sdk(job, due_s=due_s).text(job))
        wanted = (1 << 20) // 100 + ((1 << 20) % 100 + more if at == len(jobs) else 0)
        assert len(desk.sdk(job, due_s=due_s, description="x" * (wanted - size)).text(job)) == wanted
    desk.sdk("late", due_s=due_s, created_at="2099-01-01T00:00:00Z").take(1)
    assert [*desk.scheduled()] == [left]


def foreign_take(desk: BananasDesk) -> None:
    """As a worker of the original takes a job."""
    assert desk.redis.lmove(desk.list_key(), "bananas:queue:processing", "RIGHT", "LEFT")


def test_stranded_in_processing(desk: BananasDesk) -> None:
    foreign_take(desk.go("j"))
    assert desk.past(60_000).processing() == ["j"] and desk.take() == []


def test_adopted_while_a_foreign_worker_runs_it(ironclaim_url: str) -> None:
    desk = BananasDesk(ironclaim_url, "document", adopt_after_ms=10_000)
    foreign_take(desk.go("j"))
    desk.sweep_past(18_000)
    assert [leased.lease.job for leased in desk.take()] == ["j"], "beside the one that may still run it"
    desk.close()


def test_foreign_promotion_doubles(desk: BananasDesk) -> None:
    desk.go("j").redis.lpush(desk.list_key(), "j")
    (leased,) = desk.take()
    foreign_take(desk)
    assert desk.processing() == ["j", "j"], "both have it in hand"
    assert desk.succeed(leased.lease) == ("ok", "finished")
    # The other way round.
    desk.begin().go("j").redis.lpush(desk.list_key(), "j")
    foreign_take(desk)
    (leased,) = desk.take()
    assert desk.processing() == ["j", "j"] and desk.succeed(leased.lease) == ("ok", "finished")


def test_foreign_ends_unfenced(desk: BananasDesk) -> None:
    (leased,) = desk.go("j").take()
    desk.redis.lrem("bananas:queue:processing", 1, "j")
    desk.redis.set("bananas:job:j", desk.text("j").replace('"pending"', '"completed"'), ex=86_400)
    assert desk.succeed(leased.lease, b"1")[0] == "stale", "what was done here is refused"
    assert desk.result("j") == {} and desk.body("j")["status"] == "completed"


def test_cron_without_id(desk: BananasDesk) -> None:
    desk.go("", payload='{"tick":1}').go("", payload='{"tick":2}').claimed()
    payloads = [leased.payload for _ in range(3) for leased in desk.take()]
    assert b'{"tick":1}' not in payloads and b'{"tick":2}' in payloads


def test_whole_seconds(desk: BananasDesk) -> None:
    assert desk.put("j", delay_ms=1).tick(999).sweep().promoted == 0 and desk.tick(1).sweep().promoted == 1


def test_jobs_that_are_due_in_one_second_wake_one_worker(desk: BananasDesk) -> None:
    def wakes(job: str, delay_ms: int) -> int:
        return desk.put(job, delay_ms=delay_ms).redis.delete(f"{desk.keys.prefix}wake")  # type: ignore[return-value]

    assert [wakes("one", 5_100), wakes("later", 5_900), wakes("sooner", 5_050), wakes("before", 4_900)] == [1, 0, 0, 1]


def test_pause_is_ours(desk: BananasDesk) -> None:
    assert desk.go("j").pause().take() == []
    foreign_take(desk)
    assert desk.processing() == ["j"]


def test_routes_are_not_listed(desk: BananasDesk) -> None:
    assert desk.go("j", route="gpu").queue.counts().waiting == 0
    assert [leased.lease.job for leased in desk.take(routes=("gpu",))] == ["j"]
    assert desk.go("k", route="gpu").queue.counts().waiting == 1, "from the first claim on"


def test_each_finding_has_a_test() -> None:
    assert {f"test_{name.replace('-', '_')}" for name in {finding.name for finding in BananasModel.FINDINGS}} <= set(globals())
