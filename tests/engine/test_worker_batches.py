"""Handlers that take several jobs of a lane at once, in real workers on a real server: plain, inline and async."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import BatchFailed, Bury, Discard, Handlers, Job, Queue, RetryLater, Worker
from record.history import HistoryFile
from record.recorder import Recorder
from tests.engine.helpers import batch_handlers
from tests.engine.helpers.schema import checked_rows
from tests.engine.using import Workers, at_work, ids_of, raises, run_of, wait_until

KINDS = ["plain", "inline", "async"]
Body = Callable[[list[Job]], object]


def register(handlers: Handlers, kind: str, body: Body, *, batch: int = 10, name: str = "index") -> Handlers:
    """A handler of this kind that does this."""

    async def run(jobs: list[Job]) -> object:
        await asyncio.sleep(0)
        return await asyncio.to_thread(body, jobs)

    handlers(name, batch=batch, inline=kind == "inline")(run if kind == "async" else body)
    return handlers


def put(queue: Queue, *jobs: str, **options: Any) -> None:
    queue.enqueue_many([{"name": "index", "payload": job, "id": job, **options} for job in jobs])


def burst(queue: Queue, handlers: Handlers, **settings: Any) -> None:
    # Longer than a machine stands still: what is lost runs again, and alone.
    settings = {"sweep_ms": 50, "concurrency": 1, "lease_ms": 600_000, **settings}
    assert Worker(queue, handlers, **settings).run(burst=True) == "empty"


@pytest.mark.parametrize("kind", KINDS)
def test_it_gets_the_jobs_that_are_there_and_each_has_its_result(queue: Queue, kind: str) -> None:
    sizes: list[int] = []
    put(queue, *(f"j{number}" for number in range(25)), result_ttl_ms=60_000)

    def body(jobs: list[Job]) -> object:
        sizes.append(len(jobs))
        if len(sizes) == 1:
            return {job.id: job.payload for job in jobs[1:]}
        return [job.payload for job in jobs]

    burst(queue, register(Handlers(), kind, body))
    assert sizes[0] == 10 and max(sizes) == 10 and sum(sizes) == 25 and len(sizes) <= 6
    assert queue.counts().finished == 25
    kept = queue.results.get("j24")
    assert kept is not None and kept.value == "j24"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_raises_has_failed_with_each_of_its_jobs(queue: Queue, kind: str) -> None:
    ran: list[list[int]] = []
    put(queue, "a", "b", attempts=2, backoff_ms=0)
    put(queue, "c", attempts=1)

    def body(jobs: list[Job]) -> None:
        ran.append([job.attempt for job in jobs])
        raise ValueError("no")

    burst(queue, register(Handlers(), kind, body))
    assert ran[0] == [1, 1, 1] and sorted(attempt for run in ran[1:] for attempt in run) == [2, 2]
    assert sorted(ids_of(queue, "dead")) == ["a", "b", "c"] and run_of(queue, "c").get("error", "") == "ValueError: no"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_fails_in_part_has_finished_in_part(queue: Queue, kind: str) -> None:
    put(queue, "a", "b", "c", attempts=1)
    burst(queue, register(Handlers(), kind, raises(BatchFailed({"a": KeyError("x"), "c": "bad \ud800 row"}))))
    assert sorted(ids_of(queue, "dead")) == ["a", "c"] and ids_of(queue, "done") == ["b"]
    assert (run_of(queue, "a").get("error", ""), run_of(queue, "c").get("error", "")) == ("KeyError: 'x'", "bad ? row")


def test_each_job_of_a_batch_may_have_another_verdict(queue: Queue) -> None:
    attempts: list[tuple[str, int]] = []
    put(queue, "again", "bury", "discard", "plain", attempts=5, backoff_ms=0)

    def body(jobs: list[Job]) -> None:
        attempts.extend((job.id, job.attempt) for job in jobs)
        said = {"again": RetryLater(0, "later"), "bury": Bury("no use"), "discard": Discard("not wanted")}
        raise BatchFailed({job.id: said[job.id] for job in jobs if job.id in said and job.claims == 1})

    burst(queue, register(Handlers(), "plain", body))
    assert attempts[:4] == [("again", 1), ("bury", 1), ("discard", 1), ("plain", 1)] and len(attempts) == 5
    assert ids_of(queue, "dead") == ["bury"] and sorted(ids_of(queue, "done")) == ["again", "plain"]


@pytest.mark.parametrize(("outcome", "error"), [
    (BatchFailed({"other": "no"}), "BatchFailed: 1 job failed"), (SystemExit(3), "SystemExit: 3"),
    (["only one"], "ValueError: a batch handler returned 1 results for 2 jobs"),
    ({"other": 1}, "ValueError: a batch handler returned results for ids that are not of its batch"),
    ("text", "TypeError: a batch handler returned a str"),
])  # fmt: skip
def test_what_cannot_be_told_apart_by_job_fails_all_of_them(queue: Queue, outcome: Any, error: str) -> None:
    put(queue, "a", "b", attempts=1)

    def body(jobs: list[Job]) -> object:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    burst(queue, register(Handlers(), "plain", body))
    assert sorted(ids_of(queue, "dead")) == ["a", "b"] and run_of(queue, "b").get("error", "").startswith(error)


def test_a_result_that_cannot_be_kept_fails_its_job_alone(queue: Queue) -> None:
    put(queue, "a", "b", attempts=1, result_ttl_ms=1000)
    burst(queue, register(Handlers(), "plain", lambda jobs: {"a": object(), "b": 1}))
    assert ids_of(queue, "dead") == ["a"] and ids_of(queue, "done") == ["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_that_is_lost_in_the_middle_is_told_to_its_job_and_the_others_finish(queue: Queue, kind: str) -> None:
    seen, started = list[tuple[str, bool]](), threading.Event()

    def body(jobs: list[Job]) -> None:
        started.set()
        assert jobs[0].lease_lost.wait(120)
        seen.extend((job.id, job.cancelled) for job in jobs)

    put(queue, "a", "b")
    handlers = register(Handlers(), kind, body)
    with at_work(Worker(queue, handlers, concurrency=1, lease_ms=60_000, sweep_ms=50)):
        assert started.wait(120)
        queue.jobs.cancel("a")
        wait_until(lambda: ids_of(queue, "done") == ["b"], "the other has finished")
    assert seen == [("a", True), ("b", False)] and queue.counts().active == 0


@pytest.mark.slow
def test_jobs_of_a_batch_whose_worker_was_killed_run_again_each_alone(queue: Queue, workers: Workers) -> None:
    for job in "abc":
        queue.enqueue("hold", {"folder": str(workers.folder)}, id=job)
    options = ("--sweep-ms", "50", "--lease-ms", "6000", "--concurrency", "1")
    first = workers.start(*options, handlers="tests.engine.helpers.batch_handlers:handlers")
    wait_until(lambda: len(workers.marks("a+b+c")) == 3, "the batch runs")
    first.send_signal(signal.SIGKILL)
    first.wait(120)
    workers.open_gate()
    handlers = "tests.engine.helpers.batch_handlers:handlers"
    assert workers.start(*options, "--burst", name="worker-2", handlers=handlers).wait(120) == 0
    assert sorted(ids_of(queue, "done")) == ["a", "b", "c"]
    assert sorted(mark.word for mark in workers.marks() if "+" not in mark.word) == ["a", "b", "c"], "rule 12"


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_waits_for_the_batch_and_starts_no_other(queue: Queue, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    started, go = threading.Event(), threading.Event()

    def body(jobs: list[Job]) -> None:
        started.set()
        assert go.wait(120)

    put(queue, *"abcdef")
    worker = Worker(queue, register(Handlers(), kind, body, batch=4), concurrency=1, sweep_ms=50)
    with at_work(worker):
        assert started.wait(120)
        worker.stop()
        # Before it hears of the stop two jobs may wait as well, because nobody has claimed them yet.
        wait_until(lambda: "stopping: " in caplog.text, "it has heard of the stop")
        wait_until(lambda: queue.counts().waiting == 2, "what has not started is given back")
        go.set()
    counts = queue.counts()
    assert (counts.finished, counts.waiting, counts.active) == (4, 2, 0)


def test_a_coroutine_is_cancelled_once_when_a_job_of_its_batch_takes_too_long(queue: Queue) -> None:
    handlers, cleaned = Handlers(), list[int]()

    @handlers("index", batch=5)
    async def index(jobs: list[Job]) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(len(jobs))

    put(queue, "a", "b", "c", timeout_ms=2_000, attempts=1)
    burst(queue, handlers)
    assert cleaned == [3] and sorted(ids_of(queue, "dead")) == ["a", "b", "c"]
    assert run_of(queue, "a").get("error", "") == "TimeoutError: not done within 2000 ms"


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_are_for_each_job_and_one_that_raises_fails_its_job_alone(queue: Queue, kind: str) -> None:
    got, ends = list[str](), dict[str, str | None]()
    handlers = register(Handlers(), kind, lambda jobs: got.extend(job.id for job in jobs))

    @handlers.hooks.before
    def before(job: Job) -> None:
        if job.id == "b":
            raise ValueError("not this one")

    @handlers.hooks.after
    def after(job: Job, error: str | None) -> None:
        ends[job.id] = error

    put(queue, "a", "b", "c", attempts=1)
    burst(queue, handlers)
    assert sorted(got) == ["a", "c"] and ends == {"a": None, "b": "ValueError: not this one", "c": None}
    assert ids_of(queue, "dead") == ["b"]


def test_the_history_has_a_row_for_each_job(ironclaim_url: str, tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    made = Queue("q", url=ironclaim_url, observer=Recorder(HistoryFile(path, proc="worker-1", role="worker"), queue="q"))
    put(made, "a", "b", "c", attempts=1)
    burst(made, register(Handlers(), "plain", raises(BatchFailed({"b": "no"}))))
    made.close()
    handled = [row for row in checked_rows(path) if row.get("f") == "handle"]
    assert sorted(row["type"] for row in handled) == ["fail"] + ["invoke"] * 3 + ["ok"] * 2, handled[0]


def test_lanes_do_not_mix_and_neither_do_names(queue: Queue) -> None:
    seen, handlers = list[set[tuple[str, str]]](), Handlers()
    for name in ("index", "other"):
        register(handlers, "plain", lambda jobs: seen.append({(job.name, job.payload) for job in jobs}), name=name)
    each = [(name, key) for _ in range(10) for name in ("index", "other") for key in "xy"]
    queue.enqueue_many([{"name": name, "payload": key, "key": key} for name, key in each])
    burst(queue, handlers)
    assert {len(group) for group in seen} == {1} and queue.counts().finished == 40


def test_the_largest_batch_of_failures(queue: Queue) -> None:
    sizes: list[int] = []
    put(queue, *(f"j{number}" for number in range(1000)), attempts=1)

    def body(jobs: list[Job]) -> None:
        sizes.append(len(jobs))
        raise ValueError("no")

    burst(queue, register(Handlers(), "plain", body, batch=1000))
    assert sizes == [1000] and queue.counts().dead == 1000


def test_a_child_process_runs_a_batch_and_each_job_has_its_end(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    put(queue, "a", "b", "c", "d", attempts=1, result_ttl_ms=60_000)
    burst(queue, batch_handlers.handlers, processes=1, names=["index"])
    assert sorted(ids_of(queue, "dead")) == ["b", "c"] and sorted(ids_of(queue, "done")) == ["a", "d"]
    assert (run_of(queue, "b").get("error", ""), run_of(queue, "c").get("error", "")) == ("KeyError: 'b'", "no words")
    pid, *results = queue.results.wait("a").get()
    assert pid != os.getpid() and results == [4, "a"]
    assert "in index" in next(record.message for record in caplog.records if "KeyError: 'b'" in record.message)


def test_a_batch_that_raises_in_a_child_process_is_logged_once(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue_many([{"name": "throw", "payload": None, "id": job, "attempts": 1} for job in "ab"])
    burst(queue, batch_handlers.handlers, processes=1, names=["throw"])
    assert run_of(queue, "a").get("error", "") == run_of(queue, "b").get("error", "") == "ValueError: all of them"
    assert sum("Traceback" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(("what", "error"), [("die", "ended by SIGKILL"), ("sleep", "not done within 300 ms")])
def test_a_batch_whose_child_process_dies_or_takes_too_long_has_failed(queue: Queue, what: str, error: str) -> None:
    more = {"timeout_ms": 300} if what == "sleep" else {}
    queue.enqueue_many([{"name": what, "payload": None, "id": job, "attempts": 1, **more} for job in "ab"])
    queue.enqueue("throw", None, id="next", attempts=1)
    burst(queue, batch_handlers.handlers, processes=1, names=[what, "throw"])
    assert sorted(ids_of(queue, "dead")) == ["a", "b", "next"]
    assert error in run_of(queue, "a").get("error", "") and run_of(queue, "next").get("error", "") == "ValueError: all of them"


def test_a_lost_lease_of_a_batch_is_told_to_its_job_in_the_child_process(queue: Queue, workers: Workers) -> None:
    for job in "ab":
        queue.enqueue("watch", {"folder": str(workers.folder)}, id=job)
    worker = Worker(queue, batch_handlers.handlers, processes=1, names=["watch"], lease_ms=60_000, sweep_ms=50)
    with at_work(worker):
        wait_until(lambda: len(workers.marks("start")) == 2, "the batch runs")
        queue.jobs.cancel("b")
        wait_until(lambda: ids_of(queue, "done") == ["a"], "the other has finished")
    assert [mark.job for mark in workers.marks("cancelled")] == ["b"]


def test_a_batch_that_fails_in_part_has_results_for_the_rest(queue: Queue) -> None:
    put(queue, "a", "b", attempts=1, result_ttl_ms=60_000)
    burst(queue, register(Handlers(), "plain", raises(BatchFailed({"a": "no"}, {"b": 7}))))
    assert ids_of(queue, "dead") == ["a"] and queue.results.wait("b").get() == 7
