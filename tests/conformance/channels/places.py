"""Where the suite's channels are: on a server, in memory, in both, on two servers; what a test does to one it does to all. And
short ways to say what scenes are made of."""

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import redis

from engine import AsyncChannel, Channel, ChannelRule, Fetched, MemoryStorage, RedisStorage, models
from engine.channel.settings import Storage
from engine.models.dsps import CLOCK_MAX
from engine.ops.channels import Subscribe, Unsubscribe

NEAR_THE_WRAP = CLOCK_MAX - 2
EXPIRE_MS = 300_000
#: T of it.
TTL_S = 315
FIVE_MINUTES = models.Dsps(rules=(ChannelRule(expire_ms=EXPIRE_MS),))

#: Kind -> ids of its storages: on the server, on another server, in memory.
KINDS: Mapping[str, tuple[str, ...]] = {
    **{"redis": ("first",), "memory": ("memory",)},
    **{"redis and memory": ("first", "memory"), "two servers": ("first", "second")},
}


class Place:
    """Storages of one kind. Redis-py's own types leave its replies unknown."""

    def __init__(self, kind: str, urls: Mapping[str, str]) -> None:
        self.kind = kind
        self.now_s = 1_000
        self.memory = MemoryStorage(now_ns=lambda: self.now_s * 1_000_000_000)
        self.storages: dict[str, Storage] = {id: self.memory if id == "memory" else RedisStorage(urls[id]) for id in KINDS[kind]}
        self.servers: dict[str, Any] = {
            id: redis.Redis.from_url(urls[id], decode_responses=True) for id in KINDS[kind] if id != "memory"
        }
        self._channels: list[Channel] = []

    def channel(self, name: str = "ch", model: models.Dsps = FIVE_MINUTES) -> Channel:
        """A new channel object, as another process would have it: it remembers nothing."""
        made = Channel(name, model, storages=self.storages)
        self._channels.append(made)
        return made

    def async_channel(self, name: str = "ch") -> AsyncChannel:
        """For the test to close."""
        return AsyncChannel(name, FIVE_MINUTES, storages=self.storages)

    def close(self) -> None:
        """Close the channels that were made."""
        for channel in self._channels:
            channel.close()
        for server in self.servers.values():
            server.close()

    def preset(self, clock: int) -> None:
        """Let a channel begin at a clock. On a server it is a client of the original that has left it there."""
        for server in self.servers.values():
            server.set("c.{ch}.clock", clock, ex=TTL_S)
        if "memory" in self.storages:
            self.memory.apply("ch", Subscribe("preset", "0" * 16, TTL_S, seen=clock, not_after_ms=2**52))
            self.memory.apply("ch", Unsubscribe("preset", "1" * 16, not_after_ms=2**52))

    def age(self, by_s: int) -> None:
        """So much time goes by. A channel object from before would not know, and take what has expired for lost."""
        self.now_s += by_s
        for server in self.servers.values():
            for key in list(server.scan_iter(count=1000)):
                left_ms = server.pttl(key) - by_s * 1000
                if left_ms > 0:
                    server.pexpire(key, left_ms)
                else:
                    server.delete(key)

    def keys(self, key: str) -> list[Any]:
        """The value of a channel's key on each server."""
        return [server.get(f"c.{{ch}}.{key}") for server in self.servers.values()]

    def expect(self, **values: int | str | None) -> None:
        """These are the values of keys on every server; `r_s` is `r.s`."""
        for name, value in values.items():
            key = name.replace("_", ".", 1)
            assert self.keys(key) == [None if value is None else str(value)] * len(self.servers), key


def ids(fetched: Fetched) -> list[str]:
    return [message.id for message in fetched.messages]


def is_nothing(fetched: Fetched) -> bool:
    """In whatever era: a clock is preset in memory by letting it seem to go back."""
    return replace(fetched, era=0) == Fetched()


def publish(channel: Channel, *names: str) -> None:
    for name in names:
        assert channel.publish(name, {"hi": name}).created


def acknowledge(channel: Channel, subscriber: str, fetched: Fetched) -> str:
    assert fetched.receipt is not None
    return channel.acknowledge(subscriber, fetched.receipt).result


def waiting(call: Any) -> tuple[threading.Thread, list[Any]]:
    """A call in a thread, and what it returned when."""
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.extend((call(), time.monotonic())))
    thread.start()
    return thread, came
