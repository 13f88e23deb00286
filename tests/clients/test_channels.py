"""Channels through the Python client, against the real application on a real server, with replies that get lost on the way."""

import asyncio
from typing import Any

import pytest

import ironclaim_client
from engine.http.channels.settings import ChannelPolicy, ChannelSettings
from engine.http.channels.tokens import JwtSettings
from engine.http.settings import HttpSettings
from tests.clients.conftest import TOKEN, meanwhile
from tests.clients.faces import Connect
from tests.clients.relay import HARM, HttpRelay, Rule
from tests.engine.http.channels.desk import SECRET, base64_of, token
from tests.engine.http.serving import served
from tests.engine.using import refused, wait_until

pytestmark = pytest.mark.feature("DS33", model="dsps")
POLL = "GET /channel/news/subscription/polling/ada"
ACKNOWLEDGE = "DELETE /channel/news/subscription/polling/ada/message"


def contents(messages: Any) -> list[Any]:
    return [message.content for message in messages]


def test_the_life_of_messages(connect: Connect, application_url: str, raw: Any) -> None:
    channel = connect(application_url).channel("news")
    channel.subscribe("ada")
    assert raw.get("c.{news}.r.ada") == b"0"
    ids = [channel.publish(content) for content in ({"n": 1}, None, "é", [])]
    assert channel.publish("five", id="own") == "own" and len({*ids, "own"}) == 5 and raw.get("c.{news}.clock") == b"5"
    first = channel.poll("ada", max_messages=2)
    assert contents(first.messages) == [{"n": 1}, None] and [message.id for message in first.messages] == ids[:2]
    assert first.more and first.receipt
    assert channel.poll("ada", max_messages=2) == first, "not acknowledged, so they come again"
    for _ in range(2):
        channel.acknowledge("ada", first.receipt)
        assert raw.get("c.{news}.r.ada") == b"2"
    rest = channel.poll("ada")
    assert contents(rest.messages) == ["é", [], "five"] and not rest.more
    channel.acknowledge("ada", rest.receipt)
    empty = channel.poll("ada")
    assert empty.messages == () and empty.receipt == "" and not empty.more
    for _ in range(2):
        channel.unsubscribe("ada")
        assert raw.get("c.{news}.r.ada") is None


def test_a_message_whose_replies_are_lost_is_published_once(connect: Connect, harmed: HttpRelay, raw: Any) -> None:
    channel = connect(harmed.url).channel("news")
    channel.subscribe("ada")
    harmed.next(*HARM, of="PUT /channel/news/message/")
    channel.publish({"n": 1})
    sent = harmed.requests("PUT /channel/news/message/")
    assert [seen.rule for seen in sent] == [*HARM, "pass"] and len({seen.path for seen in sent}) == 1
    assert contents(channel.poll("ada").messages) == [{"n": 1}] and raw.get("c.{news}.clock") == b"1"


def test_a_poll_waits_for_a_message_and_is_woken_by_it(connect: Connect, application_url: str, raw: Any) -> None:
    channel = connect(application_url).channel("news")
    channel.subscribe("ada")

    def publish() -> None:
        wait_until(lambda: raw.execute_command("PUBSUB", "CHANNELS", "dsps.c.*"), "the poll waits")
        with ironclaim_client.Client(application_url, token=TOKEN) as other:
            other.channel("news").publish("woken")

    with meanwhile(publish):
        assert contents(channel.poll("ada", wait_ms=30_000).messages) == ["woken"]


def test_a_subscription_outlives_failures_and_gives_each_message_once(connect: Connect, harmed: HttpRelay, raw: Any) -> None:
    face = connect(harmed.url)
    channel = face.channel("news")
    channel.subscribe("ada")
    for n in range(6):
        channel.publish(n)
    harmed.next(*HARM, "elsewhere", "pass", *HARM, of=POLL)
    # The reply to an acknowledgement has no body to cut.
    lost: list[Rule] = [rule for rule in HARM if rule != "cut_reply"]
    harmed.next(*lost, "elsewhere", of=ACKNOWLEDGE)
    assert contents(face.take("news", 6, subscriber="ada", max_messages=2)) == list(range(6))
    assert [seen.rule for seen in harmed.requests(ACKNOWLEDGE)] == [*lost, "elsewhere", "pass", "pass"]
    assert raw.get("c.{news}.r.ada") == b"4", "the last two were not worked through when the loop ended"
    assert contents(face.take("news", 2, subscriber="ada")) == [4, 5], "so they come to the next one of this name"


