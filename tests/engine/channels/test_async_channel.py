"""The asyncio face of a channel, on a real server and over several storages: what it says is what the other face says."""

import asyncio
from typing import Any

import pytest

import engine
from tests.engine.helpers.waiting import DEADLINE_S, until_waits

pytestmark = pytest.mark.usefixtures("late_looks")


def storages(kind: str, url: str) -> dict[str, Any]:
    """A server, memory, or both."""
    if kind == "redis":
        return {"url": url}
    memory, server = engine.MemoryStorage(), engine.RedisStorage(url)
    return {"storages": {"memory": {"m": memory}, "both": {"m": memory, "r": server}}[kind]}


@pytest.mark.parametrize("kind", ["redis", "memory", "both"])
async def test_the_life_of_messages(kind: str, ironclaim_url: str) -> None:
    async with engine.AsyncChannel("chx", **storages(kind, ironclaim_url)) as made:
        with pytest.raises(engine.ChannelNotFound):
            await made.fetch("sa")
        assert await made.subscribe("sa") == engine.Subscribed(True, 0) and not (await made.subscribe("sa")).created
        assert await made.publish("m1", {"n": 1}) == engine.Published("created", 1)
        assert (await made.publish("m1", 2)).result == "duplicate"
        assert [one.clock for one in await made.publish_many([("m2", 2), ("m3", 3)])] == [2, 3]
        fetched = await made.fetch("sa", max_messages=2)
        assert fetched.messages == (engine.Message("m1", {"n": 1}, 1), engine.Message("m2", 2, 2)) and fetched.more_messages
        for result in ("OK", "stale"):
            assert await made.acknowledge("sa", fetched.receipt or "") == engine.Acknowledged(result)
        assert await made.are_old("sa", ["m1", "m3", "m4"]) == {"m1": True, "m3": False, "m4": False}
        rest = await made.fetch("sa", wait_ms=30_000)
        assert [message.id for message in rest.messages] == ["m3"] and rest.receipt is not None
        await made.acknowledge("sa", rest.receipt)
        waiting = asyncio.create_task(made.fetch("sa", wait_ms=30_000))
        await until_waits(made)
        await made.publish("m5", 5)
        assert [message.id for message in (await asyncio.wait_for(waiting, DEADLINE_S)).messages] == ["m5"]
        assert await made.unsubscribe("sa") and not await made.unsubscribe("sa")
        with pytest.raises(engine.SubscriptionNotFound):
            await made.fetch("sa", wait_ms=30_000)


async def test_memory_wakes_a_task_from_another_thread() -> None:
    memory = engine.MemoryStorage()
    async with engine.AsyncChannel("chx", storages={"m": memory}) as made:
        await made.subscribe("sa")
        waiting = asyncio.create_task(made.fetch("sa", wait_ms=30_000))
        await until_waits(made)
        with engine.Channel("chx", storages={"m": memory}) as other:
            await asyncio.to_thread(other.publish, "m1", 1)
        found = await asyncio.wait_for(waiting, DEADLINE_S)
    assert [message.content for message in found.messages] == [1]


def test_one_loop_after_the_other_and_not_two_at_once(ironclaim_url: str) -> None:
    made = engine.AsyncChannel("chx", url=ironclaim_url)

    async def uses() -> None:
        await made.subscribe("sa")
        assert (await made.fetch("sa", wait_ms=10)).messages == ()

    async def both() -> None:
        await uses()
        with pytest.raises(engine.Malformed, match="event loop"):
            await asyncio.to_thread(asyncio.run, uses())

    asyncio.run(uses())
    asyncio.run(both())
