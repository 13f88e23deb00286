"""Hooks around runs and enqueues, in every kind of handler, and traces that go through jobs; callbacks and results of parents
as a service meets them."""

import asyncio
import time
from contextlib import contextmanager
from typing import Any

import pytest

from engine import AsyncQueue, Discard, Enqueued, Handlers, Job, Malformed, NewJob, Queue, Worker
from engine.tracing import HEADER, carry_traces, trace
from tests.engine.helpers.producing import ids_of, raises, refused, some_handlers


def kinds(handlers: Handlers, log: list[Any]) -> None:
    """Handlers of every kind, which log what they see and fail when they are told to."""

    def work(job: Job) -> None:
        log.append(f"run {job.id}")
        if job.payload == "fail":
            raise ValueError("no")

    async def work_async(job: Job) -> None:
        await asyncio.sleep(0)
        work(job)

    handlers("thread")(work)
    handlers("inline", inline=True)(lambda job: work(job))
    handlers("async")(work_async)


@pytest.mark.feature("MQ18")
@pytest.mark.parametrize("name", ["thread", "inline", "async"])
def test_hooks_are_called_around_each_run_in_their_order(queue: Queue, name: str) -> None:
    handlers, log = Handlers(), []
    kinds(handlers, log)

    @handlers.hooks.around
    @contextmanager
    def around(job: Job) -> Any:
        log.append("enter")
        try:
            yield
        except ValueError as error:
            log.append(f"leave with {error}")
            raise
        else:
            log.append("leave")

    handlers.hooks.before(lambda job: log.append(f"first {job.id}"))
    handlers.hooks.before(lambda job: log.append("second"))
    handlers.hooks.after(lambda job, error: log.append(f"after {job.id}: {error}"))
    queue.enqueue(name, "work", id="good", priority=9)
    queue.enqueue(name, "fail", id="bad", attempts=1)
    Worker(queue, handlers, sweep_ms=50, concurrency=1).run(burst=True)
    assert log == [
        *("enter", "first good", "second", "run good", "leave", "after good: None"),
        *("enter", "first bad", "second", "run bad", "leave with no", "after bad: ValueError: no"),
    ]
    assert ids_of(queue, "dead") == ["bad"]


@pytest.mark.feature("MQ18")
@pytest.mark.parametrize("name", ["thread", "inline", "async"])
def test_a_hook_that_raises_fails_a_run_before_and_not_after(queue: Queue, name: str, caplog: pytest.LogCaptureFixture) -> None:
    handlers, log = Handlers(), []
    kinds(handlers, log)

    @handlers.hooks.before
    def before(job: Job) -> None:
        if job.id == "refused":
            raise PermissionError("not today")

    @handlers.hooks.after
    def after(job: Job, error: str | None) -> None:
        log.append((job.id, error))
        raise RuntimeError("after")

    handlers.hooks.after(lambda job, error: log.append("next"))
    queue.enqueue(name, 1, id="refused", attempts=1, priority=9)
    queue.enqueue(name, 1, id="good")
    Worker(queue, handlers, sweep_ms=50, concurrency=1).run(burst=True)
    assert log == [("refused", "PermissionError: not today"), "next", "run good", ("good", None), "next"]
    assert (ids_of(queue, "dead"), ids_of(queue, "done")) == (["refused"], ["good"])
    assert "job good: a hook after its run failed" in caplog.text


def enqueue(queue: Queue, face: str, *jobs: NewJob, many: bool) -> list[Enqueued]:
    """By the synchronous or the asyncio queue, with the same hooks."""

    async def send() -> list[Enqueued]:
        async with AsyncQueue("q", url=queue.url) as other:
            other.hooks = queue.hooks
            if many:
                return await other.enqueue_many(jobs)
            return [await other.enqueue(job.name, job.payload, id=job.id, **job.options) for job in jobs]

    if face == "async":
        return asyncio.run(send())
    if many:
        return queue.enqueue_many(jobs)
    return [queue.enqueue(job.name, job.payload, id=job.id, **job.options) for job in jobs]


