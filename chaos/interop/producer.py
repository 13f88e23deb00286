"""The engine's producer of a mixed run: sends the jobs of a plan, one after the other, until it is told to stop.

python -m chaos.interop.producer NAME URL QUEUE PLAN HISTORY
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import engine
from chaos.interop.load import NewJob, read_plan
from engine import models
from engine.models.foreign.bull import UNNAMED
from record.history import HistoryFile
from record.recorder import Recorder


def send(queue: engine.Queue, jobs: Iterable[NewJob], stop: threading.Event) -> None:
    """Send each job at its instant. A job that cannot be sent is in the history, and the next one comes all the same."""
    start_ns = time.monotonic_ns()
    for job in jobs:
        intended_ns = start_ns + round(job.at_ms * 1e6)
        if stop.wait(max(0.0, (intended_ns - time.monotonic_ns()) / 1e9)):
            return
        try:
            queue.enqueue(UNNAMED, job.payload, intended_ns=intended_ns, **options(job))
        except engine.EngineError as error:
            print(f"enqueue: {error}", file=sys.stderr, flush=True)
    stop.wait()


def options(job: NewJob) -> dict[str, Any]:
    """The options of `Queue.enqueue`."""
    asked = job.options()
    found: dict[str, Any] = {"attempts": asked["attempts"], "delay_ms": job.delay_ms}
    backoff = asked.get("backoff") or {"type": "fixed", "delay": 0}
    return {**found, "backoff": backoff["type"], "backoff_ms": backoff["delay"]}


def main(arguments: Sequence[str]) -> int:
    """Send until SIGTERM."""
    name, url, queue_name, plan, history = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    recorder = Recorder(HistoryFile(Path(history), proc=name, role="producer", version=engine.__version__), queue=queue_name)
    with engine.Queue(queue_name, models.Bull(), url=url, observer=recorder) as queue:
        # The first job does not measure the connection.
        queue.counts()
        send(queue, read_plan(Path(plan)), stop)
    recorder.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
