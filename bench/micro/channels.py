"""Channels: publishing next to a bare loop with the same script, fetches, long polls next to bare pub/sub, and catching up."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any

import redis

import engine
from bench.micro.bare_publish import BarePublish
from bench.micro.channel_process import Order
from bench.micro.payload import PAYLOAD
from bench.micro.place import child, client, evalsha_stats, pinned_server
from bench.micro.rounds import Side, alternate, columns, in_turns, quantile, ratio
from engine.testing import EmbeddedServer

BATCH = 100
#: Connections of the batch publisher that is compared with DSPS for 20 hosts: while one waits for the server, another builds
#: a batch.
CONNECTIONS = 2
_IN_BATCHES = f"channel, batches of {BATCH}, {CONNECTIONS} connections"
#: Messages per second that DSPS publishes for 20 hosts in its own load test.
DSPS_PER_S = 7_394
SUBSCRIBERS = 100
#: Default number of messages of one fetch.
FETCH = 64
_BLOCK = 400
_RATE_PER_S = 100.0
_WARM_UP = 50
_TIMEOUT_S = 60
#: Part of the names of our index's keys; foreign publishers do not write these.
_OURS = ".ironclaim"
#: Writes many messages at once as a publish would: body and dedup, and the index entry if `index` is 1.
_FILL = """local channel, first, last, index = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local prefix = 'c.{' .. channel .. '}.'
for clock = first, last do
  local text = string.format('%d', clock)
  if ARGV[5] == '1' then
    redis.call('SET', prefix .. 'm.' .. text, '{"id":"f' .. text .. '","content":' .. ARGV[6] .. '}', 'EX', 3600)
  end
  if index then redis.call('ZADD', prefix .. 'ironclaim.live', text, text) end
end
redis.call('SET', prefix .. 'clock', string.format('%d', last), 'EX', 3600)
return last"""
_FILL_STEP = 10_000

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work to measure."""

    publishes: int
    batch_messages: int
    repeat: int
    slices: int
    wakes: int
    backlog: int


def measure(size: Size, report: Report) -> dict[str, Any]:
    """Measure all parts, each on an empty server of its own."""
    found: dict[str, Any] = {}
    for name, part in (("publish", publish), ("fetch", fetches), ("wake", wake), ("catching_up", catching_up)):
        found[name] = part(size, report)
    published, woken, caught = found["publish"], found["wake"], found["catching_up"]
    ratios = {
        "publish": published["ratio"],
        "publish_batch": median(published["costs"]["jobs_per_s"][_IN_BATCHES]) / DSPS_PER_S,
        "fetch_calls": found["fetch"]["calls_per_fetch"],
        "wake_ms": woken["ms"]["channel"]["p50"] - woken["ms"]["bare"]["p50"],
        "catch_up": caught["deep_over_shallow"],
        "catch_up_keys": caught["keys_most"],
    }
    return {**found, "ratios": ratios}


