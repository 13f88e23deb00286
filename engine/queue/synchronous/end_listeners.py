"""Who listens for the ends of jobs in threads and greenlets: each on a stream of its own, with a call that
blocks."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator

from engine.handlers import refuse_wait
from engine.ops.looks import AwaitEnds, EndedJobs
from engine.queue.results import FIRST_ENTRY
from engine.queue.synchronous.calls import BlockingCalls


class EndListener:
    """One thread that waits for the end of a job. `token`: what a look registers it under."""

    def __init__(self, blocking: BlockingCalls) -> None:
        self.token = secrets.token_hex(8)
        self._after = FIRST_ENTRY
        self._blocking = blocking

    def rest(self, most_ms: int) -> None:
        """Wait until the job may have ended; at most so long. Raises ServerUnavailable, OutcomeUnknown."""
        ended: EndedJobs = self._blocking.run(AwaitEnds(self.token, self._after, most_ms))
        self._after = ended.after


class EndListeners:
    """What all threads that wait for ends of jobs of one queue share: connections."""

    def __init__(self, blocking: BlockingCalls) -> None:
        self._blocking = blocking

    @contextlib.contextmanager
    def listening_for(self, job: str) -> Generator[EndListener]:
        """A listener for the end of this job, from before the first look on, so that nothing is told in
        between."""
        yield EndListener(self._blocking)

    def close(self) -> None:
        """Close the idle connections."""
        self._blocking.close()


def check_may_wait(call: str, of: object, instead: str) -> None:
    """Raise Malformed in an async handler, which is to await this instead."""
    refuse_wait(call, of, instead)
