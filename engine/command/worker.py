"""`ironclaim worker MODULE:OBJECT...`: a worker process."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import engine
from engine import validate
from engine.command import reloading
from engine.command.arguments import add, add_server, numbers, one_of, origin_of, priorities, switch, words
from engine.command.logging_flags import add_logging, begin_logging, resume_logging
from engine.command.targets import Target, agree, load
from engine.errors import Malformed
from engine.handlers import Handlers
from engine.history import HistoryFile
from engine.queue.settings import QueueSettings
from engine.queue.synchronous.queue import Queue
from engine.recorder import Recorder
from engine.redis.endpoint import DEFAULT_URL
from engine.worker.control import default_name
from engine.worker.group import WorkerGroup
from engine.worker.machine.concurrency import Strategy
from engine.worker.worker import Worker

#: Of a worker that did not just stop. 75 is EX_TEMPFAIL: start it again; 70: a second signal has cut off jobs; 71: the grace was
#: over, which has cut off jobs as well.
EXIT_CODES = {"recycled": 75, "at once": 70, "grace over": 71}

#: The settings of Worker, which has their defaults: a setting that nobody gives is not passed on.
SETTINGS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--name", str, "for people and for the history (default: worker-HOST-PID)"),
    ("--concurrency", int, "handlers at once, of all queues together"),
    ("--prefetch", int, "most jobs leased ahead of the handlers; 0 = none, as with several queues unless told"),
    ("--lease-ms", int, "how long a job stays leased without a renewal"),
    ("--sweep-ms", int, "longest time between two sweeps; at most a quarter of the lease"),
    ("--grace-ms", int, "how long a stop waits for handlers"),
    ("--processes", int, "run plain handlers in this many child processes, one each"),
    ("--child-max-jobs", int, "replace a child process after so many jobs; 0 = never"),
    ("--max-jobs", int, "end with exit code 75 after so many jobs; 0 = never"),
    ("--max-memory-mb", int, "the same beyond so many megabytes; 0 = never"),
    ("--beat-ms", int, "how often it tells that it lives"),
    ("--presence", switch, "whether others notice by its closed connection that it was killed: on or off"),
    ("--names", words, "of the handlers only these, with commas between"),
    ("--priorities", priorities, "only jobs of these priorities: 5, 7-10"),
    ("--routes", words, "routing keys whose jobs it takes, with commas between"),
    ("--stack", str, "its stack, for targets"),
    ("--capabilities", words, "its capabilities, for targets, with commas between"),
    ("--region", str, "its region, for targets"),
)
#: Those of WorkerGroup beside them.
GROUP_SETTINGS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--strategy", one_of(*get_args(Strategy)), "whose turn it is of several queues (default: strict, in their order)"),
    ("--weights", numbers, "of several queues, in their order: 6,3,1; the strategy is then weighted"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    worker = commands.add_parser("worker", help="run handlers until stopped", description=__doc__)
    worker.set_defaults(run=run)
    worker.add_argument(
        "objects",
        metavar="MODULE:OBJECT",
        nargs="+",
        help="a Queue or AsyncQueue with jobs, which is run with its own settings, or several; or a Worker or a WorkerGroup; or "
        "a Handlers object, for which --queue, --url, --prefix and --model say whose jobs it runs",
    )
    add(worker, "--queue", default=None, help="name of the queue, for a Handlers object")
    add(worker, "--shards", kind=int, default=None, help="how many shards the queue has, for a Handlers object")
    # A queue of the module has a url of its own.
    add_server(worker, url=None)
    defaults = inspect.signature(Worker).parameters
    for flag, kind, help in (*SETTINGS, *GROUP_SETTINGS):
        parameter = defaults.get(_attribute(flag))
        default: Any = None if parameter is None else parameter.default
        shown: Any = ",".join(default) if isinstance(default, tuple) else default  # pyright: ignore[reportUnknownArgumentType]
        shown = "on" if shown is True else shown
        add(worker, flag, kind=kind, default=None, shown=shown, help=help)
    add_logging(worker)
    worker.add_argument("--reload", action="store_true", help="for development: start anew when a source file changes")
    worker.add_argument(
        "--burst", action="store_true", help="stop when no job waits that this worker may run, and none is delayed or in hand"
    )
    add(
        worker,
        "--durability",
        kind=one_of("server", "replica"),
        default="server",
        help="when a call counts as answered, for a Handlers object: replica = when one has what it wrote",
    )
    worker.add_argument("--history", type=Path, help="append history rows to this file")
    worker.add_argument("--lua", type=Path, help="take the scripts from this folder")


def run(options: argparse.Namespace) -> int:
    """Run a worker until it is stopped. 0 after a graceful stop, 75 when it is to be started anew, 70 when a second signal has
    cut off its jobs, 71 when the end of its grace has."""
    begin_logging(options)
    if options.reload:
        return reloading.keep_running(options.arguments, options.objects)
    with ExitStack() as stack:
        worker = _worker(options, [load(reference) for reference in options.objects], stack)
        resume_logging(options)
        return EXIT_CODES.get(worker.run(burst=options.burst), 0)


def _worker(options: argparse.Namespace, targets: Sequence[Target], stack: ExitStack) -> Worker | WorkerGroup:
    """What is to be run, from what was found and what was told. Raises Malformed."""
    values = [target.value for target in targets]
    first = values[0]
    if isinstance(first, Worker | WorkerGroup) and len(values) == 1:
        return _as_it_is(options, targets[0].reference, first)
    settings = _given(options, SETTINGS)
    if all(isinstance(value, Handlers) for value in values):
        handlers = first if isinstance(first, Handlers) and len(values) == 1 else Handlers()
        handlers.include(*(value for value in values if isinstance(value, Handlers) and value is not handlers))
        _refuse(options, GROUP_SETTINGS, "left out: it is for several queues")
        return Worker(_named_queue(options, stack), handlers, **settings)
    queues = [value for value in values if isinstance(value, QueueSettings)]
    if len(queues) < len(values):
        raise Malformed("object", options.objects, "queues alone, Handlers objects alone, or one Worker or WorkerGroup")
    for target, queue in zip(targets, queues, strict=True):
        agree(options, queue, target.reference)
    if options.lua is not None:
        raise Malformed("--lua", str(options.lua), f"left out: {targets[0].reference} has its own scripts")
    if len(queues) > 1:
        _refuse_history(options, "several queues")
        if options.weights is not None and options.strategy is None:
            options.strategy = "weighted"
        settings |= _given(options, GROUP_SETTINGS)
        return WorkerGroup(queues, **settings)
    _refuse(options, GROUP_SETTINGS, "left out: it is for several queues")
    queue = queues[0]
    if options.history is not None:
        if queue.observer is not None:
            _refuse_history(options, "a queue with an observer of its own")
        queue = Queue.like(queue, observer=_recorder(options, queue.name, stack))
    return Worker(queue, **settings)


def _as_it_is(options: argparse.Namespace, reference: str, worker: Worker | WorkerGroup) -> Worker | WorkerGroup:
    """A worker of the module, which has its settings."""
    _refuse(options, (*SETTINGS, *GROUP_SETTINGS), f"left out: {reference} has settings of its own")
    for each in worker.workers if isinstance(worker, WorkerGroup) else (worker,):
        agree(options, each.queue, reference)
    if options.lua is not None:
        raise Malformed("--lua", str(options.lua), f"left out: {reference} has its own scripts")
    _refuse_history(options, "a Worker or a WorkerGroup of the module")
    return worker


def _named_queue(options: argparse.Namespace, stack: ExitStack) -> Queue:
    """The queue that the options name, for handlers that belong to none."""
    if options.queue is None:
        raise Malformed("--queue", None, "given with a Handlers object, to say whose jobs it runs")
    name = options.queue
    observer = None if options.history is None else _recorder(options, name, stack)
    return Queue(
        name,
        options.model,
        url=options.url or DEFAULT_URL,
        prefix=options.prefix,
        lua=options.lua,
        observer=observer,
        durability=options.durability,
        shards=options.shards,
    )


def _recorder(options: argparse.Namespace, queue: str, stack: ExitStack) -> Recorder:
    options.name = validate.worker_name(default_name() if options.name is None else options.name)
    file = HistoryFile(options.history, proc=options.name, role="worker", version=engine.__version__)
    recorder = Recorder(file, queue=queue)
    stack.callback(recorder.close)
    return recorder


def _given(options: argparse.Namespace, settings: Sequence[tuple[str, Any, str]]) -> dict[str, Any]:
    """The settings that were given."""
    found = {_attribute(flag): getattr(options, _attribute(flag)) for flag, _, _ in settings}
    return {name: value for name, value in found.items() if value is not None}


def _refuse(options: argparse.Namespace, settings: Sequence[tuple[str, Callable[[str], Any], str]], bound: str) -> None:
    """Raise Malformed for a setting that was given."""
    for flag, kind, _ in settings:
        value = getattr(options, _attribute(flag))
        if value is not None:
            raise Malformed(origin_of(flag, value, kind), value, bound)


def _refuse_history(options: argparse.Namespace, subject: str) -> None:
    if options.history is not None:
        raise Malformed("--history", str(options.history), f"left out for {subject}")


def _attribute(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
