"""Serves an application on a real socket for the length of a test."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn.server

from engine.http import serving
from engine.http.settings import HttpSettings
from tests.engine.helpers.waiting import DEADLINE_S, STREAM_S, wait_until

# uvicorn looks every 0.1 s whether it has been stopped, and waits as long twice more: 0.3 s for each of hundreds of applications.
setattr(uvicorn.server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": lambda wait_s: asyncio.sleep(wait_s / 10)}))  # noqa: B010


@contextlib.contextmanager
def served(settings: HttpSettings, *, buffer_bytes: int = 0, **more: Any) -> Generator[str]:
    """The base url of an application with these settings, which runs in a thread and has ended afterwards. `buffer_bytes`: what
    the kernel takes of an answer before its client has; 0 = what it will."""
    listening = socket.create_server(("127.0.0.1", 0))
    # As asyncio sets it for sockets of its own; without it each answer with a body took 40 ms, until its client acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    server = serving.server(settings, log_config=None, **more)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="served", daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "the application serves")
        assert server.started, "the application has not started"
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
        listening.close()
        assert not thread.is_alive(), "the application has not ended"


@contextlib.contextmanager
def asking(url: str, *, headers: Mapping[str, str] | None = None, **settings: Any) -> Generator[httpx.Client]:
    """A client of an application with these settings, which has its jobs on the server of the url."""
    with served(HttpSettings(url=url, **settings)) as base, httpx.Client(base_url=base, timeout=120, headers=headers) as client:
        yield client


def bearer(secret: str) -> dict[str, str]:
    """The header that a token is sent in."""
    return {"Authorization": f"Bearer {secret}"}


def rest_of(lines: Iterator[str]) -> list[str]:
    """What is left of a stream until it ends. Fails with what came when that takes too long."""
    rest: list[str] = []
    end_s = time.monotonic() + STREAM_S
    for line in lines:
        rest.append(line)
        assert time.monotonic() < end_s, f"no end within {STREAM_S} s, but {rest[-20:]}"
    return rest


def coming(lines: Iterator[str], start: str) -> Iterator[str]:
    """Those lines of a stream that begin so. Fails with what came instead when the next one does not come in time."""
    came: list[str] = []
    end_s = time.monotonic() + STREAM_S
    try:
        for line in lines:
            if line.startswith(start):
                yield line
                came, end_s = [], time.monotonic() + STREAM_S
            else:
                came.append(line)
                assert time.monotonic() < end_s, f"no line {start!r} within {STREAM_S} s, but {came[-20:]}"
    except httpx.ReadTimeout:
        pytest.fail(f"no line {start!r} within {STREAM_S} s, but {came[-20:]}")
