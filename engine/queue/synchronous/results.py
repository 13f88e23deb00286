# Generated from engine/queue/asynchronous/results.py by "make generate"; do not edit.
"""The results of a queue's jobs, and waiting for them: see `engine.queue.results`."""

from __future__ import annotations

from typing import Any, TypeVar, overload

from engine.ops.looks import Look, ReadProgress
from engine.parameters import TypedJob
from engine.queue.results import AWAY, Progress, Result, Waiting, progress_of, result_of, typed
from engine.queue.synchronous.calls import Part, QueueCalls
from engine.queue.synchronous.end_listeners import EndListeners
from engine.validate import Milliseconds

R = TypeVar("R")


class Results(Part):
    """The results of a queue's jobs: `queue.results`."""

    def __init__(self, queue: QueueCalls) -> None:
        super().__init__(queue)
        self._listeners = EndListeners(queue)

    @overload
    def get(self, id: str) -> Result[Any] | None: ...
    @overload
    def get(self, id: str, task: TypedJob[R]) -> Result[R] | None: ...
    def get(self, id: str, task: TypedJob[Any] | None = None) -> Result[Any] | None:
        """How this job has ended; None for one that has not, and for one that nobody knows or that ended so long ago that
        nothing is left: what a handler returned is kept for `result_ttl_ms`, that it finished for a while longer.

        The value is as JSON has it; with the `task` that the job is of it has the type that its function returns.

        Raises Malformed, also for a value that is not of the task's type, ServerUnavailable, OutcomeUnknown.
        """
        job = self._queue.model.names.known_id(id)
        found = result_of(job, self._run(Look(job)))
        return None if found is None else typed(found, task)

    def progress(self, id: str) -> Progress | None:
        """The progress that the handler of this job reported last with `job.progress`, in this run or an earlier
        one; None without any, and when the job has finished. Raises as `get` does."""
        return progress_of(self._run(ReadProgress(self._queue.model.names.known_id(id))))

    @overload
    def wait(self, id: str, *, wait_ms: Milliseconds = 30_000) -> Result[Any]: ...
    @overload
    def wait(self, id: str, task: TypedJob[R], *, wait_ms: Milliseconds = 30_000) -> Result[R]: ...
    def wait(self, id: str, task: TypedJob[Any] | None = None, *, wait_ms: Milliseconds = 30_000) -> Result[Any]:
        """Wait until this job has ended and return its result. No wake-up is lost, whenever the job ends and whatever happens to
        the connection meanwhile. `task`: as for `get`.

        Raises TimedOut when that takes longer than `wait_ms`, UnknownJob for an id that the server does not know, and
        ServerUnavailable or OutcomeUnknown when the server is away at the end of that time, then up to 10 s later.
        """
        return typed(self.wait_out(Waiting(self._queue.model.names.known_id(id), wait_ms)), task)

    def wait_out(self, waiting: Waiting) -> Result[Any]:
        """The result of the job of a wait that has begun, as `wait` returns it: for `call` of a queue."""
        with self._listeners.listening_for(waiting.job) as listener:
            while True:
                try:
                    found = waiting.take(self._run(Look(waiting.job, listener.token)))
                    if found is not None:
                        return found
                    listener.rest(waiting.block_ms)
                except AWAY as error:
                    waiting.failed(error)

    def close(self) -> None:
        """Close the idle connections of waits."""
        self._listeners.close()
