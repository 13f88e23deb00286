"""`ironclaim worker MODULE:HANDLERS`: a worker process."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import engine
from engine import validate
from engine.command.arguments import add, add_queue, model, priorities, words
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.history import HistoryFile
from engine.logs import JsonFormatter
from engine.queue.asynchronous.queue import AsyncQueue
from engine.queue.synchronous.queue import Queue
from engine.recorder import Recorder
from engine.routing import DEFAULT_ROUTE
from engine.worker.worker import Worker

#: Of a worker that did not just stop. 75 is EX_TEMPFAIL: start it again; 70: a second signal has cut off jobs.
EXIT_CODES = {"recycled": 75, "at once": 70}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    worker = commands.add_parser("worker", help="run handlers until stopped", description=__doc__)
    worker.set_defaults(run=run)
    worker.add_argument(
        "handlers", metavar="MODULE:HANDLERS", help="where the engine.Handlers object, or the queue with jobs, is"
    )
    add_queue(worker)
    add(worker, "--model", kind=model, default=None, help="data model of the queue: bull, bananas:live, ... (default lanes)")
    add(worker, "--name", default=f"worker-{os.getpid()}", help="for people and for the history")
    add(worker, "--concurrency", kind=int, default=8, help="handlers at once")
    add(worker, "--prefetch", kind=int, default=128, help="most jobs leased ahead of the handlers; 0 = none")
    add(worker, "--lease-ms", kind=int, default=9000, help="how long a job stays leased without a renewal")
    add(worker, "--sweep-ms", kind=int, default=1000, help="longest time between two sweeps; at most a quarter of the lease")
    add(worker, "--grace-ms", kind=int, default=30_000, help="how long a stop waits for handlers")
    add(worker, "--processes", kind=int, default=0, help="run plain handlers in this many child processes, one each")
    add(worker, "--child-max-jobs", kind=int, default=0, help="replace a child process after so many jobs; 0 = never")
    add(worker, "--max-jobs", kind=int, default=0, help="end with exit code 75 after so many jobs; 0 = never")
    add(worker, "--max-memory-mb", kind=int, default=0, help="the same beyond so many megabytes; 0 = never")
    add(worker, "--beat-ms", kind=int, default=10_000, help="how often it tells that it lives")
    add(worker, "--names", kind=words, default=None, help="of the handlers only these, with commas between")
    add(worker, "--priorities", kind=priorities, default=None, help="only jobs of these priorities: 5, 7-10")
    add(worker, "--routes", kind=words, default=(DEFAULT_ROUTE,), help="routing keys whose jobs it takes, with commas between")
    add(worker, "--stack", default=None, help="its stack, for targets")
    add(worker, "--capabilities", kind=words, default=(), help="its capabilities, for targets, with commas between")
    add(worker, "--region", default=None, help="its region, for targets")
    worker.add_argument("--log-json", action="store_true", help="one line of JSON for each log record")
    worker.add_argument(
        "--burst", action="store_true", help="stop when no job waits that this worker may run, and none is delayed or in hand"
    )
    worker.add_argument("--history", type=Path, help="append history rows to this file")
    worker.add_argument("--lua", type=Path, help="take the scripts from this folder")


def run(options: argparse.Namespace) -> int:
    """Run a worker until it is stopped. 0 after a graceful stop, 75 when it is to be started anew, 70 when a second signal has
    cut off its jobs."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    if options.log_json:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    recorder: Recorder | None = None
    try:
        handlers = load_handlers(options.handlers)
        validate.worker_name(options.name)
        validate.queue_name(options.queue)
        if options.history is not None:
            file = HistoryFile(options.history, proc=options.name, role="worker", version=engine.__version__)
            recorder = Recorder(file, queue=options.queue)
        queue = Queue(options.queue, options.model, url=options.url, lua=options.lua, observer=recorder)
        worker = Worker(
            queue,
            handlers,
            name=options.name,
            concurrency=options.concurrency,
            prefetch=options.prefetch,
            lease_ms=options.lease_ms,
            sweep_ms=options.sweep_ms,
            grace_ms=options.grace_ms,
            processes=options.processes,
            child_max_jobs=options.child_max_jobs,
            max_jobs=options.max_jobs,
            max_memory_mb=options.max_memory_mb,
            beat_ms=options.beat_ms,
            names=options.names,
            priorities=options.priorities,
            routes=options.routes,
            stack=options.stack,
            capabilities=options.capabilities,
            region=options.region,
        )
        return EXIT_CODES.get(worker.run(burst=options.burst), 0)
    finally:
        if recorder is not None:
            recorder.close()


def load_handlers(reference: str) -> Handlers:
    """The Handlers object that `module:name` names. Raises Malformed saying which half is wrong."""
    module_name, _, name = reference.partition(":")
    bound = "module:name of a Handlers object, or of a Queue with jobs"
    if not module_name or not name:
        raise Malformed("handlers", reference, bound)
    if os.getcwd() not in sys.path and "" not in sys.path:
        # The installed command has its own folder there, and services start workers where their code is.
        sys.path.insert(0, os.getcwd())
    try:
        found = attrgetter(name)(import_module(module_name))
    except (ImportError, TypeError) as error:
        raise Malformed("handlers", reference, f"{bound} ({error})") from error
    except AttributeError:
        raise Malformed("handlers", reference, f"{bound} (module {module_name} has no {name})") from None
    if isinstance(found, Queue | AsyncQueue):
        # Its functions are decorated with `queue.job`.
        found = found.handlers
    if not isinstance(found, Handlers):
        raise Malformed("handlers", reference, f"{bound} ({name} is a {type(found).__name__})")
    return found
