"""Publish, subscribe, fetch, acknowledge, unsubscribe and probes over real sockets: paths, bodies and status codes are DSPS's."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from engine import Channel
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.settings import Token
from tests.engine.http.channels.desk import Desk, desk
from tests.engine.using import STREAM_S, refused, soon

pytestmark = pytest.mark.feature("DS33", model="dsps")


@pytest.fixture
def client(ironclaim_url: str) -> Iterator[Desk]:
    with desk(ironclaim_url) as made:
        yield made


def told(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()


@contextmanager
def polling(base: httpx.URL) -> Iterator[Callable[[], httpx.Response]]:
    """A poll of half a minute in a thread of its own; the call waits for its answer."""
    with ThreadPoolExecutor(1) as pool:
        url = f"{base}/channel/chx/subscription/polling/s1?timeout=30s"
        poll = pool.submit(httpx.get, url, timeout=STREAM_S, trust_env=False)
        yield lambda: poll.result(STREAM_S)


def test_the_life_of_messages(client: Desk, raw: Any) -> None:
    subscriber = {"channelID": "chx", "subscriberID": "s1"}
    for _ in range(2):
        assert told(client.subscribe("chx", "s1")) == (200, subscriber)
    assert raw.get("c.{chx}.r.s1") == b"0"
    empty = client.fetch("chx", "s1")
    assert empty.status_code == 200 and empty.content == b'{"channelID":"chx","messages":[],"moreMessages":false}\n'
    assert empty.headers["content-type"] == "application/json"
    for _ in range(2):
        assert told(client.publish("chx", "m1", '{"n": 1.0}')) == (200, {"channelID": "chx", "messageID": "m1"})
    assert raw.get("c.{chx}.m.1") == b'{"id":"m1","content":{"n":1.0}}' and raw.get("c.{chx}.clock") == b"1"
    client.publish("chx", "m2", "null")
    first = client.fetch("chx", "s1", max=1).json()
    assert first["messages"] == [{"messageID": "m1", "content": {"n": 1.0}}] and first["moreMessages"] is True
    # What was acknowledged before is no error.
    for _ in range(2):
        assert client.acknowledge("chx", "s1", first["ackHandle"]).status_code == 204 and raw.get("c.{chx}.r.s1") == b"1"
    unnamed = client.delete("/channel/chx/subscription/polling/s1/message")
    assert told(unnamed) == (400, {"error": 'Missing "ackHandle" parameter'})
    old = client.get("/channel/chx/subscription/polling/s1/message/old", params={"messageID": ["m2", "m1", "m3"]})
    assert old.status_code == 200 and old.json()["old"] == {"m1": True, "m2": False, "m3": False}
    assert [message["messageID"] for message in client.fetch("chx", "s1").json()["messages"]] == ["m2"]
    for _ in range(2):
        assert told(client.unsubscribe("chx", "s1")) == (200, subscriber)
    assert raw.get("c.{chx}.r.s1") is None


def test_contents_keep_the_spelling_of_their_publisher(client: Desk) -> None:
    contents = [b"1.10", b"1e400", b"1" * 5_000, b'{"a":1,"a":2}', b'"\xc3\xa9"', b"[]", b"-0.0"]
    client.subscribe("chx", "s1")
    for at, content in enumerate(contents):
        assert client.publish("chx", f"m{at}", content).status_code == 200
    body = client.fetch("chx", "s1").content
    for at, content in enumerate(contents):
        assert b'{"content":%b,"messageID":"m%d"}' % (content, at) in body
    # What could end a script element is spelled as Go spells it.
    client.publish("chx", "html", b'"</script>&"')
    assert b'"\\u003c/script\\u003e\\u0026"' in client.fetch("chx", "s1").content


def test_a_long_poll_returns_with_the_publication(client: Desk, raw: Any, ironclaim_url: str) -> None:
    client.subscribe("chx", "s1")
    with polling(client.base_url) as answer, Channel("chx", url=ironclaim_url) as channel:
        soon(lambda: listens(raw), "the poll listens")
        # By another process, as it were.
        channel.publish("m1", 7)
        assert answer().json()["messages"] == [{"messageID": "m1", "content": 7}]


def listens(raw: Any) -> bool:
    """Whether anybody listens to the channel."""
    return any(count for _, count in raw.pubsub_numsub("dsps.c.{chx}"))


@pytest.mark.slow
def test_a_long_poll_that_nobody_waits_for_ends(client: Desk, raw: Any) -> None:
    client.subscribe("chx", "s1")
    refused(httpx.ReadTimeout, None, client.get, "/channel/chx/subscription/polling/s1", params={"timeout": "30s"}, timeout=0.3)
    soon(lambda: not listens(raw), "nobody listens any more")


def test_a_long_poll_is_answered_when_the_server_ends(ironclaim_url: str, raw: Any) -> None:
    with ExitStack() as stack:
        with desk(ironclaim_url) as client:
            client.subscribe("chx", "s1")
            answer = stack.enter_context(polling(client.base_url))
            soon(lambda: listens(raw), "the poll listens")
        assert answer().status_code == 200 and answer().json()["messages"] == []


def test_the_bound_of_long_polls_is_kept(ironclaim_url: str) -> None:
    path = "/channel/chx/subscription/polling/s1"
    with desk(ironclaim_url, ChannelSettings(long_poll_max_ms=50)) as client:
        client.subscribe("chx", "s1")
        # Without the bound it would be half a minute.
        assert client.get(path, params={"timeout": "999999h"}, timeout=STREAM_S).json()["messages"] == []
    with desk(ironclaim_url, poll_max_ms=50) as client:
        assert client.get(path, params={"timeout": "29s"}, timeout=STREAM_S).json()["messages"] == []


CHANNEL = "/channel/chx"
POLLING = f"{CHANNEL}/subscription/polling/s1"


REFUSED = [
    *(("PUT", f"/channel/{name}/message/m1", b"1", 'Invalid "channelID" parameter') for name in ("UPPER", "x" * 64)),
    ("PUT", f"{CHANNEL}/message/no dots.", b"1", 'Invalid "messageID" parameter'),
    *(("PUT", f"{CHANNEL}/message/m1", body, "Request body is not JSON") for body in (b"", b"{", b"NaN", b'"\xff"')),
    *((way, f"{CHANNEL}/subscription/polling/NO", b"", 'Invalid "subscriberID" parameter') for way in ("PUT", "DELETE", "GET")),
    *(("GET", f"{POLLING}?timeout={text}", b"", 'Invalid "timeout" parameter') for text in ("soon", "5")),
    *(("GET", f"{POLLING}?max={text}", b"", 'Invalid "max" parameter') for text in ("many", "-1")),
    ("GET", POLLING, b"", "dsps.storage.subscription-not-found"),
    ("DELETE", f"{POLLING}/message", b"", 'Missing "ackHandle" parameter'),
    ("DELETE", f"{POLLING}/message?ackHandle=none", b"", "dsps.storage.ack-handle-malformed"),
    ("GET", f"{POLLING}/message/old", b"", 'Missing "messageID" parameter'),
    ("GET", f"{POLLING}/message/old?messageID=NO", b"", 'Invalid "messageID" parameter'),
    # More than fit into a query, were they as long as ids may be.
    ("GET", f"{POLLING}/message/old?{'messageID=m1&' * 111}", b"", 'Invalid "messageID" parameter'),
]


@pytest.mark.parametrize(("method", "path", "body", "error"), REFUSED)
def test_what_is_wrong_is_said_as_dsps_says_it(client: Desk, raw: Any, method: str, path: str, body: bytes, error: str) -> None:
    expected = {"code": error, "error": error} if error.startswith("dsps.") else {"error": error}
    status = 404 if error.endswith("not-found") else 400
    assert told(client.request(method, path, content=body)) == (status, expected) and raw.dbsize() == 0


def test_a_content_beyond_the_bound_is_refused(client: Desk) -> None:
    refused = client.publish("chx", "m1", b'"' + b"x" * 600_000 + b'"')
    assert refused.status_code == 400 and "524288 bytes" in refused.json()["error"]
    assert client.publish("chx", "m1", b"[" * 600 + b"]" * 600).status_code == 400


def test_channels_that_no_rule_allows_are_refused_and_others_expire_as_theirs_says(ironclaim_url: str, raw: Any) -> None:
    rules = ChannelSettings(channels=(ChannelPolicy(pattern=r"room-(?P<id>\d+)", expire_ms=60_000),))
    with desk(ironclaim_url, rules) as client:
        refusal = {"code": "dsps.storage.invalid-channel", "error": 'Invalid "channelID" parameter'}
        assert told(client.publish("hall-1", "m1", "1")) == (400, refusal)
        assert client.publish("room-1", "m1", "1").status_code == 200 and 60 < raw.ttl("c.{room-1}.clock") <= 75


def test_nothing_changes_unless_that_is_allowed(ironclaim_url: str, raw: Any) -> None:
    with desk(ironclaim_url, allow_changes=False) as client:
        for refused in (client.publish("chx", "m1", "1"), client.subscribe("chx", "s1"), client.unsubscribe("chx", "s1")):
            assert refused.status_code == 403 and "--allow-changes" in refused.json()["error"]
        assert raw.dbsize() == 0
        with Channel("chx", url=ironclaim_url) as channel:
            channel.subscribe("s1")
            channel.publish("m1", 1)
        assert [message["messageID"] for message in client.fetch("chx", "s1").json()["messages"]] == ["m1"]


def test_a_channel_without_tokens_of_its_own_takes_those_of_the_server(ironclaim_url: str) -> None:
    tokens = (
        Token(secret="operator-01234567", role="operate"), Token(secret="reader-0123456789", role="read"),
        Token(secret="elsewhere-0123456", role="admin", queues=("other",)),
    )  # fmt: skip
    with desk(ironclaim_url, tokens=tokens) as client:
        assert told(client.publish("chx", "m1", "1")) == (403, {"code": "dsps.auth.rejected", "error": "Unauthorized"})
        for one, statuses in zip(tokens, ((200, 200), (403, 200), (403, 403)), strict=True):
            client.headers["Authorization"] = f"Bearer {one.secret}"
            assert (client.subscribe("chx", "s1").status_code, client.fetch("chx", "s1").status_code) == statuses, one


def test_another_sites_page_cannot_publish(client: Desk) -> None:
    assert client.put("/channel/chx/message/m1", content="1", headers={"Origin": "https://elsewhere.example"}).status_code == 403


@pytest.mark.slow
def test_a_server_that_is_away_is_no_fault_of_the_caller(ironclaim_url: str) -> None:
    with desk("redis://127.0.0.1:1/0", poll_max_ms=100) as client:
        answer = client.publish("chx", "m1", "1")
        assert answer.status_code == 500 and answer.content == b"" and answer.headers["retry-after"] == "1"


@pytest.mark.feature("DS31", model="dsps")
def test_with_its_server_the_process_lives_and_is_ready(ironclaim_url: str) -> None:
    with desk(ironclaim_url, allow_changes=False, tokens=(Token(secret="reader-0123456789"),)) as client:
        live, ready = client.get("/probe/liveness"), client.get("/probe/readiness")
        assert (live.status_code, live.json()) == (200, {"storage": {}})
        assert (ready.status_code, ready.json()) == (200, {"storage": {"redis": "ping OK"}})


@pytest.mark.slow
@pytest.mark.feature("DS31", model="dsps")
def test_without_its_server_the_process_lives_and_is_not_ready() -> None:
    with desk("redis://127.0.0.1:1/0") as client:
        live, ready = client.get("/probe/liveness"), client.get("/probe/readiness")
        assert live.status_code == 200 and (ready.status_code, ready.json()) == (500, {"storage": {"redis": "ServerUnavailable"}})
