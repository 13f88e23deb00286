"""The two matrices of the original's own tests (wire-models 2.5), the dump of its scripts (2.2) and the order of what is missing:
keys, values, lives and replies, byte for byte."""

import csv
from pathlib import Path
from typing import Any

import pytest

from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from engine.ops.channels import Acknowledge, AskOld, Fetch, Publish, Subscribe
from tests.engine.channels.channel_desk import NEVER_MS, TTL_S, ChannelDesk, ids, message


def rows(name: str) -> list[dict[str, str]]:
    """A matrix, row by row."""
    with Path(__file__).with_name(name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.feature("DS01", "DS02", "DS03", "DS08", "DS18", "DS19", model="dsps")
@pytest.mark.parametrize("row", rows("publish_matrix.csv"), ids=lambda row: f"{row['clock_before']} {row['published_twice']}")
def test_the_matrix_of_publishes(desk: ChannelDesk, row: dict[str, str]) -> None:
    if row["clock_before"] != "absent":
        desk.redis.set(desk.keys.clock, row["clock_before"], ex=50)
    after, since_ms = row["clock_after"].encode(), desk.now_ms()
    assert desk.raw(Publish((message("m1"),), TTL_S, not_after_ms=NEVER_MS))[1:] == [after, 0, 0, [b"c" + after]]
    wire = {desk.keys.clock, f"c.{{chX}}.{row['body_key']}", "c.{chX}.mid.m1"}
    assert row["clock_ttl"] == "T" and wire <= desk.given(since_ms)
    if row["published_twice"] == "yes":
        before, since_ms = desk.age(100).lives(), desk.now_ms()
        second = desk.raw(Publish((message("m1"),), TTL_S, not_after_ms=NEVER_MS))
        assert second[1:] == [after, 0, 0, [b"d" + after]] and desk.keys.clock in desk.given(since_ms)
        lives, others = desk.lives(), wire - {desk.keys.clock}
        assert {key: lives[key] for key in others} == {key: before[key] for key in others}
    assert desk.redis.get(desk.keys.clock) == after
    assert desk.redis.get(f"c.{{chX}}.{row['body_key']}") == b'{"id":"m1","content":{"text":"m1"}}'
    assert desk.redis.get("c.{chX}.mid.m1") == row["dedup_value"].encode()
    assert {key for key in desk.dump() if "ironclaim" not in key} == wire


@pytest.mark.feature("DS14", "DS16", "DS17", "DS18", "DS19", model="dsps")
@pytest.mark.parametrize("row", rows("ack_matrix.csv"), ids=lambda row: " ".join(row.values()))
def test_the_matrix_of_acknowledgements(desk: ChannelDesk, row: dict[str, str]) -> None:
    desk.redis.set(desk.keys.clock, row["channel_clock"], ex=50)
    desk.redis.set(desk.keys.cursor("s"), row["subscriber_clock"], ex=60)
    before, lives, since_ms = desk.dump(), desk.lives(), desk.now_ms()
    reply = desk.raw(Acknowledge("s", int(row["ack_clock"]), TTL_S))
    cursor = row["ack_clock"] if row["result"] == "OK" else row["subscriber_clock"]
    assert reply[1:6] == [row["result"].encode(), row["channel_clock"].encode(), cursor.encode(), 0, 0]
    if row["result"] == "stale":
        assert (desk.dump(), desk.lives()) == (before, lives)
        return
    assert desk.redis.get(desk.keys.clock) == row["channel_clock"].encode()
    assert desk.redis.get(desk.keys.cursor("s")) == row["ack_clock"].encode()
    assert desk.given(since_ms) == {desk.keys.clock, desk.keys.cursor("s"), desk.keys.meta}


@pytest.mark.parametrize(
    "operation", [Fetch("s", 64, TTL_S), Acknowledge("s", 1, TTL_S), AskOld("s", ("m1",))], ids=lambda op: type(op).__name__
)
def test_a_missing_channel_is_told_before_a_missing_subscriber(desk: ChannelDesk, operation: Any) -> None:
    assert desk.raw(operation)[1:] == [b"channel-not-found"] and desk.dump() == {}
    assert desk.place(s=0).raw(operation)[1:] == [b"channel-not-found"]
    desk.redis.delete(desk.keys.cursor("s"))
    before, lives = desk.place(clock=7).dump(), desk.lives()
    assert desk.raw(operation)[1:] == [b"subscription-not-found"] and (desk.dump(), desk.lives()) == (before, lives)


@pytest.mark.feature("DS04", "DS05", "DS06", "DS07", "DS08", "DS09", model="dsps")
def test_the_golden_dump(desk: ChannelDesk) -> None:
    since_ms = desk.now_ms()
    subscribe = Subscribe("sA", "0123456789abcdef", TTL_S, not_after_ms=NEVER_MS)
    assert desk.raw(subscribe)[1:] == [b"created", b"0", b"0", 0, 0]
    assert desk.subscribe("sA").result == "exists" and desk.subscribe("sB").result == "created"
    assert desk.publish("msg123").items[0].result == "created" and desk.publish("msg123").items[0].result == "duplicate"
    wire = {"c.{chX}.clock": b"1", "c.{chX}.m.1": b'{"id":"msg123","content":{"text":"msg123"}}', "c.{chX}.mid.msg123": b"1"}
    wire |= {"c.{chX}.r.sA": b"0", "c.{chX}.r.sB": b"0"}
    assert {key: value for key, value in desk.dump().items() if "ironclaim" not in key} == wire
    assert set(wire) <= desk.given(since_ms)
    fetched, ends_ms = desk.raw(Fetch("sA", 64, TTL_S)), desk.lives()["c.{chX}.m.1"]
    assert fetched[1:] == [b"ok", b"1", b"0", 0, 0, 0, b"1", 0, 0, ends_ms, [b"1", wire["c.{chX}.m.1"]]]
    told = [desk.acknowledge(at, name).result for at, name in ((1, "sA"), (1, "sA"), (9, "sA"), (1, "sC"))]
    assert told == ["OK", "stale", "stale", "subscription-not-found"]
    assert desk.redis.get("c.{chX}.r.sA") == b"1"
    assert desk.subscribe("late").cursor == 1 and ids(desk.fetch("sB")) == ["msg123"]
    assert desk.unsubscribe("sB").result == "deleted" and desk.unsubscribe("sB").result == "missing"


@pytest.mark.parametrize("clock", [0, -1024, CLOCK_MIN, CLOCK_MAX])
def test_a_new_subscriber_is_at_the_channels_clock(desk: ChannelDesk, clock: int) -> None:
    reply = desk.place(clock=clock).subscribe("s")
    assert (reply.result, reply.clock, reply.cursor) == ("created", clock, clock)
    assert desk.redis.get(desk.keys.cursor("s")) == desk.redis.get(desk.keys.clock) == str(clock).encode()
