"""Spans around enqueues and runs, and the context that travels in the headers of jobs."""

import asyncio
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from engine import AsyncQueue, Discard, Handlers, Job, NewJob, Queue, RetryLater, Worker
from engine.opentelemetry import instrument
from tests.engine.helpers.producing import ids_of


class Spans:
    """Where the spans of a test go."""

    def __init__(self) -> None:
        self._exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Spans:
    return Spans()


def parent_of(span: Any) -> int:
    return span.parent.span_id


def id_of(span: Any) -> int:
    return span.get_span_context().span_id


def traces(spans: Any) -> set[int]:
    return {span.get_span_context().trace_id for span in spans}


@pytest.mark.parametrize("name", ["thread", "inline", "async"])
def test_a_trace_goes_from_service_through_job_to_what_the_handler_enqueues(queue: Queue, spans: Spans, name: str) -> None:
    handlers, seen = Handlers(), list[int]()

    def work(job: Job) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if job.payload == "first":
            queue.enqueue(name, "second", id="second")

    async def work_async(job: Job) -> None:
        await asyncio.sleep(0)
        work(job)

    handlers("thread")(work)
    handlers("inline", inline=True)(lambda job: work(job))
    handlers("async")(work_async)
    instrument(queue, handlers, tracer_provider=spans.provider)
    with spans.tracer.start_as_current_span("request") as request:
        queue.enqueue(name, "first", id="first", headers={"tenant": "acme"}, priority=9)
    Worker(queue, handlers, sweep_ms=50).run(burst=True)
    # Spans are told at their ends, and the second run may end in its thread before the first one has.
    created, processed = spans.of("create q"), sorted(spans.of("process q"), key=lambda span: span.start_time or 0)
    assert traces([*created, *processed]) == {request.get_span_context().trace_id}
    assert parent_of(created[0]) == request.get_span_context().span_id
    assert [parent_of(span) for span in processed] == [id_of(span) for span in created]
    # The handler's own enqueue is inside of its run.
    assert parent_of(created[1]) == id_of(processed[0]) and seen == [id_of(span) for span in processed]
    assert {span.kind for span in created} == {SpanKind.PRODUCER} and {span.kind for span in processed} == {SpanKind.CONSUMER}
    about = dict(processed[0].attributes or {})
    fence = about.pop("ironclaim.job.fence")
    wanted = {"system": "ironclaim", "destination.name": "q", "operation.name": "process", "operation.type": "process"}
    wanted |= {"message.id": "first", "message.body.size": 7}
    own = {"ironclaim.job.name": name, "ironclaim.job.attempt": 1}
    assert isinstance(fence, int) and about == {f"messaging.{name}": value for name, value in wanted.items()} | own
    assert dict(created[0].attributes or {})["messaging.message.id"] == "first"


def test_a_failed_run_is_an_error_and_what_a_handler_asks_for_is_none(queue: Queue, spans: Spans) -> None:
    handlers = Handlers()
    raised: dict[str, Exception] = {"bad": ValueError("no"), "later": RetryLater(60_000), "never": Discard("no use")}

    @handlers("work")
    def work(job: Job) -> None:
        if job.id in raised:
            raise raised[job.id]

    instrument(queue, handlers, tracer_provider=spans.provider)
    queue.enqueue_many([NewJob("work", {}, id=job, attempts=2 if job == "later" else 1) for job in ("good", *raised)])
    Worker(queue, handlers, sweep_ms=50, concurrency=1).run(burst=True, delayed=False)
    told = {dict(span.attributes or {})["messaging.message.id"]: span for span in spans.of("process q")}
    found = {job: span.status.status_code for job, span in told.items()}
    assert found == {**dict.fromkeys(("good", "later", "never"), StatusCode.UNSET), "bad": StatusCode.ERROR}
    bad = told["bad"]
    assert (dict(bad.attributes or {})["error.type"], bad.status.description) == ("ValueError", "no")
    assert [event.name for event in bad.events] == ["exception"]
    assert ids_of(queue, "dead") == ["bad"] and len(spans.of("create q")) == 4


def test_a_context_in_the_headers_is_kept(queue: Queue, spans: Spans) -> None:
    instrument(queue, tracer_provider=spans.provider)
    with spans.tracer.start_as_current_span("elsewhere") as elsewhere:
        headers: dict[str, str] = {}
        propagate.inject(headers)
    queue.enqueue("work", {}, headers=headers)
    queue.handlers("work")(lambda job: None)
    Worker(queue, queue.handlers, sweep_ms=50).run(burst=True)
    assert [parent_of(span) for span in spans.of("process q")] == [elsewhere.get_span_context().span_id]
    assert spans.of("create q") == []


def test_the_tasks_of_a_queue_under_asyncio(ironclaim_url: str, spans: Spans) -> None:
    queue, done = AsyncQueue("q", url=ironclaim_url), list[Any]()

    @queue.job("add")
    async def add(x: int, y: int) -> int:
        done.append(trace.get_current_span().get_span_context().trace_id)
        return x + y

    instrument(queue, tracer_provider=spans.provider)

    async def serve() -> int:
        with spans.tracer.start_as_current_span("request") as request:
            await add.aenqueue(1, 2)
        await queue.aclose()
        return request.get_span_context().trace_id

    wanted = asyncio.run(serve())
    Worker(queue, sweep_ms=50).run(burst=True)
    assert done == [wanted]


def test_a_queue_that_is_not_instrumented_makes_no_spans(queue: Queue, spans: Spans) -> None:
    queue.handlers("work")(lambda job: None)
    with spans.tracer.start_as_current_span("request"):
        queue.enqueue("work", {}, id="j")
    assert (job := queue.jobs.get("j")) is not None and job.headers == {}
