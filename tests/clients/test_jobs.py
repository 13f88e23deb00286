"""Jobs through the Python client, against the real application on a real server, with replies that get lost on the way."""

import asyncio
from typing import Any

import pytest

import ironclaim_client
from engine import Queue
from engine.http.settings import HttpSettings, Token
from tests.clients.conftest import TOKEN, add, fail, working
from tests.clients.faces import Connect
from tests.clients.relay import HARM, HttpRelay
from tests.engine.http.serving import served
from tests.engine.using import refused, wait_until

pytestmark = pytest.mark.feature("BN35")
ENQUEUE, BATCH, RESULT = "POST /api/queues/emails/jobs", "POST /api/queues/emails/jobs/batch", "/result"


def test_the_life_of_a_job(connect: Connect, application_url: str, ironclaim_url: str, queue: Queue) -> None:
    emails = connect(application_url).queue("emails")
    enqueued = emails.enqueue("add", [1, 2], priority=8, attempts=1, headers={"trace": "t1"})
    assert enqueued.created
    raw = queue.jobs.get(enqueued.id)
    assert raw is not None and (raw.name, raw.payload, raw.priority, raw.options.attempts) == ("add", [1, 2], 8, 1)
    assert raw.headers == {"trace": "t1"}
    seen = emails.job(enqueued.id)
    assert (seen["id"], seen["state"], seen["payload"], seen["priority"]) == (enqueued.id, "waiting", [1, 2], 8)
    waiting = emails.result(enqueued.id)
    assert waiting.state == "waiting" and not waiting.ended
    refused(ironclaim_client.TimedOut, f"^job {enqueued.id} is waiting$", emails.wait, enqueued.id, timeout_ms=0)
    with working(ironclaim_url, add=add):
        assert emails.wait(enqueued.id) == 3 and emails.call("add", [3, 4]) == 7
    found = emails.result(enqueued.id)
    assert found.ended and found.value == 3 and found.ended_ms > 0 and found.took_ms is not None
    refused(ironclaim_client.NotFound, None, emails.wait, "nobody")


