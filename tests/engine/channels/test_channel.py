"""Channels as services use them, on a real server: what their calls say, and what is in the server's keys then."""

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Acknowledged, Channel, ChannelRule, Fetched, Message, models

#: T of an expiry of 300 s.
TTL_S = 315
FIVE_MINUTES = models.Dsps(rules=(ChannelRule(expire_ms=300_000),))


@pytest.fixture
def channel(ironclaim_url: str) -> Iterator[Channel]:
    """With a subscriber, `sa`."""
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as made:
        made.subscribe("sa")
        yield made


def calls(client: Any) -> int:
    """How many scripts were run."""
    return client.info("commandstats")["cmdstat_evalsha"]["calls"]


def contents_of(fetched: Fetched) -> list[Any]:
    return [message.content for message in fetched.messages]


def drained(channel: Channel, subscriber: str, **options: Any) -> list[Message]:
    """All messages that come until there are no more, each fetch acknowledged."""
    found: list[Message] = []
    while (fetched := channel.fetch(subscriber, **options)).receipt is not None:
        found += fetched.messages
        assert channel.acknowledge(subscriber, fetched.receipt) == Acknowledged("OK")
    return found


def test_many_are_published_in_order_and_each_once(channel: Channel, client: Any) -> None:
    channel.publish("n7", "first")
    found = channel.publish_many([(f"n{at}", at) for at in range(2_345)])
    assert [one.result for one in found] == ["duplicate" if at == 7 else "created" for at in range(2_345)]
    clocks = [one.clock for one in found if one.created]
    assert clocks == list(range(2, 2_346)) and found[7].clock == 1 and channel.publish_many(iter([])) == []
    messages = drained(channel, "sa", max_messages=1_000)
    assert [message.clock for message in messages] == list(range(1, 2_346))
    assert [message.id for message in messages[:3]] == ["n7", "n0", "n1"]
    # Three scripts for them.
    before = calls(client)
    assert len(channel.publish_many([(f"big{at}", "x" * 400_000) for at in range(5)])) == 5
    assert calls(client) == before + 3


def test_bodies_that_are_none_are_counted_apart_and_acknowledged_with_the_others(channel: Channel, client: Any) -> None:
    channel.publish_many([(f"m{at}", at) for at in range(1, 5)])
    client.set("c.{chx}.m.2", "garbage", keepttl=True)
    client.set("c.{chx}.m.4", '{"id":5}', keepttl=True)
    fetched = channel.fetch("sa")
    assert (contents_of(fetched), fetched.corrupt, fetched.lost) == ([1, 3], 2, 0)
    assert json.loads(json.loads(base64.b64decode(fetched.receipt or ""))["redis"])["clk"] == 4
    alone = channel.fetch("sa", max_messages=1)
    assert alone.receipt is not None and channel.acknowledge("sa", alone.receipt) == Acknowledged("OK")
    only = channel.fetch("sa", max_messages=1, wait_ms=5_000)
    assert (only.messages, only.corrupt) == ((), 1) and only.receipt is not None
    assert channel.acknowledge("sa", only.receipt) == Acknowledged("OK")
    assert contents_of(channel.fetch("sa")) == [3]


def test_a_clock_that_went_back_is_told_and_messages_go_on_after_it(channel: Channel, client: Any) -> None:
    channel.publish_many([(f"m{at}", at) for at in range(1, 11)])
    fetched = channel.fetch("sa", max_messages=4)
    assert fetched.receipt is not None and channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    # A backup of five messages ago is restored.
    client.set("c.{chx}.clock", 5, ex=TTL_S)
    client.delete("c.{chx}.ironclaim", "c.{chx}.ironclaim.live", *(f"c.{{chx}}.m.{at}" for at in range(6, 11)))
    came = channel.publish("n1", "after")
    assert came.clock == 11 and came.era == 1 and came.era_changed and not channel.publish("n2", "after").era_changed
    fetched = channel.fetch("sa", wait_ms=5_000)
    assert fetched.era_changed and fetched.era == 1 and contents_of(fetched) == [5, "after", "after"] and fetched.lost == 5
    assert fetched.receipt is not None and channel.acknowledge("sa", fetched.receipt).result == "OK"
    assert not channel.fetch("sa").era_changed


