"""`ironclaim pause` and `ironclaim resume`."""

from __future__ import annotations

import argparse

from engine.command.arguments import add_json, add_queue, duration_ms, opened
from engine.command.output import show_one


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
        queue.pause(options.name, length_ms=options.length_ms)
    _tell("paused", options, length_ms=options.length_ms)
    return 0


def run_resume(options: argparse.Namespace) -> int:
    """Resume."""
    with opened(options) as queue:
        queue.resume(options.name)
    _tell("resumed", options)
    return 0


def _tell(what: str, options: argparse.Namespace, **more: int) -> None:
    show_one({what: options.name or "the whole queue", "queue": options.queue, **more}, as_json=options.json)
