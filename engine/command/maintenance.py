"""`ironclaim backup` and `ironclaim restore`: one queue into a file, while it is worked, and back into an
empty one; `ironclaim reshard`, `outbox` and `lua`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

from engine import outbox
from engine.backup.archive import Archive
from engine.backup.restoring import restore
from engine.backup.taking import take
from engine.command.arguments import add, add_json, add_server, duration_ms, find, load, model
from engine.command.output import Progress, instant, print_error, show_one
from engine.command.worker import add_logging, begin_logging, resume_logging
from engine.effects import Connection, of_database
from engine.errors import EngineError, Malformed, counted, nearest
from engine.models.dsps import DspsModel
from engine.queue.settings import QueueSettings
from engine.queue.synchronous import Queue
from engine.redis.endpoint import DEFAULT_URL
from engine.redis.scripts import Script
from engine.resharding import Resharding


def add_backup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    backup = commands.add_parser(
        "backup", help="write a queue as it is at one instant into a file, while it is worked"
    )
    backup.add_argument("queue", help="name of the queue")
    backup.add_argument(
        "file", type=Path, help="file to write; one that is there is replaced when the backup is whole"
    )
    backup.set_defaults(run=run_backup)
    restoring = commands.add_parser(
        "restore", help="fill an empty queue from a backup; one that was interrupted is run again"
    )
    restoring.add_argument("file", type=Path, help="the backup")
    restoring.add_argument(
        "--as", dest="queue", metavar="NAME", help="name of the queue (default: as it was)"
    )
    restoring.set_defaults(run=run_restore)
    for parser in (backup, restoring):
        add_server(parser)
        add_json(parser)


def run_backup(options: argparse.Namespace) -> int:
    """Back up."""
    with _opened(options, options.queue) as queue:
        taken = take(queue, options.file, Progress("backup"))
    _tell({"backed up": taken.queue, **asdict(taken)}, options)
    return 0


def run_restore(options: argparse.Namespace) -> int:
    """Restore."""
    archive = Archive(options.file)
    with _opened(options, options.queue or str(archive.header["queue"])) as queue:
        restored = restore(archive, queue, Progress("restore"))
    _tell({"restored": restored.queue, **asdict(restored)}, options)
    return 0


def _opened(options: argparse.Namespace, name: str) -> Queue:
    return Queue(name, options.model, url=options.url or DEFAULT_URL, prefix=options.prefix)


def _tell(fields: dict[str, object], options: argparse.Namespace) -> None:
    del fields["queue"]
    if not options.json:
        fields["instant"] = instant(int(str(fields.pop("instant_ms"))))
    show_one(fields, as_json=options.json)


# -- `ironclaim reshard QUEUE --to 32`: another number of shards for a queue that works on meanwhile.

#: Exit code where jobs are left that cannot be moved yet.
_LEFT = 1


def add_reshard(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    reshard = commands.add_parser(
        "reshard",
        help="divide a queue into another number of shards",
        description="Another number of shards for a queue that works on meanwhile. Interrupted, it is run "
        "again with the same number and goes on.",
    )
    reshard.add_argument("queue", help="name of the queue")
    reshard.add_argument(
        "--to", type=int, required=True, metavar="SHARDS", help="how many shards it shall have, 2 to 256"
    )
    reshard.add_argument(
        "--wait",
        dest="wait_ms",
        metavar="LENGTH",
        type=duration_ms,
        default=None,
        help=(
            "how long to wait for jobs that run, or wait for others, at their old shards: 90s, 10m; "
            "without it until they end"
        ),
    )
    add_server(reshard)
    add_json(reshard)
    reshard.set_defaults(run=run_reshard)


def run_reshard(options: argparse.Namespace) -> int:
    """Reshard. 0 when all jobs are in their new shards, 1 when some are left at their old ones: run it again
    later."""
    with _opened(options, options.queue) as queue:

        def tell(text: str) -> None:
            if not options.json:
                print(f"queue {options.queue}: {text}", flush=True)

        moved = Resharding(queue, options.to, tell=tell).run(options.wait_ms)
    if not moved.done:
        print_error(
            f"queue {options.queue}: {counted(moved.left, 'job')} left at the old shards, running or waiting "
            "for others; run this again later"
        )
    show_one(
        {"queue": options.queue, "shards": options.to, "moved": moved.jobs, "left": moved.left},
        as_json=options.json,
    )
    return 0 if moved.done else _LEFT


# -- `ironclaim outbox`: a relay of the outbox, which enqueues what transactions of an SQL database have
# committed.

_BOUND = (
    "module:function, or module.function, of a function without arguments that returns a "
    "connection of sqlite3 or psycopg"
)


class DatabaseFailed(EngineError):
    """The database could not be used, or has no table of the outbox."""


def add_outbox(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser(
        "outbox",
        help="enqueue what SQL transactions have committed",
        description="A relay of the outbox: enqueues what transactions of an SQL database have committed.",
    )
    parser.add_argument("connect", metavar="CONNECT", help=_BOUND)
    parser.add_argument(
        "queues",
        metavar="QUEUE",
        nargs="+",
        help="module:object of a Queue or AsyncQueue whose rows are sent",
    )
    add(parser, "--batch", kind=int, default=200, help="rows that are sent at once")
    add(parser, "--poll-ms", kind=int, default=500, help="ms between two looks where there is nothing to do")
    add_logging(parser)
    parser.add_argument("--burst", action="store_true", help="stop when there is nothing to do")
    parser.set_defaults(run=run_outbox)


def run_outbox(options: argparse.Namespace) -> int:
    """Send rows until it is stopped, and say how many there were."""
    begin_logging(options)
    connect, _ = find(options.connect, _BOUND)
    if not callable(connect):
        raise Malformed("connect", options.connect, _BOUND)
    queues: list[QueueSettings] = []
    for reference in options.queues:
        queue = load(reference).value
        if not isinstance(queue, QueueSettings):
            raise Malformed("queue", reference, "a Queue or an AsyncQueue")
        queues.append(queue)
    resume_logging(options)
    try:
        sent = outbox.relay(
            cast("Callable[[], Connection]", connect),
            queues,
            batch=options.batch,
            poll_ms=options.poll_ms,
            burst=options.burst,
        )
    except Exception as error:
        if not of_database(error):
            raise
        raise DatabaseFailed(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    print(f"{counted(sent, 'row')} sent")
    return 0


# -- `ironclaim lua`: a script as the server runs it, with the functions of modules that it uses, for
# readers and `redis-cli`.


def add_lua(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser(
        "lua",
        help="print a script as the server runs it",
        description="A script as the server runs it, with the functions of modules that it uses.",
    )
    parser.add_argument("script", nargs="?", help="name of the script; without one their names are listed")
    parser.add_argument(
        "--model",
        type=scripts_of,
        default="lanes",
        help="lanes, bull, bananas:live, dsps, ... (default lanes)",
    )
    parser.set_defaults(run=run_lua)


def scripts_of(text: str) -> Mapping[str, Script]:
    """All scripts of a model by name. Raises ArgumentTypeError."""
    if text == DspsModel.name:
        return DspsModel("channel").scripts
    spec = model(text)
    return spec.bind("queue", spec.prefix, None).scripts


def run_lua(options: argparse.Namespace) -> int:
    """Print it."""
    scripts: Mapping[str, Script] = options.model
    if options.script is None:
        print("\n".join(sorted(scripts)))
        return 0
    if options.script not in scripts:
        bound = f"one of {', '.join(sorted(scripts))}{nearest(options.script, scripts)}"
        raise Malformed("script", options.script, bound)
    print(scripts[options.script].text, end="")
    return 0