def publish(size: Size, report: Report) -> dict[str, Any]:
    """Messages per second: one by one on one connection, alternating with the bare loop; and in batches on one and two
    connections."""
    with pinned_server() as server, engine.Channel("publish", url=server.url) as channel:
        plain = client(server)
        channel.publish("warm-up", PAYLOAD)
        bare = BarePublish(channel, plain)

        def one_by_one(count: int) -> None:
            for _ in range(count):
                channel.publish(secrets.token_hex(8), PAYLOAD)

        def in_batches(count: int) -> None:
            for _ in range(0, count, BATCH):
                channel.publish_many([(secrets.token_hex(8), PAYLOAD) for _ in range(BATCH)])

        def on_two_connections(count: int) -> None:
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                for done in [pool.submit(in_batches, count // CONNECTIONS) for _ in range(CONNECTIONS)]:
                    done.result()

        def batches() -> tuple[Side, Side]:
            plain.flushall()
            one, two = Side(), Side()
            one.run(in_batches, size.batch_messages, plain)
            two.run(on_two_connections, size.batch_messages, plain)
            return one, two

        cases = {"one": lambda: alternate(plain, size.publishes, _BLOCK, one_by_one, bare.run), "batch": batches}
        sides = in_turns(cases, size.repeat, lambda text: report(f"publish: {text}"))
    rows = {
        "channel, one by one": [mine.cost() for mine, _ in sides["one"]],
        "bare loop, one by one": [other.cost() for _, other in sides["one"]],
        f"channel, batches of {BATCH}": [one.cost() for one, _ in sides["batch"]],
        _IN_BATCHES: [two.cost() for _, two in sides["batch"]],
    }
    costs = columns(rows)
    ours, theirs, *_ = costs["jobs_per_s"].values()
    return {"costs": costs, "ratio": ratio(ours, theirs)}


def fetches(size: Size, report: Report) -> dict[str, float]:
    """The cost of delivering up to 64 messages to each of 100 subscribers: round trips and microseconds of Redis per fetch."""
    with pinned_server() as server, engine.Channel("fetch", url=server.url) as channel:
        plain = client(server)
        names = [f"s{number}" for number in range(SUBSCRIBERS)]
        for name in names:
            channel.subscribe(name)
        channel.publish_many([(secrets.token_hex(8), PAYLOAD) for _ in range(FETCH)])
        plain.config_resetstat()
        delivered = sum(len(channel.fetch(name, max_messages=FETCH).messages) for name in names)
        if delivered != SUBSCRIBERS * FETCH:
            raise RuntimeError(f"{delivered} of {SUBSCRIBERS * FETCH} messages were delivered")
        calls, spent_us = evalsha_stats(plain)
        sent = _sent(plain)
    report(f"fetch: {sent / SUBSCRIBERS:.2f} commands sent a fetch, {spent_us / calls:.1f} us of Redis for {FETCH} messages")
    return {"calls_per_fetch": sent / SUBSCRIBERS, "redis_us_per_fetch": spent_us / calls}


def _sent(plain: redis.Redis) -> float:
    """Commands that clients sent since the last reset of the statistics, without the two that read the statistics."""
    stats: Any = plain.info("stats")
    return float(stats["total_commands_processed"]) - _inside(plain) - 2


def _inside(plain: redis.Redis) -> float:
    """Number of commands that ran inside of scripts."""
    stats: Any = plain.info("commandstats")
    sent = ("cmdstat_evalsha", "cmdstat_info", "cmdstat_config|resetstat")
    return float(sum(one["calls"] for name, one in stats.items() if name not in sent))


def wake(size: Size, report: Report) -> dict[str, Any]:
    """Milliseconds from the call of `publish` to the message, at 100 messages/s: with a long poll, and with bare pub/sub."""
    samples: dict[str, list[float]] = {"channel": [], "bare": []}
    with pinned_server() as server:
        for number in range(size.slices):
            for role in ("channel", "bare") if number % 2 == 0 else ("bare", "channel"):
                client(server).flushall()
                samples[role] += _slice(server, role, size.wakes)
            report(f"wake: slice {number + 1} of {size.slices} a side")
    shares = {"p50": 0.50, "p99": 0.99}
    return {"ms": {role: {name: quantile(found, share) for name, share in shares.items()} for role, found in samples.items()}}


def _slice(server: EmbeddedServer, role: str, wakes: int) -> list[float]:
    total = wakes + _WARM_UP
    with ExitStack() as children:

        def start(asked: str) -> subprocess.Popen[bytes]:
            order = Order(asked, server.url, "wake", total, _RATE_PER_S)
            return children.enter_context(child("bench.micro.channel_process", order))

        listener = start(role)
        assert listener.stdout is not None
        if listener.stdout.readline().strip() != b"ready":
            raise RuntimeError(f"wake: the {role} listener did not start")
        publisher = start("publisher")
        publisher.communicate(timeout=total / _RATE_PER_S + _TIMEOUT_S)
        received_ms: list[float] = json.loads(listener.communicate(timeout=_TIMEOUT_S)[0])
    if len(received_ms) != total:
        raise RuntimeError(f"wake: the {role} listener received {len(received_ms)} of {total} messages")
    return received_ms[_WARM_UP:]


def catching_up(size: Size, report: Report) -> dict[str, Any]:
    """The cost of a subscriber that is far behind: time of Redis per delivered message, and keys read by the costliest call."""
    shallow, deep = 1_000, size.backlog
    found = {
        "1,000 unread, our index": _catch_up(shallow, "unread", indexed=True),
        f"{deep:,} unread, our index": _catch_up(deep, "unread", indexed=True),
        f"{deep:,} expired, our index": _catch_up(deep, "expired", indexed=True),
        f"{deep:,} expired, in our index still": _catch_up(deep, "dead", indexed=True),
        f"{deep:,} unread, foreign publishers": _catch_up(deep, "unread", indexed=False),
        f"{deep:,} expired, foreign publishers": _catch_up(deep, "expired", indexed=False),
    }
    for title, row in found.items():
        report(
            f"catching up: {title}: {row['us_per_message']:,.1f} us a message, {row['calls']:.0f} calls, "
            f"{row['keys_most']:.0f} keys at most in a call, {row['first_ms']:,.1f} ms to the first message"
        )
    # Keys are compared, not times: with a million messages the data is not in the CPU caches, and each message costs twice as
    # much.
    small, large = (found[title]["keys_per_message"] for title in list(found)[:2])
    return {"rows": found, "deep_over_shallow": large / small, "keys_most": max(row["keys_most"] for row in found.values())}


def _catch_up(clocks: int, kind: str, *, indexed: bool) -> dict[str, float]:
    """A subscriber that is `clocks` behind. `unread`: all messages are alive; `expired`: only the last 64 are; `dead`: the
    same, but the index still lists the expired ones."""
    with pinned_server() as server, engine.Channel("behind", url=server.url) as channel:
        plain = client(server)
        channel.subscribe("late")
        if indexed:
            channel.publish("first", PAYLOAD)
        first = 2 if indexed else 1
        _fill(plain, channel.name, first, clocks, index=indexed and kind != "expired", bodies=kind == "unread")
        if indexed:
            plain.hset(f"c.{{{channel.name}}}{_OURS}", mapping={"last": str(clocks), "upto": str(clocks)})
        if kind != "unread":
            plain.delete(f"c.{{{channel.name}}}.m.1")
            if indexed:
                channel.publish_many([(secrets.token_hex(8), PAYLOAD) for _ in range(FETCH)])
            else:
                _fill(plain, channel.name, clocks + 1, clocks + FETCH, index=False, bodies=True)
        return _drain(channel, plain)


def _fill(plain: redis.Redis, channel: str, first: int, last: int, *, index: bool, bodies: bool) -> None:
    """Write messages with these clocks, or only set the clock."""
    content = json.dumps(PAYLOAD, separators=(",", ":"))
    for start in range(first if index or bodies else last, last + 1, _FILL_STEP):
        upto = min(start + _FILL_STEP - 1, last)
        plain.eval(_FILL, 0, channel, str(start), str(upto), str(int(index)), str(int(bodies)), content)


def _drain(channel: engine.Channel, plain: redis.Redis) -> dict[str, float]:
    """Fetch and acknowledge until nothing is left; return the cost of the fetches."""
    messages, calls, spent_us, keys, keys_most, first_ms = 0, 0, 0.0, 0.0, 0.0, 0.0
    began_s = time.monotonic()
    more = True
    while more:
        plain.config_resetstat()
        fetched = channel.fetch("late", max_messages=1_000)
        sent, used_us = evalsha_stats(plain)
        calls, spent_us = calls + sent, spent_us + used_us
        stats: Any = plain.info("stats")
        looked_at = stats["keyspace_hits"] + stats["keyspace_misses"]
        keys, keys_most = keys + looked_at, max(keys_most, looked_at / max(1, sent))
        if fetched.messages and not messages:
            first_ms = (time.monotonic() - began_s) * 1_000
        messages, more = messages + len(fetched.messages), fetched.more_messages
        if fetched.receipt is not None:
            channel.acknowledge("late", fetched.receipt)
    return {
        "messages": messages,
        "calls": calls,
        "us_per_message": spent_us / max(1, messages),
        "keys_per_message": keys / max(1, messages),
        "keys_most": keys_most,
        "first_ms": first_ms,
    }
