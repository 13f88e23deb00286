"""The engine floor: the speed of a minimal life cycle of jobs in Lua on this machine, without fencing, retries or limits.

The engine's worker is compared with its drain in batches of 50, and `enqueue_many` with its bulk.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from typing import Any

import hiredis
import redis

from bench.micro.payload import PAYLOAD

_ENQUEUE = """for at = 2, #ARGV, 2 do
  redis.call('SET', '{floor}job:' .. ARGV[at], ARGV[at + 1], 'NX')
  redis.call('RPUSH', KEYS[1], ARGV[at])
end
return #ARGV"""
_CLAIM = """local ids = redis.call('LPOP', KEYS[1], ARGV[3])
if not ids then return {} end
local out = {}
for _, id in ipairs(ids) do
  redis.call('SET', '{floor}lock:' .. id, ARGV[1], 'PX', 30000)
  redis.call('HSET', '{floor}run:' .. id, 'state', 'active', 'worker', ARGV[1])
  redis.call('ZADD', KEYS[2], ARGV[2], id)
  out[#out + 1] = id
  out[#out + 1] = redis.call('GET', '{floor}job:' .. id)
end
return out"""
_DONE = """for at = 2, #ARGV do
  local id, lock = ARGV[at], '{floor}lock:' .. ARGV[at]
  if redis.call('GET', lock) == ARGV[1] then
    redis.call('DEL', lock, '{floor}job:' .. id, '{floor}run:' .. id)
    redis.call('ZREM', KEYS[1], id)
  end
end
return #ARGV - 1"""
_WAITING, _ACTIVE = "{floor}wait", "{floor}active"
_TOKEN, _NOW = "worker-token-0123456789", "1700000000000"
_FILL = 500


class Pipe(asyncio.Protocol):
    """One socket with pipelining: replies in order, one write per iteration of the event loop."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport: Any = transport
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reader = hiredis.Reader()
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def call(self, *words: Any) -> asyncio.Future[Any]:
        """Send a command; return a future of its reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(future)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(words))
        return future

    def _flush(self) -> None:
        self.transport.write(b"".join(self._out))
        self._out.clear()


class Floor:
    """The floor's operations on one server."""

    def __init__(self, plain: redis.Redis, port: int) -> None:
        self._plain, self._port = plain, port
        self._enqueue, self._claim, self._done = (str(plain.script_load(text)) for text in (_ENQUEUE, _CLAIM, _DONE))

    def fill(self, jobs: int) -> None:
        """Enqueue jobs to drain."""
        body = json.dumps(PAYLOAD)
        for start in range(0, jobs, _FILL):
            words = [word for at in range(start, min(start + _FILL, jobs)) for word in (at, body)]
            self._plain.evalsha(self._enqueue, 1, _WAITING, "-", *words)

    def bulk(self, jobs: int) -> float:
        """Enqueue in bulks of 100, building id and bytes; return the seconds that it took."""
        started_ns = time.monotonic_ns()
        for _ in range(0, jobs, 100):
            words: list[str] = ["-"]
            for _ in range(100):
                words += [uuid.uuid4().hex, json.dumps(PAYLOAD)]
            self._plain.evalsha(self._enqueue, 1, _WAITING, *words)
        return (time.monotonic_ns() - started_ns) / 1e9

    def drain(self, batch: int) -> tuple[int, float]:
        """Run every waiting job; return their number, and the seconds from the first claim to the last finish."""
        return asyncio.run(self._drain(batch))

    def left(self) -> tuple[int, int]:
        """Numbers of waiting and of active jobs."""
        return int(self._plain.llen(_WAITING)), int(self._plain.zcard(_ACTIVE))  # pyright: ignore[reportArgumentType]

    async def _drain(self, batch: int) -> tuple[int, float]:
        _, pipe = await asyncio.get_running_loop().create_connection(Pipe, "127.0.0.1", self._port)
        claim = ("EVALSHA", self._claim, 2, _WAITING, _ACTIVE, _TOKEN, _NOW, batch)
        jobs, started_ns = 0, time.monotonic_ns()
        ahead = pipe.call(*claim)
        while got := await ahead:
            ahead = pipe.call(*claim)
            for body in got[1::2]:
                json.loads(body)
            jobs += len(got) // 2
            await pipe.call("EVALSHA", self._done, 1, _ACTIVE, _TOKEN, *got[0::2])
        seconds = (time.monotonic_ns() - started_ns) / 1e9
        pipe.transport.close()
        return jobs, seconds
