"""Channels as services use them, on a real server: what their calls say, and what is in the server's keys then."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from engine import (
    Acknowledged,
    Channel,
    ChannelNotFound,
    ChannelRule,
    Fetched,
    Malformed,
    Message,
    Published,
    RawJson,
    Subscribed,
    SubscriptionNotFound,
    models,
)
from engine.channel.clock import CLOCK_MAX, CLOCK_MIN
from tests.engine.helpers.lives import all_given, now_ms
from tests.engine.helpers.waiting import DEADLINE_S

#: T of an expiry of 300 s.
TTL_S = 315
FIVE_MINUTES = models.Dsps(rules=(ChannelRule(expire_ms=300_000),))


@pytest.fixture
def server(ironclaim_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(ironclaim_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def channel(ironclaim_url: str) -> Iterator[Channel]:
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as made:
        yield made


def contents_of(fetched: Fetched) -> list[Any]:
    return [message.content for message in fetched.messages]


def inside(receipt: str | None) -> dict[str, Any]:
    """What a receipt says, by storage."""
    assert receipt is not None
    return {storage: json.loads(part) for storage, part in json.loads(base64.b64decode(receipt)).items()}


def channel_url(server: Any) -> str:
    where = server.connection_pool.connection_kwargs
    return f"redis://{where['host']}:{where['port']}/0"


def drained(channel: Channel, subscriber: str, **options: Any) -> list[Message]:
    """All messages that come until there are no more, each fetch acknowledged."""
    found: list[Message] = []
    while (fetched := channel.fetch(subscriber, **options)).receipt is not None:
        found += fetched.messages
        assert channel.acknowledge(subscriber, fetched.receipt) == Acknowledged("OK")
    return found


@pytest.mark.feature("DS01", model="dsps")
@pytest.mark.feature("DS11", model="dsps")
@pytest.mark.feature("DS13", model="dsps")
@pytest.mark.feature("DS14", model="dsps")
@pytest.mark.feature("DS22", model="dsps")
def test_the_life_of_a_message(channel: Channel, server: Any) -> None:
    since_ms = now_ms(server)
    assert channel.subscribe("sa") == Subscribed(True, 0)
    assert channel.subscribe("sa") == Subscribed(False, 0)
    assert channel.publish("m1", {"text": "hello!"}) == Published("created", 1)
    assert server.get("c.{chx}.m.1") == '{"id":"m1","content":{"text":"hello!"}}'
    assert server.get("c.{chx}.mid.m1") == "1" and all_given(server, since_ms, TTL_S, "c.{chx}.m.1")
    for _ in range(2):
        # Again until it is acknowledged.
        fetched = channel.fetch("sa")
        assert fetched.messages == (Message("m1", {"text": "hello!"}, 1),) and not fetched.more_messages and not fetched.lost
    assert inside(fetched.receipt)["redis"]["clk"] == 1
    assert channel.are_old("sa", ["m1", "m2"]) == {"m1": False, "m2": False}
    assert fetched.receipt is not None
    assert channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    assert channel.acknowledge("sa", fetched.receipt) == Acknowledged("stale")
    assert server.get("c.{chx}.r.sa") == "1"
    assert channel.are_old("sa", ["m1", "m2"]) == {"m1": True, "m2": False}
    assert channel.fetch("sa") == Fetched()
    assert channel.unsubscribe("sa") and not channel.unsubscribe("sa")
    assert not server.exists("c.{chx}.r.sa")


@pytest.mark.feature("DS02", model="dsps")
def test_an_id_that_is_known_is_a_duplicate_and_keeps_its_content(channel: Channel, server: Any) -> None:
    assert channel.publish("m1", 1).created
    again = channel.publish("m1", 2)
    assert again == Published("duplicate", 1) and not again.created
    assert server.get("c.{chx}.clock") == "1" and server.get("c.{chx}.m.1") == '{"id":"m1","content":1}'
    # As long as it lives.
    server.delete("c.{chx}.mid.m1")
    assert channel.publish("m1", 3) == Published("created", 2)


def test_contents_are_stored_as_the_original_spells_them(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    channel.publish("m1", {"a": "<&>\u2028", "b": ["é", 1.0]})
    channel.publish("m2", RawJson(b'{ "a" : 1.0e3, "a": "<" }'))
    channel.publish("m3", None)
    assert server.get("c.{chx}.m.1") == '{"id":"m1","content":{"a":"\\u003c\\u0026\\u003e\\u2028","b":["é",1.0]}}'
    assert server.get("c.{chx}.m.2") == '{"id":"m2","content":{"a":1.0e3,"a":"\\u003c"}}'
    assert contents_of(channel.fetch("sa")) == [{"a": "<&>\u2028", "b": ["é", 1.0]}, {"a": "<"}, None]


def test_many_are_published_in_order_and_each_once(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    channel.publish("n7", "first")
    found = channel.publish_many([(f"n{at}", at) for at in range(2_345)])
    assert [one.result for one in found] == ["duplicate" if at == 7 else "created" for at in range(2_345)]
    clocks = [one.clock for one in found if one.created]
    assert clocks == list(range(2, 2_346)) and found[7].clock == 1
    assert channel.publish_many(iter([])) == []
    messages = drained(channel, "sa", max_messages=1_000)
    assert [message.clock for message in messages] == list(range(1, 2_346))
    assert [message.id for message in messages[:3]] == ["n7", "n0", "n1"]
    # Three scripts for them.
    large = [(f"big{at}", "x" * 400_000) for at in range(5)]
    before = server.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert len(channel.publish_many(large)) == 5
    assert server.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 3


@pytest.mark.feature("DS10", model="dsps")
def test_a_fetch_takes_so_many_and_says_whether_there_are_more(channel: Channel) -> None:
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(70)])
    first = channel.fetch("sa")
    assert contents_of(first) == list(range(64)) and first.more_messages
    assert contents_of(channel.fetch("sa", max_messages=1)) == [0]
    assert first.receipt is not None and channel.acknowledge("sa", first.receipt).result == "OK"
    rest = channel.fetch("sa")
    assert contents_of(rest) == list(range(64, 70)) and not rest.more_messages
    nothing = channel.fetch("sa", max_messages=0)
    assert nothing.messages == () and nothing.receipt is None


@pytest.mark.feature("DS04", model="dsps")
def test_each_subscriber_has_a_cursor_of_its_own(channel: Channel) -> None:
    for name in ("sa", "sb"):
        channel.subscribe(name)
    channel.publish_many([("m1", 1), ("m2", 2)])
    first = channel.fetch("sa", max_messages=1)
    assert first.receipt is not None
    channel.acknowledge("sa", first.receipt)
    assert contents_of(channel.fetch("sa")) == [2] and contents_of(channel.fetch("sb")) == [1, 2]
    assert channel.are_old("sb", ["m1"]) == {"m1": False}


@pytest.mark.feature("DS05", model="dsps")
@pytest.mark.feature("DS08", model="dsps")
def test_a_late_subscriber_starts_at_the_clock_of_now(channel: Channel, server: Any) -> None:
    assert channel.publish("m1", 1) == Published("created", 1)
    assert channel.subscribe("late") == Subscribed(True, 1) and server.get("c.{chx}.r.late") == "1"
    assert channel.fetch("late").messages == ()
    channel.publish("m2", 2)
    assert contents_of(channel.fetch("late")) == [2]
    # What was there before is old for it.
    assert channel.are_old("late", ["m1", "m2"]) == {"m1": True, "m2": False}


@pytest.mark.feature("DS18", model="dsps")
def test_a_batch_across_the_wrap_has_a_receipt_for_all_of_it(channel: Channel, server: Any) -> None:
    server.set("c.{chx}.clock", CLOCK_MAX - 2, ex=TTL_S)
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(5)])
    fetched = channel.fetch("sa")
    assert [message.clock for message in fetched.messages] == [CLOCK_MAX - 1, CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1, CLOCK_MIN + 2]
    assert contents_of(fetched) == [0, 1, 2, 3, 4] and not fetched.era_changed and fetched.lost == 0
    assert inside(fetched.receipt)["redis"]["clk"] == CLOCK_MIN + 2 and fetched.receipt is not None
    assert channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    assert server.get("c.{chx}.r.sa") == str(CLOCK_MIN + 2) and channel.fetch("sa") == Fetched()


def test_who_has_missed_messages_is_told_how_many_and_goes_on(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(1, 71)])
    server.delete(*(f"c.{{chx}}.m.{at}" for at in range(1, 66)))
    fetched = channel.fetch("sa")
    assert contents_of(fetched) == [66, 67, 68, 69, 70] and fetched.lost == 65
    assert fetched.receipt is not None and channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    # Where nothing is left, the receipt is for what was lost, and nobody waits for it.
    channel.publish_many([("n1", 1), ("n2", 2)])
    server.delete("c.{chx}.m.71", "c.{chx}.m.72")
    start_s = time.monotonic()
    fetched = channel.fetch("sa", wait_ms=30_000)
    assert (fetched.messages, fetched.lost) == ((), 2) and time.monotonic() - start_s < DEADLINE_S
    assert inside(fetched.receipt)["redis"]["clk"] == 72 and fetched.receipt is not None
    assert channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    assert channel.fetch("sa") == Fetched()


def test_bodies_that_are_none_are_counted_apart_and_acknowledged_with_the_others(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(1, 5)])
    server.set("c.{chx}.m.2", "garbage", keepttl=True)
    server.set("c.{chx}.m.4", '{"id":5}', keepttl=True)
    fetched = channel.fetch("sa")
    assert (contents_of(fetched), fetched.corrupt, fetched.lost) == ([1, 3], 2, 0)
    assert inside(fetched.receipt)["redis"]["clk"] == 4
    alone = channel.fetch("sa", max_messages=1)
    assert alone.receipt is not None and channel.acknowledge("sa", alone.receipt) == Acknowledged("OK")
    only = channel.fetch("sa", max_messages=1, wait_ms=5_000)
    assert (only.messages, only.corrupt) == ((), 1) and only.receipt is not None
    assert channel.acknowledge("sa", only.receipt) == Acknowledged("OK")
    assert contents_of(channel.fetch("sa")) == [3]


def test_what_is_missing_is_said_by_name_and_nothing_is_made(channel: Channel, server: Any, ironclaim_url: str) -> None:
    channel.subscribe("sa")
    channel.publish("m1", 1)
    receipt = channel.fetch("sa").receipt
    assert receipt is not None
    channel.unsubscribe("sa")
    calls: list[Any] = [
        lambda: channel.fetch("sa"),
        lambda: channel.fetch("sa", wait_ms=5_000),
        lambda: channel.acknowledge("sa", receipt),
        lambda: channel.are_old("sa", ["m1"]),
    ]
    for call in calls:
        with pytest.raises(SubscriptionNotFound, match="chx has no subscriber sa"):
            call()
    server.flushall()
    # Another process: to this one a channel that is gone so soon is one that went back.
    with Channel("chx", url=ironclaim_url) as fresh:
        with pytest.raises(ChannelNotFound, match="chx"):
            fresh.fetch("sa")
        with pytest.raises(LookupError):
            fresh.acknowledge("sa", receipt)
        with pytest.raises(ChannelNotFound):
            fresh.are_old("sa", [])
    assert server.keys() == []


@pytest.mark.feature("DS20", model="dsps")
def test_a_fetch_renews_the_channel_and_its_own_cursor(channel: Channel, server: Any) -> None:
    for name in ("sa", "sb"):
        channel.subscribe(name)
    keys = [f"c.{{chx}}.{name}" for name in ("clock", "r.sa", "r.sb")]
    for key in keys:
        server.expire(key, 50)
    since_ms, end_ms = now_ms(server), server.pexpiretime(keys[2])
    assert channel.fetch("sa") == Fetched()
    assert all_given(server, since_ms, TTL_S, *keys[:2]) and server.pexpiretime(keys[2]) == end_ms


@pytest.mark.feature("DS21", model="dsps")
def test_the_longest_of_the_rules_that_match_the_whole_name_counts(ironclaim_url: str, server: Any) -> None:
    rules = (ChannelRule("a.+", 1_500), ChannelRule(".+b", 100_000), ChannelRule("abc", 0), ChannelRule("ab|abc", 10_001))
    for name, ttl_s in (("ax", 17), ("ab", 115), ("abc", 26), ("xb", 115)):
        since_ms = now_ms(server)
        with Channel(name, models.Dsps(rules=rules), url=ironclaim_url) as made:
            made.publish("m1", 1)
            assert made.ttl_s == ttl_s
        assert all_given(server, since_ms, ttl_s, f"c.{{{name}}}.clock", f"c.{{{name}}}.m.1", f"c.{{{name}}}.mid.m1")
    with pytest.raises(Malformed, match="pattern") as refused:
        Channel("xyz", models.Dsps(rules=rules), url=ironclaim_url)
    assert refused.value.field == "channel"
    assert Channel("xyz", url=ironclaim_url).expire_ms == 1_800_000


def test_a_clock_that_went_back_is_told_and_messages_go_on_after_it(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(1, 11)])
    fetched = channel.fetch("sa", max_messages=4)
    assert fetched.receipt is not None and channel.acknowledge("sa", fetched.receipt) == Acknowledged("OK")
    # A backup of five messages ago is restored.
    server.set("c.{chx}.clock", 5, ex=TTL_S)
    server.delete("c.{chx}.ironclaim", "c.{chx}.ironclaim.live", *(f"c.{{chx}}.m.{at}" for at in range(6, 11)))
    came = channel.publish("n1", "after")
    assert came.clock == 11 and came.era == 1 and came.era_changed
    assert not channel.publish("n2", "after").era_changed
    fetched = channel.fetch("sa", wait_ms=5_000)
    assert fetched.era_changed and fetched.era == 1 and contents_of(fetched) == [5, "after", "after"] and fetched.lost == 5
    assert fetched.receipt is not None and channel.acknowledge("sa", fetched.receipt).result == "OK"
    assert not channel.fetch("sa").era_changed


@pytest.mark.parametrize("receipts", ["the last", "one before it"])
def test_a_late_receipt_takes_nothing_of_a_restored_channel_whose_clocks_are_used_again(
    ironclaim_url: str, channel: Channel, server: Any, receipts: str
) -> None:
    """Nobody has told the server that it went back: who publishes there had seen nothing of what is lost."""
    channel.subscribe("sa")
    channel.publish("m1", 1)
    kept = {key: (server.dump(key), server.pexpiretime(key)) for key in server.scan_iter()}
    channel.publish_many([("lost2", "lost"), ("lost3", "lost")])
    fetched = channel.fetch("sa")
    if receipts == "one before it":
        channel.publish("lost4", "lost")
        channel.fetch("sa")
    server.flushall()
    for key, (dumped, end_ms) in kept.items():
        server.restore(key, end_ms, dumped, absttl=True)
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as other:
        assert [one.clock for one in other.publish_many([("m2", 2), ("m3", 3), ("m4", 4)])] == [2, 3, 4]
        assert channel.acknowledge("sa", fetched.receipt or "") == Acknowledged("stale", era_changed=True)
        again = channel.fetch("sa")
        assert contents_of(again) == [1, 2, 3, 4] and server.get("c.{chx}.r.sa") == "0"
        assert again.receipt is not None and channel.acknowledge("sa", again.receipt) == Acknowledged("OK", era_changed=False)


@pytest.mark.parametrize("answered", [True, False])
def test_one_may_fetch_and_another_acknowledge_also_after_a_loss(
    ironclaim_url: str, channel: Channel, server: Any, answered: bool
) -> None:
    """Receipts of the same clock read the same, whatever message they are for: one that is refused as from before is taken when
    it comes again."""
    channel.subscribe("sa")
    channel.publish("lost", "lost")
    first = channel.fetch("sa").receipt or ""
    if answered:
        channel.acknowledge("sa", first)
    server.flushall()
    with Channel("chx", FIVE_MINUTES, url=ironclaim_url) as other:
        other.subscribe("sa")
        assert other.publish("new", "new").clock == 1
        receipts = [other.fetch("sa").receipt for _ in range(2)]
        assert receipts == [first, first]
        told = [channel.acknowledge("sa", first) for _ in range(1 if answered else 2)]
        assert [one.result for one in told] == (["OK"] if answered else ["stale", "OK"])


def test_a_change_of_era_without_messages_ends_one_wait_and_not_all(channel: Channel, server: Any) -> None:
    """There is nothing to acknowledge; who would be told each time could not wait any more."""
    channel.subscribe("sa")
    channel.publish("m1", 1)
    drained(channel, "sa")
    server.set("c.{chx}.clock", 0, ex=TTL_S)
    server.hset("c.{chx}.ironclaim", "last", 0)
    first = channel.fetch("sa", wait_ms=5_000)
    assert first.era_changed and first.messages == () and first.era == 1
    start_s = time.monotonic()
    assert not channel.fetch("sa", wait_ms=300).messages and time.monotonic() - start_s > 0.25


def test_a_change_of_era_is_told_although_the_first_answer_was_lost(channel: Channel, server: Any) -> None:
    """The server thinks that the subscriber knows."""
    channel.subscribe("sa")
    channel.publish("m1", 1)
    drained(channel, "sa")
    server.set("c.{chx}.clock", 0, ex=TTL_S)
    with Channel("chx", FIVE_MINUTES, url=channel_url(server)) as other:
        assert other.fetch("sa").era_changed
    assert channel.fetch("sa", wait_ms=5_000).era_changed and not channel.fetch("sa").era_changed


def test_a_client_says_where_the_server_is(ironclaim_url: str, server: Any) -> None:
    with redis.Redis.from_url(ironclaim_url) as client, Channel("chx", client=client) as made:
        assert made.publish("m1", 1).created
    assert server.get("c.{chx}.clock") == "1"


@pytest.mark.feature("DS26", model="dsps")
def test_scripts_that_the_server_has_forgotten_are_loaded_again(channel: Channel, server: Any) -> None:
    channel.subscribe("sa")
    server.script_flush()
    assert channel.publish("m1", 1).created
    server.script_flush()
    assert contents_of(channel.fetch("sa")) == [1]


def test_what_a_subscriber_does_takes_one_call_each(channel: Channel, server: Any) -> None:
    """Delivery costs the server one round trip for up to 64 messages."""
    channel.subscribe("sa")
    channel.publish_many([(f"m{at}", at) for at in range(64)])
    before = server.info("commandstats")["cmdstat_evalsha"]["calls"]
    fetched = channel.fetch("sa", wait_ms=1_000)
    assert len(fetched.messages) == 64 and server.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


def test_threads_share_a_channel(channel: Channel, server: Any) -> None:
    names = [f"s{at}" for at in range(20)]
    for name in names:
        channel.subscribe(name)
    got: dict[str, list[Any]] = {name: [] for name in names}

    def poll(name: str) -> None:
        while len(got[name]) < 30:
            fetched = channel.fetch(name, wait_ms=30_000, max_messages=7)
            got[name] += contents_of(fetched)
            assert fetched.receipt is not None
            channel.acknowledge(name, fetched.receipt)

    threads = [threading.Thread(target=poll, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for at in range(30):
        channel.publish(f"m{at}", at)
    for thread in threads:
        thread.join(60)
    assert all(found == list(range(30)) for found in got.values())
    assert dict(server.pubsub_numsub("dsps.c.{chx}")) == {"dsps.c.{chx}": 1}, "one subscription for all"
