"""`ironclaim worker MODULE:OBJECT...`: a worker process."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

from engine import validate
from engine.command.arguments import (
    Target,
    add,
    add_server,
    agree,
    load,
    numbers,
    one_of,
    origin_of,
    priorities,
    switch,
    words,
)
from engine.errors import Malformed, logger
from engine.handlers import Handlers
from engine.logs import JsonFormatter, TextFormatter, give_form, switch_on
from engine.options import Setting, sentences, settings_of
from engine.queue.settings import QueueSettings
from engine.queue.synchronous import Queue
from engine.redis.endpoint import DEFAULT_URL
from engine.worker.group import WorkerGroup
from engine.worker.machine.concurrency import Strategy
from engine.worker.machine.settings import GroupSettings, WorkerSettings
from engine.worker.process import stop_signals
from engine.worker.worker import Worker

# -- The flags `--log-level` and `--log-json`, and the form of the log that they ask for.

log = logger("ironclaim.worker")

_LEVELS = ("debug", "info", "warning", "error", "critical")


def add_logging(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add(
        parser,
        "--log-level",
        kind=one_of(*_LEVELS),
        default="info",
        help=f"least level of the log: {', '.join(_LEVELS)}",
    )
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
        log.warning(
            "--log-json: the modules have configured logging, "
            "and nothing that the worker logs goes to stderr or stdout"
        )


def _formatter(options: argparse.Namespace) -> logging.Formatter:
    return JsonFormatter() if options.log_json else TextFormatter()


# -- `ironclaim worker --reload`, for development: a worker that stops and is started anew when a source
# file has changed.
#
# The worker is a process of its own, which gets SIGTERM and finishes what runs. One that has ended by an
# error is started anew at the next change. Files are looked at, not listened to: that needs no library, and
# works on every file system.

#: Between two looks at the files, and at most before a signal is passed on.
LOOK_S = 0.25
#: The exit code of a worker that is to be started anew.
_RECYCLED = 75


def keep_running(arguments: Sequence[str], references: Sequence[str]) -> int:
    """Run `ironclaim` with these arguments until a signal ends it, anew at each change of a source file. The
    exit code of the last one."""
    command = [sys.executable, "-m", "engine", *(word for word in arguments if word != "--reload")]
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


def _code(worker: subprocess.Popen[bytes]) -> int | None:
    """How it ended, if it does within a look."""
    try:
        return worker.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _home_of(reference: str) -> Path:
    """Where the source of an object is: the file or folder of its outermost module, which is not imported for
    that."""
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
    """The Python files below these folders, and when each was written. Not those of packages that were
    installed."""
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
    plain = not folder.name.startswith(".") and folder.name not in (
        "__pycache__",
        "node_modules",
        "site-packages",
    )
    return plain and not (folder / "pyvenv.cfg").exists()


def _written(path: str) -> Iterator[tuple[str, int]]:
    try:
        yield path, os.stat(path).st_mtime_ns
    except OSError:
        # Gone between the listing and the look.
        return


#: Of a worker that did not just stop. 75 is EX_TEMPFAIL: start it again; 70: a second signal has cut off
#: jobs; 71: the grace was over, which has cut off jobs as well.
EXIT_CODES = {"recycled": 75, "at once": 70, "grace over": 71}
_RECORDING = "left out: set IRONCLAIM_OBSERVER=record.environment:observer, and IRONCLAIM_HISTORY to the file"

#: How a setting of each type is read, and what its help shows for a value.
_WRITTEN: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "N"),
    validate.Milliseconds: (int, "MS"),
    bool: (switch, "on|off"),
    str: (str, "TEXT"),
    str | None: (str, "TEXT"),
    Iterable[str]: (words, "A,B,..."),
    Iterable[str] | None: (words, "A,B,..."),
    tuple[int, int] | None: (priorities, "5|7-10"),
    Sequence[int] | None: (numbers, "6,3,1"),
    Strategy: (one_of(*get_args(Strategy)), "|".join(get_args(Strategy))),
}
#: The settings that have a flag: those of a worker, and those of a group beside them. One that nobody gives
#: is not passed on. A setting that is no text at all, such as `gate`, has none.
SETTINGS, GROUP_SETTINGS = (
    tuple(row for row in rows if row.kind in _WRITTEN)
    for rows in (
        settings_of(WorkerSettings).values(),
        [row for name, row in settings_of(GroupSettings).items() if name not in settings_of(WorkerSettings)],
    )
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    worker = commands.add_parser("worker", help="run handlers until stopped", description=__doc__)
    worker.set_defaults(run=run)
    worker.add_argument(
        "objects",
        metavar="MODULE:OBJECT",
        nargs="+",
        help="a Queue or AsyncQueue with jobs, which is run with its own settings, or several; "
        "or a Worker or a WorkerGroup; or "
        "a Handlers object, for which --queue, --url, --prefix and --model say whose jobs it runs",
    )
    add(worker, "--queue", default=None, help="name of the queue, for a Handlers object")
    add(
        worker,
        "--shards",
        kind=int,
        default=None,
        help="how many shards the queue has, for a Handlers object",
    )
    # A queue of the module has a url of its own.
    add_server(worker, url=None)
    about = sentences(WorkerSettings) | sentences(GroupSettings)
    for setting in (*SETTINGS, *GROUP_SETTINGS):
        kind, metavar = _WRITTEN[setting.kind]
        add(
            worker,
            _flag(setting),
            kind=kind,
            metavar=metavar,
            default=None,
            shown=_shown(setting.default),
            help=about[setting.name],
        )
    add_logging(worker)
    worker.add_argument(
        "--reload", action="store_true", help="for development: start anew when a source file changes"
    )
    worker.add_argument(
        "--burst",
        action="store_true",
        help="stop when no job waits that this worker may run, and none is delayed or in hand",
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
    """Run a worker until it is stopped, and return its exit code. 0: a graceful stop; 75: it is to be started
    anew; 70: a second signal has cut off its jobs; 71: the end of its grace has."""
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
        handlers.include(
            *(value for value in values if isinstance(value, Handlers) and value is not handlers)
        )
        _refuse(options, GROUP_SETTINGS, "left out: it is for several queues")
        return Worker(_named_queue(options), handlers, **settings)
    queues = [value for value in values if isinstance(value, QueueSettings)]
    if len(queues) < len(values):
        raise Malformed(
            "object", options.objects, "queues alone, Handlers objects alone, or one Worker or WorkerGroup"
        )
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


def _as_it_is(
    options: argparse.Namespace, reference: str, worker: Worker | WorkerGroup
) -> Worker | WorkerGroup:
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


def _given(options: argparse.Namespace, settings: Sequence[Setting]) -> dict[str, Any]:
    """The settings that were given."""
    found = {setting.name: getattr(options, setting.name) for setting in settings}
    return {name: value for name, value in found.items() if value is not None}


def _refuse(options: argparse.Namespace, settings: Sequence[Setting], bound: str) -> None:
    """Raise Malformed for a setting that was given."""
    for setting in settings:
        value = getattr(options, setting.name)
        if value is not None:
            raise Malformed(origin_of(_flag(setting), value, _WRITTEN[setting.kind][0]), value, bound)


def _shown(default: Any) -> Any:
    """A default as one would type it."""
    if isinstance(default, tuple):
        return ",".join(map(str, cast("tuple[object, ...]", default)))
    return "on" if default is True else default


def _flag(setting: Setting) -> str:
    return "--" + setting.name.replace("_", "-")
