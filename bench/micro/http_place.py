"""The processes that the HTTP face is measured with: `ironclaim serve` on a core of its own, and its callers."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from tempfile import TemporaryFile
from typing import Any

import psutil

from bench.micro.http_enqueue_process import Order
from bench.micro.http_waiting_process import HOST
from bench.micro.place import CLIENT_CPU, start_module
from bench.schedstat import schedstat_s
from engine.testing import EmbeddedServer, free_port

#: How long a process may take to start, and to have nothing to do.
START_S, SETTLE_S = 120.0, 180.0
#: A process that used less of its core for a second has nothing to do but wait.
_IDLE_SHARE = 0.5


class Face:
    """A process that answers over HTTP, on the core that is its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.port = port
        self._process = psutil.Process(process.pid)
        self._process.cpu_affinity([CLIENT_CPU])

    def cpu_s(self) -> float:
        """CPU seconds that its threads have used so far, as exactly as the kernel knows; other figures come in steps of 10 ms."""
        counted_s = schedstat_s(self._process.pid)
        if counted_s is None:
            raise RuntimeError("bench-http: the kernel does not count the processor time of this process")
        return counted_s[0]

    def memory_mb(self) -> float:
        """What it has resident."""
        return self._process.memory_info().rss / 1e6

    def settle(self) -> None:
        """Wait until it has nothing to do but wait."""
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s:
            cpu_s = self.cpu_s()
            time.sleep(1)
            if self.cpu_s() - cpu_s < _IDLE_SHARE:
                return


@contextmanager
def serving(server: EmbeddedServer) -> Iterator[Face]:
    """`ironclaim serve` for the queues of this server."""
    port, words = free_port(), ("--url", server.url, "--allow-changes")
    # It writes a line for each change; that is part of what a change costs, and nobody reads it here.
    with TemporaryFile() as log, _running(start_module("engine", "serve", *words, "--port", str(port), stderr=log), port) as face:
        yield face


@contextmanager
def bare_application() -> Iterator[Face]:
    """An application that does nothing but answer."""
    port = free_port()
    with _running(start_module("bench.micro.http_enqueue_process", json.dumps(asdict(Order("bare", port)))), port) as face:
        yield face


@contextmanager
def _running(process: subprocess.Popen[bytes], port: int) -> Iterator[Face]:
    try:
        face, until_s = Face(process, port), time.monotonic() + START_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"bench-http: a process does not listen on port {port}")
            time.sleep(0.1)
        yield face
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def answer(process: subprocess.Popen[bytes], timeout_s: float) -> Any:
    """What a process prints as its last line. Raises RuntimeError."""
    told, _ = process.communicate(timeout=timeout_s)
    if process.returncode:
        raise RuntimeError("bench-http: a caller has failed; its error is above")
    return json.loads(told)
