"""Runs and times blocks of calls with one checkout's engine: the child process of `bench.micro.guard`.

    PYTHONPATH=CHECKOUT python -P bench/micro/guard_process.py URL QUEUE

Each line of standard input is a request such as `claim 400`; each line of standard output is JSON with the seconds that the
block took, and the CPU seconds of client and server. The file is run by its path and imports `engine` and `bench.micro` from
PYTHONPATH, so the same program measures any commit that has `bench.micro.jobs.Claims`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import redis

import engine

# Also the operations, which lie elsewhere in older commits.
from bench.micro.jobs import Claims, Finish, Lease, fill
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import pin_client, quiet, server_cpu_s


class Blocks:
    """Blocks of calls on one queue. A block prepares its jobs and empties the queue afterwards; neither is timed."""

    def __init__(self, queue: engine.Queue, plain: redis.Redis) -> None:
        self._queue, self._plain = queue, plain
        self._claims = Claims(queue)

    def fill(self, count: int) -> dict[str, float]:
        """Fill the queue for a drain; not timed."""
        fill(self._queue, count)
        return {"seconds": 0.0}

    def enqueue(self, count: int) -> dict[str, float]:
        """Enqueue jobs one by one."""
        found = self._timed(lambda: self._queue.enqueue(NAME, PAYLOAD), count)
        self._finish([lease for leases in self._claims.take_all() for lease in leases])
        return found

    def claim(self, count: int) -> dict[str, float]:
        """Claim jobs one by one."""
        fill(self._queue, count)
        taken: list[Lease] = []
        found = self._timed(lambda: taken.extend(self._claims.take(1)), count)
        self._finish(taken)
        if len(taken) != count:
            raise RuntimeError(f"claim: {len(taken)} jobs by {count} calls")
        return found

    def finish(self, count: int) -> dict[str, float]:
        """Finish jobs one by one."""
        fill(self._queue, count)
        taken = iter([lease for leases in self._claims.take_all() for lease in leases])
        return self._timed(lambda: self._finish([next(taken)]), count)

    def _finish(self, leases: list[Lease]) -> None:
        for start in range(0, len(leases), 1_000):
            self._queue.driver.run(self._queue.model.call(Finish(tuple(leases[start : start + 1_000]))))

    def _timed(self, work: Callable[[], Any], count: int) -> dict[str, float]:
        server_s, client_s, started_ns = server_cpu_s(self._plain), time.process_time(), time.monotonic_ns()
        for _ in range(count):
            work()
        seconds, client_s = (time.monotonic_ns() - started_ns) / 1e9, time.process_time() - client_s
        return {"seconds": seconds, "client_s": client_s, "server_s": server_cpu_s(self._plain) - server_s}


def main(url: str, name: str) -> None:
    """Run requests until standard input ends. The server is emptied between them, which the engine would tell each time."""
    with quiet(), engine.Queue(name, url=url) as queue, redis.Redis.from_url(url) as plain:
        blocks = Blocks(queue, plain)
        for line in sys.stdin:
            order, count = line.split()
            print(json.dumps(getattr(blocks, order)(int(count))), flush=True)


if __name__ == "__main__":
    pin_client()
    main(*sys.argv[1:])
