"""What does not fit is refused by name and bound before any I/O: keys, cursors and lives stay, and no call is made."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import redis
import redis.asyncio

import engine
from engine.channel import replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from tests.engine.helpers.refusing import malformed

Change = Callable[[str], object]

BAD_IDS: list[Any] = ["", "A", "-a", "_a", "a.b", "a b", "a\n", "\na", "é", "a" * 64, "a/b", "{a}", "a:b", "a\0", "a*"]
BAD_IDS += [None, 5, b"a", ["a"], True]


@pytest.fixture
def channel(ironclaim_url: str) -> Iterator[engine.Channel]:
    """With a subscriber that has acknowledged one of two messages."""
    with engine.Channel("chx", url=ironclaim_url) as made:
        made.subscribe("sa")
        made.publish_many([("m1", 1), ("m2", 2)])
        receipt = made.fetch("sa", max_messages=1).receipt
        assert receipt is not None
        made.acknowledge("sa", receipt)
        yield made


def state(raw: Any) -> dict[bytes, Any]:
    """Every key with its value and the instant of its end, and how many scripts were called."""
    found = {key: (raw.dump(key), raw.pexpiretime(key)) for key in sorted(raw.keys())}
    return {**found, b"calls": raw.info("commandstats")["cmdstat_evalsha"]["calls"]}


@contextmanager
def unchanged(raw: Any) -> Iterator[None]:
    before = state(raw)
    yield
    assert state(raw) == before


def refused(field: str, call: Callable[..., object], *given: Any, **more: Any) -> None:
    told = malformed(call, *given, **more)
    assert told.field == field and told.bound, (given, more)


def test_ids(channel: engine.Channel, raw: Any) -> None:
    with unchanged(raw):
        for bad in BAD_IDS:
            refused("channel", engine.Channel, bad)
            refused("channel", engine.AsyncChannel, bad)
            refused("id", channel.publish, bad, 1)
            refused("messages[1].id", channel.publish_many, [("ok", 1), (bad, 1)])
            refused("subscriber", channel.subscribe, bad)
            refused("subscriber", channel.unsubscribe, bad)
            refused("subscriber", channel.fetch, bad)
            refused("subscriber", channel.acknowledge, bad, replies.outer({"redis": replies.inner("chx", "sa", 2)}))
            refused("subscriber", channel.are_old, bad, ["m1"])
            refused("ids[1]", channel.are_old, "sa", ["m1", bad])


def test_ids_at_their_bounds_are_taken(ironclaim_url: str) -> None:
    for id in ("a", "0", "0-_", "a" * 63, "9z_"):
        with engine.Channel(id, url=ironclaim_url) as made:
            assert made.subscribe(id).created and made.publish(id, 1).created
            assert made.fetch(id).messages[0].id == id and made.are_old(id, [id]) == {id: False}


def test_contents(channel: engine.Channel, raw: Any) -> None:
    with unchanged(raw):
        for bad in (float("nan"), float("-inf"), b'{"a":1}', object(), {1, 2}, "\ud800", {"a": [b""]}, "x" * 600_000):
            refused("content", channel.publish, "m3", bad)
            refused("messages[1].content", channel.publish_many, [("m3", 1), ("m4", bad)])
        for bad in (b"{", "NaN", "", b"\xff", "[1,]", "{'a':1}", None, {}):
            refused("content", engine.RawJson, bad)


def test_messages(channel: engine.Channel, raw: Any) -> None:
    with unchanged(raw):
        for bad in (None, 5, "ab", b"ab", {"a": 1}, [("a",)], [("a", 1, 2)], ["ab"], [5], [None]):
            assert malformed(channel.publish_many, bad).field.startswith("messages"), bad
        refused("messages[2].id", channel.publish_many, [("m3", 1), ("m4", 1), ("m3", 2)])


def test_too_many_messages(channel: engine.Channel, raw: Any) -> None:
    with unchanged(raw):
        refused("messages", channel.publish_many, ((f"m{at}", 1) for at in range(100_001)))
        for bad in ([f"m{at}" for at in range(1_001)], "m1", 5):
            refused("ids", channel.are_old, "sa", bad)


def test_numbers(channel: engine.Channel, raw: Any) -> None:
    with unchanged(raw):
        for bad in (-1, 1_001, 10**30, 1.5, float("nan"), "64", None, True, -(2**63)):
            refused("max_messages", channel.fetch, "sa", max_messages=bad)
        for bad in (-1, 10**30, 0.5, float("inf"), "10", None, False):
            refused("wait_ms", channel.fetch, "sa", wait_ms=bad)
        for bad in (-1, 2**63, "now", 1.5):
            refused("intended_ns", channel.publish, "m3", 1, intended_ns=bad)
            refused("intended_ns", channel.publish_many, [("m3", 1)], intended_ns=bad)


def _inner(at: object, sum: str) -> str:
    return json.dumps({"clk": at, "xs": sum}, separators=(",", ":"))


def _packed(outer: object) -> str:
    return base64.b64encode(json.dumps(outer).encode()).decode()


def bad_receipts() -> dict[str, Any]:
    """Made of a good one, of the second message."""
    inside = replies.inner("chx", "sa", 2)
    good, sum = replies.outer({"redis": inside}), replies.checksum("chx", "sa", 2)
    others = {"channel": ("chy", "sa"), "subscriber": ("chx", "sb"), "names put together otherwise": ("chxs", "a")}
    insides = {
        **{f"of another {what}": replies.inner(*names, 2) for what, names in others.items()},
        **{"another clock": _inner(3, sum), "a clock as text": _inner("2", sum), "a clock that is not whole": _inner(2.0, sum)},
        **{"a clock that is a bool": _inner(True, replies.checksum("chx", "sa", 1)), "no clock": json.dumps({"xs": sum})},
        **{"no checksum": json.dumps({"clk": 2}), "a padded checksum": _inner(2, sum + "=="), "an empty checksum": _inner(2, "")},
        **{f"clock {str(at)[:6]}.., out of range": _inner(at, sum) for at in (2**64, 10**400)},
    }
    for at in (CLOCK_MAX + 1, CLOCK_MIN - 1, 2**63 - 1, -(2**63)):
        insides[f"clock {at}, with its checksum"] = _inner(at, replies.checksum("chx", "sa", at))
    packed = {"packed": inside.encode(), "no JSON": b"{", "no UTF-8": b'{"redis":"\xff"}', "a deep one": b"[" * 3_000}
    found: dict[str, Any] = {
        **{what: replies.outer({"redis": wrong}) for what, wrong in insides.items()},
        **{what: base64.b64encode(body).decode() for what, body in packed.items()},
        **{"of another storage": replies.outer({"other": inside}), "of no storage": replies.outer({}), "not packed": inside},
        **{"a part that is no text": _packed({"redis": {"clk": 2, "xs": sum}}), "a list": _packed([inside]), "nothing": None},
        **{"no base64": "%" + good[1:], "too long": good + "A" * 5_000, "empty": "", "bytes": good.encode(), "a number": 5},
        "a space in it": good[:8] + " " + good[8:],
    }
    for at in range(1, len(good), 7):
        found[f"cut at {at}"] = good[:at]
    flipped = bytearray(base64.b64decode(good))
    for at in range(0, len(flipped), 5):
        other = bytes(byte ^ 1 if place == at else byte for place, byte in enumerate(flipped))
        found[f"a bit in byte {at}"] = base64.b64encode(other).decode()
    return found


@pytest.mark.feature("DS15", model="dsps")
def test_receipts_that_are_damaged_or_of_others(channel: engine.Channel, raw: Any) -> None:
    before = state(raw)
    for what, bad in bad_receipts().items():
        assert malformed(channel.acknowledge, "sa", bad).field == "receipt", what
    assert state(raw) == before and before[b"c.{chx}.r.sa"]
    # The good one of which they were made.
    assert channel.acknowledge("sa", replies.outer({"redis": replies.inner("chx", "sa", 2)})).result == "OK"


@pytest.mark.feature("DS17", model="dsps")
def test_receipts_of_clocks_that_are_not_between_cursor_and_clock_change_nothing(channel: engine.Channel, raw: Any) -> None:
    """They are well made: whoever knows how can forge one (the checksum is no signature)."""
    before = state(raw)
    for at in (3, 1_000, CLOCK_MAX, 1, 0, -1, CLOCK_MIN):
        assert channel.acknowledge("sa", replies.outer({"redis": replies.inner("chx", "sa", at)})).result == "stale"
    assert {**state(raw), b"calls": 0} == {**before, b"calls": 0}


def test_rules() -> None:
    for bad in ("(", "[", "*", "a{2,1}", "(?P<n", "\\", 5, None, b".+", "(" * 500):
        refused("pattern", engine.ChannelRule, bad, 1_000)
    for bad in (-1, 10**15, 2**63, 0.5, float("nan"), float("inf"), "30m", None, True):
        refused("expire_ms", engine.ChannelRule, ".+", bad)


def test_settings(ironclaim_url: str) -> None:
    bad: Any
    for bad in ((), [], 5, "abc", [".+"], (engine.ChannelRule(), None), {".+": 1}):
        refused("rules", engine.models.Dsps, rules=bad)
    for bad in ("other", "ch"):
        refused("channel", engine.Channel, "chx", engine.models.Dsps(rules=(engine.ChannelRule(bad, 0),)))
    for bad in (engine.models.Lanes(), "dsps", engine.models.Dsps, 5):
        refused("model", engine.Channel, "chx", bad)
    for bad in ({}, [], 5, {"a": None}, {"a": "redis://"}, {f"s{at}": engine.MemoryStorage() for at in range(11)}):
        refused("storages", engine.Channel, "chx", storages=bad)
    for bad in ("", "a b", "a" * 129, 5):
        refused("storages", engine.Channel, "chx", storages={bad: engine.MemoryStorage()})
        refused("storage", engine.models.Dsps, storage=bad)
    memory, client, server = engine.MemoryStorage(), redis.Redis(), engine.RedisStorage
    for bad in (
        *((engine.MemoryStorage,), (server,), (memory, memory), (server(), server())),
        *((server(ironclaim_url), server(ironclaim_url)), (server(client=client), memory, server(client=client))),
    ):
        refused("storages", engine.Channel, "chx", storages=dict(zip("abc", bad, strict=False)))
    refused("url", engine.Channel, "chx", storages={"a": engine.RedisStorage(cast("Any", []))})
    refused("storages", engine.Channel, "chx", url=ironclaim_url, storages={"a": engine.MemoryStorage()})
    refused("storages", engine.Channel, "chx", connect=engine.ConnectOptions(), storages={"a": engine.MemoryStorage()})
    for bad in ("http://x", "redis://x:y:z", 5):
        refused("url", engine.Channel, "chx", url=bad)
        refused("url", engine.Channel, "chx", storages={"a": engine.RedisStorage(bad)})
    refused("client", engine.Channel, "chx", client=redis.asyncio.Redis())
    refused("client", engine.AsyncChannel, "chx", client=redis.Redis())
    refused("connect", engine.Channel, "chx", connect={"timeout_ms": 5})
    refused("lua", engine.Channel, "chx", lua="lua")


async def test_asyncio_refuses_the_same(channel: engine.Channel, raw: Any, ironclaim_url: str) -> None:
    with unchanged(raw):
        async with engine.AsyncChannel("chx", url=ironclaim_url) as made:
            for call, field in (
                *((lambda: made.publish("A", 1), "id"), (lambda: made.publish("m3", b""), "content")),
                (lambda: made.publish_many([("m3", float("nan"))]), "messages[0].content"),
                *((lambda: made.subscribe(""), "subscriber"), (lambda: made.unsubscribe(""), "subscriber")),
                *((lambda: made.fetch("sa", max_messages=-1), "max_messages"), (lambda: made.fetch("sa", wait_ms=-1), "wait_ms")),
                (lambda: made.acknowledge("sa", replies.inner("chx", "sa", 2)), "receipt"),
                (lambda: made.are_old("sa", ["M"]), "ids[0]"),
            ):
                with pytest.raises(engine.Malformed) as caught:
                    await call()
                assert caught.value.field == field
