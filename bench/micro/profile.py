"""Profiles of the client: enqueue in this process, and the drain in a child process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine
from bench.micro.drain import PATHS, PREFETCH, drain_once
from bench.micro.jobs import fill
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import client, pinned_server
from bench.micro.sampler import Sampler

_BULK = 100


def measure(jobs: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Readable lines of each profile, by title."""
    profiles: dict[str, list[str]] = {}
    with pinned_server() as server, engine.Queue("profile", url=server.url) as queue:
        plain = client(server)

        def one_by_one() -> None:
            for _ in range(jobs):
                queue.enqueue(NAME, PAYLOAD)

        def in_bulk() -> None:
            for _ in range(4 * jobs // _BULK):
                queue.enqueue_many([engine.NewJob(NAME, PAYLOAD) for _ in range(_BULK)])

        for title, work in (("enqueue one by one", one_by_one), (f"enqueue_many of {_BULK}", in_bulk)):
            plain.flushall()
            queue.counts()
            with Sampler() as sampler:
                work()
            profiles[title] = sampler.lines()
        report("enqueue")
        for path in PATHS:
            plain.flushall()
            fill(queue, 4 * jobs)
            profiles[f"drain, {path}"] = drain_once(server.url, queue.name, 4 * jobs, path, PREFETCH, profile=True)["profile"]
        report("drain")
    return {"profiles": profiles}