def test_a_subscription_without_name_has_its_own_and_ends_with_its_block(connect: Connect, harmed: HttpRelay, raw: Any) -> None:
    face, subscribed = connect(harmed.url), "PUT /channel/news/subscription/polling/s-"

    def publish() -> None:
        """Once a subscriber is there."""
        wait_until(lambda: harmed.requests(subscribed), "a subscriber is made", 300)
        wait_until(lambda: harmed.requests("GET /channel/news/subscription/polling/s-"), "it polls", 300)
        with ironclaim_client.Client(harmed.target, token=TOKEN) as client:
            client.channel("news").publish("after")

    with meanwhile(publish):
        assert contents(face.take("news", 1)) == ["after"]
    (made,), (deleted,) = harmed.requests(subscribed), harmed.requests("DELETE /channel/news/subscription/polling/s-")
    assert made.path == deleted.path and raw.exists("c.{news}.clock") and raw.keys("c.*.r.*") == []


def test_a_subscription_ends_when_its_subscriber_is_gone(connect: Connect, harmed: HttpRelay) -> None:
    face = connect(harmed.url)
    channel = face.channel("news")
    caught = refused(ironclaim_client.NotFound, None, channel.poll, "nobody")
    assert caught.code == "dsps.storage.subscription-not-found" and caught.status == 404
    channel.subscribe("ada")
    channel.publish(1)

    def unsubscribe() -> None:
        """Delete the subscriber behind the back of the one that uses its name."""
        wait_until(lambda: len(harmed.requests(POLL)) >= 2, "it polls", 300)
        with ironclaim_client.Client(harmed.target, token=TOKEN) as client:
            client.channel("news").unsubscribe("ada")

    with meanwhile(unsubscribe), pytest.raises(ironclaim_client.NotFound):
        face.take("news", 2, subscriber="ada", wait_ms=50)


def test_a_token_that_is_refused_ends_it_with_the_servers_reason(connect: Connect, ironclaim_url: str) -> None:
    channels = ChannelSettings(channels=[ChannelPolicy(jwt=JwtSettings(iss=["issuer"], keys={"HS256": [base64_of(SECRET)]}))])
    with served(HttpSettings(url=ironclaim_url, allow_changes=True, channels=channels)) as base:
        assert connect(base, token=token("HS256", SECRET)).channel("news").publish(1, id="m1") == "m1"
        for call in (lambda face: face.channel("news").publish(1), lambda face: face.take("news", 1)):
            caught = refused(ironclaim_client.NotPermitted, None, call, connect(base, token=token("HS256", bytes(64))))
            assert caught.status == 403 and caught.code == "dsps.auth.rejected"


def test_what_the_server_refuses_is_not_repeated(connect: Connect, harmed: HttpRelay) -> None:
    caught = refused(ironclaim_client.Refused, None, connect(harmed.url).channel("news").publish, 1, id="Not-Lower-Case")
    assert caught.status == 400 and "messageID" in str(caught) and len(harmed.seen) == 1
    refused(ironclaim_client.NotPermitted, None, connect(harmed.url, token=None).channel("news").publish, 1)


def test_a_redirection_is_not_followed_so_that_the_token_goes_nowhere_else(connect: Connect, harmed: HttpRelay) -> None:
    harmed.next("elsewhere")
    refused(ironclaim_client.UnexpectedReply, "sends elsewhere", connect(harmed.url).channel("news").publish, 1)
    assert len(harmed.seen) == 1


def test_what_is_raised_says_whether_something_may_have_been_done(connect: Connect, harmed: HttpRelay) -> None:
    hasty = connect(harmed.url, deadline_ms=0).channel("news")
    harmed.next("lose_reply", of="PUT")
    refused(ironclaim_client.OutcomeUnknown, "^PUT /channel/news/message/m1: ", hasty.publish, 1, id="m1")
    hasty.publish(1, id="m1")
    with pytest.raises(ironclaim_client.ServerUnavailable, match="^PUT /channel/news/message/m2: "):
        connect("http://127.0.0.1:9", deadline_ms=200).channel("news").publish(1, id="m2")
    harmed.next("lose_reply", of="GET")
    hasty.subscribe("ada")
    refused(ironclaim_client.ServerUnavailable, None, hasty.poll, "ada")


def test_a_call_that_is_cancelled_closes_its_connection(application_url: str) -> None:
    async def cancel() -> None:
        async with ironclaim_client.AsyncClient(application_url, token=TOKEN) as client:
            channel = client.channel("news")
            await channel.subscribe("ada")
            waiting = asyncio.ensure_future(channel.poll("ada", wait_ms=30_000))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await channel.publish("after")
            assert contents((await channel.poll("ada")).messages) == ["after"]

    asyncio.run(cancel())