@pytest.mark.parametrize("receipts", ["the last", "one before it"])
def test_a_late_receipt_takes_nothing_of_a_restored_channel_whose_clocks_are_used_again(
    ironclaim_url: str, channel: Channel, client: Any, receipts: str
) -> None:
    """Nobody has told the server that it went back: who publishes there had seen nothing of what is lost."""
    channel.publish("m1", 1)
    kept = {key: (client.dump(key), client.pexpiretime(key)) for key in client.scan_iter()}
    channel.publish_many([("lost2", "lost"), ("lost3", "lost")])
    fetched = channel.fetch("sa")
    if receipts == "one before it":
        channel.publish("lost4", "lost")
        channel.fetch("sa")
    client.flushall()
    for key, (dumped, end_ms) in kept.items():
        client.restore(key, end_ms, dumped, absttl=True)
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as other:
        assert [one.clock for one in other.publish_many([("m2", 2), ("m3", 3), ("m4", 4)])] == [2, 3, 4]
        assert channel.acknowledge("sa", fetched.receipt or "") == Acknowledged("stale", era_changed=True)
        again = channel.fetch("sa")
        assert contents_of(again) == [1, 2, 3, 4] and client.get("c.{chx}.r.sa") == "0"
        assert again.receipt is not None and channel.acknowledge("sa", again.receipt) == Acknowledged("OK", era_changed=False)


@pytest.mark.parametrize("answered", [True, False])
def test_one_fetches_another_acknowledges_after_loss(ironclaim_url: str, channel: Channel, client: Any, answered: bool) -> None:
    """Receipts of the same clock read the same, whatever message they are for: one that is refused as from before is taken when
    it comes again."""
    channel.publish("lost", "lost")
    first = channel.fetch("sa").receipt or ""
    if answered:
        channel.acknowledge("sa", first)
    client.flushall()
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as other:
        other.subscribe("sa")
        assert other.publish("new", "new").clock == 1
        assert [other.fetch("sa").receipt for _ in range(2)] == [first, first]
        told = [channel.acknowledge("sa", first) for _ in range(1 if answered else 2)]
        assert [one.result for one in told] == (["OK"] if answered else ["stale", "OK"])


def test_a_change_of_era_without_messages_ends_one_wait_and_not_all(channel: Channel, client: Any) -> None:
    """There is nothing to acknowledge; who would be told each time could not wait any more."""
    channel.publish("m1", 1)
    drained(channel, "sa")
    client.set("c.{chx}.clock", 0, ex=TTL_S)
    client.hset("c.{chx}.ironclaim", "last", 0)
    first = channel.fetch("sa", wait_ms=5_000)
    assert first.era_changed and first.messages == () and first.era == 1
    start_s = time.monotonic()
    assert not channel.fetch("sa", wait_ms=300).messages and time.monotonic() - start_s > 0.25


def test_a_change_of_era_is_told_although_the_first_answer_was_lost(channel: Channel, client: Any, ironclaim_url: str) -> None:
    """The server thinks that the subscriber knows."""
    channel.publish("m1", 1)
    drained(channel, "sa")
    client.set("c.{chx}.clock", 0, ex=TTL_S)
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as other:
        assert other.fetch("sa").era_changed
    assert channel.fetch("sa", wait_ms=5_000).era_changed and not channel.fetch("sa").era_changed


def test_a_client_says_where_the_server_is(raw: Any, client: Any) -> None:
    with Channel("chx", client=raw) as made:
        assert made.publish("m1", 1).created
    assert client.get("c.{chx}.clock") == "1"


def test_what_a_subscriber_does_takes_one_call_each(channel: Channel, client: Any) -> None:
    """Delivery costs the server one round trip for up to 64 messages."""
    channel.publish_many([(f"m{at}", at) for at in range(64)])
    before = calls(client)
    assert len(channel.fetch("sa", wait_ms=1_000).messages) == 64 and calls(client) == before + 1
