"""What does not fit is refused by name and bound before any I/O: keys, cursors and lives stay, and no call is made."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import engine
from engine.channel import contents, replies
from engine.models.dsps import CLOCK_MAX, CLOCK_MIN
from tests import golden


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


@pytest.mark.feature("DS15", model="dsps")
def test_what_does_not_fit_is_refused(channel: engine.Channel, raw: Any, ironclaim_url: str, runner: asyncio.Runner) -> None:
    good = replies.outer({"redis": replies.inner("chx", "sa", 2)})

    def part(at: object, sum: str) -> str:
        return json.dumps({"clk": at, "xs": sum}, separators=(",", ":"))

    def flipped(at: int) -> str:
        """The good one with another bit in this byte."""
        return base64.b64encode(bytes(byte ^ (place == at) for place, byte in enumerate(base64.b64decode(good)))).decode()

    def plain(call: Callable[[], object]) -> None:
        """Without the words of Python, which differ from version to version."""
        try:
            call()
        except engine.Malformed as error:
            bound = error.bound.partition(" (")[0]
            raise engine.Malformed(error.field, error.value, bound, private=error.private) from error

    other = engine.AsyncChannel("chx", url=ironclaim_url)
    named = {**vars(contents), **vars(replies), **{name: getattr(engine, name) for name in engine.__all__}}
    named |= {"channel": channel, "other": other, "run": runner.run, "url": ironclaim_url, "memory": engine.MemoryStorage()}
    named |= {"client": redis.Redis(), "aioredis": redis.asyncio, "plain": plain, "part": part, "flipped": flipped, "good": good}
    named |= {"inside": replies.inner("chx", "sa", 2), "sum": replies.checksum("chx", "sa", 2)}
    named |= {"dumps": json.dumps, "b64encode": base64.b64encode}
    before = state(raw)
    golden.refusals("engine/refused_channels.txt", named, engine.Malformed)
    runner.run(other.close())
    assert state(raw) == before and before[b"c.{chx}.r.sa"]
    # The good one of which receipts were made.
    assert channel.acknowledge("sa", good).result == "OK"


def test_ids_at_their_bounds_are_taken(ironclaim_url: str) -> None:
    for id in ("a", "0", "0-_", "a" * 63, "9z_"):
        with engine.Channel(id, url=ironclaim_url) as made:
            assert made.subscribe(id).created and made.publish(id, 1).created
            assert made.fetch(id).messages[0].id == id and made.are_old(id, [id]) == {id: False}


@pytest.mark.feature("DS17", model="dsps")
def test_receipts_of_clocks_that_are_not_between_cursor_and_clock_change_nothing(channel: engine.Channel, raw: Any) -> None:
    """They are well made: whoever knows how can forge one (the checksum is no signature)."""
    before = state(raw)
    for at in (3, 1_000, CLOCK_MAX, 1, 0, -1, CLOCK_MIN):
        assert channel.acknowledge("sa", replies.outer({"redis": replies.inner("chx", "sa", at)})).result == "stale"
    assert {**state(raw), b"calls": 0} == {**before, b"calls": 0}
