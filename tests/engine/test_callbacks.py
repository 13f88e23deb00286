"""Callbacks and results of parents as a service meets them: tasks, a worker, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from engine import Discard, Handlers, Job, Malformed, NewJob, Queue, Worker
from tests.engine.helpers.producing import raises, refused, some_handlers


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


def test_what_a_callback_may_not_be_is_refused_by_name_before_anything_is_sent(queue: Queue) -> None:
    @queue.job("send")
    def send(user: int) -> None: ...

    other: Any = {"prioritty": 1, "delay_ms": 1, "unique": "u", "needs": ["p"]}
    for callback, field in [
        (NewJob("two words", None), "name"), (NewJob("send", {"user": "x"}), "payload.user"),
        (NewJob("other", "x" * 600_000), "payload"), (send.with_options(on_success=send.new(1)).new(1), "on_success"),
        *((NewJob("other", None, **{name: value}), name) for name, value in other.items()),
    ]:  # fmt: skip
        refused(Malformed, rf"^on_failure\.{field}: ", queue.enqueue, "main", None, on_failure=callback)
        refused(Malformed, rf"^jobs\[0\]\.on_failure\.{field}: ", queue.enqueue_many, [NewJob("main", None, on_failure=callback)])
    callback = NewJob("other", None)
    refused(Malformed, "^on_failure: ", queue.schedules.put, "s", "main", None, every_ms=60_000, on_failure=callback)
    assert queue.counts().waiting == 0
