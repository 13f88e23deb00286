"""Channels as services use them, on a real server: what their calls say, and what is in the server's keys then."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from engine import (
    Acknowledged,
    Channel,
    ChannelRule,
    Fetched,
    Message,
    Published,
    Subscribed,
    models,
)

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


def drained(channel: Channel, subscriber: str, **options: Any) -> list[Message]:
    """All messages that come until there are no more, each fetch acknowledged."""
    found: list[Message] = []
    while (fetched := channel.fetch(subscriber, **options)).receipt is not None:
        found += fetched.messages
        assert channel.acknowledge(subscriber, fetched.receipt) == Acknowledged("OK")
    return found


@pytest.mark.feature("DS01", model="dsps")
@pytest.mark.feature("DS14", model="dsps")
def test_the_life_of_a_message(channel: Channel, server: Any) -> None:
    assert channel.subscribe("sa") == Subscribed(True, 0)
    assert channel.subscribe("sa") == Subscribed(False, 0)
    assert channel.publish("m1", {"text": "hello!"}) == Published("created", 1)
    assert server.get("c.{chx}.m.1") == '{"id":"m1","content":{"text":"hello!"}}'
    assert server.get("c.{chx}.mid.m1") == "1" and server.ttl("c.{chx}.m.1") == TTL_S
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
