"""A desk for tests of the scripts of a channel: one channel on a real server, its raw keys, and short ways to run operations."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import redis

from engine.models.dsps import DspsModel
from engine.ops import channels as ops
from engine.ops.base import Call, Operation
from engine.redis.driver import SyncDriver
from tests.engine.desk import then

#: T of an expiry of 300 s.
TTL_S = 315
#: A server time that no test reaches, and one that all are past.
NEVER_MS, PAST_MS = 2**45, 1


class Calls:
    """Short ways to run the operations of one channel."""

    _nonce = 0

    def run(self, operation: Operation) -> Any:
        """The parsed reply."""
        raise NotImplementedError

    def publish(self, *ids: str, ttl_s: int = TTL_S, seen: int | None = None, not_after_ms: int = NEVER_MS) -> ops.PublishReply:
        return self.run(ops.Publish(tuple(message(id) for id in ids), ttl_s, seen, not_after_ms=not_after_ms))

    def subscribe(self, subscriber: str = "s", *, ttl_s: int = TTL_S, seen: int | None = None) -> ops.SubscribeReply:
        return self.run(ops.Subscribe(subscriber, self.nonce(), ttl_s, seen, not_after_ms=NEVER_MS))

    def unsubscribe(self, subscriber: str = "s") -> ops.UnsubscribeReply:
        return self.run(ops.Unsubscribe(subscriber, self.nonce(), not_after_ms=NEVER_MS))

    def fetch(self, subscriber: str = "s", most: int = 64, *, ttl_s: int = TTL_S, seen: int | None = None) -> ops.FetchReply:
        return self.run(ops.Fetch(subscriber, most, ttl_s, seen))

    def acknowledge(self, clock: int, subscriber: str = "s", *, ttl_s: int = TTL_S, **told: Any) -> ops.AcknowledgeReply:
        """`told`: era, seen, proof."""
        return self.run(ops.Acknowledge(subscriber, clock, ttl_s, **told))

    def old(self, *ids: str, subscriber: str = "s") -> ops.OldReply:
        return self.run(ops.AskOld(subscriber, ids))

    def nonce(self) -> str:
        self._nonce += 1
        return f"{self._nonce:016x}"

    #: The same, whatever is answered: the next step follows in the same line.
    subscribed, published, fetched, acknowledged = map(then, ("subscribe", "publish", "fetch", "acknowledge"))


class ChannelDesk(Calls):
    """One channel. Redis-py's own types leave its replies unknown."""

    def __init__(self, url: str, channel: str = "chX", lua: Path | None = None) -> None:
        self.model = DspsModel(channel, lua)
        self.keys = self.model.keys
        self.redis: Any = redis.Redis.from_url(url)
        self.driver = SyncDriver(url, self.model.scripts.values())

    def close(self) -> None:
        self.driver.close()
        self.redis.close()

    def run(self, operation: Operation) -> Any:
        return self.driver.run(self.model.call(operation))

    def raw(self, operation: Operation) -> Any:
        """What the server says, as it is."""
        call: Call[Any] = self.model.call(operation)
        assert call.script is not None
        return self.redis.eval(call.script.text, len(call.keys), *call.keys, *call.arguments)

    # -- raw keys

    def place(self, *, clock: int | None = None, ttl_s: int = TTL_S, **cursors: int) -> Self:
        """Write the clock and cursors as a client of the original would."""
        if clock is not None:
            self.redis.set(self.keys.clock, clock, ex=ttl_s)
        for subscriber, cursor in cursors.items():
            self.redis.set(self.keys.cursor(subscriber), cursor, ex=ttl_s)
        return self

    def foreign(self, id: str, ttl_s: int = TTL_S) -> int:
        """Publish as a client of the original does; the message's clock."""
        at = self.redis.incr(self.keys.clock)
        if at > 2**53 - 1:
            at = -(2**53 - 1)
            self.redis.set(self.keys.clock, at)
        self.redis.expire(self.keys.clock, ttl_s)
        self.redis.set(self.keys.mid(id), at, ex=ttl_s)
        self.redis.set(self.keys.body(at), message(id).body(), ex=ttl_s)
        return at

    def dump(self) -> dict[str, Any]:
        """Every key with its value."""
        read = {b"string": self.redis.get, b"hash": self.redis.hgetall, b"list": lambda key: self.redis.lrange(key, 0, -1)}
        read[b"zset"] = lambda key: self.redis.zrange(key, 0, -1, withscores=True)
        return {key.decode(): read[self.redis.type(key)](key) for key in sorted(self.redis.scan_iter(count=1000))}

    def lives(self) -> dict[str, int]:
        """When every key ends, in ms; -1 for never."""
        return {key.decode(): self.redis.pexpiretime(key) for key in self.redis.scan_iter(count=1000)}

    def now_ms(self) -> int:
        """The server's time."""
        seconds, micros = self.redis.time()
        return seconds * 1000 + micros // 1000

    def given(self, since_ms: int, ttl_s: int = TTL_S) -> set[str]:
        """The keys that were given this life between that time and now."""
        until_ms = self.now_ms()
        return {key for key, end_ms in self.lives().items() if since_ms <= end_ms - ttl_s * 1000 <= until_ms}

    def age(self, by_s: int) -> Self:
        """Let every key live shorter by so much, as if that time had gone by. Those that would have ended are deleted."""
        for key, end_ms in self.lives().items():
            # One whose time is over is deleted by this.
            self.redis.pexpireat(key, end_ms - by_s * 1000)
        return self

    def backup(self) -> Callable[..., None]:
        """All keys as they are now; what this returns puts them back, after `aged_s`."""
        kept = {key: (self.redis.dump(key), self.redis.pexpiretime(key)) for key in self.redis.scan_iter(count=1000)}

        def restore(aged_s: int = 0) -> None:
            self.redis.flushall()
            for key, (dumped, end_ms) in kept.items():
                # One whose time is over is not put back by this.
                self.redis.restore(key, end_ms - aged_s * 1000, dumped, absttl=True)

        return restore

    @contextmanager
    def commands(self) -> Iterator[dict[str, int]]:
        """How often each command was carried out inside the block, those of scripts among them."""
        found: dict[str, int] = {}
        self.redis.config_resetstat()
        yield found
        for name, numbers in self.redis.info("commandstats").items():
            if name not in ("cmdstat_config|resetstat", "cmdstat_evalsha", "cmdstat_eval", "cmdstat_info"):
                found[name.removeprefix("cmdstat_")] = numbers["calls"]


def message(id: str) -> ops.NewMessage:
    """A message that says its own name."""
    return ops.NewMessage(id, json.dumps({"text": id}, separators=(",", ":")).encode())


def ids(reply: ops.FetchReply) -> list[str]:
    """The ids that a fetch brought."""
    return [json.loads(body)["id"] for _, body in reply.items]
