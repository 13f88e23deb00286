"""`ironclaim worker MODULE:OBJECT...`: a worker process."""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from engine.command.arguments import Target, add, add_server, agree, load, numbers, one_of, origin_of, priorities, switch, words
from engine.errors import Malformed, logger
from engine.handlers import Handlers
from engine.logs import JsonFormatter, TextFormatter, give_form, switch_on
from engine.queue.settings import QueueSettings
from engine.queue.synchronous.queue import Queue
from engine.redis.endpoint import DEFAULT_URL
from engine.worker.control import stop_signals
from engine.worker.group import WorkerGroup
from engine.worker.machine.concurrency import Strategy
from engine.worker.worker import Worker

# -- The flags `--log-level` and `--log-json`, and the form of the log that they ask for.

log = logger("ironclaim.worker")

_LEVELS = ("debug", "info", "warning", "error", "critical")


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add(parser, "--log-level", kind=one_of(*_LEVELS), default="info", help=f"least level of the log: {', '.join(_LEVELS)}")
    parser.add_argument(
        "--log-json",
        action="store_true",
        help="one line of JSON for each log record, also where the module has configured logging",
    )


def begin_logging(options: argparse.Namespace) -> None:
    """Log as the flags say, before any module of the user is imported."""
    logging.basicConfig(level=options.log_level.upper())
    give_form(_formatter(options))


def resume_logging(options: argparse.Namespace) -> None:
    """Once the modules are imported: what they have configured stays, but for the form that was asked for."""
    switch_on()
    if options.log_json and not give_form(_formatter(options)):
        log.warning("--log-json: the modules have configured logging, and nothing that the worker logs goes to stderr or stdout")


def _formatter(options: argparse.Namespace) -> logging.Formatter:
    return JsonFormatter() if options.log_json else TextFormatter()


# -- `ironclaim worker --reload`, for development: a worker that stops and is started anew when a source
# file has changed.
#
# The worker is a process of its own, which gets SIGTERM and finishes what runs; one that has ended by an error is
# started anew at the next change. Files are looked at, not listened to: that needs no library, and works on every
# file system.

#: Between two looks at the files, and at most before a signal is passed on.
LOOK_S = 0.25
#: The exit code of a worker that is to be started anew.
_RECYCLED = 75


def keep_running(arguments: Sequence[str], references: Sequence[str]) -> int:
    """Run `ironclaim` with these arguments until a signal ends it, anew at each change of a source file. The exit code of the
    last one."""
    command = [sys.executable, "-m", "engine", *(word for word in arguments if not _asks(word))]
    roots = sorted({Path.cwd(), *(_home_of(reference) for reference in references)})
    with stop_signals(lambda reason: None) as came:
        while True:
            before = dict(_sources(roots))
            # A session of its own: Ctrl-C is passed on once, as a signal to this process is.
            worker = subprocess.Popen(command, start_new_session=True)
            passed_on = 0
            changed = ""
            while (code := _code(worker)) is None:
                if not changed and not came and (changed := _changed(before, roots)):
                    log.info("%s has changed: the worker stops, and starts anew", changed)
                    worker.terminate()
                while passed_on < len(came):
                    passed_on += 1
                    worker.send_signal(signal.SIGTERM)
            if came:
                return code if code >= 0 else 128 - code
            if not changed and code != _RECYCLED:
                log.info("the worker has ended with code %d: it starts anew when a file changes", code)
                while not _changed(before, roots):
                    if came:
                        return code if code >= 0 else 128 - code
                    time.sleep(LOOK_S)


def _asks(word: str) -> bool:
    """Whether an argument is `--reload`, also shortened."""
    return word.startswith("--rel") and "--reload".startswith(word)


