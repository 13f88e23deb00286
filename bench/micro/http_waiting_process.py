"""Those who wait at the HTTP face: long polls and readers of events over plain sockets, which note when each job's end came.

    python -m bench.micro.http_waiting_process '{"port": 8080, "queue": "q", "jobs": 9, "polls": 2, "listeners": 2, "seconds": 9}'

It prints "ready" when all of them wait, and one JSON line when every one has heard of everything.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
#: How long an answer of HTTP is.
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
#: What a long poll asks for; the server's bound, so that polls of jobs that take longer are asked again.
_POLL_MS = 60_000
#: Connections that are being opened at once.
_OPENING = 50
_FINISHED = re.compile(rb'"kind": "finished", "job": "j(\d+)"')


@dataclass(frozen=True, slots=True)
class Order:
    """So many `polls` and `listeners` at a queue, until `jobs` jobs have ended, for at most `seconds`."""

    port: int
    queue: str
    jobs: int
    polls: int
    listeners: int
    seconds: float


def job_id(number: int) -> str:
    """The id of one of the jobs that polls wait for."""
    return f"j{number}"


class Poll(asyncio.Protocol):
    """One connection that asks how a job has ended until it has, then the one that is `step` further on."""

    def __init__(self, order: Order, number: int, came_ns: dict[int, int]) -> None:
        self._order, self._number, self._came_ns = order, number, came_ns
        self._transport: Any = None
        self._buffer = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask, for the first time for a part of the time, so that polls end one by one and not all together."""
        self._transport = transport
        self._ask(_POLL_MS * (self._number + 1) // self._order.polls)

    def _ask(self, wait_ms: int = _POLL_MS) -> None:
        if self._number >= self._order.jobs:
            self._transport.close()
            return
        path = f"/api/queues/{self._order.queue}/jobs/{job_id(self._number)}/result?wait_ms={wait_ms}"
        self._transport.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Note when the answer came, and ask on."""
        now_ns = time.monotonic_ns()
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        status = head[9:12]
        if status == b"200":
            self._came_ns[self._number] = now_ns
            self._number += self._order.polls
        elif status != b"202":
            self._fail(RuntimeError(f"a poll was answered {self._buffer!r:.300}"))
            return
        self._buffer = b""
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more comes."""
        if self._number < self._order.jobs:
            self._fail(error or RuntimeError("the connection of a poll was closed"))
        elif not self.done.done():
            self.done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Listen(asyncio.Protocol):
    """One reader of events, until it was told of the end of every job."""

    def __init__(self, order: Order, came_ns: dict[int, list[int]]) -> None:
        self._order, self._came_ns, self._left = order, came_ns, order.jobs
        self._transport: Any = None
        self._buffer = b""
        self.begun = asyncio.get_running_loop().create_future()
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the events."""
        self._transport = transport
        self._transport.write(f"GET /api/queues/{self._order.queue}/events HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Note when each end came."""
        now_ns = time.monotonic_ns()
        if not self.begun.done():
            self.begun.set_result(None)
        whole, _, self._buffer = (self._buffer + data).rpartition(b"\n\n")
        for number in _FINISHED.findall(whole):
            self._came_ns.setdefault(int(number), []).append(now_ns)
            self._left -= 1
        if self._left <= 0:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more comes."""
        if self.done.done():
            return
        if self._left > 0:
            self.done.set_exception(error or RuntimeError("the connection of a listener was closed"))
        else:
            self.done.set_result(None)


async def waiting(order: Order) -> object:
    """When each end came (monotonic ns): to the poll of its job, and to each listener."""
    loop, opening = asyncio.get_running_loop(), asyncio.Semaphore(_OPENING)
    polled: dict[int, int] = {}
    heard: dict[int, list[int]] = {}

    async def listen() -> Listen:
        async with opening:
            _, made = await loop.create_connection(lambda: Listen(order, heard), HOST, order.port)
            await made.begun
        return made

    async def poll(number: int) -> Poll:
        async with opening:
            return (await loop.create_connection(lambda: Poll(order, number, polled), HOST, order.port))[1]

    readers = await asyncio.gather(*(listen() for _ in range(order.listeners)))
    pollers = await asyncio.gather(*(poll(number) for number in range(order.polls)))
    print("ready", flush=True)
    began_s = time.process_time()
    async with asyncio.timeout(order.seconds):
        await asyncio.gather(*(each.done for each in (*readers, *pollers)))
    return {"polled_ns": polled, "heard_ns": heard, "cpu_s": time.process_time() - began_s}


if __name__ == "__main__":
    # Each of those who wait has a connection.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(json.dumps(asyncio.run(waiting(Order(**json.loads(sys.argv[1]))))), flush=True)
