"""Inline handlers for workers under test, and one that runs in the pool beside them."""

import threading
import time

from engine import Handlers, Job
from tests.engine.helpers import kinds_of_handlers
from tests.engine.helpers.worker_handlers import mark_in, poison, raise_error

handlers = Handlers()


@handlers("quick", inline=True)
def quick(job: Job) -> None:
    """Run and return, or do what the payload says."""
    mark_in(job, "ran")
    what = job.payload.get("what", "")
    raise_error(what)
    if what == "sleep":
        time.sleep(0.005)


handlers("hold", inline=True)(kinds_of_handlers.hold)
handlers("die", inline=True)(poison)


@handlers("spin", inline=True)
def spin(job: Job) -> None:
    """Keep the interpreter busy until the file `open` exists."""
    folder = mark_in(job, "start")
    while not (folder / "open").exists():
        sum(range(1000))
    mark_in(job, "end")


handlers("fork-inline", inline=True)(kinds_of_handlers.fork_in)


@handlers("pooled")
def pooled(job: Job) -> None:
    """Mark the name of the thread that this runs in."""
    mark_in(job, threading.current_thread().name)
