"""The calls of Bananas' Python SDK, over HTTP and on Bananas' own keyspace, where a worker of the engine runs the jobs."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ironclaim_client import Retries, bananas
from tests.clients.conftest import TOKEN, fail, working
from tests.clients.relay import HARM, HttpRelay

pytestmark = pytest.mark.feature("BN35", model="bananas")
JOBS = "POST /api/v1/jobs"


@pytest.fixture
def client(harmed: HttpRelay) -> Iterator[bananas.Client]:
    """The SDK's client; its server is behind a relay."""
    retries = Retries(deadline_ms=15_000, attempt_ms=15_000, first_ms=1, longest_ms=20)
    with bananas.Client(harmed.url, token=TOKEN, retries=retries) as opened:
        yield opened


def test_what_is_submitted_is_a_job_of_bananas(client: bananas.Client, raw: Any) -> None:
    first = client.submit_job("send_email", {"to": "ada"}, bananas.JobPriority.HIGH, "a greeting")
    second = client.submit_job_with_route("resize", {"width": 9}, bananas.JobPriority.LOW, "gpu")
    due = datetime.now(UTC) + timedelta(hours=1)
    third = client.submit_job_scheduled("remind", {}, bananas.JobPriority.NORMAL, due)
    for id, name, payload, priority, route in (
        (first, "send_email", {"to": "ada"}, "high", "default"),
        (second, "resize", {"width": 9}, "low", "gpu"),
        (third, "remind", {}, "normal", "default"),
    ):
        job = json.loads(raw.get(f"bananas:job:{id}"))
        assert (job["name"], job["payload"], job["priority"], job["routing_key"]) == (name, payload, priority, route)
        seen = client.get_job(id)
        assert seen is not None and (seen.id, seen.name, seen.payload, seen.routing_key) == (id, name, payload, route)
        assert seen.priority == bananas.JobPriority(priority) and abs(seen.created_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert raw.lrange("bananas:route:default:queue:high", 0, -1) == [first.encode()]
    assert raw.lrange("bananas:route:gpu:queue:low", 0, -1) == [second.encode()]
    assert raw.zrange("bananas:queue:scheduled", 0, -1) == [third.encode()]
    pending, scheduled = client.get_job(first), client.get_job(third)
    assert pending is not None and pending.status == bananas.JobStatus.PENDING and pending.scheduled_for is None
    assert scheduled is not None and scheduled.status == bananas.JobStatus.SCHEDULED and scheduled.scheduled_for is not None
    assert abs(scheduled.scheduled_for - due) < timedelta(seconds=2)
    assert client.get_job("nobody") is None and client.get_result("nobody") is None and client.get_result(first) is None


def test_results_and_failures_come_back(client: bananas.Client, ironclaim_url: str) -> None:
    with working(ironclaim_url, "bananas", add=lambda job: {"sum": sum(job.payload["n"])}, fail=fail):
        done = client.submit_and_wait("add", {"n": [1, 2]}, bananas.JobPriority.HIGH, timedelta(minutes=2))
        assert done is not None and done.is_success() and not done.is_failed() and done.result == {"sum": 3}
        assert abs(done.completed_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert client.get_result(done.job_id) == done
    assert client.submit_and_wait("add", {"n": []}, bananas.JobPriority.LOW, timedelta()) is None


def test_a_job_whose_replies_are_lost_is_there_once(client: bananas.Client, harmed: HttpRelay, raw: Any) -> None:
    harmed.next(*HARM, of=JOBS)
    id = client.submit_job("send_email", {}, bananas.JobPriority.NORMAL)
    assert len(harmed.requests(JOBS)) == 6 and raw.lrange("bananas:route:default:queue:normal", 0, -1) == [id.encode()]


def test_errors_are_those_of_the_sdk(client: bananas.Client, harmed: HttpRelay) -> None:
    high, hasty = bananas.JobPriority.HIGH, Retries(deadline_ms=0)
    stranger = bananas.Client(harmed.url, token="wrong-0123456789abcdef")
    nowhere = bananas.Client("http://127.0.0.1:9", retries=hasty)
    urgent: Any = "urgent"
    calls: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
        "content": (lambda: client.submit_job("send", {"who": {1, 2}}, high), bananas.SerializationError, "."),
        "priority": (lambda: client.submit_job("send", {}, urgent), bananas.InvalidJobError, "priority"),
        "route": (lambda: client.submit_job("send", {}, high, routing_key="a b"), bananas.InvalidJobError, "route"),
        "id": (lambda: client.get_job(".."), bananas.InvalidJobError, "^job_id: "),
        "token": (lambda: stranger.submit_job("send", {}, high), bananas.BananasError, "."),
        "server": (lambda: nowhere.submit_job("send", {}, high), bananas.ConnectionError, "."),
        "url": (lambda: bananas.Client("redis://localhost:6379/0"), bananas.InvalidJobError, "^url: "),
    }
    with stranger, nowhere:
        for what, (call, error, words) in calls.items():
            with pytest.raises(error, match=words) as caught:
                call()
            assert type(caught.value) is error, what
