"""Typed functions that take the calls of several jobs at once, in every kind of worker."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import pytest

from engine import AsyncQueue, Job, Malformed, Queue, Worker
from tests.engine.helpers import task_batches
from tests.engine.helpers.producing import ids_of, refused
from tests.engine.helpers.task_batches import Kind

USER = UUID(int=7)


def burst(queue: Queue, **settings: Any) -> None:
    assert Worker(queue, task_batches.queue.handlers, sweep_ms=50, concurrency=1, **settings).run(burst=True) == "empty"


@pytest.mark.feature("MQ03")
@pytest.mark.parametrize("kind", task_batches.KINDS, ids=str)
def test_each_job_has_its_items_and_its_end(queue: Queue, kind: Kind) -> None:
    task = getattr(task_batches, {"async": "coroutine"}.get(kind.name, kind.name))
    for job, count in (("a", 1), ("b", 2), ("unlucky", 13)):
        queue.enqueue(task, task.payload(USER, counts=count), id=job)
    queue.enqueue(kind.name, {"users": "nobody", "counts": 5}, id="unfit", attempts=5)
    burst(queue, processes=kind.processes)
    assert sorted(ids_of(queue, "done")) == ["a", "b"] and sorted(ids_of(queue, "dead")) == ["unfit", "unlucky"]
    assert {job.id: job.failures for job in queue.dead.list()} == {"unfit": 0, "unlucky": 1}
    told = [queue.results.wait(job).get() for job in "ab"]
    assert [one[:4] for one in told] == [["a", "UUID", 1, 3], ["b", "UUID", 2, 3]]
    assert (told[0][4] == os.getpid()) == (not kind.processes)
    errors = {job: queue.results.wait(job).error for job in ("unfit", "unlucky")}
    assert errors["unlucky"] == "unlucky" and "payload.users: a str of length 6 is not allowed" in errors["unfit"]


@pytest.mark.parametrize("kind", task_batches.KINDS, ids=str)
def test_what_fits_finishes_beside_what_does_not_and_what_is_alone_fails(queue: Queue, kind: Kind) -> None:
    queue.enqueue(kind.name, {"users": str(USER), "counts": 5}, id="fits")
    queue.enqueue(kind.name, {"users": str(USER)}, id="unfit", attempts=5)
    queue.enqueue(kind.name, None, id="alone", key="another-lane", attempts=5)
    burst(queue, processes=kind.processes)
    assert sorted(ids_of(queue, "dead")) == ["alone", "unfit"] and queue.results.wait("fits").get()[2:4] == [5, 1]


def test_it_is_called_with_one_item(queue: Queue) -> None:
    count = task_batches.count
    assert count("three") == [5] and task_batches.plain(USER, counts=3)[0][:4] == ["direct", "UUID", 3, 1]
    assert count.payload("three") == {"words": "three"}
    refused(Malformed, "^words: an int .* a value of type str", count.payload, 5)
    queue.enqueue_many([{"name": "count", "payload": count.payload("x" * number), "id": f"j{number}"} for number in range(20)])
    burst(queue)
    assert [queue.results.wait(f"j{number}").get() for number in range(20)] == list(range(20))


def test_functions_that_can_take_no_batches_are_refused_when_they_are_registered(queue: Queue) -> None:
    def one(user: int) -> None: ...
    def default(users: list[int] | None = None) -> None: ...
    def defaults(users: list[int] = []) -> None: ...  # noqa: B006
    def job(job: Job, users: list[int]) -> None: ...

    for made in (queue, AsyncQueue("q")):
        for function in (one, default, defaults, job):
            refused(Malformed, "^handler: .*with batch ", made.job("work", batch=5), function)
        for bad in (0, 1001, True):
            refused(Malformed, "^batch: ", made.job, "work", batch=bad)
        assert made.handlers.by_name == {}
