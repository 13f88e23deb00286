"""Recording that the environment alone switches on, in a process that knows nothing of it.

`IRONCLAIM_OBSERVER=record.environment:observer` gives each queue its recorder, and `IRONCLAIM_HISTORY` is the
file of the process, whose name is the file's: `worker-1.jsonl` has the rows of worker-1. All queues of the
process share it.
"""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path

import engine
from engine import validate
from engine.errors import Malformed
from engine.observer import VARIABLE
from record.history import HistoryFile
from record.recorder import Recorder

#: The file. A process that has opened it leaves the variable empty, so that the processes that it starts
#: record nothing.
FILE = "IRONCLAIM_HISTORY"

_opening = threading.Lock()
_recorder: Recorder | None = None


def _in_a_forked_child() -> None:
    """The file is the parent's, and another thread of it may have held the lock."""
    global _opening
    _opening = threading.Lock()
    if _recorder is not None:
        _recorder.file.abandon()


os.register_at_fork(after_in_child=_in_a_forked_child)


def recording(file: Path) -> dict[str, str]:
    """The variables by which a process records into this file."""
    return {VARIABLE: f"{__name__}:{observer.__name__}", FILE: str(file)}


def observer(queue: str) -> Recorder | None:
    """The recorder of a queue; None in a process that was started by one which records. The closing row is
    written when this process ends by itself, and never by a child that it has forked. Raises Malformed where
    no file is named, or another process records in it, and OSError for one that cannot be written."""
    global _recorder
    with _opening:
        if _recorder is None:
            path = os.environ.get(FILE)
            if path is None:
                raise Malformed(FILE, path, "the file that gets the history of this process")
            if not path:
                return None
            proc = validate.worker_name(Path(path).stem)
            # Before the file is there, so that a child which another thread forks meanwhile records nothing.
            os.environ[FILE] = ""
            try:
                file = HistoryFile(
                    Path(path), proc=proc, role="worker", version=engine.__version__, alone=True
                )
            except OSError as error:
                os.environ[FILE] = path
                if not isinstance(error, BlockingIOError):
                    raise
                bound = "a file of this process alone: another one records in it"
                raise Malformed(FILE, path, bound) from None
            _recorder = Recorder(file, queue=queue)
            atexit.register(_recorder.close)
    return _recorder.of(queue)
