"""One Locust consumer user: the engine's own worker, on greenlets, with its calls and handlers shown as Locust requests.

Locust has patched threads, queues and sockets when this is imported, so `engine.Worker` executes the same step machine as in a
worker process, and each of its threads is a greenlet. Import locust before this module.
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
from engine.call import Call
from engine.history import HistoryFile
from engine.observer import Observer, Outcome, ServerIdentity
from engine.operations import LeasedJob, Wait
from engine.recorder import Recorder

#: A consumer that was told to stop gets this long for the handlers that run, and then this much more for their ends.
GRACE_MS = 10_000
STOP_TIMEOUT_S = GRACE_MS / 1000 + 5.0

#: What Locust calls a handler's run; the name beside it is the job's. Calls of the engine go by their operation.
HANDLE = "handle"

logger = logging.getLogger(__name__)

#: Called once per request: type, name, response time in ms, failure or None.
Report = Callable[[str, str, float, Exception | None], None]


class NotAnswered(Exception):
    """A call ended without an answer."""


class FailedRun(Exception):
    """A handler raised."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where jobs come from and how they are worked on. `lua` None: the own scripts; `history` None: nothing is recorded."""

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

    Raises FileExistsError when the history file is there already, other OSError when it cannot be written, and
    engine.EngineError for a wrong setting.
    """

    def __init__(self, source: Source, report: Report) -> None:
        # Everything that can be wrong shows before the history file exists.
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
        """Begin to claim."""
        self._greenlet.start()

    def join(self) -> None:
        """Wait until the worker has ended, by `stop` or by a failure of its own."""
        self._greenlet.join()

    def stop(self) -> None:
        """Stop gracefully, and close the history. What still runs after the grace keeps its lease until that runs out."""
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
    """An observer that tells Locust what it hears, and passes it on to the recorder."""

    def __init__(self, report: Report, recorder: Observer | None) -> None:
        self._report = report
        self._recorder = recorder

    def invoked(self, call: Call[Any], first_send_ns: int, intended_ns: int | None) -> object:
        """Before the first send."""
        return None if self._recorder is None else self._recorder.invoked(call, first_send_ns, intended_ns)

    def completed(self, call: Call[Any], ticket: object, outcome: Outcome) -> None:
        """After the reply, or after giving up. A wait for work is no request: its length says nothing."""
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
        """After a handler returned or raised. A planned failure is a failed request, too: Locust's page shows what happened."""
        if self._recorder is not None:
            self._recorder.handler_ended(job, ticket, start_ns, end_ns, error)
        self._report(HANDLE, job.name, (end_ns - start_ns) / 1e6, None if error is None else FailedRun(error))
