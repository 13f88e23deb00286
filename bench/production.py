"""One run of the load: a queue, its recorder, and the schedule that is sent.

Import locust before this module: it makes the sockets cooperative, so that a greenlet waiting for an answer does not block the
others.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent

import engine
from bench.models import LANES, carried, queue
from bench.openloop import OpenLoop
from bench.workload import PlannedJob, Workload
from record.history import HistoryFile, text
from record.recorder import Recorder

if TYPE_CHECKING:
    from bench.http_queue import HttpQueue

#: How long a stop waits: slightly longer than the 10 s for which the driver re-sends before it reports an unknown outcome.
FINISH_TIMEOUT_S = 12.0
WARM_UP_MAX_S = 2.0

#: Connections per job/s; further concurrent calls wait for a free one. After an outage each connection must be opened again,
#: which takes 2 ms of the only core of this process: with one for each of 300 unanswered sends, new sends were a second late.
#: A call on a slow network takes at most 0.25 s, so with this many connections no call has to wait then.
CONNECTIONS_S = 0.25
CONNECTIONS_MIN = 16

#: Request type in Locust; the request name is the job's name.
REQUEST_TYPE = "enqueue"

logger = logging.getLogger(__name__)

#: Called once per job: name, response time in ms from the intended instant (None = never sent), failure or None.
Report = Callable[[str, float | None, Exception | None], None]


class NotEnqueued(Exception):
    """The server answered, but the job was not created."""


class Dropped(Exception):
    """The job was not sent, because it was overdue."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The queue that gets the jobs, and the history file. `url`: of a server, or of apps of the HTTP face, with commas between;
    `history` None: record nothing; `lua` None: the engine's own scripts; `retention_ms`: how long results and errors are kept, 0:
    the engine's default."""

    queue: str
    url: str
    lua: Path | None = None
    history: Path | None = None
    retention_ms: int = 0
    model: str = LANES

    def connect(self, recorder: Recorder | None = None, connections_max: int = 0) -> engine.Queue | HttpQueue:
        """A queue of this destination, without I/O so far. Raises ModelMissing, and engine.EngineError or InvalidArgument for an
        invalid setting."""
        if self.url.startswith(("http://", "https://")):
            # Its client is a package of its own, in clients/python, which only such a load needs on its path.
            from bench.http_queue import HttpQueue

            return HttpQueue(self.queue, self.url.split(","), recorder, connections_max)
        return queue(self.model, self.queue, url=self.url, lua=self.lua, observer=recorder, connections_max=connections_max)


class Production:
    """Sends part `part` of `parts` of a workload, open loop, until `stop`.

    Raises FileExistsError when the history file already exists (two runs in one file would be judged as one), another OSError
    when it cannot be written, and engine.EngineError for an invalid setting.
    """

    def __init__(self, workload: Workload, destination: Destination, *, part: int, parts: int, report: Report) -> None:
        jobs = workload.jobs(part, parts)
        self._report = report
        self._history: HistoryFile | None = None
        self._recorder: Recorder | None = None
        destination.connect().close()  # check the settings before the history file is created
        if destination.history is not None:
            self._history = _new_history(destination.history)
            self._recorder = Recorder(self._history, queue=destination.queue)
        self._queue = destination.connect(self._recorder, connections(workload.rate_per_s / parts))
        kept_ms = destination.retention_ms
        self._kept: dict[str, Any] = {"result_ttl_ms": kept_ms, "error_ttl_ms": kept_ms} if kept_ms else {}
        self._carried = carried(destination.model)
        self._hopeless: set[str] = set()
        #: Jobs whose creation was answered.
        self._created: set[str] = set()
        self._loop = OpenLoop(jobs, send=self._send, drop=self._drop)

    def warm_up(self) -> None:
        """Connect and load the scripts before the schedule starts, so that the first jobs do not include that. Takes at most 2
        s."""
        gevent.spawn(self._ask_server).join(timeout=WARM_UP_MAX_S)

    def start(self) -> None:
        """Fix the instant from which the schedule counts; later calls have no effect."""
        self._loop.start()

    def pace(self) -> bool:
        """Wait for the next job's instant and start its send. Return False when the schedule has ended."""
        return self._loop.pace()

    def stop(self) -> None:
        """Stop sending, wait (bounded) for the answers, and close the history."""
        given_up = self._loop.finish(FINISH_TIMEOUT_S)
        if given_up:
            logger.warning("%d sends had no answer %.0f s after the end; their outcome stays open", given_up, FINISH_TIMEOUT_S)
        self._queue.close()
        if self._recorder is not None:
            self._recorder.close()

    def _ask_server(self) -> None:
        try:
            self._queue.counts()
        except engine.EngineError as error:
            logger.warning("starting the load although the server did not answer correctly: %s", error)

    def _send(self, job: PlannedJob, intended_ns: int) -> None:
        failure: Exception | None = None
        try:
            reply = self._queue.enqueue(
                job.name, self._carried.payload(job.payload), id=job.id, intended_ns=intended_ns, **self._options(job)
            )
            if reply.created:
                self._created.add(job.id)
            # A job that is refused because another job holds its unique key is expected, not a failure.
            if not reply.created and not (job.unique and reply.holder != job.id):
                failure = NotEnqueued(f"the server answered {reply.result}")
        except engine.UnknownParent:
            # Its parent was dropped or is still in flight; with concurrent sends that is expected, not a failure.
            pass
        except gevent.GreenletExit:
            failure = NotEnqueued("no answer before the end of the load")
        except Exception as error:  # any error is a failed send and must not end the load
            failure = error
        self._report(job.name, (time.monotonic_ns() - intended_ns) / 1e6, failure)

    def _options(self, job: PlannedJob) -> dict[str, Any]:
        """The options of a job that the model supports."""
        if job.fail_first >= job.attempts:
            self._hopeless.add(job.id)
        kept = {name: value for name, value in self._kept.items() if self._carried.option(name)}
        unfit = self._hopeless.union(parent for parent in job.needs if parent not in self._created)
        return {**self._carried.options_of(job, unfit), **kept}

    def _drop(self, job: PlannedJob, intended_ns: int, why: str) -> None:
        if self._history is not None:
            self._history.append([f'"kind":"drop","intended_ns":{intended_ns},"count":1,"detail":{text(f"{job.id}: {why}")}'])
        self._report(job.name, None, Dropped(f"not sent: {why}"))


def connections(rate_per_s: float) -> int:
    """The number of connections with which a process sends this many jobs per second."""
    return max(CONNECTIONS_MIN, math.ceil(rate_per_s * CONNECTIONS_S))


def _new_history(path: Path) -> HistoryFile:
    if path.exists():
        raise FileExistsError(f"history: {path.name} exists already; give each start a file of its own")
    return HistoryFile(path, proc=path.name.removesuffix(".jsonl"), role="producer", version=engine.__version__)
