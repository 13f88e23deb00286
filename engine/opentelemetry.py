"""Spans of OpenTelemetry around enqueues and runs, and the trace context that travels with each job in its
headers. It needs the extra `ironclaim[otel]`.

    instrument(queue)                # a service that enqueues, and a worker with the queue's own tasks
    instrument(queue, handlers)      # a worker with a Handlers object

Each enqueue makes a span `create <queue>` (kind PRODUCER) and puts its context into the job's headers, by the
propagators that are set (`OTEL_PROPAGATORS`; W3C `traceparent` unless told). Each run makes a span `process
<queue>` (kind CONSUMER) inside of that context. The span is current while the handler runs, so a job that a
handler enqueues carries the trace on. Names and attributes are those of the semantic conventions for
messaging: `messaging.system` is `ironclaim`, `messaging.destination.name` the queue, `messaging.message.id`
the job; `ironclaim.job.name`, `ironclaim.job.attempt` and `ironclaim.job.fence` are the engine's own.

A run that raises ends its span with the status ERROR and `error.type`; one that ends by RetryLater or Discard
does not. In child processes the
child makes the spans: call `instrument`, and set the provider, where the module of the handlers is imported,
and flush it in a hook `on_stop`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from engine.outcomes import Discard, RetryLater
from engine.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

    from engine.handlers import Handlers
    from engine.job import Job
    from engine.queue.producing import NewJob
    from engine.queue.settings import QueueSettings


def instrument(
    queue: QueueSettings, handlers: Handlers | None = None, *, tracer_provider: TracerProvider | None = None
) -> None:
    """Let enqueues of this queue, and runs of these handlers (None: those that `queue.job` has registered and
    will register), make spans. Call it once for each, before the worker starts.

    `tracer_provider`: where the spans go, None: the global one. A job whose `headers` have a context already
    keeps it, and makes no span when it is enqueued.
    """
    tracer = trace.get_tracer("ironclaim", __version__, tracer_provider)
    common: dict[str, AttributeValue] = {
        "messaging.system": "ironclaim",
        "messaging.destination.name": queue.name,
    }

    def create(job: NewJob) -> None:
        given = job.options.get("headers") or {}
        if not propagate.get_global_textmap().fields.isdisjoint(given):
            return
        about: dict[str, AttributeValue] = {**common, **_operation("create"), "ironclaim.job.name": job.name}
        if job.id is not None:
            about["messaging.message.id"] = job.id
        headers: dict[str, str] = dict(given)
        with tracer.start_as_current_span(f"create {queue.name}", kind=SpanKind.PRODUCER, attributes=about):
            propagate.inject(headers)
        job.options["headers"] = headers

    @contextlib.contextmanager
    def process(job: Job) -> Generator[None]:
        about: dict[str, AttributeValue] = {
            **common,
            **_operation("process"),
            "messaging.message.id": job.id,
            "messaging.message.body.size": len(job.payload_bytes),
            "ironclaim.job.name": job.name,
            "ironclaim.job.attempt": job.attempt,
            "ironclaim.job.fence": job.fence,
        }
        with tracer.start_as_current_span(
            f"process {queue.name}",
            context=propagate.extract(job.headers),
            kind=SpanKind.CONSUMER,
            attributes=about,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (RetryLater, Discard):
                raise
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute(
                    "error.type",
                    f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."),
                )
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise

    queue.hooks.before(create)
    (queue.handlers if handlers is None else handlers).hooks.around(process)


def _operation(name: str) -> dict[str, AttributeValue]:
    return {"messaging.operation.name": name, "messaging.operation.type": name}
