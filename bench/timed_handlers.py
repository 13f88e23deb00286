"""The handler of a capacity measurement: it waits as long as its job says, and notes when it began and ended.

    IRONCLAIM_TIMES=worker-1.times python -m engine worker bench.timed_handlers:handlers --queue capacity

The history would cost more than what is measured. So a run leaves one line, `<job> <start ns> <end ns>` on the monotonic clock,
which all processes of a machine share, in one unbuffered write.
"""

from __future__ import annotations

import os
import time

import engine
from bench.arrivals import NAME
from bench.capacity_steps import TIMES_VARIABLE
from bench.workload import plan_of

handlers = engine.Handlers()

_times = os.open(os.environ[TIMES_VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


@handlers(NAME)
def run(job: engine.Job) -> None:
    """Wait like a handler that asks another service: it holds a slot and no processor."""
    start_ns = time.monotonic_ns()
    time.sleep(plan_of(job.payload)["work_ms"] / 1000)
    os.write(_times, f"{job.id} {start_ns} {time.monotonic_ns()}\n".encode())
