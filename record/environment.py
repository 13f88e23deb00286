"""Recording that the environment alone switches on, in a process that knows nothing of it.

`IRONCLAIM_OBSERVER=record.environment:observer` gives each queue its recorder, and `IRONCLAIM_HISTORY` is the
file of the process, whose name is the file's: `worker-1.jsonl` has the rows of worker-1. All queues of the
process share it, or the one alone that `IRONCLAIM_HISTORY_QUEUE` names. `IRONCLAIM_HISTORY_URL` leads all of
them, also those that are not recorded and those of child processes, to another server than their own: a
drill never touches the one that the service names. `IRONCLAIM_HISTORY_UNDER` is what their keys have before
their own prefix there, on a server that others use, too.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import engine
from engine import validate
from engine.errors import Malformed
from engine.observer import VARIABLE, Intended, Outcome, ServerIdentity
from engine.ops.base import Call
from engine.ops.claims import LeasedJob
from record.history import HistoryFile
from record.recorder import Recorder

#: The file. A process that has opened it leaves the variable empty, so that the processes that it starts
#: record nothing.
FILE = "IRONCLAIM_HISTORY"
#: The only queue that is recorded; all, where it is not set.
QUEUE = "IRONCLAIM_HISTORY_QUEUE"
#: The server that all queues of the process use in place of their own, where it is set.
URL = "IRONCLAIM_HISTORY_URL"
#: What the keys of those queues begin with, before their own prefix; nothing, where it is not set.
UNDER = "IRONCLAIM_HISTORY_UNDER"

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


def led(url: str, queue: str, file: Path | None, under: str = "") -> dict[str, str]:
    """The variables by which the queues of a process use this server, and the one of this name is recorded
    into the file; None: nothing is. `under`: what their keys begin with there."""
    names = {VARIABLE: f"{__name__}:{observer.__name__}", URL: url, QUEUE: queue, FILE: str(file or "")}
    return {**names, UNDER: under}


class Leading:
    """The observer of a queue that is led to another server and not recorded."""

    def __init__(self, leads_to: str, under: str = "") -> None:
        self.leads_to, self.under = leads_to, under

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Nothing."""

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """Nothing."""

    def connected(self, server: ServerIdentity) -> None:
        """Nothing."""

    def configured(self, config: Mapping[str, object]) -> None:
        """Nothing."""

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """Nothing."""

    def handler_ended(
        self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None
    ) -> None:
        """Nothing."""


def observer(queue: str) -> Recorder | Leading | None:
    """The recorder of a queue. None, or one that only leads it to another server, in a process that was
    started by one which records, and for another queue than the one that is recorded. The closing row is
    written when this process ends by itself, and never by a child that it has forked. Raises Malformed where
    no file is named, or another process records in it, and OSError for one that cannot be written."""
    url, under = os.environ.get(URL) or None, os.environ.get(UNDER, "")
    if os.environ.get(QUEUE, queue) != queue or (recorder := _recorder_of(queue)) is None:
        return None if url is None else Leading(url, under)
    recorder.leads_to, recorder.under = url, under
    return recorder


def _recorder_of(queue: str) -> Recorder | None:
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
            # The errors of a service are its own; those of the harness's own workload say what it planned.
            _recorder = Recorder(file, queue=queue, private=URL in os.environ)
            atexit.register(_recorder.close)
    return _recorder.of(queue)
