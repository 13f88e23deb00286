"""The processes of an enqueue over HTTP: the callers, and what the HTTP face is compared with.

    python -m bench.micro.http_enqueue_process '{"role": "requests", "port": 8080, "queue": "q", "jobs": 9, "at_once": 2}'

Roles: `requests` (enqueues over HTTP by plain sockets), `direct` (the same by `AsyncQueue`, without HTTP), `bare` (an application
that answers an enqueue and does nothing else, until it is killed). The first two print one JSON line when they are done.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from bench.micro.http_waiting_process import HOST, LENGTH
from bench.micro.payload import NAME, PAYLOAD, compact
from engine.models.model import random_id


@dataclass(frozen=True, slots=True)
class Order:
    """The task of one process: `jobs` enqueues, `at_once` of them in flight; or an application at a port."""

    role: str
    port: int = 0
    url: str = ""
    queue: str = ""
    jobs: int = 0
    at_once: int = 0


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
        length = LENGTH.search(head)
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
    return {"took_ns": took_ns, "seconds": (time.monotonic_ns() - began_ns) / 1e9, "cpu_s": time.process_time() - cpu_s}


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
    work: Coroutine[Any, Any, object] = {"requests": requests, "direct": direct}[order.role](order)
    print(json.dumps(asyncio.run(work)), flush=True)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
