"""What a caller can write of another queue: a token for one queue puts, reads and changes nothing in any other, by no reference,
also not later, when a worker that knows of no token carries it out."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from engine import Job, Malformed, NewJob, Queue, Worker, models, options
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.webhooks.settings import WebhookSettings
from engine.http.jobs.jobs import CALLBACKS
from engine.http.settings import HttpSettings, Token
from tests.engine.helpers import producing, waiting
from tests.engine.http.channels.receiver import Receiver
from tests.engine.http.serving import asking, bearer

MAILS, BOTH, ALL = "m" * 32, "b" * 32, "a" * 32
TOKENS = (
    Token(secret=MAILS, role="admin", name="mails", queues=("mails",)),
    Token(secret=BOTH, role="admin", name="both", queues=("mails", "bills")), Token(secret=ALL, role="admin", name="all"),
)  # fmt: skip
AWAY = {"Exception": "bills:pay"}
#: Options that may hold names and name nothing outside of their own queue: what the others are is in CASES.
WITH_NAMES = {name for name, check in options.OPTIONS.items() if isinstance(check, options.Checked)}
OF_ITS_OWN_QUEUE = WITH_NAMES - {"reroute_on", *CALLBACKS}
CALLBACK = {"name": "send", "reroute_on": AWAY}
#: Path, body, and the field that is refused.
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "reroute_on": ("jobs", {"name": "send", "reroute_on": AWAY}, "reroute_on"),
    "among others": ("jobs", {"name": "send", "reroute_on": {"KeyError": "send", "ValueError": "mails:x", **AWAY}}, "reroute_on"),
    "a name with colons": ("jobs", {"name": "send", "reroute_on": {"Exception": "bills:pay:x"}}, "reroute_on"),
    "on_success": ("jobs", {"name": "send", "on_success": CALLBACK}, "on_success.reroute_on"),
    "on_failure": ("jobs", {"name": "send", "on_failure": CALLBACK}, "on_failure.reroute_on"),
    "batch": ("jobs/batch", {"jobs": [{"name": "send"}, {"name": "send", "reroute_on": AWAY}]}, "jobs[1].reroute_on"),
    "callback in a batch": ("jobs/batch", {"jobs": [{"name": "send", "on_failure": CALLBACK}]}, "jobs[0].on_failure.reroute_on"),
}


def mailing(url: str, model: str = "lanes", *more: Token) -> AbstractContextManager[httpx.Client]:
    """A client that may do everything in the queue mails."""
    return asking(url, model=model, allow_changes=True, show_payloads=True, tokens=(*TOKENS, *more), headers=bearer(MAILS))


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[httpx.Client]:
    with mailing(ironclaim_url) as made:
        yield made


def fail(job: Job) -> None:
    raise ValueError("made to fail")


def work_off(url: str, queue: str) -> None:
    """Let every job fail for good, and what that makes."""
    handlers = producing.some_handlers(fail, "send")
    for name in ("pay", "x"):
        handlers(name)(fail)
    with Queue(queue, url=url) as opened:
        opened.dead.requeue_all()
        Worker(opened, handlers).run(burst=True)


def keys_of(raw: Any, queue: str) -> list[bytes]:
    return sorted(raw.scan_iter(f"ic:{{{queue}}}*"))


def test_each_option_is_known_to_lead_out_of_its_queue_or_not_and_to_be_private_or_not() -> None:
    known = "run_at_ms backoff_delays_ms jitter headers serializer key unique dedup needs skip_on route target"
    about = "a new option that names a queue needs a case, and a guard in engine/http/jobs/jobs.py; others are in this list"
    assert {*known.split()} == OF_ITS_OWN_QUEUE, about
    assert sorted(options.PRIVATE) == ["headers"], "each option that may hold private text has Private() in its row"


def test_no_reference_leads_out_of_the_queues_of_a_token(client: httpx.Client, ironclaim_url: str, raw: Any, audit: Any) -> None:
    for case, (path, body, field) in CASES.items():
        answer = client.post(f"/api/queues/mails/{path}", json=body)
        assert (answer.status_code, answer.json().get("field")) == (403, field), (case, answer.text)
        assert "bills" in answer.json()["value"] and "mails" in answer.json()["bound"]
        (line,) = audit()
        assert (line["who"], line["status"], line["refused"]) == ("mails", 403, f"{field} leads to the queue bills"), case
        # Nothing of it is stored, in neither queue, so that nothing can be carried out later.
        assert not keys_of(raw, "bills") and not keys_of(raw, "mails"), case
    for there, more in (("mails:x", {}), ("x", {"on_failure": {"name": "x", "attempts": 1}})):
        body = {"name": "send", "attempts": 1, "reroute_on": {"Exception": there}, **more}
        assert client.post("/api/queues/mails/jobs", json=body).status_code == 201
    work_off(ironclaim_url, "mails")
    with Queue("mails", url=ironclaim_url) as mails:
        assert mails.counts().dead == 3, "what stays in the queue goes where it says"
    assert not keys_of(raw, "bills")


def test_who_reaches_both_queues_may_lead_from_one_to_the_other(client: httpx.Client, ironclaim_url: str) -> None:
    for number, secret in enumerate((BOTH, ALL), 1):
        body = {"name": "send", "reroute_on": AWAY}
        assert client.post("/api/queues/mails/jobs", json=body, headers=bearer(secret)).status_code == 201
        work_off(ironclaim_url, "mails")
        with Queue("bills", url=ironclaim_url) as bills:
            assert bills.counts().waiting == number


def test_jobs_of_another_queue_are_no_parents(client: httpx.Client, ironclaim_url: str, raw: Any) -> None:
    with Queue("bills", url=ironclaim_url) as bills:
        bills.enqueue("pay", None, id="b1")
    before = keys_of(raw, "bills")
    answer = client.post("/api/queues/mails/jobs", json={"name": "send", "needs": ["b1"]})
    assert (answer.status_code, keys_of(raw, "bills")) == (422, before), answer.text


def clicked(client: httpx.Client, path: str) -> httpx.Response:
    """A form of the page, as a browser sends it."""
    base, csrf = str(client.base_url).rstrip("/"), "t" * 43
    headers = {**bearer(MAILS), "Origin": base, "Cookie": f"ironclaim_csrf={csrf}"}
    return client.post(path, data={"csrf_token": csrf}, headers=headers)


def test_a_schedule_that_leads_away_is_not_run_by_a_token(client: httpx.Client, ironclaim_url: str, raw: Any, audit: Any) -> None:
    with Queue("mails", url=ironclaim_url) as mails:
        far: Any = {"every_ms": 86_400_000, "start_ms": 4_000_000_000_000}
        mails.schedules.put("away", "send", None, reroute_on=AWAY, enabled=False, **far)
        with pytest.raises(Malformed, match="on_failure"):
            mails.schedules.put("later", "send", None, on_failure=NewJob("send", None, reroute_on=AWAY), **far)
        mails.schedules.put("here", "send", None, reroute_on={"Exception": "x"}, **far)
        for action in ("run-now", "enable"):
            assert client.post(f"/api/queues/mails/schedules/away/{action}").status_code == 403
            assert clicked(client, f"/queues/mails/schedules/away/{action}").status_code == 403
            told = [(line["status"], line["refused"].endswith("leads to the queue bills")) for line in audit()]
            assert told == [(403, True)] * 2
        assert not any(schedule.enabled for schedule in mails.schedules.list() if schedule.name != "here")
        assert client.post("/api/queues/mails/schedules/here/run-now").status_code == 201 and mails.counts().waiting == 1
        assert client.post("/api/queues/mails/schedules/away/run-now", headers=bearer(BOTH)).status_code == 201
    assert not keys_of(raw, "bills")


@pytest.mark.parametrize("model", ["bridge", "bananas"])
def test_where_a_keyspace_is_one_queue_no_name_of_a_path_makes_it_another_one(ironclaim_url: str, model: str) -> None:
    own = Token(secret="k" * 32, role="admin", name="own", queues=(model,))
    with Queue("bills", models.named(model), url=ironclaim_url) as bills, mailing(ironclaim_url, model, own) as client:
        job = bills.enqueue("pay", {"a": "1"}).job
        for path in ("", "/jobs", f"/jobs/{job}", f"/jobs/{job}/result", "/metrics"):
            assert client.get(f"/api/queues/mails{path}").status_code == 403, path
        for path in ("/jobs", f"/jobs/{job}/cancel", f"/jobs/{job}/discard", "/dead/requeue", "/dead/discard", "/pause"):
            assert client.post(f"/api/queues/mails{path}", json={"name": "send"}).status_code == 403, path
        assert client.post("/api/v1/jobs", json={"name": "send"}).status_code == 403
        assert bills.jobs.state(job) == "waiting" and bills.counts().waiting == 1
        assert client.get(f"/api/queues/mails/jobs/{job}", headers=bearer("k" * 32)).status_code == 200


def test_formats_whose_keyspace_is_one_queue_are_known(ironclaim_url: str) -> None:
    for model in ("lanes", "bull", "bridge", "bananas", "mosquito"):
        of = models.named(model)
        with Queue("a", of, url=ironclaim_url) as one, Queue("b", of, url=ironclaim_url) as other:
            one.enqueue("send", {"n": "1"})
            assert bool(HttpSettings(model=model).keyspace) == bool(other.counts().waiting), model


def test_what_the_queues_of_mosquito_share_leads_into_no_other_one(ironclaim_url: str, raw: Any, audit: Any) -> None:
    """Neither the hash of a run nor the key of a unique job says of which queue it is."""
    with Queue("bills", models.named("mosquito"), url=ironclaim_url) as bills, mailing(ironclaim_url, "mosquito") as client:
        dead = bills.enqueue("pay", {"to": "of another"}, attempts=1).job
        Worker(bills, producing.some_handlers(fail, "pay")).run(burst=True)
        assert bills.jobs.state(dead) == "dead"
        run = raw.hgetall(f"mosquito:job_run:{dead}")
        for path in (f"/api/queues/mails/jobs/{dead}", f"/queues/mails/jobs/{dead}"):
            assert client.get(path).status_code == 404 and "of another" not in client.get(path).text
        for action in ("remove", "discard", "requeue"):
            clicked(client, f"/queues/mails/jobs/{dead}/{action}")
        unique = {"dedup": "params", "dedup_ms": 60_000}
        job: dict[str, Any] = {"name": "pay", "payload": {"to": "ada"}}
        for path, body, headers, field in (
            ("jobs", {**job, "id": "taken"}, {}, "id"), ("jobs", job, {"Idempotency-Key": "taken"}, "id"),
            ("jobs", {**job, **unique}, {}, "dedup"), ("jobs/batch", {"jobs": [job, {**job, "id": "taken"}]}, {}, "jobs[1].id"),
            ("jobs/batch", {"jobs": [job]}, {"Idempotency-Key": "taken"}, "jobs[0].id"),
            ("jobs/batch", {"jobs": [{**job, **unique}]}, {}, "jobs[0].dedup"),
        ):  # fmt: skip
            audit()
            answer = client.post(f"/api/queues/mails/{path}", json=body, headers=headers)
            assert (answer.status_code, answer.json().get("field")) == (403, field), answer.text
            assert [line["refused"] for line in audit()] == [f"{field} is of all queues in this format"]
        assert raw.hgetall(f"mosquito:job_run:{dead}") == run and bills.jobs.state(dead) == "dead"
        assert bills.enqueue("pay", {"to": "ada"}, id="taken").created
        assert bills.enqueue("pay", {"to": "ada"}, dedup="params", dedup_ms=60_000).created
        assert client.post("/api/queues/mails/jobs", json=job).status_code == 201
        assert client.post("/api/queues/mails/jobs", json={**job, "id": "own"}, headers=bearer(ALL)).status_code == 201


@pytest.mark.parametrize("part", ["x", "cron"])
def test_an_id_of_bull_is_no_job_of_another_queue(ironclaim_url: str, raw: Any, audit: Any, part: str) -> None:
    """The key of job `x:1` of `mails` is that of job 1 of `mails:x`."""
    with Queue(f"mails:{part}", models.named("bull"), url=ironclaim_url) as other, mailing(ironclaim_url, "bull") as client:
        id = f"{part}:{other.enqueue('pay', {'secret': 'of another'}).job}"
        before = sorted(raw.scan_iter("bull:mails:*"))
        assert client.get(f"/api/queues/mails/jobs/{id}").status_code == 403
        for action in ("cancel", "discard", "requeue"):
            assert client.post(f"/api/queues/mails/jobs/{id}/{action}").status_code == 403
        for job, headers in (({"name": "send", "id": "x:new"}, {}), ({"name": "send"}, {"Idempotency-Key": "x:new"})):
            for path, body in (("jobs", job), ("jobs/batch", {"jobs": [job]})):
                answer = client.post(f"/api/queues/mails/{path}", json=body, headers=headers)
                assert (answer.status_code, answer.json()["field"]) == (403, "id"), answer.text
        told = {line["refused"] for line in audit()}
        assert told == {f"id: {one} may be a job of another queue" for one in (id, "x:new", "x:new.0")}
        assert sorted(raw.scan_iter("bull:mails:*")) == before
        assert client.get(f"/api/queues/mails/jobs/{id}", headers=bearer(ALL)).status_code == 200


def test_who_may_enqueue_into_the_queue_of_webhooks_speaks_for_no_channel(ironclaim_url: str) -> None:
    """Two jobs that look like deliveries; neither is made."""
    tokens = (Token(secret=MAILS, role="operate", queues=("webhooks",)),)
    told = {"channelID": "room", "messageID": "m1", "content": "made up"}
    with Receiver() as receiver, Queue("webhooks", url=ironclaim_url) as queue:
        hook = WebhookSettings(url=f"{receiver.url}/hook", allow_networks=("127.0.0.0/8",))
        channels = ChannelSettings(channels=(ChannelPolicy(pattern="room", webhooks=(hook,)),))
        with asking(ironclaim_url, allow_changes=True, tokens=tokens, channels=channels, headers=bearer(MAILS)) as client:
            assert client.put("/channel/room/message/m1", content="1").status_code == 403
            for payload in (json.dumps(told), told):
                body = {"name": "webhook", "payload": payload, "headers": {"webhook-url": hook.url}, "attempts": 1}
                assert client.post("/api/queues/webhooks/jobs", json=body).status_code == 201
            waiting.wait_until(lambda: queue.counts().dead == 2, "both are dead")
        assert not receiver.received
