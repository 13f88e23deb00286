"""The processes that the HTTP face is measured with: callers that speak plain HTTP over sockets, and what it is compared with.

    python -m bench.micro.http_process '{"role": "waiting", "port": 8080, "queue": "q", ...}'

Roles: `waiting` (long polls and readers of events, which note when each job's end came to them), `requests` (enqueues over HTTP,
so many at once), `direct` (the same by `AsyncQueue`, without HTTP), `bare` (an application that answers an enqueue and does
nothing else). A process prints one JSON line when it is done; one that others have to wait for prints "ready" before.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from bench.micro.payload import NAME, PAYLOAD, compact
from engine.models.ids import random_id

HOST = "127.0.0.1"
#: What a long poll asks for; the server's bound, so that polls of jobs that take longer are asked again.
_POLL_MS = 60_000
#: Connections that are being opened at once.
_OPENING = 50
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_FINISHED = re.compile(rb'"kind": "finished", "job": "j(\d+)"')


@dataclass(frozen=True, slots=True)
class Order:
    """The task of one process: so many `polls` and `listeners` until `jobs` jobs have ended, for at most `seconds`; or `jobs`
    enqueues, `at_once` of them in flight."""

    role: str
    port: int = 0
    url: str = ""
    queue: str = ""
    jobs: int = 0
    polls: int = 0
    listeners: int = 0
    at_once: int = 0
    seconds: float = 0.0


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
        length = _LENGTH.search(head)
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


class Requests(asyncio.Protocol):
    """One connection that enqueues one job after the other, as long as some are left."""

    def __init__(self, request: bytes, left: deque[int], took_ns: list[int]) -> None:
        self._request, self._left, self._took_ns = request, left, took_ns
        self._transport: Any = None
        self._buffer, self._sent_ns = b"", 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enqueue."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if not self._left:
            self._transport.close()
            return
        self._left.pop()
        self._sent_ns = time.monotonic_ns()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note how long it took, and go on."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(body) < int(length[1]):
            return
        self._took_ns.append(time.monotonic_ns() - self._sent_ns)
        if head[9:12] != b"201" and not self.done.done():
            self.done.set_exception(RuntimeError(f"an enqueue was answered {self._buffer!r:.300}"))
        self._buffer = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """It has ended."""
        if not self.done.done():
            self.done.set_result(None)


async def requests(order: Order) -> object:
    """How long each enqueue over HTTP took, and all of them."""
    body = compact({"name": NAME, "payload": PAYLOAD})
    head = f"POST /api/queues/{order.queue}/jobs HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    loop, left = asyncio.get_running_loop(), deque(range(order.jobs))
    took_ns: list[int] = []
    began_ns, cpu_s = time.monotonic_ns(), time.process_time()

    async def connect() -> Requests:
        return (await loop.create_connection(lambda: Requests(request, left, took_ns), HOST, order.port))[1]

    made = await asyncio.gather(*(connect() for _ in range(order.at_once)))
    await asyncio.gather(*(each.done for each in made))
    return _took(took_ns, began_ns, cpu_s)


async def direct(order: Order) -> object:
    """How long each enqueue by `AsyncQueue` took, and all of them."""
    import engine

    left = deque(range(order.jobs))
    took_ns: list[int] = []
    async with engine.AsyncQueue(order.queue, url=order.url) as queue:
        await queue.enqueue(NAME, PAYLOAD)

        async def enqueue_on() -> None:
            while left:
                left.pop()
                sent_ns = time.monotonic_ns()
                await queue.enqueue(NAME, PAYLOAD)
                took_ns.append(time.monotonic_ns() - sent_ns)

        began_ns, cpu_s = time.monotonic_ns(), time.process_time()
        await asyncio.gather(*(enqueue_on() for _ in range(order.at_once)))
        return _took(took_ns, began_ns, cpu_s)


def _took(took_ns: list[int], began_ns: int, cpu_s: float) -> object:
    return {
        "took_ns": took_ns,
        "seconds": (time.monotonic_ns() - began_ns) / 1e9,
        "cpu_s": time.process_time() - cpu_s,
    }


def bare(port: int) -> None:
    """Answer every enqueue like the HTTP face, with the bytes of a new job, and do nothing else."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def enqueue(request: Request) -> JSONResponse:
        await request.body()
        id = random_id()
        return JSONResponse({"id": id, "created": True}, 201, {"Location": f"{request.url.path}/{id}"})

    app = Starlette(routes=[Route("/api/queues/{queue}/jobs", enqueue, methods=["POST"])])
    uvicorn.run(app, host=HOST, port=port, http="h11", ws="none", access_log=False, server_header=False, log_level="warning")


def main(order: Order) -> None:
    """Carry out an order."""
    if order.role == "bare":
        bare(order.port)
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    roles: dict[str, Any] = {"waiting": waiting, "requests": requests, "direct": direct}
    work: Coroutine[Any, Any, object] = roles[order.role](order)
    print(json.dumps(asyncio.run(work)), flush=True)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
