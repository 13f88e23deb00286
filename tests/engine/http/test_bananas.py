"""The HTTP API of Bananas: its paths and bodies, over the keys that its own programs read and write."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine import Job, Queue, Worker, models
from engine.http.settings import HttpSettings
from tests.engine.helpers import at_work, producing, waiting
from tests.engine.http.serving import served

pytestmark = [pytest.mark.feature("BN34", model="bananas"), pytest.mark.feature("BN34")]
API = "/api/v1"


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[httpx.Client]:
    """Of an application that may change things and shows payloads."""
    settings = HttpSettings(url=ironclaim_url, allow_changes=True, show_payloads=True)
    with served(settings) as base, httpx.Client(base_url=f"{base}{API}", timeout=120) as made:
        yield made


def test_a_job_stands_in_the_keys_of_bananas(client: httpx.Client, raw: Any) -> None:
    body: dict[str, Any] = {"name": "send_email", "payload": {"to": "user@example.com"}, "description": "an urgent one"}
    body |= {"priority": "high", "routing_key": "gpu", "max_retries": 5}
    answer = client.post("/jobs", json=body)
    made = answer.json()
    assert answer.status_code == 201 and made["status"] == "pending" and made["created_at"].endswith("Z")
    stored = json.loads(raw.get(f"bananas:job:{made['id']}"))
    kept = ("name", "payload", "priority", "max_retries", "description")
    assert {name: stored[name] for name in kept} == {name: body[name] for name in kept}


def test_members_that_are_null_are_as_if_left_out(client: httpx.Client) -> None:
    optional = ("id", "scheduled_for", "routing_key", "max_retries")
    answer = client.post("/jobs", json={"name": "send_email", **dict.fromkeys(optional)})
    assert answer.status_code == 201, answer.text
    shown = client.get(f"/jobs/{answer.json()['id']}").json()
    assert (shown["status"], shown["routing_key"], shown["max_retries"]) == ("pending", "default", 3)
    document = client.get("../../openapi.json").json()
    body = document["paths"][f"{API}/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {name for name, schema in body["properties"].items() if "null" in schema.get("type", ())} == set(optional)


def test_a_job_is_followed_from_submission_to_its_result(client: httpx.Client, ironclaim_url: str) -> None:
    handlers = producing.some_handlers(lambda job: 2 * job.payload, "double")

    @handlers("fail")
    def fail(job: Job) -> None:
        raise ValueError("no")

    posted = [client.post("/jobs", json={"name": name, "payload": 21, "max_retries": 1}).json() for name in ("double", "fail")]
    made, ids = {job["id"]: job for job in posted}, [job["id"] for job in posted]
    later = client.post("/jobs", json={"name": "double", "scheduled_for": "2099-01-01T00:00:00Z"}).json()
    assert later["status"] == "scheduled" and client.get(f"/jobs/{later['id']}").json()["status"] == "scheduled"
    wanted = {"id": ids[0], "name": "double", "payload": 21, "status": "pending", "priority": "normal", "created_at": ""}
    wanted |= {"routing_key": "default", "attempts": 0, "max_retries": 1, "updated_at": ""}
    assert client.get(f"/jobs/{ids[0]}").json() | {"created_at": "", "updated_at": ""} == wanted
    assert [job["id"] for job in client.get("/jobs", params={"status": "pending"}).json()["jobs"]] == ids[::-1]
    with Queue("q", models.Bananas(), url=ironclaim_url) as queue, at_work.at_work(Worker(queue, handlers)):
        assert queue.results.wait(ids[0], wait_ms=60_000).value == 42 and not queue.results.wait(ids[1], wait_ms=60_000).ok
        shown, failed = (client.get(f"/jobs/{id}").json() for id in ids)
        # As long as the record is kept, an ended job says what it said before.
        for job, name in ((shown, "double"), (failed, "fail")):
            assert (job["name"], job["payload"], job["priority"], job["max_retries"]) == (name, 21, "normal", 1)
            assert job["created_at"] == made[job["id"]]["created_at"] and job["updated_at"] >= job["created_at"]
        assert (shown["status"], shown["result"]) == ("completed", 42) and shown["completed_at"].endswith("Z")
        assert failed["status"] == "failed" and "no" in failed["error"] and "unreadable" not in shown | failed
        assert [job["id"] for job in client.get("/jobs", params={"status": "failed"}).json()["jobs"]] == [ids[1]]
        waiting.wait_until(lambda: client.get("/metrics").json()["workers"]["active"] == 1, "the worker is listed")
        numbers = client.get("/metrics").json()
        assert (numbers["scheduled"], numbers["dead_letter"], numbers["workers"]["active"]) == (1, 1, 1)


def test_a_repeat_with_its_id_is_answered_with_the_same_job(client: httpx.Client) -> None:
    answers = [client.post("/jobs", json={"name": "a", "id": "order-1"}) for _ in range(2)]
    assert [(answer.status_code, answer.json()["id"]) for answer in answers] == [(201, "order-1"), (200, "order-1")]


BAD_JOBS = [
    *(({}, "name"), ({"name": "a", "routing_key": "a.b"}, "route"), ({"name": "a", "max_retries": 0}, "attempts")),
    *(({"name": "a", name: value}, name) for name, value in (("priority", "urgent"), ("priority", 7), ("description", 1))),
    *(({"name": "a", name: value}, name) for name, value in (("delay_ms", 1), ("scheduled_for", "tomorrow"))),
    *(({"name": "a", "scheduled_for": at}, "scheduled_for") for at in ("2030-01-01T00:00:00", "6000-01-01T00:00:00Z")),
]


@pytest.mark.parametrize(("body", "field"), BAD_JOBS)
def test_what_it_cannot_take_is_a_problem_that_names_the_field(client: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = client.post("/jobs", json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field) and client.get("/jobs").json()["jobs"] == []


def test_a_time_between_two_milliseconds_is_rounded_up(client: httpx.Client, ironclaim_url: str) -> None:
    # Finer than a datetime; tests/golden/http/whole.txt has more of them.
    made = client.post("/jobs", json={"name": "a", "scheduled_for": "2099-01-01t02:00:00.0000001+02:00"}).json()
    with Queue("q", models.Bananas(), url=ironclaim_url) as queue:
        (job,) = queue.jobs.list("delayed")
    assert (job.id, job.due_ms) == (made["id"], 4_070_908_800_001)


@pytest.mark.slow
def test_its_health_is_that_of_the_server(client: httpx.Client) -> None:
    assert (client.get("/health").status_code, client.get("/health").json()) == (200, {"status": "healthy"})
    assert client.get("/jobs/never").status_code == 404
    with served(HttpSettings(url="redis://127.0.0.1:1")) as base:
        assert httpx.get(f"{base}{API}/health", timeout=120).status_code == 503
