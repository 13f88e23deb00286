"""What a channel promises, wherever its messages are: the cases of the original's own suite, and more. Where a server is part of
it, its keys are looked at as well."""

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable

import pytest

import engine
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from tests.conformance.channels.places import NEAR_THE_WRAP, TTL_S, Place, acknowledge, ids, is_nothing, publish, waiting
from tests.engine.helpers.lives import all_given, now_ms
from tests.engine.using import DEADLINE_S, refused, until_waits, wait_until


@pytest.mark.feature("DS01", "DS02", "DS06", "DS07", "DS09", "DS11", "DS13", "DS14", "DS16", model="dsps")
def test_the_scene_of_the_original(place: Place, channel: engine.Channel) -> None:
    assert [channel.subscribe("s") for _ in range(2)] == [engine.Subscribed(True, 0), engine.Subscribed(False, 0)]
    assert channel.fetch("s", max_messages=10) == engine.Fetched() == channel.fetch("s", max_messages=10, wait_ms=100)

    names = [f"msg-{n}" for n in range(16)]
    publish(channel, *names)
    fewer = channel.fetch("s", max_messages=15)
    assert ids(fewer) == names[:15] and fewer.more_messages
    again = channel.fetch("s", max_messages=17)
    assert ids(again) == names and not again.more_messages and again.lost == 0
    assert again.messages[3] == engine.Message("msg-3", {"hi": "msg-3"}, 4)
    assert acknowledge(channel, "s", again) == "OK" and acknowledge(channel, "s", again) == "stale"
    assert channel.fetch("s", max_messages=16) == engine.Fetched()
    place.expect(clock=16, r_s=16, m_4='{"id":"msg-3","content":{"hi":"msg-3"}}')

    assert {channel.publish(name, "other").result for name in names} == {"duplicate"}
    assert channel.fetch("s", max_messages=16) == engine.Fetched()
    place.expect(clock=16, m_4='{"id":"msg-3","content":{"hi":"msg-3"}}')
    publish(channel, "additional")
    assert ids(channel.fetch("s")) == ["additional"]
    assert acknowledge(channel, "s", again) == "stale" and ids(channel.fetch("s")) == ["additional"]

    assert channel.unsubscribe("s") and not channel.unsubscribe("s")
    place.expect(clock=17, r_s=None)


@pytest.mark.feature("DS10", "DS14", model="dsps")
def test_many_messages_are_taken_in_parts(channel: engine.Channel) -> None:
    channel.subscribe("s")
    names = [f"msg-{n}" for n in range(80)]
    assert [one.clock for one in channel.publish_many([(name, None) for name in names])] == list(range(1, 81))
    first = channel.fetch("s")
    assert ids(first) == names[:64] and first.more_messages and acknowledge(channel, "s", first) == "OK"
    second = channel.fetch("s", max_messages=16)
    assert ids(second) == names[64:] and not second.more_messages
    assert acknowledge(channel, "s", second) == "OK" and channel.fetch("s") == engine.Fetched()
    assert channel.fetch("s", max_messages=0) == engine.Fetched()


@pytest.mark.feature("DS12", model="dsps")
def test_a_long_poll_is_woken_by_a_publish_of_another_process(place: Place, channel: engine.Channel) -> None:
    channel.subscribe("s")
    channel.subscribe("t")
    threads = [waiting(lambda who=who: channel.fetch(who, wait_ms=30_000)) for who in ("s", "t")]
    wait_until(lambda: len(channel._waiters) == 2, "both wait")
    assert not any(came for _, came in threads)
    publish(place.channel(), "a")
    for thread, came in threads:
        thread.join(DEADLINE_S)
        assert ids(came[0]) == ["a"]
    assert channel.fetch("s", wait_ms=30_000).messages, "and one that has messages does not wait"


