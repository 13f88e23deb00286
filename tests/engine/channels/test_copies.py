"""Calls that arrive late, twice or half: a second copy changes nothing and says what the first did (rules 1 and 3)."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from engine import ServerUnavailable, WrongKeyType
from engine.models.dsps import CLOCK_MAX, clock_distance
from engine.ops import channels as ops
from tests.engine.channels.channel_desk import NEVER_MS, PAST_MS, TTL_S, ChannelDesk, ids, message
from tests.engine.using import CUT_OFF, DEADLINE_S, WRITES, Call, Operation, refused

#: Both messages in one call.
CUT = ops.Publish((message("a"), message("b")), TTL_S, not_after_ms=NEVER_MS)
SUBSCRIBE = ops.Subscribe("s", "0123456789abcdef", TTL_S, not_after_ms=NEVER_MS)
UNSUBSCRIBE = ops.Unsubscribe("s", "fedcba9876543210", not_after_ms=NEVER_MS)


def told(reply: ops.PublishReply) -> list[tuple[str, int | None]]:
    return [(item.result, item.clock) for item in reply.items]


@pytest.mark.feature("DS02", model="dsps")
def test_a_second_copy_of_a_publish_is_all_duplicates(desk: ChannelDesk) -> None:
    first, second = desk.publish("a", "b"), desk.publish("a", "b")
    assert [item.clock for item in first.items] == [item.clock for item in second.items] == [1, 2]
    assert [item.result for item in second.items] == ["duplicate"] * 2 and second.clock == 2


def test_an_id_twice_in_one_call(desk: ChannelDesk) -> None:
    assert told(desk.publish("a", "b", "a")) == [("created", 1), ("created", 2), ("duplicate", 1)]
    assert told(desk.publish("c", "c", not_after_ms=PAST_MS)) == [("refused", None)] * 2


def test_a_late_publish_publishes_nothing_and_knows_what_is_there(desk: ChannelDesk) -> None:
    assert desk.publish("a", not_after_ms=PAST_MS).items[0].result == "refused" and desk.dump() == {}
    before, reply = desk.published("a").dump(), desk.publish("b", "a", not_after_ms=PAST_MS)
    assert told(reply) == [("refused", None), ("duplicate", 1)] and desk.dump() == before and reply.clock == 1


@pytest.mark.feature("DS06", model="dsps")
def test_a_late_subscribe(desk: ChannelDesk) -> None:
    late = ops.Subscribe("s", "f" * 16, TTL_S, not_after_ms=PAST_MS)
    reply = desk.run(late)
    assert (reply.result, reply.clock, reply.cursor) == ("refused", None, None) and desk.dump() == {}
    before = desk.subscribed().dump()
    assert desk.run(late).result == "refused" and desk.dump() == before
    assert desk.run(ops.Unsubscribe("s", "e" * 16, not_after_ms=PAST_MS)).result == "refused" and desk.dump() == before


@pytest.mark.feature("DS06", "DS07", model="dsps")
def test_a_copy_of_subscribe_creates_nobody_after_an_unsubscribe(desk: ChannelDesk) -> None:
    assert desk.run(SUBSCRIBE).result == "created"
    again = ops.Subscribe("s", "1" * 16, TTL_S, not_after_ms=NEVER_MS)
    assert desk.run(again).result == "exists"
    before, copy = desk.published("m1").dump(), desk.run(SUBSCRIBE)
    assert (copy.result, copy.cursor, copy.clock) == ("created", 0, 1) and desk.dump() == before
    assert desk.unsubscribe().result == "deleted"
    for late, result in ((SUBSCRIBE, "created"), (again, "exists")):
        copy = desk.run(late)
        assert (copy.result, copy.cursor) == (result, None)
    assert not desk.redis.exists(desk.keys.cursor("s"))


@pytest.mark.feature("DS07", model="dsps")
@pytest.mark.parametrize("there", [True, False])
def test_a_copy_of_unsubscribe_deletes_nobody_who_came_later(desk: ChannelDesk, there: bool) -> None:
    if there:
        desk.subscribe()
    result = "deleted" if there else "missing"
    assert desk.run(UNSUBSCRIBE).result == result
    assert desk.subscribed().run(UNSUBSCRIBE).result == result and desk.redis.exists(desk.keys.cursor("s"))


def test_what_a_subscribe_did_is_kept_longer_than_its_copies_may_come(desk: ChannelDesk) -> None:
    not_after_ms = desk.redis.time()[0] * 1000 + 10_000
    desk.run(ops.Subscribe("s", "a" * 16, TTL_S, not_after_ms=not_after_ms))
    desk.run(ops.Unsubscribe("s", "b" * 16, not_after_ms=not_after_ms))
    assert desk.redis.pexpiretime(desk.keys.op("a" * 16)) == not_after_ms + 20_000
    assert desk.redis.pexpiretime(desk.keys.op("b" * 16)) == not_after_ms + 20_000


def test_an_unsubscribed_one_leaves_nothing_behind(desk: ChannelDesk) -> None:
    desk.subscribed("other").published("m1").redis.delete(desk.keys.clock)
    fields = desk.subscribed().redis.hkeys(desk.keys.meta)
    assert b"r.s" in fields
    desk.unsubscribe()
    assert set(fields) - set(desk.redis.hkeys(desk.keys.meta)) == {b"r.s"}


# -- cut off in the middle


def cut_off(desk: ChannelDesk, operation: Operation, writes: int) -> bool:
    """Run an operation whose script stops before its write number `writes + 1`; whether it was."""
    call: Call[Any] = desk.model.call(operation)
    assert call.script is not None
    first, body = call.script.text.split("\n", 1)
    table = ", ".join(f"{name} = true" for name in WRITES)
    try:
        desk.redis.eval(f"{first}\n{CUT_OFF % table}{body}", len(call.keys), *call.keys, *call.arguments, writes)
    except Exception as error:
        assert "CUT OFF" in str(error), error
        return True
    return False


FETCH = ops.Fetch("s", 64, TTL_S)


def prepared(desk: ChannelDesk, *messages: str, lost: tuple[str, ...] = ()) -> None:
    """A subscriber, these messages, and keys that are lost."""
    desk.subscribed().publish(*messages)
    if lost:
        desk.redis.delete(*lost)


SCENES: dict[str, tuple[Callable[[ChannelDesk], object], Operation]] = {
    "first publish": (lambda desk: None, CUT), "publish": (lambda desk: prepared(desk, "x"), CUT),
    "publish behind foreign": (lambda desk: (prepared(desk, "x"), desk.foreign("f1"), desk.foreign("f2")), CUT),
    "first subscribe": (lambda desk: None, SUBSCRIBE), "subscribe": (lambda desk: desk.publish("x"), SUBSCRIBE),
    "unsubscribe": (lambda desk: prepared(desk, "x"), UNSUBSCRIBE),
    "fetch of foreign": (lambda desk: (desk.subscribe(), desk.foreign("f1"), desk.foreign("f2")), FETCH),
    "fetch of expired": (lambda desk: prepared(desk, "x", "y", "z", lost=(desk.keys.body(1), desk.keys.body(2))), FETCH),
    "acknowledge": (lambda desk: prepared(desk, "x", "y"), ops.Acknowledge("s", 1, TTL_S)),
    "publish after a loss": (lambda desk: prepared(desk, "x", lost=(desk.keys.clock,)), CUT),
    "fetch after a loss": (lambda desk: prepared(desk, "x", lost=(desk.keys.clock,)), FETCH),
    "acknowledge after a loss": (lambda desk: prepared(desk, "x", "y", lost=(desk.keys.clock,)), ops.Acknowledge("s", 1, TTL_S)),
    "subscribe after a loss": (lambda desk: (desk.publish("x"), desk.redis.delete(desk.keys.clock)), SUBSCRIBE),
}  # fmt: skip


def outcome(desk: ChannelDesk) -> tuple[Any, ...]:
    """What users see of the channel, and that the index lacks nothing."""
    fetched = desk.subscribed("late").fetch()
    bodies = {int(key.decode().rpartition(".")[2]) for key in desk.redis.keys(f"{desk.keys.bodies}*")}
    indexed = {int(member) for member in desk.redis.zrange(desk.keys.live, 0, -1)}
    known, upto = map(int, desk.redis.hmget(desk.keys.meta, "known", "upto"))
    assert {at for at in bodies if known < at <= upto} <= indexed
    # The era of one that was cut off when it had found a loss may be one higher.
    era = min(int(desk.redis.hget(desk.keys.meta, "era")), 1)
    return fetched.result, ids(fetched), fetched.cursor, fetched.clock, era, fetched.era_changed, desk.fetch("late").cursor


@pytest.mark.parametrize("scene", SCENES)
def test_cut_off_after_any_write_and_sent_again_it_comes_to_the_same(desk: ChannelDesk, scene: str) -> None:
    prepare, operation = SCENES[scene]
    prepare(desk)
    desk.run(operation)
    whole = outcome(desk)
    for writes in range(40):
        desk.redis.flushall()
        prepare(desk)
        if not cut_off(desk, operation, writes):
            assert writes > 1
            return
        desk.run(operation)
        assert outcome(desk) == whole, f"cut off after {writes} writes"
        assert sum(desk.redis.exists(desk.keys.mid(id)) for id in "ab") in (0, 2)
    raise AssertionError("it writes for ever")


BEFORE: dict[str, Callable[[ChannelDesk], object]] = {
    "new channel": lambda desk: None, "behind another message": lambda desk: desk.publish("x"),
    "behind foreign ones": lambda desk: (desk.publish("x"), desk.foreign("f1"), desk.foreign("f2")),
    "across the wrap": lambda desk: (desk.place(clock=CLOCK_MAX - 2), desk.publish("x")),
    "after a loss of the clock": lambda desk: (desk.publish("x"), desk.redis.delete(desk.keys.clock)),
}  # fmt: skip


def stored(desk: ChannelDesk, *names: str) -> list[int]:
    """The clocks of messages, of which each has its own body; they follow each other up to the clock of the channel."""
    clocks = [int(desk.redis.get(desk.keys.mid(id))) for id in names]
    assert [desk.redis.get(desk.keys.body(at)) for at in clocks] == [message(id).body() for id in names]
    last = int(desk.redis.get(desk.keys.clock))
    circle = sorted(clocks, key=lambda at: clock_distance(at, last))
    assert [clock_distance(at, last) for at in circle] == list(range(len(names)))
    return clocks


@pytest.mark.parametrize("fifth", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 5))])
@pytest.mark.parametrize("scene", BEFORE)
def test_rule_03_another_publisher_leaves_the_messages_of_a_call_that_was_cut_off(
    desk: ChannelDesk, scene: str, fifth: int
) -> None:
    """Both calls are cut off after each of their writes, then repeated in the same or in the other order: a fifth of the pairs,
    chosen so that each cut of one call meets some of the other."""
    other = ops.Publish((message("c"), message("d")), TTL_S, not_after_ms=NEVER_MS)
    pairs = [pair for pair in product(range(13), range(13)) if (pair[0] + 2 * pair[1] + list(BEFORE).index(scene)) % 5 == fifth]
    for (writes, its_writes), first in product(pairs, (CUT, other)):
        desk.redis.flushall()
        BEFORE[scene](desk)
        cut_off(desk.subscribed(), CUT, writes)
        cut_off(desk, other, its_writes)
        second = other if first is CUT else CUT
        told = {
            message.id: item.clock
            for operation in (first, second)
            for message, item in zip(operation.messages, desk.run(operation).items, strict=True)
        }
        where = f"cut off after {writes} writes, the other one after {its_writes}"
        assert stored(desk, "a", "b", "c", "d") == [told[id] for id in "abcd"], where
        fetched = desk.fetch()
        assert sorted(ids(fetched)) == ["a", "b", "c", "d"] and not fetched.more, where


@pytest.mark.parametrize("scene", BEFORE)
def test_rule_03_what_the_original_overwrote_after_a_cut_is_published_anew(desk: ChannelDesk, scene: str) -> None:
    for writes in range(13):
        desk.redis.flushall()
        BEFORE[scene](desk)
        cut_off(desk, CUT, writes)
        desk.foreign("c")
        told = [item.clock for item in desk.run(CUT).items]
        assert [int(desk.redis.get(desk.keys.mid(id))) for id in "ab"] == told, f"cut off after {writes} writes"
        bodies = [desk.redis.get(desk.keys.body(at)) for at in told]
        assert bodies == [message(id).body() for id in "ab"], f"cut off after {writes} writes"
        assert [item.result for item in desk.run(CUT).items] == ["duplicate"] * 2


OPERATIONS: dict[str, tuple[Operation, tuple[str, ...]]] = {
    "publish": (ops.Publish((message("m1"), message("m2")), TTL_S, not_after_ms=NEVER_MS), ("clock", "meta", "live", "mid")),
    "subscribe": (ops.Subscribe("s", "5" * 16, TTL_S, not_after_ms=NEVER_MS), ("clock", "cursor", "meta", "live", "op")),
    "unsubscribe": (ops.Unsubscribe("s", "5" * 16, not_after_ms=NEVER_MS), ("cursor", "meta", "op")),
    "fetch": (ops.Fetch("s", 64, TTL_S), ("clock", "cursor", "meta", "live")),
    "acknowledge": (ops.Acknowledge("s", 1, TTL_S), ("clock", "cursor", "meta", "live")),
    "ask old": (ops.AskOld("s", ("m2",)), ("clock", "cursor", "meta", "mid")),
}


@pytest.mark.parametrize(("name", "where"), [(name, where) for name, (_, keys) in OPERATIONS.items() for where in keys])
def test_a_key_of_another_type_is_named_and_nothing_is_changed(desk: ChannelDesk, name: str, where: str) -> None:
    desk.subscribed().publish("m1")
    keys = desk.keys
    places = {"clock": keys.clock, "cursor": keys.cursor("s"), "meta": keys.meta, "live": keys.live, "mid": keys.mid("m2")}
    key = {**places, "op": keys.op("5" * 16)}[where]
    desk.redis.delete(key)
    desk.redis.rpush(key, "x")
    before, lives = desk.dump(), desk.lives()
    refused(WrongKeyType, key.replace("{", r"\{").replace("}", r"\}"), desk.run, OPERATIONS[name][0])
    assert (desk.dump(), desk.lives()) == (before, lives)
    # As soon as it is gone, everything goes on.
    desk.redis.delete(key)
    desk.run(OPERATIONS[name][0])


def test_each_publish_rings_also_a_duplicate_and_a_refused_one_does_not(desk: ChannelDesk) -> None:
    ear = desk.redis.pubsub(ignore_subscribe_messages=True)
    ear.subscribe(desk.keys.wake_topic)
    ear.get_message(timeout=DEADLINE_S)
    desk.published("a", "b").published("a").published("c", not_after_ms=PAST_MS).publish("d")
    heard = [ear.get_message(timeout=DEADLINE_S) for _ in range(3)]
    assert [(message["channel"], message["data"]) for message in heard] == [(b"dsps.c.{chX}", b"new message")] * 3
    assert ear.get_message(timeout=0.05) is None
    ear.close()


@pytest.mark.feature("DS22", model="dsps")
def test_which_messages_are_old(desk: ChannelDesk) -> None:
    before, lives = desk.place(clock=2**53 - 2).subscribed().published("m1", "m2", "m3").dump(), desk.lives()
    reply = desk.old("m1", "m2", "m3", "unknown")
    assert (reply.result, reply.old, reply.cursor, reply.clock) == ("ok", (False,) * 4, 2**53 - 2, -(2**53) + 2)
    assert (desk.dump(), desk.lives()) == (before, lives)
    desk.acknowledge(-(2**53) + 1)
    assert desk.old("m1", "m2", "m3", "unknown").old == (True, True, False, False) and desk.old().old == ()


def test_when_memory_is_full_only_what_adds_something_is_refused(desk: ChannelDesk) -> None:
    desk.subscribed().published("m1").foreign("f2")
    desk.driver.deadline_ms = 200
    desk.redis.config_set("maxmemory", 1)
    try:
        for call in (lambda: desk.publish("m3"), lambda: desk.subscribe("other")):
            refused(ServerUnavailable, "OOM", call)
        assert ids(desk.fetch()) == ["m1", "f2"] and desk.old("m1").result == "ok"
        assert desk.acknowledge(2).result == "OK" and desk.unsubscribe().result == "deleted"
    finally:
        desk.redis.config_set("maxmemory", 0)