@pytest.mark.feature("MQ19")
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("many", [False, True])
def test_hooks_change_a_job_and_hear_what_comes(queue: Queue, face: str, many: bool, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    @queue.hooks.before
    def before(job: NewJob) -> None:
        job.payload = {"wrapped": job.payload}
        job.options["headers"] = {"by": "hook"}

    @queue.hooks.after
    def after(job: NewJob, enqueued: Enqueued) -> None:
        told.append((job.payload, enqueued.job, enqueued.result))
        raise RuntimeError("after")

    given = [NewJob("work", 1, id="a"), NewJob("work", 2, id="b")]
    assert [item.result for item in enqueue(queue, face, *given, many=many)] == ["created", "created"]
    assert told == [({"wrapped": 1}, "a", "created"), ({"wrapped": 2}, "b", "created")]
    assert given[0].payload == 1, "the caller's own objects are not changed"
    assert "job a: a hook after its enqueue failed" in caplog.text
    assert enqueue(queue, face, NewJob("work", 1, id="a"), many=many)[0].result == "duplicate" and told[-1][2] == "duplicate"
    seen: list[Any] = []
    Worker(queue, some_handlers(lambda job: seen.append((job.payload, job.headers))), sweep_ms=50).run(burst=True)
    assert sorted(seen, key=str) == [({"wrapped": 1}, {"by": "hook"}), ({"wrapped": 2}, {"by": "hook"})]


@pytest.mark.feature("MQ19")
@pytest.mark.parametrize("many", [False, True])
def test_a_hook_that_raises_before_an_enqueue_keeps_the_job_out(queue: Queue, many: bool) -> None:
    @queue.hooks.before
    def before(job: NewJob) -> None:
        if job.id == "bad":
            raise PermissionError("not today")
        job.options["priority"] = 11

    refused(PermissionError, "", enqueue, queue, "sync", NewJob("work", 1, id="bad"), many=many)
    refused(Malformed, "priority: 11", enqueue, queue, "sync", NewJob("work", 1, id="worse"), many=many)
    assert queue.counts().waiting == 0


@pytest.mark.parametrize("name", ["thread", "async"])
def test_a_job_that_is_enqueued_in_a_handler_carries_its_trace_on(queue: Queue, name: str) -> None:
    handlers, seen = Handlers(), {}
    carry_traces(queue, handlers)

    def first(job: Job) -> None:
        seen["first"] = (trace.get(), job.headers)
        queue.enqueue("second", 1)

    async def first_async(job: Job) -> None:
        first(job)

    handlers(name)(first_async if name == "async" else first)
    handlers("second")(lambda job: seen.update(second=(trace.get(), job.headers)))
    handlers("none")(lambda job: seen.update(none=(trace.get(), job.headers)))
    mine = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    token = trace.set(mine)
    queue.enqueue(name, 1)
    trace.reset(token)
    queue.enqueue("none", 1)
    Worker(queue, handlers, sweep_ms=50, concurrency=1).run(burst=True)
    assert seen == {"first": (mine, {HEADER: mine}), "second": (mine, {HEADER: mine}), "none": ("", {})}


def work(queue: Queue, handlers: Handlers | None = None) -> None:
    Worker(queue, handlers or queue.handlers, sweep_ms=100).run(burst=True)


def test_tasks_call_tasks_back_with_what_came_of_them(queue: Queue) -> None:
    seen: list[Any] = []

    @queue.job("report")
    def report(job: Job, to: str) -> None:
        seen.append((to, job.parents, dict(job.results), job.results["double"], job.failure))

    @queue.job("alert")
    def alert(job: Job, text: str) -> None:
        seen.append((text, job.parents, job.results["double"], job.failure))

    @queue.job("double", attempts=1, on_failure=alert.new("boom"))
    def double(n: int) -> int:
        if n < 0:
            raise ValueError("below zero")
        return 2 * n

    double.with_options(id="good", on_success=report.new("ada")).enqueue(4)
    double.with_options(id="bad", on_success=report.new("ada")).enqueue(-1)
    work(queue)
    assert sorted(seen) == [("ada", ("good",), {"good": 8}, 8, ""), ("boom", ("bad",), None, "ValueError: below zero")]
    assert queue.counts().blocked == 0


def test_the_same_new_job_is_the_callback_of_many_jobs(queue: Queue) -> None:
    seen, handlers = list[tuple[str, ...]](), some_handlers(name="main")
    handlers("after")(lambda job: seen.append(job.parents))
    after = NewJob("after", None, id="of-its-own")
    queue.enqueue_many([NewJob("main", None, id=f"m{at}", on_success=after) for at in range(5)])
    work(queue, handlers)
    assert sorted(seen) == [(f"m{at}",) for at in range(5)]


@pytest.mark.parametrize("processes", [0, 1])
def test_a_child_reads_the_results_of_its_parents_by_id_and_by_name(queue: Queue, processes: int) -> None:
    parents = [NewJob("left", 1, id="l"), NewJob("right", 2, id="r"), NewJob("right", 3, id="r2"), NewJob("silent", 4, id="s")]
    queue.enqueue_many([*parents, NewJob("sum", None, id="sum", needs=[*parents])])
    queue.enqueue("sum", None, id="by-id", needs=["l", "r"])
    handlers = Handlers()
    for name in ("left", "right"):
        handlers(name)(lambda job: job.payload * 10)
    handlers("silent")(lambda job: None)
    found: dict[str, Any] = {}

    @handlers("sum")
    async def add(job: Job) -> None:
        found[job.id] = (dict(job.results), job.failure)
        if job.id == "by-id":
            refused(KeyError, "", job.results.__getitem__, "left")
            return
        assert job.results["left"] == 10 and job.results["silent"] is None
        refused(KeyError, "2 of the jobs", job.results.__getitem__, "right")

    work(queue, handlers)
    assert found == {"sum": ({"l": 10, "r": 20, "r2": 30, "s": None}, ""), "by-id": ({"l": 10, "r": 20}, "")}
    assert queue.counts().dead == 0


def test_a_job_that_expires_or_is_discarded_by_its_handler_calls_back(queue: Queue) -> None:
    seen: list[tuple[Any, str]] = []
    handlers = some_handlers(lambda job: seen.append((job.payload, job.failure)), "after")
    handlers("main")(raises(Discard()))
    queue.enqueue("main", None, expires_ms=1, on_failure=NewJob("after", "late"))
    time.sleep(0.01)
    queue.enqueue("main", None, on_failure=NewJob("after", "not wanted"))
    queue.enqueue("main", None, id="by-hand", delay_ms=60_000, on_failure=NewJob("after", "never"))
    queue.jobs.cancel("by-hand")
    work(queue, handlers)
    assert sorted(seen) == [("late", "expired"), ("not wanted", "discarded")]
