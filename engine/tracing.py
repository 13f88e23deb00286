"""Traces through jobs, as W3C `traceparent` headers, without any tracing library. A job that is enqueued
while another one runs carries on its trace.

    carry_traces(queue, handlers)

The header is the one of the caller's own `headers`, else the trace that is on: `trace.set(...)` begins one,
for instance from the request that a service answers. `engine.opentelemetry` does the same with spans.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.handlers import Handlers
    from engine.job import Job
    from engine.queue.producing import NewJob
    from engine.queue.settings import QueueSettings

HEADER = "traceparent"
#: The `traceparent` of what runs here, '' = none.
trace: ContextVar[str] = ContextVar("ironclaim-trace", default="")


def carry_traces(queue: QueueSettings, handlers: Handlers) -> None:
    """Let the jobs of this queue carry the trace that is on, and let these handlers run inside the trace of
    their job."""

    def inject(job: NewJob) -> None:
        headers = job.options.get("headers") or {}
        if trace.get() and HEADER not in headers:
            job.options["headers"] = {**headers, HEADER: trace.get()}

    @contextlib.contextmanager
    def extract(job: Job) -> Generator[None]:
        token = trace.set(job.headers.get(HEADER, ""))
        try:
            yield
        finally:
            trace.reset(token)

    queue.hooks.before(inject)
    handlers.hooks.around(extract)
