"""The job API, over a real socket and on a real server: what it answers, and what it leaves in the queue."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine import Handlers, Job, Queue, TimedOut, Worker
from tests.engine.http.serving import asking
from tests.engine.using import at_work, wait_until

pytestmark = pytest.mark.feature("BN34")
JOBS = "/api/queues/q/jobs"


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[httpx.Client]:
    """Of an application that may change things and shows payloads."""
    with asking(ironclaim_url, allow_changes=True, show_payloads=True) as made:
        yield made


@pytest.fixture
def working(queue: Queue) -> Iterator[threading.Event]:
    """A worker whose handler `double` tells its progress and waits until it may, and whose handler `fail` fails."""
    may, handlers = threading.Event(), Handlers()

    @handlers("double")
    def double(job: Job) -> int:
        job.progress(40, "soon")
        may.wait()
        return 2 * job.payload

    @handlers("fail")
    def fail(job: Job) -> None:
        raise ValueError(f"no {job.payload}")

    with at_work(Worker(queue, handlers)):
        yield may
        may.set()


def put(client: httpx.Client, idempotency: str | None = None, **job: Any) -> httpx.Response:
    return client.post(JOBS, json=job, headers={"Idempotency-Key": idempotency} if idempotency else None)


def test_a_job_is_enqueued_with_its_options(client: httpx.Client, queue: Queue) -> None:
    answer = put(client, name="send", payload={"to": "a"}, id="j1", priority=7, delay_ms=60_000, key="acme", headers={"a": "b"})
    told = answer.json()
    assert (answer.status_code, told) == (201, {"id": "j1", "created": True, "srv_ms": told["srv_ms"]})
    assert answer.headers["location"] == f"{JOBS}/j1"
    job = queue.jobs.get("j1")
    assert job is not None and (job.state, job.name, job.payload, job.priority) == ("delayed", "send", {"to": "a"}, 7)
    # The time of the server, not of the app.
    assert job.enqueued_ms == told["srv_ms"] and (job.key, job.headers) == ("acme", {"a": "b"})


def test_a_repeat_with_the_same_key_is_answered_with_the_same_job(client: httpx.Client, queue: Queue) -> None:
    for status, created in ((201, True), (200, False)):
        answer = put(client, "order-1", name="send", payload=1)
        assert (answer.status_code, answer.json()["id"], answer.json()["created"]) == (status, "order-1", created)
    assert queue.counts().waiting == 1
    # A malformed key is refused also where the job has an id.
    answer = put(client, "a b", name="a", id="j1")
    assert (answer.status_code, answer.json()["field"], queue.counts().waiting) == (422, "Idempotency-Key", 1)


def test_a_batch_is_enqueued_in_its_order_and_a_repeat_of_it_creates_nothing(client: httpx.Client, queue: Queue) -> None:
    jobs = [{"name": "send", "payload": number} for number in range(3)]
    for created in (True, False):
        answer = client.post(f"{JOBS}/batch", json={"jobs": jobs}, headers={"Idempotency-Key": "b"})
        assert answer.status_code == 201
        assert [(job["id"], job["created"]) for job in answer.json()["jobs"]] == [(f"b.{at}", created) for at in range(3)]
    assert [job.payload for job in queue.jobs.list("waiting")] == [0, 1, 2]


BAD_JOBS: list[tuple[dict[str, Any], str]] = [
    ({"payload": 1}, "name"), ({"name": "a b"}, "name"), ({"name": "a", "payload": "x" * 600_000}, "payload"),
    *(({"name": "a", name: 1}, name) for name in ("prioriti", "intended_ns")), ({"name": "a", "priority": 11}, "priority"),
    ({"name": "a", "id": "cron:x"}, "id"), ({"name": "a", "on_success": {"name": "b", "delay_ms": 5}}, "on_success.delay_ms"),
]  # fmt: skip


@pytest.mark.parametrize(("job", "field"), BAD_JOBS)
def test_a_malformed_job_is_a_problem_that_names_field_value_and_bound(
    client: httpx.Client, queue: Queue, job: dict[str, Any], field: str
) -> None:
    answer = put(client, **job)
    found = answer.json()
    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    assert found["field"] == field and found["bound"] and "value" in found
    batch = client.post(f"{JOBS}/batch", json={"jobs": [{"name": "good"}, job]})
    assert batch.status_code == 422 and batch.json()["field"] == f"jobs[1].{field}"
    assert client.post(f"{JOBS}/batch", json={"jobs": ["hidden"]}).json()["value"] == "a str of length 6"
    assert queue.counts().waiting == 0


BAD_BODIES = [
    *((b'{"name": "a"}', "application/xml", 415), (b'["a"]', "application/json", 422), (b"", "application/json", 400)),
    *((body, "application/json", 400) for body in (b'{"name": "a"', b'{"name": "\xff"}', b'{"name": "a", "payload": NaN}')),
    (b"[" * 100_000, "application/json", 400),
]


@pytest.mark.parametrize(("body", "media_type", "status"), BAD_BODIES)
def test_a_body_that_is_no_object_of_json_is_refused(client: httpx.Client, body: bytes, media_type: str, status: int) -> None:
    answer = client.post(JOBS, content=body, headers={"Content-Type": media_type})
    assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"


def test_bodies_may_be_left_out_where_each_member_may(client: httpx.Client) -> None:
    for way in ("PUT events", "PUT history", "POST pause", "POST resume", "POST dead/requeue", "POST dead/discard"):
        method, path = way.split()
        assert client.request(method, f"/api/queues/q/{path}").is_success, way


def test_who_waits_for_a_result_is_woken_by_it(client: httpx.Client, working: threading.Event, late_looks: None) -> None:
    put(client, name="double", payload=21, id="j1")
    waiting = client.get(f"{JOBS}/j1/result", params={"wait_ms": 1})
    assert (waiting.status_code, waiting.json()["id"]) == (202, "j1")
    with ThreadPoolExecutor() as pool:
        polls = [pool.submit(client.get, f"{JOBS}/j1/result", params={"wait_ms": 60_000}) for _ in range(20)]
        working.set()
        answers = [poll.result() for poll in polls]
    told = {(answer.status_code, answer.json()["state"], answer.json()["result"]) for answer in answers}
    assert told == {(200, "finished", 42)}


def test_the_progress_of_a_job_is_what_its_handler_has_told_last(client: httpx.Client, working: threading.Event) -> None:
    put(client, name="nobody", id="j1")
    put(client, name="double", payload=21, id="j2")
    wait_until(lambda: client.get(f"{JOBS}/j2/progress").status_code == 200, "it has told its progress")
    found = client.get(f"{JOBS}/j2/progress").json()
    assert (found["percent"], found["message"], found["at_ms"] > 0) == (40, "soon", True)
    untold = client.get(f"{JOBS}/j1/progress")
    assert (untold.status_code, untold.content) == (204, b"")
    assert client.get(f"{JOBS}/never/progress").status_code == 404


def test_a_dead_job_shows_its_error_and_may_be_requeued_or_discarded(client: httpx.Client, queue: Queue, working: Any) -> None:
    for job in ("j1", "j2"):
        put(client, name="fail", payload=7, id=job, attempts=1)
        ended = client.get(f"{JOBS}/{job}/result", params={"wait_ms": 60_000})
        assert (ended.status_code, ended.json()["state"]) == (200, "dead") and "no 7" in ended.json()["error"]
    shown = client.get(f"{JOBS}/j1").json()
    assert shown["failures"] == 1 and "no 7" in shown["last_error"] and "Traceback" in shown["errors"][0]["trace"]
    listed = client.get(JOBS, params={"state": "dead", "error": "ValueError", "text": "NO 7"}).json()
    assert {job["id"] for job in listed["jobs"]} == {"j1", "j2"} and listed["cursor"] is None
    assert client.get(JOBS, params={"state": "dead", "error": "KeyError"}).json()["jobs"] == []
    assert client.post(f"{JOBS}/j2/discard").json() == {"id": "j2", "state": "dead"}
    assert client.post(f"{JOBS}/j2/requeue").status_code == 409
    assert client.post("/api/queues/q/dead/requeue", json={"name": "fail"}).json() == {"requeued": 1}
    wait_until(lambda: (job := queue.jobs.get("j1")) is not None and job.failures == 1 and job.state == "dead", "it ran again")
    told = client.get("/api/queues/q/dead/errors").json()
    (group,) = told["groups"]
    assert (group["name"], group["count"], group["job"], told["looked"], told["more"]) == ("fail", 1, "j1", 1, False)
    assert group["kind"] == "ValueError: no …" and group["example"].startswith("ValueError: no ")
    of_kind = {"name": "fail", "error_like": group["kind"]}
    assert [job["id"] for job in client.get(JOBS, params={"state": "dead", **of_kind}).json()["jobs"]] == ["j1"]
    assert client.post("/api/queues/q/dead/discard", json={"error_like": "ValueError: yes 7"}).json() == {"discarded": 0}
    assert client.post("/api/queues/q/dead/discard", json=of_kind).json() == {"discarded": 1}
    assert queue.jobs.state("j1") == "discarded"


def test_a_workflow_is_shown_requeued_cancelled_and_retried(client: httpx.Client, queue: Queue, working: threading.Event) -> None:
    put(client, name="fail", payload=7, id="p", attempts=1)
    put(client, name="none", id="c", needs=["p"])
    wait_until(lambda: queue.jobs.state("c") == "dead", "the child is buried")
    at = "/api/queues/q/jobs"
    found = client.get(f"{at}/c/workflow").json()
    assert (found["counts"], found["jobs"][1]) == ({"dead": 2}, {"id": "c", "name": "none", "state": "dead", "needs": ["p"]})
    assert client.get(f"{at}/c/workflow", params={"limit": 1}).json()["more"] is True
    assert client.get(f"{at}/never/workflow").status_code == 404
    queue.pause("fail")
    done = client.post(f"{at}/p/requeue", json={"with_children": True}).json()
    assert done == {"id": "p", "state": "dead", "children": 1, "left": 0}
    assert [queue.jobs.state(job) for job in "pc"] == ["waiting", "blocked"]
    queue.resume("fail")
    wait_until(lambda: queue.jobs.state("c") == "dead", "both have died again")
    queue.pause("fail")
    assert client.post(f"{at}/c/workflow/retry").json() == {"changed": 2, "left": 0, "more": False}
    assert client.post(f"{at}/c/workflow/cancel").json() == {"changed": 2, "left": 0, "more": False}
    assert client.post(f"{at}/p/requeue", json={"with_children": 1}).status_code == 422


def test_a_job_is_cancelled_and_a_delay_is_ended(client: httpx.Client, queue: Queue) -> None:
    for id, delay_ms in (("j1", 0), ("j2", 600_000)):
        put(client, name="a", id=id, delay_ms=delay_ms)
    assert client.post(f"{JOBS}/j1/cancel").json() == {"id": "j1", "state": "waiting"}
    again = client.post(f"{JOBS}/j1/cancel")
    assert (again.status_code, again.json()["state"]) == (409, "cancelled")
    ended = client.get(f"{JOBS}/j1/result").json()
    assert (ended["id"], ended["state"], ended["error"]) == ("j1", "cancelled", "")
    assert client.post(f"{JOBS}/j2/run-now").status_code == 200
    assert [queue.jobs.state(job) for job in ("j1", "j2")] == ["cancelled", "waiting"]
    for action in ("cancel", "run-now", "requeue", "discard"):
        assert client.post(f"{JOBS}/never/{action}").status_code == 404
    assert client.get(f"{JOBS}/never").status_code == 404
    assert client.get(f"{JOBS}/never/result", params={"wait_ms": 1000}).status_code == 404


def test_pages_lead_through_all_jobs_of_a_state(client: httpx.Client, queue: Queue) -> None:
    queue.enqueue_many([{"name": "a" if at % 2 else "b", "payload": at, "id": f"j{at}"} for at in range(25)])
    found: list[str] = []
    page: dict[str, Any] = {"cursor": "0"}
    while page["cursor"] is not None:
        page = client.get(JOBS, params={"name": "a", "limit": 10, "cursor": page["cursor"]}).json()
        found += [job["id"] for job in page["jobs"]]
    assert sorted(found) == sorted(f"j{at}" for at in range(1, 25, 2))


def test_a_queue_shows_its_counts_and_what_holds_its_jobs_back(client: httpx.Client, queue: Queue) -> None:
    put(client, name="a", key="acme")
    assert client.post("/api/queues/q/pause", json={"name": "a", "length_ms": 600_000}).json() == {"paused": "a"}
    limit = client.put("/api/queues/q/key-limits/acme", json={"concurrency": 2})
    assert limit.status_code == 200
    shown = client.get("/api/queues/q").json()
    assert (shown["queue"], shown["model"], shown["counts"]["waiting"]) == ("q", "lanes", 1)
    assert [pause["name"] for pause in shown["pauses"]] == ["a"] and shown["oldest_age_ms"] >= 0
    assert [(limit["key"], limit["concurrency"]) for limit in shown["limits"]] == [("acme", 2)]
    assert "paused" in client.get(f"{JOBS}/" + queue.jobs.list("waiting")[0].id + "/why").json()["why"]
    assert client.post("/api/queues/q/resume", json={"name": "a"}).json() == {"resumed": True}
    assert client.delete("/api/queues/q/key-limits/acme").status_code == 204
    assert client.put("/api/queues/q/limits/a", json={"rate": 5}).json()["field"] == "per_ms"
    assert (queue.obstacles().pauses, queue.limits()) == ((), [])
    assert [found["queue"] for found in client.get("/api/queues").json()["queues"]] == ["q"]
    numbers = client.get("/api/queues/q/metrics")
    assert numbers.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'ironclaim_jobs{queue="q",state="waiting"} 1' in numbers.text.splitlines()


def test_workers_and_schedules_are_shown(client: httpx.Client, queue: Queue, working: threading.Event) -> None:
    queue.schedules.put("nightly", "report", {"of": "day"}, cron="0 3 * * *")
    (shown,) = client.get("/api/queues/q/schedules").json()["schedules"]
    assert (shown["name"], shown["job_name"], shown["payload"], shown["enabled"]) == ("nightly", "report", {"of": "day"}, True)
    assert client.post("/api/queues/q/schedules/nightly/disable").status_code == 200
    assert client.post("/api/queues/q/schedules/never/disable").status_code == 404
    schedule = queue.schedules.get("nightly")
    assert schedule is not None and not schedule.enabled
    made = client.post("/api/queues/q/schedules/nightly/run-now")
    assert made.status_code == 201 and queue.jobs.state(made.json()["id"]) == "waiting"
    listed = wait_until(lambda: client.get("/api/queues/q/workers").json()["workers"], "the worker has told that it lives")
    assert set(listed[0]["handlers"]) == {"double", "fail"}


def test_what_a_format_cannot_hold_is_a_problem(ironclaim_url: str) -> None:
    with asking(ironclaim_url, model="bull", allow_changes=True) as client:
        answer = client.post(JOBS, json={"name": "a", "payload": {}, "key": "acme"})
        shown = client.get("/api/queues/q")
    assert answer.status_code == 501 and "key" in answer.json()["detail"]
    assert (shown.status_code, shown.json()["model"]) == (200, "bull")


@pytest.mark.slow
def test_a_server_that_is_away_is_a_problem_that_says_when_to_try_again() -> None:
    with asking("redis://127.0.0.1:1") as client:
        answer = client.get("/api/queues")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_queue_in_shards_is_served_whole(client: httpx.Client, ironclaim_url: str, raw: Any) -> None:
    """Also one that was met before it had any."""
    assert client.get("/api/queues/parts").json()["counts"]["waiting"] == 0
    with Queue("parts", url=ironclaim_url, shards=4) as parts:
        parts.enqueue("a", 0, id="first")
        jobs = [{"name": "a", "payload": at, "id": f"j{at}", "key": f"k{at}"} for at in range(20)]
        assert client.post("/api/queues/parts/jobs/batch", json={"jobs": jobs}).status_code == 201
        assert client.get("/api/queues/parts").json()["counts"]["waiting"] == parts.counts().waiting == 21
        assert client.get("/api/queues/parts/jobs/j7").json()["payload"] == 7
        assert len(client.get("/api/queues/parts/jobs", params={"limit": 100}).json()["jobs"]) == 21
        assert client.post("/api/queues/parts/jobs/j7/cancel").status_code == 200 and parts.jobs.state("j7") == "cancelled"
        raw.flushdb()
        assert client.get("/api/queues/parts").json()["counts"]["waiting"] == 0 == raw.exists("ic:{parts}:shards"), "whole again"


def test_a_view_costs_two_calls_however_much_there_is(client: httpx.Client, raw: Any, queue: Queue) -> None:
    """With more lanes than one call counts, and more schedules than one call lists."""
    queue.enqueue_many([{"name": "a", "payload": at, "key": f"k{at % 700}"} for at in range(2_000)])
    for at in range(120):
        queue.schedules.put(f"s{at}", "a", every_ms=3_600_000)
    paths = ("", "/jobs?limit=100", "/jobs?limit=100&cursor=1900", "/jobs?text=nothing&key=k1&error=x", "/workers", "/schedules")
    client.get("/api/queues/q")

    def calls() -> int:
        stats = raw.info("commandstats")
        return sum(of["calls"] for name, of in stats.items() if name in ("cmdstat_evalsha", "cmdstat_evalsha_ro"))

    for path in paths:
        before = calls()
        assert client.get(f"/api/queues/q{path}").status_code == 200 and 1 <= calls() - before <= 2, path
    shown = client.get("/api/queues/q").json()
    assert shown["cut"] and shown["waiting_is_cut"] and 0 < shown["counts"]["waiting"] < 2_000
    assert queue.counts().waiting == 2_000 and not queue.counts().cursor
    assert client.get("/api/queues/q/schedules").json()["next"] == 100
    assert len(client.get("/api/queues/q/schedules?offset=100").json()["schedules"]) == 20


def test_a_long_poll_leaves_nothing_that_only_the_collector_of_cycles_would_free(client: httpx.Client, queue: Queue) -> None:
    put(client, name="send", id="j1")
    path = f"{JOBS}/j1/result"
    assert client.get(path, params={"wait_ms": 1}).status_code == 202

    def raised() -> int:
        return sum(type(one) is TimedOut for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        others = raised()
        for _ in range(20):
            assert client.get(path, params={"wait_ms": 1}).status_code == 202
        wait_until(lambda: raised() <= others, "what the polls have raised is gone")
    finally:
        gc.enable()


KEYS = [
    *(("order-1", 201, "order-1"), ('"order-1"', 201, "order-1"), ('"order-1', 400, None)),
    *(('"order-1"x', 400, None), ('"a\\b"', 400, None), ('"a\\"b"', 422, None), ('""', 422, None)),
]


@pytest.mark.parametrize(("key", "status", "id"), KEYS)
def test_a_key_in_quotes_is_the_string_that_stands_in_them(client: httpx.Client, key: str, status: int, id: str | None) -> None:
    answer = put(client, key, name="a")
    assert answer.status_code == status, answer.text
    assert answer.json().get("id") == id and (id is not None or answer.json()["field"] == "Idempotency-Key")
