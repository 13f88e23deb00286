"""Enqueue: one by one, compared with a bare loop on the same script; and in bulk, compared with the floor's bulk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import engine
from bench.micro.bare import BareEnqueue
from bench.micro.floor import Floor
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import client, pinned_server
from bench.micro.rounds import Side, alternate, columns, in_turns, ratio

BULK = 100
#: Within a repetition both sides alternate in blocks of this many jobs (some 50 ms), so that other load affects both equally.
_BLOCK_JOBS = {"one": 400, "bulk": 2_000}


def measure(jobs: int, repeat: int, report: Callable[[str], None]) -> dict[str, Any]:
    """Jobs per second of each side, one value per repetition, and the two ratios."""
    with pinned_server() as server, engine.Queue("enqueue", url=server.url) as queue:
        plain = client(server)
        bare, floor = BareEnqueue(queue, plain), Floor(plain, server.port)

        def one_by_one(count: int) -> None:
            for _ in range(count):
                queue.enqueue(NAME, PAYLOAD)

        def in_bulk(count: int) -> None:
            for _ in range(0, count, BULK):
                queue.enqueue_many([engine.NewJob(NAME, PAYLOAD) for _ in range(BULK)])

        cases: dict[str, Callable[[], tuple[Side, Side]]] = {
            "one": lambda: alternate(plain, jobs, _BLOCK_JOBS["one"], one_by_one, bare.run),
            "bulk": lambda: alternate(plain, jobs, _BLOCK_JOBS["bulk"], in_bulk, floor.bulk),
        }
        found = in_turns(cases, repeat, report)
    rows = {
        "engine, one by one": [mine for mine, _ in found["one"]],
        "bare loop, one by one": [other for _, other in found["one"]],
        f"engine, bulk of {BULK}": [mine for mine, _ in found["bulk"]],
        f"floor, bulk of {BULK}": [other for _, other in found["bulk"]],
    }
    costs = columns({name: [side.cost() for side in sides] for name, sides in rows.items()})
    one, bare_one, bulk, floor_bulk = costs["jobs_per_s"].values()
    return {**costs, "ratios": {"enqueue": ratio(one, bare_one), "bulk": ratio(bulk, floor_bulk)}}
