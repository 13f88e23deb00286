"""Handlers of batches for a worker that is a process of its own. They mark files as `worker_handlers` does."""

import os
import signal
import time

from engine import BatchFailed, Handlers, Job
from tests.engine.helpers.worker_handlers import mark_in

handlers = Handlers()


@handlers("hold", batch=3)
def hold(jobs: list[Job]) -> None:
    """Run until the file `open` exists."""
    ids = "+".join(job.id for job in jobs)
    folders = [mark_in(job, ids) for job in jobs]
    while not (folders[0] / "open").exists():
        time.sleep(0.005)


@handlers("index", batch=10)
def index(jobs: list[Job]) -> None:
    """Fail in part: `b` with an exception, `c` with a text; the others have the process, the size and their id as a result."""
    results = {job.id: [os.getpid(), len(jobs), job.id] for job in jobs if job.id not in "bc"}
    try:
        raise KeyError("b")
    except KeyError as error:
        raise BatchFailed({"b": error, "c": "no words"}, results) from None


@handlers("throw", batch=10)
def throw(jobs: list[Job]) -> None:
    """Fail as a whole."""
    raise ValueError("all of them")


@handlers("die", batch=10)
def die(jobs: list[Job]) -> None:
    """End the process."""
    os.kill(os.getpid(), signal.SIGKILL)


@handlers("sleep", batch=10)
def sleep(jobs: list[Job]) -> None:
    """Take too long."""
    time.sleep(60)


@handlers("watch", batch=10)
def watch(jobs: list[Job]) -> None:
    """Run until one of the jobs is cancelled."""
    for job in jobs:
        mark_in(job, "start")
    while not (cancelled := [job for job in jobs if job.cancelled_by_hand]):
        time.sleep(0.005)
    for job in cancelled:
        mark_in(job, "cancelled")
