"""What is said of storages themselves: servers that are away or lose their data, scripts that are gone, keys that others read."""

import asyncio
import logging
import time
from typing import Any

import pytest
import redis

import engine
from engine.channel import replies
from engine.testing.server import EmbeddedServer
from tests.conformance.channels.places import FIVE_MINUTES, Place, acknowledge, ids, publish, waiting
from tests.engine.using import DEADLINE_S, refused

#: Calls to a server that is away end soon.
IMPATIENT = engine.ConnectOptions(connect_timeout_ms=500, timeout_ms=1_000, deadline_ms=3_000)


@pytest.fixture
def away() -> Any:
    """A server that the test may stop."""
    with EmbeddedServer() as server:
        yield server


@pytest.mark.slow
@pytest.mark.feature("DS24", model="dsps")
def test_one_of_two_servers_is_enough_and_the_other_is_not_waited_for(
    ironclaim_url: str, away: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    both = {"a": engine.RedisStorage(away.url), "b": engine.RedisStorage(ironclaim_url)}
    with engine.Channel("ch", FIVE_MINUTES, storages=both) as channel:
        channel.subscribe("s")
        publish(channel, "both")
        fetched = channel.fetch("s")
        assert set(replies.read_outer(fetched.receipt)) == {"a", "b"}
    storages = {"a": engine.RedisStorage(away.url, connect=IMPATIENT), "b": engine.RedisStorage(ironclaim_url)}
    with engine.Channel("ch", FIVE_MINUTES, storages=storages) as channel:
        away.stop()
        with caplog.at_level(logging.WARNING, "ironclaim.channel"):
            publish(channel, "one")
            assert acknowledge(channel, "s", fetched) == "OK"
            before_s = time.monotonic()
            for n in range(40):
                publish(channel, f"m{n}")
            assert time.monotonic() - before_s < DEADLINE_S, "not each of them waits for the server that is away"
        assert len([record for record in caplog.records if "storage a" in record.message]) == 1
        thread, came = waiting(lambda: channel.fetch("s", wait_ms=30_000))
        thread.join(DEADLINE_S)
        assert ids(came[0]) == ["one", *[f"m{n}" for n in range(40)]]
        assert set(replies.read_outer(came[0].receipt)) == {"b"}


@pytest.mark.slow
@pytest.mark.feature("DS24", model="dsps")
def test_it_fails_when_all_servers_are_away(away: EmbeddedServer) -> None:
    storages = {id: engine.RedisStorage(client=redis.Redis.from_url(away.url), connect=IMPATIENT) for id in ("a", "b")}
    with engine.Channel("ch", FIVE_MINUTES, storages=storages) as channel:
        away.stop()
        refused((engine.ServerUnavailable, engine.OutcomeUnknown), None, channel.publish, "a", 1)
        refused((engine.ServerUnavailable, engine.OutcomeUnknown), None, channel.fetch, "s")


class Broken(engine.MemoryStorage):
    """A storage of somebody's own, with a bug."""

    def apply(self, channel: str, operation: Any) -> Any:
        raise RuntimeError("a bug")


def test_a_bug_in_one_storage_is_raised_and_nobody_waits_for_ever(ironclaim_url: str) -> None:
    storages = {"a": Broken(), "b": engine.RedisStorage(ironclaim_url)}
    with engine.Channel("ch", FIVE_MINUTES, storages=storages) as channel, pytest.raises(RuntimeError, match="a bug"):
        channel.subscribe("s")

    async def scene() -> None:
        async with engine.AsyncChannel("ch", FIVE_MINUTES, storages=storages) as channel:
            await channel.subscribe("s")

    refused(RuntimeError, "a bug", asyncio.run, scene())


@pytest.mark.feature("DS24", model="dsps")
def test_a_storage_with_messages_does_not_wait_for_one_without(ironclaim_url: str) -> None:
    """Messages in one of two storages end a long poll of both."""
    storages = {"a": engine.RedisStorage(ironclaim_url), "b": engine.MemoryStorage()}
    with (
        engine.Channel("ch", FIVE_MINUTES, storages=storages) as channel,
        engine.Channel("ch", FIVE_MINUTES, url=ironclaim_url) as alone,
    ):
        channel.subscribe("s")
        publish(alone, "x", "y")
        before_s, fetched = time.monotonic(), channel.fetch("s", max_messages=10, wait_ms=30_000)
        assert ids(fetched) == ["x", "y"] and time.monotonic() - before_s < DEADLINE_S
        acknowledge(channel, "s", fetched)
        thread, came = waiting(lambda: channel.fetch("s", wait_ms=30_000))
        publish(alone, "z")
        thread.join(DEADLINE_S)
        assert ids(came[0]) == ["z"]


@pytest.mark.feature("DS24", model="dsps")
def test_a_receipt_outlives_the_set_of_storages(ironclaim_url: str) -> None:
    """The scene of the original: given by s1 and s2, taken by s2 and s3; then s1 that was left behind repeats nothing."""
    first, second, third = engine.RedisStorage(ironclaim_url), engine.MemoryStorage(), engine.MemoryStorage()
    before = engine.Channel("ch", FIVE_MINUTES, storages={"s1": first, "s2": second})
    after = engine.Channel("ch", FIVE_MINUTES, storages={"s2": second, "s3": third})
    elsewhere = engine.Channel("ch", FIVE_MINUTES, storages={"s3": third})
    before.subscribe("s")
    publish(before, "x", "y")
    fetched = before.fetch("s")
    assert ids(fetched) == ["x", "y"]
    refused(engine.Malformed, "^receipt: ", acknowledge, elsewhere, "s", fetched)
    assert acknowledge(after, "s", fetched) == "OK" and ids(after.fetch("s", wait_ms=10)) == []
    assert ids(before.fetch("s", wait_ms=10)) == []
    before.close()


@pytest.mark.feature("DS24", model="dsps")
def test_a_subscriber_that_one_storage_lost_is_given_back(ironclaim_url: str) -> None:
    """The scene of the original, and beyond it: what was not acknowledged yet comes again."""
    first, second = engine.RedisStorage(ironclaim_url), engine.MemoryStorage()
    channel = engine.Channel("ch", FIVE_MINUTES, storages={"s1": first, "s2": second})
    one, two = (engine.Channel("ch", FIVE_MINUTES, storages={id: place}) for id, place in (("s1", first), ("s2", second)))
    one.subscribe("s")
    publish(channel, "a", "b")
    for _ in range(2):
        fetched = channel.fetch("s", wait_ms=300)
        assert ids(fetched) == ["a", "b"]
    acknowledge(channel, "s", fetched)
    publish(channel, "c", "d")
    assert one.unsubscribe("s") and ids(two.fetch("s")) == ["c", "d"]
    assert ids(channel.fetch("s", wait_ms=300)) == ["c", "d"] and channel.unsubscribe("s")
    refused(engine.SubscriptionNotFound, None, channel.fetch, "s", wait_ms=300)
    channel.close()
    one.close()


@pytest.mark.feature("DS25", model="dsps")
def test_memory_is_shared_by_the_channels_of_a_process_and_by_no_others() -> None:
    storage = engine.MemoryStorage()
    with engine.Channel("ch", storages={"m": storage}) as mine, engine.Channel("ch", storages={"m": storage}) as other:
        mine.subscribe("s")
        publish(other, "a")
        assert ids(mine.fetch("s")) == ["a"]
        with pytest.raises(engine.SubscriptionNotFound):
            engine.Channel("ch", storages={"m": storage}).fetch("t")
        fresh = engine.Channel("ch", storages={"m": engine.MemoryStorage()})
        assert fresh.publish("a", 1).clock == 1 and fresh.publish("a", 1).clock == 1
        assert engine.Channel("other", storages={"m": storage}).publish("a", 1).created, "channels do not share ids"


@pytest.mark.feature("DS26", model="dsps")
def test_scripts_that_a_server_forgets_are_loaded_again(place: Place, channel: engine.Channel) -> None:
    """As after a restart or a SCRIPT FLUSH; the original loads them anew every five minutes."""
    channel.subscribe("s")
    calls: list[Any] = [
        *(lambda: channel.publish("a", 1).created, lambda: ids(channel.fetch("s")) == ["a"]),
        *(lambda: channel.are_old("s", ["a"]) == {"a": False}, lambda: acknowledge(channel, "s", channel.fetch("s")) == "OK"),
        *(lambda: not channel.subscribe("s").created, lambda: channel.unsubscribe("s")),
    ]
    for call in calls:
        for server in place.servers.values():
            server.script_flush()
        assert call()


@pytest.mark.feature("DS23", model="dsps")
def test_all_keys_of_a_channel_are_in_one_slot(place: Place, channel: engine.Channel) -> None:
    channel.subscribe("s")
    publish(channel, "a", "b")
    acknowledge(channel, "s", channel.fetch("s", max_messages=1))
    for server in place.servers.values():
        keys = set(server.scan_iter(count=1000))
        assert {"c.{ch}.clock", "c.{ch}.r.s", "c.{ch}.m.1", "c.{ch}.m.2", "c.{ch}.mid.a", "c.{ch}.mid.b"} <= keys
        assert all(key.startswith("c.{ch}.") for key in keys), "the braces are the hash tag"
        assert all(server.pttl(key) > 0 for key in keys), "and nothing stays for ever"


@pytest.mark.feature("DS24", "DS13", model="dsps")
def test_a_server_that_lost_everything_is_filled_again(ironclaim_url: str, second_server: EmbeddedServer) -> None:
    second_server.flush()
    storages = {"a": engine.RedisStorage(second_server.url), "b": engine.RedisStorage(ironclaim_url)}
    with engine.Channel("ch", FIVE_MINUTES, storages=storages) as channel, redis.Redis.from_url(second_server.url) as server:
        channel.subscribe("s")
        publish(channel, "a", "b")
        acknowledge(channel, "s", channel.fetch("s", max_messages=1))
        server.flushall()
        assert ids(channel.fetch("s")) == ["b"], "the other has it"
        publish(channel, "c")
        fetched = channel.fetch("s")
        assert ids(fetched) == ["b", "c"]
        assert acknowledge(channel, "s", fetched) == "OK" and channel.fetch("s").messages == ()
        assert server.exists("c.{ch}.r.s") == 1
