"""How jobs have ended, over HTTP and on the page: for whom, with what, page by page."""

import re
from datetime import timedelta
from typing import Any

import httpx
import pytest

from engine import Job, Queue, Worker, models
from engine.http.jobs import schemas
from engine.http.settings import Token
from engine.models.model import LANES
from engine.queue.history import wanted
from tests.engine.helpers import producing, waiting
from tests.engine.http.serving import asking, bearer

HISTORY = "/api/queues/q/history"
TOKENS = (
    Token(secret="reader-0123456789", role="read", name="reader"), Token(secret="admin-0123456789a", role="admin", name="admin"),
)  # fmt: skip


def ended(queue: Queue, *jobs: str) -> None:
    def send(job: Job) -> None:
        if job.id == "bad":
            raise ValueError("<b>no</b>")

    for job in jobs:
        queue.enqueue("send", {"to": job}, id=job, key="acme", attempts=1)
    Worker(queue, producing.some_handlers(send, "send"), name="w1").run(burst=True)


@pytest.mark.parametrize("digits", range(1, 20))
def test_each_place_that_the_document_allows_is_taken(digits: int) -> None:
    place = f"{'9' * digits}:{'9' * 16}:finished:j"
    if re.fullmatch(schemas.PLACE_PATTERN, place):
        assert wanted(LANES, before=place)[1] == (10**digits - 1, b"j\0" + b"9" * 16 + b"\0finished\0")
    else:
        assert digits > 14, "years to come"


def asked(client: httpx.Client, **query: Any) -> Any:
    answer = client.get(HISTORY, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_is_switched_on_asked_and_switched_off(ironclaim_url: str, queue: Queue) -> None:
    with asking(ironclaim_url, allow_changes=True) as client:
        assert asked(client) == {"jobs": [], "cursor": None, "history": None}
        body = {"keep": 100, "age_ms": 86_400_000, "names": ["send"], "payload_bytes": 50}
        assert client.put(HISTORY, json=body).status_code == 204
        ended(queue, "order-7", "bad")
        answer = asked(client, key="order-7", newer_than_ms=86_400_000)
        assert answer["history"] == body
        (past,) = answer["jobs"]
        wanted = {"id": "order-7", "outcome": "finished", "name": "send", "key": "acme", "worker": "w1", "payload_bytes": 16}
        assert {name: past[name] for name in wanted} == wanted
        assert past["waited_ms"] >= 0 and past["ran_ms"] == past["ended_ms"] - past["started_ms"]
        assert not {"payload", "stored", "serializer"} & past.keys(), "payloads are not shown unless that is said"
        waiting.soon(lambda: asked(client, newer_than_ms=1)["jobs"] == [], "it has all ended longer ago")
        assert [past["error"] for past in asked(client, outcome="dead")["jobs"]] == ["ValueError: <b>no</b>"]
        bad = [client.get(HISTORY, params=query) for query in ({"outcome": "done"}, {"cursor": "here"})]
        assert [answer.status_code for answer in (client.put(HISTORY, json={"keep": 0}), *bad)] == [422] * 3
        assert client.delete(HISTORY).status_code == 204 and queue.history.rule() is None


def test_pages_go_on_until_there_is_no_cursor(ironclaim_url: str, queue: Queue) -> None:
    queue.history.on()
    ended(queue, *(f"j{number}" for number in range(7)))
    with asking(ironclaim_url) as client:
        seen: list[str] = []
        more: dict[str, str] | None = {}
        while more is not None:
            answer = asked(client, limit=3, **more)
            seen += [past["id"] for past in answer["jobs"]]
            more = {"cursor": answer["cursor"]} if answer["cursor"] else None
        assert seen == [past.id for past in queue.history.list()] and len(seen) == 7


def test_payloads_are_shown_where_that_is_said(ironclaim_url: str, queue: Queue) -> None:
    queue.history.on(payload_bytes=100)
    ended(queue, "secret")
    for shown in (False, True):
        with asking(ironclaim_url, show_payloads=shown) as client:
            (past,) = asked(client)["jobs"]
            assert past.get("payload") == ({"to": "secret"} if shown else None)
            page = client.get("/queues/q/history").text
            assert ("{&#34;to&#34;: &#34;secret&#34;}" in page) == shown and ("15 B" in page) == (not shown)


def test_only_an_admin_switches_it(ironclaim_url: str, queue: Queue) -> None:
    with asking(ironclaim_url, allow_changes=True, tokens=TOKENS) as client:
        for token, status in ((TOKENS[0], 403), (TOKENS[1], 204)):
            headers = bearer(token.secret)
            assert client.put(HISTORY, headers=headers).status_code == status
            assert client.get(HISTORY, headers=headers).status_code == 200
        assert client.get(HISTORY).status_code == 401


def test_the_page_says_that_there_is_none_and_then_shows_it(ironclaim_url: str, queue: Queue) -> None:
    queue.enqueue("send", {})
    with asking(ironclaim_url) as client:
        assert "does not keep how its jobs have ended" in client.get("/queues/q/history").text
        queue.history.on(keep=1_234, age_ms=timedelta(days=2), names=["send", "mail"])
        assert "None is there yet." in client.get("/queues/q/history").text
        ended(queue, "order-7", "bad")
        page = client.get("/queues/q/history").text
        assert "Kept: the last 1,234 ends for 2 d, of send, mail" in page
        assert 'title="order-7"' in page and "&lt;b&gt;no&lt;/b&gt;" in page and "<b>no</b>" not in page
        one = client.get("/queues/q/history?key=order-7&since=1d").text
        assert 'title="order-7"' in one and 'title="bad"' not in one
        assert "None matches." in client.get("/queues/q/history?outcome=skipped").text
        assert client.get("/queues/q/history?outcome=done").status_code == 422
        ended(queue, *(f"j{number}" for number in range(60)))
        first = client.get("/queues/q/history").text
        assert 'rel="next"' in first and first.count('scope="row"') == 50


def test_old_keyspaces_have_none(ironclaim_url: str) -> None:
    with Queue("old", models.Bull(), url=ironclaim_url) as old:
        old.enqueue("send", {})
    with asking(ironclaim_url, model="bull") as client:
        assert "keeps no history" in client.get("/queues/old/history").text
        assert client.get("/api/queues/old/history").json()["detail"] == "bull has no ListHistory"