@pytest.mark.feature("DS12", model="dsps")
def test_a_long_poll_without_messages_ends_in_time_and_one_that_is_closed_at_once(channel: engine.Channel) -> None:
    channel.subscribe("s")
    before_s = time.monotonic()
    assert channel.fetch("s", wait_ms=200) == engine.Fetched() and time.monotonic() - before_s >= 0.19
    thread, came = waiting(lambda: channel.fetch("s", wait_ms=30_000))
    wait_until(lambda: channel._waiters, "it waits")
    channel.close()
    thread.join(DEADLINE_S)
    assert came[0] == engine.Fetched()


@pytest.mark.feature("DS12", model="dsps")
def test_a_long_poll_is_cancelled_and_woken_at_once_under_asyncio(place: Place) -> None:
    async def scene() -> None:
        async with place.async_channel() as channel:
            await channel.subscribe("s")
            poll = asyncio.create_task(channel.fetch("s", max_messages=1, wait_ms=30_000))
            await until_waits(channel)
            poll.cancel()
            done, _ = await asyncio.wait([poll], timeout=DEADLINE_S)
            assert done and poll.cancelled()
            poll = asyncio.create_task(channel.fetch("s", max_messages=1, wait_ms=30_000))
            await until_waits(channel)
            await channel.publish("a", 1)
            fetched = await asyncio.wait_for(poll, DEADLINE_S)
            assert ids(fetched) == ["a"] and fetched.receipt is not None
            assert (await channel.acknowledge("s", fetched.receipt)).result == "OK"

    asyncio.run(scene())


@pytest.mark.feature("DS05", "DS22", model="dsps")
def test_which_messages_are_old(channel: engine.Channel) -> None:
    """The matrix of the original: never sent, sent before the subscriber, acknowledged, fetched, not yet sent."""
    names = [f"msg-{n}" for n in range(5)]

    def old() -> list[str]:
        return [name for name, is_old in channel.are_old("s", names).items() if is_old]

    publish(channel, "msg-1")
    channel.subscribe("s")
    assert old() == ["msg-1"]
    publish(channel, "msg-2")
    second = channel.fetch("s", max_messages=1)
    assert ids(second) == ["msg-2"] and not second.more_messages and old() == ["msg-1"]
    acknowledge(channel, "s", second)
    assert old() == ["msg-1", "msg-2"]
    publish(channel, "msg-3")
    assert old() == ["msg-1", "msg-2"]
    third = channel.fetch("s", max_messages=1)
    publish(channel, "msg-4")
    assert ids(channel.fetch("s", max_messages=2)) == ["msg-3", "msg-4"]
    acknowledge(channel, "s", third)
    assert old() == ["msg-1", "msg-2", "msg-3"] and ids(channel.fetch("s")) == ["msg-4"]


@pytest.mark.feature("DS08", model="dsps")
def test_what_is_missing_is_said(place: Place, channel: engine.Channel) -> None:
    receipt = replies.outer({id: replies.inner("ch", "s", 1) for id in place.storages})
    calls: list[Callable[[], object]] = [
        *(lambda: channel.fetch("s"), lambda: channel.fetch("s", wait_ms=30_000)),
        *(lambda: channel.acknowledge("s", receipt), lambda: channel.are_old("s", ["a"])),
    ]
    for call in calls:
        refused(engine.ChannelNotFound, "ch", call)
    assert channel.unsubscribe("s") is False
    place.expect(clock=None)
    publish(channel, "a")
    for call in calls:
        refused(engine.SubscriptionNotFound, "ch has no subscriber s", call)
    assert channel.unsubscribe("s") is False
    place.expect(clock=1, r_s=None)


@pytest.mark.feature("DS03", "DS08", model="dsps")
def test_a_channel_comes_with_its_first_message_or_subscriber(place: Place) -> None:
    assert place.channel().publish("a", None).clock == 1
    place.expect(clock=1, m_1='{"id":"a","content":null}', mid_a=1)
    other = place.channel("other")
    assert other.subscribe("s").clock == 0 and other.publish("a", None).clock == 1
    for server in place.servers.values():
        assert (server.get("c.{other}.clock"), server.get("c.{other}.r.s")) == ("1", "0")


