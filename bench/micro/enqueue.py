"""Enqueue: one by one, compared with a bare loop on the same script; and in bulk, compared with the floor's bulk."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import engine
from bench.micro.bare import BareEnqueue
from bench.micro.floor import Floor
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import client, evalsha_stats, pinned_server, server_cpu_s
from bench.micro.rounds import Cost, columns, in_turns, ratio

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

        def alternate(block: int, ours: Callable[[int], object], theirs: Callable[[int], object]) -> tuple[Side, Side]:
            plain.flushall()
            mine, other = Side(), Side()
            size = min(block, jobs)
            for number in range(2 * (jobs // size)):
                # The order is ours, theirs, theirs, ours, ..., so that a drift of the machine favours neither side.
                first = number % 4 in (0, 3)
                (mine if first else other).run(ours if first else theirs, size, plain)
            return mine, other

        cases: dict[str, Callable[[], tuple[Side, Side]]] = {
            "one": lambda: alternate(_BLOCK_JOBS["one"], one_by_one, bare.run),
            "bulk": lambda: alternate(_BLOCK_JOBS["bulk"], in_bulk, floor.bulk),
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
    return {
        **costs,
        "ratios": {"enqueue": ratio(one, bare_one), "bulk": ratio(bulk, floor_bulk)},
    }


class Side:
    """The measurements of one side of a comparison in one repetition."""

    def __init__(self) -> None:
        self._jobs, self._seconds, self._script_us, self._server_s, self._client_s = 0, 0.0, 0.0, 0.0, 0.0

    def run(self, work: Callable[[int], object], jobs: int, plain: Any) -> None:
        """Run and measure one block."""
        plain.config_resetstat()
        server_s, client_s, started_ns = server_cpu_s(plain), time.process_time(), time.monotonic_ns()
        work(jobs)
        self._seconds += (time.monotonic_ns() - started_ns) / 1e9
        self._client_s += time.process_time() - client_s
        self._server_s += server_cpu_s(plain) - server_s
        self._script_us += evalsha_stats(plain)[1]
        self._jobs += jobs

    def cost(self) -> Cost:
        """The cost per job."""
        return Cost(
            self._jobs / self._seconds,
            *(1e6 * seconds / self._jobs for seconds in (self._script_us / 1e6, self._server_s, self._client_s)),
        )
