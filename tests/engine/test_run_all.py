"""Run everything now, and times that the server decides: delays, instants, the producer's own timestamp."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine import AsyncQueue, Handlers, Job, Malformed, NewJob, Queue
from engine.queue.settings import TEST_CLOCK_LEAST_MS as START_MS
from engine.testing import run_all
from tests.engine.helpers.producing import ids_of, refused, some_handlers

DAY_MS = 86_400_000


def noting(queue: Queue, seen: list[Any]) -> Handlers:
    """A handler that notes when, by the queue's clock, each job ran."""
    handlers = Handlers()

    @handlers("work")
    def work(job: Job) -> None:
        seen.append((job.id, (queue.model.now_ms or START_MS) - START_MS))
        if job.payload == "fail" and job.attempt < 3:
            raise ValueError("no")
        if job.payload == "again":
            queue.enqueue("work", "done", id=f"{job.id}-again", delay_ms=DAY_MS)

    return handlers


@pytest.mark.feature("MQ27", "MQ02")
def test_delays_and_retries_take_no_time(ironclaim_queue: Queue) -> None:
    seen, queue = list[Any](), ironclaim_queue
    queue.enqueue("work", "fail", id="fails", backoff_ms=DAY_MS)
    queue.enqueue("work", "again", id="more", delay_ms=2 * DAY_MS)
    queue.enqueue("work", 1, id="now")
    queue.enqueue("elsewhere", 1)
    counts = run_all(queue, noting(queue, seen), raise_failures=False)
    assert sorted(seen, key=lambda one: (one[1], one[0])) == [
        ("fails", 0), ("now", 0), ("fails", DAY_MS), ("fails", 2 * DAY_MS), ("more", 2 * DAY_MS), ("more-again", 3 * DAY_MS),
    ]  # fmt: skip
    assert (counts.finished, counts.waiting, counts.delayed, counts.dead) == (4, 1, 0, 0)


@pytest.mark.feature("MQ27")
def test_how_far_the_clock_moves_is_bounded_and_pauses_do_not_hold_it_up(ironclaim_queue: Queue) -> None:
    seen, queue = list[Any](), ironclaim_queue
    handlers = noting(queue, seen)
    queue.enqueue("work", 1, id="late", delay_ms=DAY_MS)
    assert run_all(queue, handlers, for_ms=DAY_MS - 1).delayed == 1 and seen == []
    queue.pause("work")
    queue.enqueue("work", 1, id="paused", priority=9)
    assert run_all(queue, handlers).waiting == 2 and seen == []
    queue.resume("work")
    assert run_all(queue, handlers).finished == 2 and sorted(seen) == [("late", DAY_MS), ("paused", DAY_MS)]
    refused(Malformed, "^for_ms: -1", run_all, queue, handlers, for_ms=-1)


@pytest.mark.feature("MQ27")
def test_without_a_tests_clock_what_is_delayed_stays(queue: Queue) -> None:
    seen: list[Any] = []
    queue.enqueue("work", 1, id="now")
    queue.enqueue("work", 1, id="later", delay_ms=DAY_MS)
    counts = run_all(queue, noting(queue, seen))
    assert (counts.finished, counts.delayed) == (1, 1) and [job for job, _ in seen] == ["now"]


def enqueue(queue: Queue, face: str, *jobs: NewJob) -> None:
    """By one of the faces, one by one or in one call."""

    async def send() -> None:
        async with AsyncQueue(queue.name, url=queue.url) as other:
            other.model.now_ms = queue.model.now_ms
            for job in jobs:
                await other.enqueue(job.name, job.payload, id=job.id, **job.options)

    if face == "async":
        asyncio.run(send())
    elif face == "many":
        queue.enqueue_many(jobs)
    else:
        for job in jobs:
            queue.enqueue(job.name, job.payload, id=job.id, **job.options)


@pytest.mark.feature("BQ07", "MQ02")
@pytest.mark.parametrize("face", ["sync", "async", "many"])
def test_a_job_runs_at_its_time_by_the_servers_clock_and_at_once_where_that_has_passed(ironclaim_queue: Queue, face: str) -> None:
    seen: list[Any] = []
    queue, soon = ironclaim_queue, datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(hours=1)
    times = {"hour": soon, "ms": START_MS + 1, "past": 1}
    enqueue(queue, face, *(NewJob("work", 1, id=job, run_at_ms=at) for job, at in times.items()))
    assert queue.snapshot().states["delayed"] == [("past", 1), ("ms", START_MS + 1), ("hour", START_MS + 3_600_000)]
    run_all(queue, noting(queue, seen))
    assert seen == [("past", 0), ("ms", 1), ("hour", 3_600_000)]


def test_a_job_says_when_in_one_way(queue: Queue) -> None:
    refused(Malformed, "^run_at_ms: .* without delay_ms", queue.enqueue, "work", 1, delay_ms=5, run_at_ms=START_MS)
    refused(Malformed, "^run_at_ms: .* a datetime with a zone", queue.enqueue, "work", 1, run_at_ms=datetime(2026, 1, 1))


@pytest.mark.feature("BL07")
def test_the_producers_timestamp_travels_and_changes_nothing(ironclaim_queue: Queue) -> None:
    seen, queue = dict[str, Any](), ironclaim_queue
    queue.enqueue("work", 1, id="old", timestamp_ms=1_234_567_890_123)
    queue.enqueue("work", 1, id="none")
    run_all(queue, some_handlers(lambda job: seen.update({job.id: (job.timestamp_ms, job.enqueued_ms)})))
    assert seen == {"old": (1_234_567_890_123, START_MS), "none": (START_MS, START_MS)}
    assert sorted(ids_of(queue, "done")) == ["none", "old"]