@pytest.mark.feature("DS04", "DS05", "DS13", model="dsps")
def test_each_subscriber_has_its_own_cursor_and_a_late_one_begins_now(place: Place, channel: engine.Channel) -> None:
    for subscriber in ("s", "t"):
        channel.subscribe(subscriber)
    publish(channel, "a", "b")
    assert channel.subscribe("late").clock == 2
    publish(channel, "c")
    acknowledge(channel, "s", channel.fetch("s", max_messages=2))
    for _ in range(2):
        assert [ids(channel.fetch(who)) for who in ("s", "t", "late")] == [["c"], ["a", "b", "c"], ["c"]]
    place.expect(r_s=2, r_t=0, r_late=2)
    channel.unsubscribe("s")
    assert channel.subscribe("s").clock == 3 and ids(channel.fetch("s")) == [], "it begins anew"
    assert ids(channel.fetch("t")) == ["a", "b", "c"]


@pytest.mark.feature("DS03", "DS14", "DS16", "DS18", model="dsps")
def test_a_batch_across_the_wrap_is_delivered_and_acknowledged_as_any_other(place: Place) -> None:
    place.preset(NEAR_THE_WRAP)
    channel = place.channel()
    channel.subscribe("s")
    channel.subscribe("t")
    names = list("abcde")
    clocks = [channel.publish(name, name).clock for name in names]
    assert clocks == [CLOCK_MAX - 1, CLOCK_MAX, CLOCK_MIN, CLOCK_MIN + 1, CLOCK_MIN + 2]
    fetched = channel.fetch("s")
    assert [(message.id, message.clock) for message in fetched.messages] == list(zip(names, clocks, strict=True))
    assert (fetched.lost, fetched.more_messages, fetched.era_changed) == (0, False, False)
    two = channel.fetch("t", max_messages=2)
    assert acknowledge(channel, "s", fetched) == "OK" and is_nothing(channel.fetch("s"))
    place.expect(clock=CLOCK_MIN + 2, r_s=CLOCK_MIN + 2)
    assert acknowledge(channel, "t", two) == "OK" and ids(channel.fetch("t")) == ["c", "d", "e"]
    place.expect(r_t=CLOCK_MAX)
    after = channel.fetch("t", max_messages=1)
    assert acknowledge(channel, "t", after) == "OK" and acknowledge(channel, "t", two) == "stale"
    assert channel.are_old("t", names) == {"a": True, "b": True, "c": True, "d": False, "e": False}
    assert channel.publish("b", "again").clock == CLOCK_MAX, "a duplicate before the wrap keeps its clock"
    place.expect(clock=CLOCK_MIN + 2)


@pytest.mark.feature("DS09", "DS18", model="dsps")
def test_every_clock_around_the_wrap_is_taken_one_by_one(place: Place) -> None:
    place.preset(CLOCK_MAX - 20)
    channel = place.channel()
    channel.subscribe("s")
    publish(channel, *[f"m{n}" for n in range(40)])
    found: list[int] = []
    while (fetched := channel.fetch("s", max_messages=3)).receipt is not None:
        found += [message.clock for message in fetched.messages]
        assert fetched.lost == 0 and acknowledge(channel, "s", fetched) == "OK"
    assert found == [*range(CLOCK_MAX - 19, CLOCK_MAX + 1), *range(CLOCK_MIN, CLOCK_MIN + 20)]


