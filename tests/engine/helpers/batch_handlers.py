"""Handlers of batches for a worker that is a process of its own. They mark files as `worker_handlers` does."""

from __future__ import annotations

import time

from engine import Handlers, Job
from tests.engine.helpers.worker_handlers import _mark as mark_in

handlers = Handlers()


@handlers("hold", batch=3)
def hold(jobs: list[Job]) -> None:
    """Run until the file `open` exists."""
    ids = "+".join(job.id for job in jobs)
    folders = [mark_in(job, ids) for job in jobs]
    while not (folders[0] / "open").exists():
        time.sleep(0.005)
