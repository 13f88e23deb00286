"""`ironclaim health [MODULE:OBJECT...]`: probes for a supervisor. Exit code 0: healthy; 1: not healthy; 2: it
cannot be said."""

from __future__ import annotations

import argparse
import os
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from engine import validate
from engine.command.arguments import add, add_json, add_server, agree, duration_ms, load
from engine.command.output import json_text, print_error, show
from engine.errors import EngineError, Malformed, UnsupportedFeature
from engine.handlers import Handlers
from engine.ops.workers import WORKERS_MAX, WorkerInfo
from engine.queue.settings import QueueSettings
from engine.queue.synchronous import Queue
from engine.redis.endpoint import DEADLINE_MS_MAX, DEFAULT_URL, ConnectOptions
from engine.worker.group import WorkerGroup
from engine.worker.worker import Worker

#: Exit codes; 2 is that of every command that could not do what it was asked.
HEALTHY, NOT_HEALTHY, NO_ANSWER = 0, 1, 2
TIMEOUT_MS, TIMEOUT_MS_LEAST, TIMEOUT_MS_MAX = 5_000, 500, 60_000


@dataclass(frozen=True, slots=True)
class Check:
    """What one question to one queue came to. `unknown`: the server, which was to say so, did not answer."""

    queue: str
    check: Literal["server", "worker"]
    result: Literal["ok", "failed", "unknown"]
    detail: str


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    health = commands.add_parser(
        "health", help="probes for a supervisor: the server, and the worker of this host", description=__doc__
    )
    health.set_defaults(run=run)
    health.add_argument(
        "objects",
        metavar="MODULE:OBJECT",
        nargs="*",
        help="what `ironclaim worker` is started with: its queues are asked; without one --queue says which",
    )
    only = health.add_mutually_exclusive_group()
    only.add_argument(
        "--live",
        action="store_true",
        help=(
            "only whether a worker of this host lives; a server that does not answer says nothing against it"
        ),
    )
    only.add_argument(
        "--ready", action="store_true", help="only whether the server answers and has the scripts"
    )
    add(health, "--queue", default=None, help="name of the queue")
    add(health, "--name", default=None, help="name of the worker (default: any one of this host)")
    add_server(health, url=None)
    shown = f"{TIMEOUT_MS // 1000}s"
    health.add_argument(
        "--timeout",
        type=duration_ms,
        default=TIMEOUT_MS,
        metavar="TIME",
        help=f"longest time for all of it (default: {shown})",
    )
    add_json(health)


def run(options: argparse.Namespace) -> int:
    """Ask, and print what was found."""
    timeout_ms = validate.integer("--timeout", options.timeout, TIMEOUT_MS_LEAST, TIMEOUT_MS_MAX)
    name = None if options.name is None else validate.worker_name(options.name)
    with _bounded(timeout_ms):
        checks = list(_checks(options, name, timeout_ms))
    healthy = all(check.result == "ok" or (options.live and check.result == "unknown") for check in checks)
    rows = [asdict(check) for check in checks]
    if options.json:
        print(json_text({"healthy": healthy, "checks": rows}))
    else:
        show(rows, as_json=False)
    return HEALTHY if healthy else NOT_HEALTHY


@contextmanager
def _bounded(timeout_ms: int) -> Generator[None]:
    """End the process where its user's module, or the resolver of names, takes longer than all of it may."""

    def end() -> None:
        print_error(f"health: no answer in {timeout_ms / 1000:g} s")
        os._exit(NO_ANSWER)

    timer = threading.Timer(timeout_ms / 1000, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _checks(options: argparse.Namespace, name: str | None, timeout_ms: int) -> Iterator[Check]:
    queues = _queues(options)
    # The calls end by themselves, with an answer, well before the time is up.
    share_ms = min(timeout_ms // 2 // len(queues), DEADLINE_MS_MAX)
    connect = ConnectOptions(timeout_ms=share_ms, connect_timeout_ms=share_ms, deadline_ms=share_ms)
    for settings in queues:
        with Queue.like(settings, connect=connect) as queue:
            yield from _ask(options, queue, name)


def _queues(options: argparse.Namespace) -> list[QueueSettings]:
    """The queues that a worker with these objects works for, each once. Raises Malformed."""
    found: list[QueueSettings] = []
    for target in map(load, options.objects):
        value = target.value
        if isinstance(value, Handlers):
            continue
        workers = (
            value.workers if isinstance(value, WorkerGroup) else (value,) if isinstance(value, Worker) else ()
        )
        for queue in [worker.queue for worker in workers] or [value]:
            assert isinstance(queue, QueueSettings)
            agree(options, queue, target.reference)
            found.append(queue)
    if found:
        return found
    if options.queue is None:
        raise Malformed("--queue", None, "given, or an object of a module that says which queue")
    # Also of a queue with shards: each of its workers is listed in shard 0, which has the name of the queue.
    return [Queue(options.queue, options.model, url=options.url or DEFAULT_URL, prefix=options.prefix)]


def _ask(options: argparse.Namespace, queue: Queue, name: str | None) -> Iterator[Check]:
    """The checks of one queue: the first call makes a connection, which sees to the scripts."""
    started_s = time.monotonic()
    try:
        queue.driver.server_now_ms()
        took_ms = round((time.monotonic() - started_s) * 1000)
        server = Check(queue.name, "server", "ok", f"answers and has the scripts, in {took_ms} ms")
        worker = None if options.ready else _worker(queue, name)
    except (Malformed, UnsupportedFeature):
        raise
    except EngineError as error:
        server = Check(queue.name, "server", "failed", str(error))
        worker = (
            None
            if options.ready
            else Check(
                queue.name, "worker", "unknown", "the server, which lists the workers, does not answer"
            )
        )
    if not options.live:
        yield server
    if worker is not None:
        yield worker


def _worker(queue: Queue, name: str | None) -> Check:
    """Whether a worker of this host, of this name if there is one, is alive by its heartbeats."""
    host = socket.gethostname()
    known = [worker for worker in _listed(queue) if worker.host == host and name in (None, worker.name)]
    named = f"a worker of {host}" if name is None else f"the worker {name} of {host}"
    if not known:
        return Check(queue.name, "worker", "failed", f"{named} is not listed")
    latest = min(known, key=lambda worker: worker.beat_age_ms)
    beat = f"{latest.name} (pid {latest.pid}) sent its last heartbeat {latest.beat_age_ms / 1000:.1f} s ago"
    return Check(queue.name, "worker", "ok" if any(worker.alive for worker in known) else "failed", beat)


def _listed(queue: Queue) -> Iterator[WorkerInfo]:
    """All workers of a queue."""
    offset = 0
    while page := queue.workers.list(offset=offset):
        yield from page
        offset += WORKERS_MAX
