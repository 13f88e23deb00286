"""The TypeScript client in Node and in Chromium, against the real application, with replies that get lost on the way."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Queue
from ironclaim_client import Client
from tests.clients import test_bananas, test_channels
from tests.clients.conftest import TOKEN, Scenarios, add, fail, meanwhile, working
from tests.clients.relay import HARM, HttpRelay, relay
from tests.clients.test_jobs import BATCH, ENQUEUE, RESULT
from tests.engine.helpers.waiting import wait_until

#: Each test starts Node or a page of Chromium.
pytestmark = pytest.mark.slow

#: Nothing listens there.
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def harmed(application_url: str, scenario: Scenarios) -> Iterator[HttpRelay]:
    """A relay to the application, that harms what it is told to, and serves the pages of the scenarios."""
    with relay(application_url, scenario.pages) as made:
        yield made


def publish(harmed: HttpRelay, *contents: object) -> None:
    """Publish past the relay."""
    with Client(harmed.target, token=TOKEN) as client:
        for content in contents:
            client.channel("news").publish(content)


def test_a_wrong_argument_is_named_before_anything_is_sent(scenario: Scenarios) -> None:
    with relay(NOWHERE, scenario.pages) as harmed:
        found = scenario("refusals", harmed)
        assert harmed.seen == []
    fields = {name: name for name in found} | {"user": "url", "surrogate": "id"}
    assert len(found) > 15
    for name, error in found.items():
        assert error and error["name"] == "InvalidArgument" and error["ours"], (name, error)
        assert error["field"] == fields[name] and error["bound"] and error["message"].startswith(f"{fields[name]}: "), error


@pytest.mark.feature("BN35")
def test_the_life_of_a_job(scenario: Scenarios, harmed: HttpRelay, ironclaim_url: str) -> None:
    with working(ironclaim_url, add=add):
        found = scenario("lifeOfAJob", harmed, token=TOKEN)
    id = found["enqueued"]["id"]
    assert found["enqueued"] == {"id": id, "created": True} and (found["value"], found["called"]) == (3, 7)
    result = found["result"]
    assert (result["id"], result["state"], result["value"], result["ended"], result["error"]) == (id, "finished", 3, True, "")
    assert result["endedMs"] > 0 and result["tookMs"] is not None and not result["hidden"]
    assert (found["job"]["id"], found["job"]["state"]) == (id, "finished")
    assert found["unknown"]["name"] == "NotFound" and found["unknown"]["status"] == 404
    assert found["late"]["name"] == "TimedOut" and "is delayed" in found["late"]["message"]


@pytest.mark.feature("BN35")
def test_jobs_whose_replies_are_lost_are_there_once(scenario: Scenarios, harmed: HttpRelay, queue: Queue) -> None:
    queue.enqueue("welcome", 0, id="own")
    harmed.next(*HARM, of=BATCH)
    came = scenario("enqueueMany", harmed, token=TOKEN)
    assert queue.counts().waiting == 4 and len({job["id"] for job in came}) == 4 and came[3] == {"id": "own", "created": False}
    assert [queue.jobs.get(job["id"]).priority for job in came[:3]] == [1, 2, 3]  # type: ignore[union-attr]
    harmed.next(*HARM, of=ENQUEUE)
    enqueued = scenario("enqueue", harmed, token=TOKEN)
    sent = [seen for seen in harmed.requests(ENQUEUE) if "batch" not in seen.path]
    assert [seen.rule for seen in sent] == [*HARM, "pass"]
    assert len({seen.headers.get("Idempotency-Key", seen.headers.get("idempotency-key")) for seen in sent}) == 1
    assert queue.counts().waiting == 5 and queue.jobs.get(enqueued["id"]) is not None
    first, second = (scenario("enqueue", harmed, token=TOKEN, options={"idempotencyKey": "order-7"}) for _ in range(2))
    assert (first, second) == ({"id": "order-7", "created": True}, {"id": "order-7", "created": False})


@pytest.mark.feature("BN35")
def test_what_the_server_refuses_names_field_value_and_bound(scenario: Scenarios, harmed: HttpRelay, queue: Queue) -> None:
    found = scenario("refusedJobs", harmed, token=TOKEN)
    priority = found["priority"]
    assert (priority["name"], priority["status"], priority["field"], priority["value"]) == ("Refused", 422, "priority", "11")
    assert "10" in priority["bound"] and found["many"]["status"] == 422
    assert (found["token"]["name"], found["token"]["status"]) == ("NotPermitted", 401)
    assert queue.counts().waiting == 0 and len(harmed.seen) == 3


@pytest.mark.feature("BN35")
def test_a_job_is_cancelled_and_requeued_once(scenario: Scenarios, harmed: HttpRelay, ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("welcome", None, id="a1", delay_ms=60_000)
    harmed.next("lose_reply", "gateway", of="/cancel")
    found = scenario("cancel", harmed, token=TOKEN)
    assert queue.jobs.state("a1") == "cancelled" and len(harmed.requests("/cancel")) == 4
    assert found["wait"]["name"] == "JobFailed" and found["unknown"]["name"] == "NotFound"
    with working(ironclaim_url, send=fail):
        queue.enqueue("send", None, id="b1", attempts=1)
        wait_until(lambda: queue.jobs.state("b1") == "dead", "the job is dead")
    harmed.next("gateway", of="/requeue")
    assert scenario("requeue", harmed, token=TOKEN)["name"] == "OutcomeUnknown"
    assert len(harmed.requests("/requeue")) == 1


@pytest.mark.feature("BN35")
def test_a_wait_outlasts_what_is_lost_or_away(scenario: Scenarios, harmed: HttpRelay, ironclaim_url: str, queue: Queue) -> None:
    def add(job: Any) -> int:
        wait_until(lambda: len(harmed.requests(RESULT)) > 6, "polls", 300)
        return sum(job.payload)

    queue.enqueue("add", [1, 2], id="a1")
    harmed.next("lose_reply", "busy", "gateway", "lose_request", "cut_reply", of=RESULT)
    with working(ironclaim_url, add=add):
        assert scenario("wait", harmed, token=TOKEN) == 3


def test_what_is_aborted_ends_at_once_with_the_reason(scenario: Scenarios, harmed: HttpRelay, queue: Queue, raw: Any) -> None:
    queue.enqueue("add", None, id="a1")
    found = scenario("abort", harmed, token=TOKEN)
    names = ("before", "poll", "wait", "messages", "ownMessages")
    assert {name: error["name"] for name, error in found.items()} == dict.fromkeys(names, "AbortError")
    wait_until(lambda: raw.keys("c.*.r.*") == [b"c.{news}.r.ada"], "the subscriber of its own is gone")


@pytest.mark.feature("DS33", model="dsps")
def test_the_life_of_messages(scenario: Scenarios, harmed: HttpRelay, raw: Any) -> None:
    found = scenario("lifeOfMessages", harmed, token=TOKEN)
    sent = [{"id": id, "content": content} for id, content in zip(found["ids"], [{"n": 1}, None, "é"], strict=True)]
    assert found["first"]["messages"] == sent[:2] and found["first"]["more"] and found["again"] == found["first"]
    assert found["rest"]["messages"] == sent[2:] and not found["rest"]["more"] and found["gone"]["name"] == "NotFound"
    assert raw.get("c.{news}.clock") == b"3" and raw.keys("c.*.r.*") == []


@pytest.mark.feature("DS33", model="dsps")
def test_a_subscription_outlives_failures_and_gives_each_message_once(scenario: Scenarios, harmed: HttpRelay, raw: Any) -> None:
    with Client(harmed.target, token=TOKEN) as client:
        client.channel("news").subscribe("ada")
    publish(harmed, *range(6))
    harmed.next(*HARM, "elsewhere", "pass", *HARM, of=test_channels.POLL)
    harmed.next(*HARM, "elsewhere", of=test_channels.ACKNOWLEDGE)
    assert scenario("take", harmed, token=TOKEN, options={"subscriber": "ada", "maxMessages": 2}, count=6) == list(range(6))
    assert raw.get("c.{news}.r.ada") == b"4", "the last two were not worked through when the loop ended"


@pytest.mark.feature("DS33", model="dsps")
def test_a_message_whose_replies_are_lost_is_published_once(scenario: Scenarios, harmed: HttpRelay, raw: Any) -> None:
    harmed.next(*HARM, of="PUT /channel/news/message/")
    id = scenario("publish", harmed, token=TOKEN)
    assert [seen.path.endswith(f"/{id}") for seen in harmed.requests("PUT /channel/news/message/")] == [True] * 6
    assert raw.get("c.{news}.clock") == b"1"


def test_a_subscription_without_name_has_its_own_and_ends_with_its_loop(scenario: Scenarios, harmed: HttpRelay, raw: Any) -> None:
    def publish_after() -> None:
        wait_until(lambda: harmed.requests("GET /channel/news/subscription/polling/s-"), "it polls", 300)
        publish(harmed, "after")

    with meanwhile(publish_after):
        assert scenario("take", harmed, token=TOKEN, count=1) == ["after"]
    assert len(harmed.requests("DELETE /channel/news/subscription/polling/s-")) == 1
    assert raw.exists("c.{news}.clock") and raw.keys("c.*.r.*") == []


def test_a_subscription_ends_when_its_subscriber_is_gone(scenario: Scenarios, harmed: HttpRelay) -> None:
    ended = scenario("takeFromOneThatGoes", harmed, token=TOKEN)
    assert ended["name"] == "NotFound" and "dsps.storage.subscription-not-found" in ended["message"]


@pytest.mark.feature("DS33", model="dsps")
def test_the_calls_of_dsps_own_client(scenario: Scenarios, harmed: HttpRelay, raw: Any) -> None:
    harmed.next("gateway", of="PUT")
    found = scenario("dsps", harmed, token=TOKEN)
    first = {"channelID": "news", "messageID": found["first"]["messageID"], "content": "bad"}
    assert found["first"] == first and found["got"] == [first, {"channelID": "news", "messageID": "own", "content": {"n": 2}}]
    assert found["failures"] == [["cannot read this", 1]]
    assert found["subscription"] == {"channelID": "news", "subscriptionID": "ada"}
    assert raw.keys("c.*.r.*") == []


@pytest.mark.feature("DS33", model="dsps")
def test_dsps_own_client_hears_of_an_end_that_is_not_its_own(scenario: Scenarios, harmed: HttpRelay) -> None:
    found = scenario("dspsEndsAbnormally", harmed, token=TOKEN)
    assert found == {"code": "dsps.storage.subscription-not-found", "ours": True, "failed": ["NotFound"]}


@pytest.mark.feature("BN35", model="bananas")
def test_the_calls_of_bananas_own_client(scenario: Scenarios, harmed: HttpRelay, ironclaim_url: str, raw: Any) -> None:
    harmed.next("gateway", "lose_reply", of=test_bananas.JOBS)
    with working(ironclaim_url, "bananas", add=lambda job: {"sum": sum(job.payload["n"])}):
        found = scenario("bananas", harmed, token=TOKEN)
    assert (found["done"]["status"], found["done"]["result"]) == ("completed", {"sum": 3})
    for name, route, priority in (("plain", "default", "high"), ("routed", "gpu", "low"), ("scheduled", "default", "high")):
        job = json.loads(raw.get(f"bananas:job:{found['ids'][name]}"))
        assert (job["routing_key"], job["priority"]) == (route, priority)
        seen = found["jobs"][name]
        assert (seen["id"], seen["routingKey"], seen["priority"], seen["payload"]) == (job["id"], route, priority, job["payload"])
    assert found["jobs"]["scheduled"]["status"] == "scheduled" and found["jobs"]["scheduled"]["scheduledFor"]
    assert found["none"] == {"job": None, "result": None}
    errors = found["errors"]
    assert errors["priority"]["name"] == errors["payload"]["name"] == "InvalidJobError"
    assert errors["token"]["name"] == "BananasError" and found["kinds"] == ["function"] * 3


def test_a_call_without_a_reply_ends_though_nothing_else_keeps_the_program_alive(scenario: Scenarios, harmed: HttpRelay) -> None:
    found = scenario("silence", harmed)
    whole = dict.fromkeys(("ends", "hangs", "body"), "ServerUnavailable")
    assert found == {**whole, **{f"{name}, aborted": "AbortError" for name in whole}}
