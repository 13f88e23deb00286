"""`ironclaim outbox`: a relay of the outbox, which enqueues what transactions of an SQL database have committed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import cast

from engine import outbox
from engine.command.arguments import add
from engine.command.logging_flags import add_logging, begin_logging, resume_logging
from engine.command.targets import find, load
from engine.errors import EngineError, Malformed
from engine.queue.settings import QueueSettings
from engine.sql import Connection, of_database

_BOUND = "module:function, or module.function, of a function without arguments that returns a connection of sqlite3 or psycopg"


class DatabaseFailed(EngineError):
    """The database could not be used, or has no table of the outbox."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add the command."""
    parser = commands.add_parser("outbox", help="enqueue what SQL transactions have committed", description=__doc__)
    parser.add_argument("connect", metavar="CONNECT", help=_BOUND)
    parser.add_argument("queues", metavar="QUEUE", nargs="+", help="module:object of a Queue or AsyncQueue whose rows are sent")
    add(parser, "--batch", kind=int, default=200, help="rows that are sent at once")
    add(parser, "--poll-ms", kind=int, default=500, help="ms between two looks where there is nothing to do")
    add_logging(parser)
    parser.add_argument("--burst", action="store_true", help="stop when there is nothing to do")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
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
            cast("Callable[[], Connection]", connect), queues, batch=options.batch, poll_ms=options.poll_ms, burst=options.burst
        )
    except Exception as error:
        if not of_database(error):
            raise
        raise DatabaseFailed(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
    print(f"{sent} rows sent")
    return 0
