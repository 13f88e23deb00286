"""A worker that runs no jobs: it promotes, reaps and ticks. The worker that leads does that as well, so a queue with
workers needs none; one keeps delayed jobs, lost leases and schedules going where no worker is up, or where they are all busy
elsewhere."""

from __future__ import annotations

import os

from engine import validate
from engine.handlers import Handlers
from engine.queue.settings import QueueSettings
from engine.validate import Milliseconds
from engine.worker.machine.events import Settings
from engine.worker.worker import Worker


class Scheduler(Worker):
    """Sweeps a queue until it is stopped, at least every `sweep_ms`, and runs nothing. Any number may run at once, beside
    any number of workers: no tick fires twice. Raises Malformed for settings out of bounds."""

    def __init__(self, queue: QueueSettings, *, name: str = "", sweep_ms: Milliseconds = 1000) -> None:
        settings = Settings(
            name=validate.worker_name(name, lambda: f"scheduler-{os.getpid()}"),
            concurrency=0,
            prefetch=0,
            lease_ms=9000,
            sweep_ms=validate.duration_ms("sweep_ms", sweep_ms, 10, 2000),
            grace_ms=1000,
            classes=(),
        )
        self._set_up(queue, Handlers(), settings)