@pytest.mark.feature("DS09", "DS19", "DS20", model="dsps")
@pytest.mark.parametrize("start", [0, CLOCK_MAX - 67])
def test_messages_that_expired_unread_are_skipped_and_counted(place: Place, start: int) -> None:
    """The wedge of the original: 65 of 70 have expired, and a fetch of at most 64 finds none of them for ever."""
    if start:
        place.preset(start)
    channel = place.channel()
    channel.subscribe("s")
    channel.publish_many([(f"old-{n}", n) for n in range(65)])
    place.age(200)
    publish(channel, *"abcde")
    channel.fetch("s")
    place.age(200)
    fetched = channel.fetch("s", max_messages=64)
    assert ids(fetched) == list("abcde") and fetched.lost == 65 and not fetched.era_changed
    assert acknowledge(channel, "s", fetched) == "OK"
    publish(channel, "f", "g")
    place.age(200)
    channel.fetch("s")
    place.age(200)
    fetched = channel.fetch("s", wait_ms=30_000)
    assert (fetched.messages, fetched.lost) == ((), 2), "nothing is left to wait for, and it is told"
    assert acknowledge(channel, "s", fetched) == "OK" and is_nothing(channel.fetch("s"))
    publish(channel, "h")
    assert ids(channel.fetch("s")) == ["h"]


@pytest.mark.feature("DS02", "DS19", "DS20", model="dsps")
def test_what_is_used_lives_on(place: Place) -> None:
    channel = place.channel()
    channel.subscribe("fetches")
    channel.subscribe("acknowledges")
    channel.subscribe("nothing")
    publish(channel, "a", "b")
    first = channel.fetch("acknowledges", max_messages=1)
    place.age(TTL_S - 100)
    channel.fetch("fetches")
    other = place.channel()
    # The other has not: it would find that its messages do not live as long as they did.
    acknowledge(other, "acknowledges", first)
    channel.publish("a", "again")
    place.age(200)
    refused(engine.SubscriptionNotFound, None, other.fetch, "nothing")
    assert other.are_old("fetches", []) == {} == other.are_old("acknowledges", [])
    assert other.publish("a", "a new one").created, "a duplicate does not make the message live longer"
    place.expect(clock=3, m_3='{"id":"a","content":"a new one"}', m_1=None, r_nothing=None)
    place.age(TTL_S)
    with pytest.raises(engine.ChannelNotFound):
        place.channel().fetch("fetches")
    assert place.channel().publish("a", None).clock == 1


@pytest.mark.feature("DS21", model="dsps")
def test_the_longest_of_the_rules_that_match_counts(place: Place) -> None:
    lengths = {"a.+": 1_500, ".+b": 100_000, "abc": 0, "ab|abc": 10_001}
    rules = tuple(engine.ChannelRule(names, expire_ms) for names, expire_ms in lengths.items())
    model, lives = engine.models.Dsps(rules=rules), {"ax": 17, "ab": 115, "abc": 26, "xb": 115}
    for name, life_s in lives.items():
        since_ms = {id: now_ms(server) for id, server in place.servers.items()}
        channel = place.channel(name, model)
        assert channel.ttl_s == life_s
        channel.subscribe("s")
        publish(channel, "a")
        for id, server in place.servers.items():
            keys = [f"c.{{{name}}}.{key}" for key in ("clock", "r.s", "m.1", "mid.a")]
            assert all_given(server, since_ms[id], life_s, *keys)
    for gone_s, name in sorted((life, name) for name, life in lives.items()):
        place.age(max(0, gone_s - place.now_s + 1_000 + 1))
        with pytest.raises(engine.ChannelNotFound):
            place.channel(name, model).fetch("s")
    refused(engine.Malformed, "^channel: ", place.channel, "xyz", model)
    assert place.channel("xyz", engine.models.Dsps()).expire_ms == 1_800_000


