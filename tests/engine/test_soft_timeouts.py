"""`soft_timeout_ms` on a real server: what is raised where, that a handler may go on, and what an uncaught one is."""

import asyncio
import re
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from engine import Handlers, Job, LeaseLost, Malformed, Queue, SoftTimeout, Worker
from tests.engine.helpers import life
from tests.engine.using import ids_of, run_of, whole_lines

#: A run whose time is over before its handler begins has failed: on a machine that stands still, many do.
SOFT: dict[str, Any] = {"soft_timeout_ms": 50, "backoff_ms": 0, "attempts": 1000, "result_ttl_ms": 60_000}


def run(queue: Queue, handlers: Handlers, **settings: Any) -> None:
    settings = {"concurrency": 1, "sweep_ms": 50, **settings}
    assert Worker(queue, handlers, **settings).run(burst=True) == "empty"


def result_of(queue: Queue, job: str) -> Any:
    found = queue.results.get(job)
    assert found is not None
    return found.value


@pytest.mark.parametrize("batch", [False, True])
def test_a_coroutine_gets_an_exception_and_may_clean_up_and_finish(queue: Queue, batch: bool) -> None:
    handlers, ends = Handlers(), list[str]()

    async def child(word: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(word)

    async def work(jobs: Any) -> Any:
        job: Job = jobs[0] if batch else jobs
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child("one"))
                group.create_task(child("two"))
        except SoftTimeout as over:
            ends.append(f"{over}, {job.cancelled}, {not isinstance(over, Exception)}")
        # Cancelled no more: it may wait, and use timeouts of its own.
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            ends.append("own timeout")
        await asyncio.sleep(0)
        return ["done"] if batch else "done"

    (handlers("work", batch=5) if batch else handlers("work"))(work)
    queue.enqueue("work", 1, id="a", timeout_ms=60_000, **SOFT)
    run(queue, handlers)
    assert sorted(ends[:2]) == ["one", "two"] and ends[2:] == ["not done within 50 ms, True, True", "own timeout"]
    assert result_of(queue, "a") == "done" and run_of(queue, "a").get("failures") is None


def test_an_uncaught_one_is_a_failed_run_and_rules_may_name_it(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    handlers, ran = Handlers(), list[str]()

    @handlers("work")
    async def work(job: Job) -> str:
        ran.append(job.id)
        if job.failures == 0:
            await asyncio.sleep(60)
        return "second time"

    queue.enqueue("work", 1, id="a", **SOFT)
    queue.enqueue("work", 1, id="b", reroute_on={"SoftTimeout": "longer"}, **SOFT)
    handlers("longer")(lambda job: "elsewhere")
    run(queue, handlers)
    assert ran.count("a") == 2 and result_of(queue, "a") == "second time"
    assert result_of(queue, "b>reroute") == "elsewhere"
    assert re.search(r"job a \(work\), attempt \d+ of 1000, failed: SoftTimeout: not done within 50 ms", caplog.text)


def test_a_hard_cancel_is_no_soft_timeout(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    handlers, seen = Handlers(), list[str]()

    @handlers("work")
    async def work(job: Job) -> None:
        if seen:
            return
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            seen.append(type(error).__name__)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as later:
                seen.append(type(later).__name__)
                raise

    # So far apart that a machine that stands still does not take both for over at once.
    queue.enqueue("work", 1, id="a", timeout_ms=2_000, **SOFT)
    run(queue, handlers)
    assert seen == ["SoftTimeout", "CancelledError"] and "failed: TimeoutError: not done within 2000 ms" in caplog.text


@pytest.mark.parametrize("inline", [False, True])
def test_a_thread_reads_that_it_should_end_and_keeps_its_lease(queue: Queue, inline: bool) -> None:
    handlers, seen = Handlers(), list[Any]()

    @handlers("work", inline=inline)
    def work(job: Job) -> str:
        end_s = time.monotonic() + 60
        while not job.cancelled and time.monotonic() < end_s:
            threading.Event().wait(0.005)
        seen.append((job.lease_lost.is_set(), job.cancelled_by_hand))
        job.progress(50)
        try:
            job.check_lease()
        except LeaseLost:
            seen.append("lost")
        except SoftTimeout:
            seen.append("soft")
        return "done"

    queue.enqueue("work", 1, id="a", **SOFT)
    run(queue, handlers)
    assert seen == [(False, False), "soft"] and result_of(queue, "a") == "done"


def test_a_child_process_gets_it_in_a_call_of_the_system(queue: Queue, tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setenv(life.FOLDER, str(tmp_path))
    short, long = {**SOFT, "soft_timeout_ms": 200}, {**SOFT, "soft_timeout_ms": 60_000}
    for job, payload in (("cleans", "fine"), ("raises", "raise")):
        queue.enqueue("soft", payload, id=job, **short)
    queue.enqueue("soft-batch", "fine", id="batch", timeout_ms=60_000, **SOFT)
    queue.enqueue("plain", "fine", id="next", priority=1, **long)
    run(queue, life.handlers, processes=1)
    assert [result_of(queue, job) for job in ("cleans", "raises", "batch")] == ["cleaned up"] * 3
    marks = [line.split() for line in whole_lines(tmp_path / "marks")]
    assert sorted(mark[1] for mark in marks if mark[0] == "soft") == ["batch", "cleans", "raises", "raises"]
    assert len({mark[-1] for mark in marks if mark[0] in ("soft", "run")}) == 1, "no process was killed"
    assert re.search(r"job raises \(soft\), attempt \d+ of 1000, failed: SoftTimeout: not done within 200 ms", caplog.text)
    assert ids_of(queue, "done") and result_of(queue, "next") == "fine"


def test_a_child_process_that_never_stops_talking_gets_it(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(life.FOLDER, str(tmp_path))
    queue.enqueue("soft-chatty", 1, id="a", **SOFT)
    run(queue, life.handlers, processes=1)
    assert result_of(queue, "a") == "told"


def test_a_hook_is_not_interrupted_and_a_handler_whose_time_is_over_does_not_begin(queue: Queue) -> None:
    handlers, seen = Handlers(), list[object]()

    @handlers.hooks.around
    async def waits(job: Job) -> AsyncGenerator[None]:
        while not job.cancelled and not job.failures:
            await asyncio.sleep(0)
        seen.append("entered")
        try:
            yield
        except SoftTimeout:
            seen.append("soft")
            raise

    @handlers("work")
    async def work(job: Job) -> str:
        seen.append("begun")
        return "done"

    queue.enqueue("work", 1, id="a", **SOFT)
    run(queue, handlers)
    assert seen == ["entered", "soft", "entered", "begun"] and result_of(queue, "a") == "done"
    assert run_of(queue, "a").get("failures") is None


def test_it_is_at_most_the_timeout(queue: Queue) -> None:
    with pytest.raises(Malformed, match=r"^soft_timeout_ms: 101 .*at most timeout_ms \(100\)"):
        queue.enqueue("work", 1, timeout_ms=100, soft_timeout_ms=101)
    for timeout_ms in (100, 0):
        assert queue.enqueue("work", 1, soft_timeout_ms=100, timeout_ms=timeout_ms).created
