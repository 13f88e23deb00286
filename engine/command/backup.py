"""`ironclaim backup` and `ironclaim restore`: one queue into a file, while it is worked, and back into an empty one."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

from engine.backup.archive import Archive
from engine.backup.restoring import restore
from engine.backup.taking import take
from engine.command.arguments import add_json, add_server
from engine.command.output import instant, show_one
from engine.queue.synchronous.queue import Queue
from engine.redis.endpoint import DEFAULT_URL

#: How long it takes until progress is shown, and how often then.
_SILENT_S, _EVERY_S = 2.0, 1.0


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:  # pyright: ignore[reportPrivateUsage]
    """Add both commands."""
    backup = commands.add_parser("backup", help="write a queue as it is at one instant into a file, while it is worked")
    backup.add_argument("queue", help="name of the queue")
    backup.add_argument("file", type=Path, help="file to write; one that is there is replaced when the backup is whole")
    backup.set_defaults(run=run_backup)
    restoring = commands.add_parser("restore", help="fill an empty queue from a backup; one that was interrupted is run again")
    restoring.add_argument("file", type=Path, help="the backup")
    restoring.add_argument("--as", dest="queue", metavar="NAME", help="name of the queue (default: as it was)")
    restoring.set_defaults(run=run_restore)
    for parser in (backup, restoring):
        add_server(parser)
        add_json(parser)


def run_backup(options: argparse.Namespace) -> int:
    """Back up."""
    with _opened(options, options.queue) as queue:
        taken = take(queue, options.file, _Progress("backup"))
    _tell({"backed up": taken.queue, **asdict(taken)}, options)
    return 0


def run_restore(options: argparse.Namespace) -> int:
    """Restore."""
    archive = Archive(options.file)
    with _opened(options, options.queue or str(archive.header["queue"])) as queue:
        restored = restore(archive, queue, _Progress("restore"))
    _tell({"restored": restored.queue, **asdict(restored)}, options)
    return 0


def _opened(options: argparse.Namespace, name: str) -> Queue:
    return Queue(name, options.model, url=options.url or DEFAULT_URL, prefix=options.prefix)


def _tell(fields: dict[str, object], options: argparse.Namespace) -> None:
    del fields["queue"]
    if not options.json:
        fields["instant"] = instant(int(str(fields.pop("instant_ms"))))
    show_one(fields, as_json=options.json)


class _Progress:
    """Shows how far it has come, on stderr, when it takes longer than two seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next_s = time.monotonic() + _SILENT_S

    def __call__(self, keys: int, size: int) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            print(f"{self._what}: {keys:,} keys, {size / (1 << 20):,.1f} MiB", file=sys.stderr, flush=True)
