"""Programs of the backup tests: a producer that notes what it was acknowledged, and a backup or restore that stops half-way.

python -m tests.engine.helpers.backup_drill produce URL FOLDER NAME
python -m tests.engine.helpers.backup_drill backup|backup-paused|restore URL FILE REACHED
"""

import os
import signal
import sys
from pathlib import Path

from engine import JobOptions, Queue
from engine.backup import archive, restoring, taking


def produce(url: str, folder: Path, name: str) -> None:
    """Enqueue one job after the other, of several kinds, until it is killed; a line with id and server time for each answer."""
    with Queue("q", url=url) as queue, (folder / f"{name}.acknowledged").open("ab", buffering=0) as told:
        number = 0
        while True:
            kinds: tuple[JobOptions, ...] = ({}, {"delay_ms": 300}, {"key": "acme"}, {"unique": f"{name}-{number}"})
            options = kinds[number % len(kinds)]
            enqueued = queue.enqueue("mark", {"folder": str(folder), "text": "x" * 100}, id=f"{name}-{number}", **options)
            told.write(f"{enqueued.job} {enqueued.srv_us}\n".encode())
            number += 1


def stop_half_way(what: str, url: str, file: Path, reached: Path) -> None:
    """Come half-way, say so by making the file `reached`, and stand still."""

    def stand_still(*_: object) -> None:
        reached.touch()
        signal.pause()

    nothing = stand_still if what != "backup-paused" else lambda *_: None
    with Queue("q", url=url) as queue:
        if what == "restore":
            restoring.restore(archive.Archive(file), queue, stand_still)
        else:
            taking.take(queue, file, nothing, at_instant=stand_still)


if __name__ == "__main__":
    os.nice(5)
    if sys.argv[1] == "produce":
        produce(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        stop_half_way(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
