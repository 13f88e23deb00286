"""Run everything now: for tests of services, without a worker process and without waiting for delays."""

from __future__ import annotations

from engine import validate
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.ops.looks import Counts, Listing
from engine.queue.settings import QueueSettings
from engine.worker.worker import Worker

#: How far the test's clock moves unless told otherwise: jobs that enqueue themselves again would go on for
#: ever.
FOR_MS = 7 * 86_400_000


def run_all(queue: QueueSettings, handlers: Handlers | None = None, *, for_ms: int = FOR_MS) -> Counts:
    """Run what these handlers (or those of `queue.job`) can run until nothing is left; what is in each state
    then. `queue` may be an AsyncQueue.

    On a queue with a test's clock (`use_test_clock`; the fixture `ironclaim_queue` has one) that clock moves
    on to whatever falls due next, by `for_ms` at most: retries, delays and times of day take no real time. On
    another queue what is delayed stays. Jobs that wait for other handlers, a pause or a limit stay as well.
    Raises Malformed, and whatever `Worker.run` raises.
    """
    length_ms = validate.duration_ms("for_ms", for_ms, 0, validate.DURATION_MS_MAX)
    worker = Worker(queue, handlers, lease_ms=60_000, sweep_ms=10, beat_ms=0)
    queue = worker.queue
    end_ms = None if queue.model.now_ms is None else queue.model.now_ms + length_ms
    while True:
        reason = worker.run(burst=True, delayed=False)
        if reason != "empty":
            raise Malformed("worker", reason, "left alone until nothing is left to run")
        now_ms = queue.model.now_ms
        delayed = queue.driver.run(queue.model.call(Listing(0, 1))).states["delayed"]
        if now_ms is None or end_ms is None or not delayed or delayed[0][1] > end_ms:
            return queue.counts()
        # At least a millisecond: what was due and did not move is not ours.
        queue.use_test_clock(max(now_ms + 1, delayed[0][1]))