def _code(worker: subprocess.Popen[bytes]) -> int | None:
    """How it ended, if it does within a look."""
    try:
        return worker.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _home_of(reference: str) -> Path:
    """Where the source of an object is: the file or folder of its outermost module, which is not imported for that."""
    try:
        spec = find_spec(reference.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or "site-packages" in spec.origin:
        return Path.cwd()
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _changed(before: Mapping[str, int], roots: Iterable[Path]) -> str:
    """A source file that is new, gone, or written since; empty when there is none."""
    now = dict(_sources(roots))
    different = sorted(path for path, _ in before.items() ^ now.items())
    return os.path.relpath(different[0]) if different else ""


def _sources(roots: Iterable[Path]) -> Iterator[tuple[str, int]]:
    """The Python files below these folders, and when each was written. Not those of packages that were installed."""
    for root in roots:
        if root.is_file():
            yield from _written(str(root))
        for folder, inner, files in os.walk(root):
            # Pruned in place, as os.walk wants it.
            inner[:] = [name for name in inner if _is_source(Path(folder, name))]
            for name in files:
                if name.endswith(".py"):
                    yield from _written(os.path.join(folder, name))


def _is_source(folder: Path) -> bool:
    plain = not folder.name.startswith(".") and folder.name not in ("__pycache__", "node_modules", "site-packages")
    return plain and not (folder / "pyvenv.cfg").exists()


def _written(path: str) -> Iterator[tuple[str, int]]:
    try:
        yield path, os.stat(path).st_mtime_ns
    except OSError:
        # Gone between the listing and the look.
        return


#: Of a worker that did not just stop. 75 is EX_TEMPFAIL: start it again; 70: a second signal has cut off jobs; 71: the grace was
#: over, which has cut off jobs as well.
EXIT_CODES = {"recycled": 75, "at once": 70, "grace over": 71}
_RECORDING = "left out: set IRONCLAIM_OBSERVER=record.environment:observer, and IRONCLAIM_HISTORY to the file"

#: The settings of Worker, which has their defaults: a setting that nobody gives is not passed on.
SETTINGS: tuple[tuple[str, Callable[[str], Any], str], ...] = (
    ("--name", str, "for people (default: worker-HOST-PID)"),
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
    # Gone; for one release the command says what records instead.
    worker.add_argument("--history", help=argparse.SUPPRESS)
    worker.add_argument("--lua", type=Path, help="take the scripts from this folder")


def run(options: argparse.Namespace) -> int:
    """Run a worker until it is stopped. 0 after a graceful stop, 75 when it is to be started anew, 70 when a second signal has
    cut off its jobs, 71 when the end of its grace has."""
    begin_logging(options)
    if options.reload:
        return keep_running(options.arguments, options.objects)
    if options.history is not None:
        raise Malformed("--history", options.history, _RECORDING)
    worker = _worker(options, [load(reference) for reference in options.objects])
    resume_logging(options)
    return EXIT_CODES.get(worker.run(burst=options.burst), 0)


def _worker(options: argparse.Namespace, targets: Sequence[Target]) -> Worker | WorkerGroup:
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
        return Worker(_named_queue(options), handlers, **settings)
    queues = [value for value in values if isinstance(value, QueueSettings)]
    if len(queues) < len(values):
        raise Malformed("object", options.objects, "queues alone, Handlers objects alone, or one Worker or WorkerGroup")
    for target, queue in zip(targets, queues, strict=True):
        agree(options, queue, target.reference)
    if options.lua is not None:
        raise Malformed("--lua", str(options.lua), f"left out: {targets[0].reference} has its own scripts")
    if len(queues) > 1:
        if options.weights is not None and options.strategy is None:
            options.strategy = "weighted"
        settings |= _given(options, GROUP_SETTINGS)
        return WorkerGroup(queues, **settings)
    _refuse(options, GROUP_SETTINGS, "left out: it is for several queues")
    return Worker(queues[0], **settings)


def _as_it_is(options: argparse.Namespace, reference: str, worker: Worker | WorkerGroup) -> Worker | WorkerGroup:
    """A worker of the module, which has its settings."""
    _refuse(options, (*SETTINGS, *GROUP_SETTINGS), f"left out: {reference} has settings of its own")
    for each in worker.workers if isinstance(worker, WorkerGroup) else (worker,):
        agree(options, each.queue, reference)
    if options.lua is not None:
        raise Malformed("--lua", str(options.lua), f"left out: {reference} has its own scripts")
    return worker


def _named_queue(options: argparse.Namespace) -> Queue:
    """The queue that the options name, for handlers that belong to none."""
    if options.queue is None:
        raise Malformed("--queue", None, "given with a Handlers object, to say whose jobs it runs")
    return Queue(
        options.queue,
        options.model,
        url=options.url or DEFAULT_URL,
        prefix=options.prefix,
        lua=options.lua,
        durability=options.durability,
        shards=options.shards,
    )


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


def _attribute(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