def test_a_job_whose_replies_are_lost_is_there_once(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    emails = connect(harmed.url).queue("emails")
    harmed.next(*HARM, of=ENQUEUE)
    enqueued, sent = emails.enqueue("welcome", {"to": "ada"}), harmed.requests(ENQUEUE)
    assert [seen.rule for seen in sent] == [*HARM, "pass"] and len({seen.headers["Idempotency-Key"] for seen in sent}) == 1
    assert queue.counts().waiting == 1 and queue.jobs.get(enqueued.id) is not None
    assert not enqueued.created, "the first that came through has made it"
    assert emails.enqueue("welcome", {"to": "ada"}).created, "another call is another job"
    assert queue.counts().waiting == 2


def test_jobs_whose_replies_are_lost_are_there_once_each(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    emails = connect(harmed.url).queue("emails")
    queue.enqueue("welcome", 0, id="own")
    harmed.next(*HARM, of=BATCH)
    jobs = [ironclaim_client.NewJob(name="welcome", payload=n, options={"priority": n + 1}) for n in range(5)]
    came = emails.enqueue_many([*jobs, ironclaim_client.NewJob(name="welcome", id="own")])
    assert queue.counts().waiting == 6 and len({enqueued.id for enqueued in came}) == 6
    assert [queue.jobs.get(enqueued.id).priority for enqueued in came[:5]] == [1, 2, 3, 4, 5]  # type: ignore[union-attr]
    assert came[5] == ironclaim_client.Enqueued("own", False)


def test_a_key_of_ones_own_makes_the_same_call_twice_one_job(connect: Connect, application_url: str, queue: Queue) -> None:
    emails = connect(application_url).queue("emails")
    for created in (True, False):
        assert emails.enqueue("welcome", idempotency_key="order-7") == ironclaim_client.Enqueued("order-7", created)
        emails.enqueue_many([ironclaim_client.NewJob(name="welcome")] * 2, idempotency_key="batch-7")
    assert queue.counts().waiting == 3


def test_what_the_server_refuses_names_field_value_and_bound(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    emails = connect(harmed.url).queue("emails")
    refusal = refused(ironclaim_client.Refused, None, emails.enqueue, "welcome", priority=11)
    assert (refusal.status, refusal.field, refusal.value) == (422, "priority", "11") and "10" in refusal.bound
    assert str(refusal).startswith("422: ") and len(harmed.seen) == 1
    jobs = [ironclaim_client.NewJob(name=name) for name in ("welcome", "wel come")]
    caught = refused(ironclaim_client.Refused, None, emails.enqueue_many, jobs)
    assert caught.field.startswith("jobs[1]") or "1" in str(caught)
    assert queue.counts().waiting == 0
    stranger = connect(harmed.url, token="wrong-0123456789abcdef").queue("emails")
    assert refused(ironclaim_client.NotPermitted, None, stranger.enqueue, "welcome").status == 401


def test_a_job_is_cancelled_though_the_replies_are_lost(connect: Connect, harmed: HttpRelay, queue: Queue) -> None:
    emails = connect(harmed.url).queue("emails")
    queue.enqueue("welcome", None, id="a1", delay_ms=60_000)
    harmed.next(*HARM, of="/cancel")
    emails.cancel("a1")
    assert queue.jobs.state("a1") == "cancelled" and len(harmed.requests("/cancel")) == 6
    refused(ironclaim_client.JobFailed, "^job a1 is cancelled$", emails.wait, "a1")
    refused(ironclaim_client.NotFound, None, emails.cancel, "nobody")


def test_a_job_that_has_ended_otherwise_is_not_cancelled(connect: Connect, application_url: str, ironclaim_url: str) -> None:
    emails = connect(application_url).queue("emails")
    with working(ironclaim_url, add=add):
        emails.call("add", [1], id="a1")
    caught = refused(ironclaim_client.Refused, None, emails.cancel, "a1")
    assert caught.status == 409 and caught.problem["state"] == "finished"


def test_a_dead_job_raises_and_is_requeued_once(connect: Connect, harmed: HttpRelay, ironclaim_url: str, queue: Queue) -> None:
    emails = connect(harmed.url).queue("emails")
    with working(ironclaim_url, send=fail), pytest.raises(ironclaim_client.JobFailed, match="no such address") as caught:
        emails.call("send", attempts=1, id="a1")
    assert (caught.value.id, caught.value.state) == ("a1", "dead")
    harmed.next("lose_reply", of="/requeue")
    refused(ironclaim_client.OutcomeUnknown, None, emails.requeue, "a1")
    assert len(harmed.requests("/requeue")) == 1, "a repetition could find it dead again"
    assert queue.jobs.state("a1") == "waiting"


def test_a_wait_outlasts_what_is_lost_or_away(connect: Connect, harmed: HttpRelay, ironclaim_url: str, queue: Queue) -> None:
    """The deadline of one request is over at once; that of the wait is not."""
    emails = connect(harmed.url, deadline_ms=0, poll_ms=50).queue("emails")
    queue.enqueue("add", [1, 2], id="a1")
    harmed.next("lose_reply", "busy", "gateway", "lose_request", "cut_reply", of=RESULT)

    def after_polls(job: Any) -> int:
        wait_until(lambda: len(harmed.requests(RESULT)) > 6, "polls", 300)
        return add(job)

    with working(ironclaim_url, add=after_polls):
        assert emails.wait("a1") == 3
    harmed.next("busy", of=RESULT)
    refused(ironclaim_client.ServerUnavailable, None, emails.wait, "a1", timeout_ms=0)


def test_a_wait_is_one_request_that_is_woken_by_the_end_of_the_job(
    connect: Connect, harmed: HttpRelay, ironclaim_url: str, queue: Queue, late_looks: None
) -> None:
    emails = connect(harmed.url, attempt_ms=15_000, poll_ms=60_000).queue("emails")
    queue.enqueue("add", [1, 2], id="a1")

    def once_asked(job: Any) -> int:
        wait_until(lambda: harmed.requests(RESULT), "somebody waits", 300)
        return add(job)

    with working(ironclaim_url, add=once_asked):
        assert emails.wait("a1", timeout_ms=600_000) == 3
    (asked,) = harmed.requests(RESULT)
    assert asked.path.endswith("/result?wait_ms=60000")


def test_a_result_that_the_token_may_not_see_is_no_result(connect: Connect, ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("add", [1, 2], id="a1")
    reader = Token(secret="reader-0123456789abcdef", role="read")
    with working(ironclaim_url, add=add), served(HttpSettings(url=ironclaim_url, tokens=(reader,))) as base:
        emails = connect(base, token=reader.secret).queue("emails")
        refused(ironclaim_client.NotPermitted, "may not see its result", emails.wait, "a1")
        found = emails.result("a1")
        assert found.state == "finished" and found.hidden and found.value is None
        refused(ironclaim_client.NotPermitted, "role operate", emails.enqueue, "add", [1])


def test_many_waits_run_at_once_and_one_that_is_cancelled_ends_alone(application_url: str, ironclaim_url: str) -> None:
    async def wait_for_all() -> list[Any]:
        async with ironclaim_client.AsyncClient(application_url, token=TOKEN) as client:
            emails = client.queue("emails")
            jobs = [(await emails.enqueue("add", [n, 1])).id for n in range(20)]
            waits = [asyncio.ensure_future(emails.wait(job)) for job in jobs]
            never = asyncio.ensure_future(emails.wait((await emails.enqueue("later", delay_ms=600_000)).id))
            await asyncio.sleep(0)
            never.cancel()
            found = await asyncio.gather(*waits)
            assert (await asyncio.gather(never, return_exceptions=True))[0].__class__ is asyncio.CancelledError
            return found

    with working(ironclaim_url, add=add):
        assert asyncio.run(wait_for_all()) == [n + 1 for n in range(20)]


def test_names_are_sent_as_one_segment_of_the_path(application_url: str, harmed: HttpRelay) -> None:
    with ironclaim_client.Client(harmed.url, token=TOKEN) as client:
        for name in ("a/b", "a?b", "a#b", "ä b", "%2e%2e"):
            refused(ironclaim_client.Refused, None, client.queue(name).enqueue, "welcome")
            assert harmed.seen[-1].path.count("/") == 4 and "?" not in harmed.seen[-1].path
