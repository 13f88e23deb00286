"""The three processes of a slice of wake-ups: a publisher with a fixed schedule, and the two listeners that are compared.

    python -m bench.micro.channel_process '{"role": "channel", "url": "...", "channel": "wake", "messages": 9, "rate_per_s": 100}'

Roles: `publisher`, `channel` (long polls of the engine, each acknowledged), `bare` (redis-py's pub/sub). A listener prints
"ready", and one JSON line when it has received everything.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import redis

import engine
from bench.micro.payload import PAYLOAD
from bench.micro.place import pin_client

_WAIT_MS = 20_000
#: Time that a listener waits beyond the schedule.
_PATIENCE_S = 20.0
_BARE = "bare:wake"
_SUBSCRIBER = "listener"


@dataclass(frozen=True, slots=True)
class Order:
    """The task of one process of a slice."""

    role: str
    url: str
    channel: str
    messages: int
    rate_per_s: float

    @property
    def deadline_s(self) -> float:
        """Time after which a listener gives up."""
        return self.messages / self.rate_per_s + _PATIENCE_S


def publish(order: Order) -> object:
    """Publish at even intervals: on the channel, or by bare pub/sub when the bare listener is measured."""
    gap_ns = round(1e9 / order.rate_per_s)
    plain = redis.Redis.from_url(order.url, protocol=2)
    with engine.Channel(order.channel, url=order.url) as channel:
        listening = bool(plain.exists(f"c.{{{order.channel}}}.clock"))
        start_ns = time.monotonic_ns() + gap_ns
        for number in range(order.messages):
            intended_ns = start_ns + number * gap_ns
            while (ahead_ns := intended_ns - time.monotonic_ns()) > 0:
                time.sleep(ahead_ns / 1e9)
            content = {**PAYLOAD, "sent_ns": time.monotonic_ns()}
            if listening:
                channel.publish(f"m{number}", content)
            else:
                plain.publish(_BARE, json.dumps(content))
    return None


def listen(order: Order) -> list[float]:
    """Run long polls one after the other, each acknowledged; return the ms from the call of `publish` to each message."""
    received_ms: list[float] = []
    end_s = time.monotonic() + order.deadline_s
    with engine.Channel(order.channel, url=order.url) as channel:
        channel.subscribe(_SUBSCRIBER)
        channel.fetch(_SUBSCRIBER, wait_ms=1)
        print("ready", flush=True)
        while len(received_ms) < order.messages and time.monotonic() < end_s:
            fetched = channel.fetch(_SUBSCRIBER, wait_ms=_WAIT_MS)
            now_ns = time.monotonic_ns()
            received_ms += [(now_ns - message.content["sent_ns"]) / 1e6 for message in fetched.messages]
            if fetched.receipt is not None:
                channel.acknowledge(_SUBSCRIBER, fetched.receipt)
    return received_ms


def listen_bare(order: Order) -> list[float]:
    """Like `listen`, with only redis-py's pub/sub."""
    received_ms: list[float] = []
    end_s = time.monotonic() + order.deadline_s
    pubsub: Any = redis.Redis.from_url(order.url, protocol=2).pubsub(ignore_subscribe_messages=True)
    pubsub.subscribe(_BARE)
    pubsub.get_message(timeout=1)
    print("ready", flush=True)
    while len(received_ms) < order.messages and time.monotonic() < end_s:
        message = pubsub.get_message(timeout=1)
        if message is not None:
            received_ms.append((time.monotonic_ns() - json.loads(message["data"])["sent_ns"]) / 1e6)
    return received_ms


if __name__ == "__main__":
    pin_client()
    order = Order(**json.loads(sys.argv[1]))
    print(json.dumps({"publisher": publish, "channel": listen, "bare": listen_bare}[order.role](order)))
