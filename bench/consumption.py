"""One Locust consumer user: the engine's worker on greenlets, with its calls and handler runs shown as Locust requests.

Import locust before this module: it patches threads, queues and sockets, so that `engine.Worker` runs the same code as in a
worker process, with a greenlet for each of its threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent

import engine
from bench.handlers import handlers
from bench.models import LANES, queue
from engine.observer import Intended, Observer, Outcome, ServerIdentity
from engine.ops.base import Call
from engine.ops.claims import LeasedJob, Wait
from record.history import HistoryFile
from record.recorder import Recorder

#: When a consumer stops, its running handlers get GRACE_MS; then the calls that end their leases get the remaining time.
GRACE_MS = 10_000
STOP_TIMEOUT_S = GRACE_MS / 1000 + 5.0

#: Request type of a handler run in Locust, where the request name is the job's name. Calls of the engine have their operation
#: as type.
HANDLE = "handle"

logger = logging.getLogger(__name__)

#: Called once per request: type, name, response time in ms, failure or None.
Report = Callable[[str, str, float, Exception | None], None]


class NotAnswered(Exception):
    """Failure of a call that got no answer."""


class FailedRun(Exception):
    """Failure of a handler run that raised."""


@dataclass(frozen=True, slots=True)
class Source:
    """The queue to consume and the worker's settings. `lua` None: the engine's own scripts; `history` None: record nothing."""

    queue: str
    url: str
    name: str
    lua: Path | None = None
    history: Path | None = None
    concurrency: int = 8
    lease_ms: int = 9_000
    sweep_ms: int = 1_000
    model: str = LANES


class Consumption:
    """One worker on greenlets, from `start` to `stop`.

    Raises FileExistsError when the history file already exists, another OSError when it cannot be written, and
    engine.EngineError for an invalid setting.
    """

    def __init__(self, source: Source, report: Report) -> None:
        # Check all settings before the history file is created.
        queue(source.model, source.queue, url=source.url, lua=source.lua).close()
        self._recorder: Recorder | None = None
        if source.history is not None:
            if source.history.exists():
                raise FileExistsError(f"history: {source.history.name} exists already; give each start a file of its own")
            file = HistoryFile(source.history, proc=source.name, role="worker", version=engine.__version__)
            self._recorder = Recorder(file, queue=source.queue)
        observer = Reporter(report, self._recorder)
        self._queue = queue(source.model, source.queue, url=source.url, lua=source.lua, observer=observer)
        self._worker = engine.Worker(
            self._queue,
            handlers,
            name=source.name,
            concurrency=source.concurrency,
            lease_ms=source.lease_ms,
            sweep_ms=source.sweep_ms,
            grace_ms=GRACE_MS,
        )
        self._greenlet = gevent.Greenlet(self._run)

    def start(self) -> None:
        """Start claiming."""
        self._greenlet.start()

    def join(self) -> None:
        """Wait until the worker has ended, through `stop` or through a failure."""
        self._greenlet.join()

    def stop(self) -> None:
        """Stop gracefully, and close the history. A job that still runs after the grace keeps its lease until it expires."""
        self._worker.stop()
        self._greenlet.join(timeout=STOP_TIMEOUT_S)
        if not self._greenlet.dead:
            logger.warning("a consumer did not stop within %.0f s", STOP_TIMEOUT_S)
            self._greenlet.kill()
        self._queue.close()
        if self._recorder is not None:
            self._recorder.close()

    def _run(self) -> None:
        try:
            self._worker.run()
        except engine.EngineError as error:
            logger.error("the consumer ended: %s", error)


class Reporter:
    """An observer that reports calls and handler runs to Locust, and passes them on to the recorder."""

    def __init__(self, report: Report, recorder: Observer | None) -> None:
        self._report = report
        self._recorder = recorder

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: Intended) -> object:
        """Before the first send."""
        return None if self._recorder is None else self._recorder.invoked(call, first_send_ns, intended_ns)

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """After the reply, or after giving up. A blocking wait for work is not reported, because its duration means nothing."""
        if self._recorder is not None:
            self._recorder.completed(call, ticket, outcome)
        if not isinstance(call.operation, Wait):
            failure = None if outcome.reply is not None else NotAnswered(outcome.error)
            response_ms = (outcome.done_ns - outcome.first_send_ns) / 1e6
            self._report(type(call.operation).__name__.lower(), call.script.name if call.script else "", response_ms, failure)

    def connected(self, server: ServerIdentity) -> None:
        """After each handshake."""
        if self._recorder is not None:
            self._recorder.connected(server)

    def configured(self, config: Mapping[str, object]) -> None:
        """At the worker's start."""
        if self._recorder is not None:
            self._recorder.configured(config)

    def handler_started(self, job: LeasedJob, start_ns: int) -> object:
        """Before a handler runs."""
        return None if self._recorder is None else self._recorder.handler_started(job, start_ns)

    def handler_ended(self, job: LeasedJob, ticket: object, start_ns: int, end_ns: int, error: str | None) -> None:
        """After a handler returned or raised. Planned failures are reported as failed requests as well."""
        if self._recorder is not None:
            self._recorder.handler_ended(job, ticket, start_ns, end_ns, error)
        self._report(HANDLE, job.name, (end_ns - start_ns) / 1e6, None if error is None else FailedRun(error))
