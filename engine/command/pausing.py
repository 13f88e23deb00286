"""`ironclaim pause` and `ironclaim resume`."""

from __future__ import annotations

import argparse

from engine.command.arguments import add_json, add_queue, duration_ms, opened
from engine.command.output import print_error, show_one
from engine.queue.synchronous.queue import Queue, queues

#: Exit code where there was nothing to do it to.
_NOT_DONE = 1


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    pause = commands.add_parser("pause", help="claim no jobs of a name, or of the whole queue; those in hand go on")
    pause.add_argument("name", nargs="?", help="name of the jobs; without one the whole queue")
    pause.add_argument(
        "--for", dest="length_ms", metavar="LENGTH", type=duration_ms, default=0, help="90s, 10m, 2h; without it until `resume`"
    )
    pause.set_defaults(run=run_pause)
    resume = commands.add_parser("resume", help="end a pause")
    resume.add_argument("name", nargs="?", help="name of the jobs; without one the pause of the whole queue")
    resume.set_defaults(run=run_resume)
    for parser in (pause, resume):
        add_queue(parser)
        add_json(parser)


def run_pause(options: argparse.Namespace) -> int:
    """Pause."""
    with opened(options) as queue:
        if not _exists(queue, options):
            print_error(f"there is no queue {options.queue}: nothing was ever put into it, and no worker has worked for it")
            return _NOT_DONE
        queue.pause(options.name, length_ms=options.length_ms)
    _tell("paused", options, length_ms=options.length_ms)
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Resume."""
    with opened(options) as queue:
        was_paused = queue.resume(options.name)
    if not was_paused:
        what = f"the name {options.name}" if options.name else "the whole queue"
        print_error(f"queue {options.queue}: {what} was not paused")
        return _NOT_DONE
    _tell("resumed", options)
    return 0


def _exists(queue: Queue, options: argparse.Namespace) -> bool:
    """Whether the server lists the queue, or holds jobs of it that other programs have put there."""
    if any(found.name == options.queue for found in queues(options.url, model=options.model, prefix=options.prefix)):
        return True
    counts = queue.counts()
    return any((counts.waiting, counts.delayed, counts.blocked, counts.active, counts.dead, counts.done))


def _tell(what: str, options: argparse.Namespace, **more: int) -> None:
    show_one({what: options.name or "the whole queue", "queue": options.queue, **more}, as_json=options.json)