@pytest.mark.feature("DS15", "DS17", model="dsps")
def test_a_receipt_is_of_one_channel_and_one_subscriber_and_moves_nothing_when_it_is_not_good(place: Place) -> None:
    channel, other = place.channel(), place.channel("other")
    for subscriber in ("s", "t"):
        channel.subscribe(subscriber)
        other.subscribe(subscriber)
    publish(channel, "a", "b")
    publish(other, "a", "b")
    one = channel.fetch("s", max_messages=1).receipt
    foreign = [channel.fetch("t").receipt, other.fetch("s").receipt]
    assert one is not None
    parts = json.loads(base64.b64decode(one))
    changed = {id: part.replace('"clk":1', '"clk":2') for id, part in parts.items()}
    bare = next(iter(parts.values()))
    bad = [*foreign, replies.outer(changed), one[:-5], one[4:], bare, base64.b64encode(bare.encode()).decode(), "", "{}"]
    bad += [replies.outer({"elsewhere": bare})]
    for receipt in bad:
        refused(engine.Malformed, "^receipt: ", channel.acknowledge, "s", receipt)
    beyond = replies.outer({id: replies.inner("ch", "s", 3) for id in place.storages})
    before = replies.outer({id: replies.inner("ch", "s", 0) for id in place.storages})
    assert [channel.acknowledge("s", receipt).result for receipt in (beyond, before)] == ["stale", "stale"]
    place.expect(r_s=0)
    assert ids(channel.fetch("s")) == ["a", "b"]
    assert channel.acknowledge("s", one).result == "OK" and ids(channel.fetch("s")) == ["b"]
    place.expect(r_s=1)


@pytest.mark.feature("DS01", model="dsps")
def test_contents_keep_their_spelling(place: Place, channel: engine.Channel) -> None:
    channel.subscribe("s")
    value = {"a": "<&>\u2028", "b": ["é", 1.0]}
    spellings = {"a": '{"x": 1.0, "x":1e5}', "b": ' [ "<&>\u2028ä" , null ] ', "c": "12345678901234567890"}
    for name, text in spellings.items():
        channel.publish(name, engine.RawJson(text))
    channel.publish("d", value)
    assert [message.content for message in channel.fetch("s").messages] == [*map(json.loads, spellings.values()), value]
    place.expect(
        m_1='{"id":"a","content":{"x":1.0,"x":1e5}}',
        m_2='{"id":"b","content":["\\u003c\\u0026\\u003e\\u2028ä",null]}',
        m_3='{"id":"c","content":12345678901234567890}',
        m_4='{"id":"d","content":{"a":"\\u003c\\u0026\\u003e\\u2028","b":["é",1.0]}}',
    )


@pytest.mark.feature("DS02", "DS03", "DS04", model="dsps")
def test_publishers_and_subscribers_at_once(place: Place) -> None:
    """Every message once to each subscriber, and all of them in the same order where one storage says it."""
    channel = place.channel()
    subscribers = ("s", "t")
    for subscriber in subscribers:
        channel.subscribe(subscriber)
    names = [f"m{n}" for n in range(60)]
    found: dict[str, list[str]] = {subscriber: [] for subscriber in subscribers}

    def publishes(mine: list[str]) -> None:
        for name in mine:
            channel.publish(name, name)

    def subscribes(subscriber: str) -> None:
        while len(set(found[subscriber])) < len(names):
            fetched = channel.fetch(subscriber, max_messages=7, wait_ms=30_000)
            found[subscriber] += ids(fetched)
            if fetched.receipt is not None:
                channel.acknowledge(subscriber, fetched.receipt)

    threads = [threading.Thread(target=publishes, args=(names[at:] + names[:at],)) for at in (0, 30)]
    threads += [threading.Thread(target=subscribes, args=(subscriber,)) for subscriber in subscribers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(found["s"]) == sorted(found["t"]) == sorted(names)
    if len(place.storages) == 1:
        assert found["s"] == found["t"]
    place.expect(clock=60)
    for server in place.servers.values():
        assert server.pubsub_numsub("dsps.c.{ch}") == [("dsps.c.{ch}", 1)], "one subscription for all"
