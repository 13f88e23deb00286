"""The three processes of a pickup slice: a producer with a fixed schedule, and the two consumers that are compared.

    python -m bench.micro.pickup_process '{"role": "worker", "url": "...", "queue": "pickup", "jobs": 1000, "rate_per_s": 100}'

Roles: `producer`, `worker` (the engine's), `bare` (a redis-py loop: BLPOP, then the engine's claim script). A consumer prints
"ready", and one JSON line when it has run every job.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import engine
from bench.micro.jobs import Claims
from bench.micro.payload import NAME, PAYLOAD
from bench.micro.place import pin_client
from engine.ops.jobs import Lease

_BLOCK_MS = 1_000
#: Time that a consumer waits beyond the schedule.
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Order:
    """The task of one process of a slice."""

    role: str
    url: str
    queue: str
    jobs: int
    rate_per_s: float

    @property
    def deadline_s(self) -> float:
        """Time after which a consumer gives up."""
        return self.jobs / self.rate_per_s + _PATIENCE_S


def produce(order: Order) -> dict[str, Any]:
    """Enqueue at even intervals, however slow the server is. Return how late each send was, in ms."""
    late_ms: list[float] = []
    gap_ns = round(1e9 / order.rate_per_s)
    with engine.Queue(order.queue, url=order.url) as queue:
        queue.counts()
        start_ns = time.monotonic_ns() + gap_ns
        for number in range(order.jobs):
            intended_ns = start_ns + number * gap_ns
            while (ahead_ns := intended_ns - time.monotonic_ns()) > 0:
                time.sleep(ahead_ns / 1e9)
            sent_ns = time.monotonic_ns()
            late_ms.append((sent_ns - intended_ns) / 1e6)
            queue.enqueue(NAME, {**PAYLOAD, "sent_ns": sent_ns})
    return {"late_ms": late_ms}


def work(order: Order) -> dict[str, Any]:
    """Run jobs with the engine's worker and an inline handler. Return the times from the call of `enqueue` to the handler, in
    ms."""
    pickup_ms: list[float] = []
    handlers = engine.Handlers()
    with engine.Queue(order.queue, url=order.url) as queue:

        def seen(job: engine.Job) -> None:
            pickup_ms.append((time.monotonic_ns() - job.payload["sent_ns"]) / 1e6)
            if len(pickup_ms) == order.jobs:
                worker.stop()

        handlers(NAME, inline=True)(seen)
        worker = engine.Worker(queue, handlers, name="pickup")
        stop = threading.Timer(order.deadline_s, worker.stop)
        stop.start()
        print("ready", flush=True)
        worker.run()
        stop.cancel()
    return {"pickup_ms": pickup_ms}


def loop_bare(order: Order) -> dict[str, Any]:
    """Like `work`, with only redis-py: wait for a wake-up marker, claim, take the time, and finish the jobs with the next
    claim."""
    pickup_ms: list[float] = []
    with engine.Queue(order.queue, url=order.url) as queue:
        claims, wake = Claims(queue), queue.model.keys.wake(NAME)
        plain = redis.Redis.from_url(order.url, retry=Retry(NoBackoff(), 0), protocol=2, single_connection_client=True)
        end_s = time.monotonic() + order.deadline_s
        print("ready", flush=True)
        leases: tuple[Lease, ...] = ()
        while len(pickup_ms) < order.jobs and time.monotonic() < end_s:
            # Build the call before the wait, so that only the claim remains after the marker arrives.
            call = claims.call(8, leases)
            if not leases and plain.blpop([wake], _BLOCK_MS / 1000) is None:
                continue
            assert call.script is not None
            raw: Any = plain.evalsha(call.script.digest, len(call.keys), *call.keys, *call.arguments)  # pyright: ignore[reportArgumentType]
            reply = call.parse(raw)
            claimed = reply.claimed if leases else reply
            pickup_ms.extend((time.monotonic_ns() - json.loads(job.payload)["sent_ns"]) / 1e6 for job in claimed.jobs)
            leases = tuple(job.lease for job in claimed.jobs)
    return {"pickup_ms": pickup_ms}


if __name__ == "__main__":
    pin_client()
    asked = Order(**json.loads(sys.argv[1]))
    print(json.dumps({"producer": produce, "worker": work, "bare": loop_bare}[asked.role](asked)))
