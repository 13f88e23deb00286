"""A worker's own life, as a real process on a real server: timeouts of every kind of handler, ends, logs."""

import json
import logging
import signal
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine import EngineError, Handlers, Malformed, Queue, Scheduler, Worker
from engine.logs import JsonFormatter
from engine.testing import EmbeddedServer
from engine.worker import executor
from engine.worker.executor import Executor
from engine.worker.process import rss_mb
from tests.engine.helpers.processes import Workers, put, run_of, stopped
from tests.engine.using import DEADLINE_S, Mark, Relay, at_work, claim, ids_of, refused, some_handlers, wait_until

HANDLERS = "tests.engine.helpers.runtime_handlers:handlers"
#: Longer than a busy machine takes to begin with a handler.
TIMEOUT_MS = 2_000
TOO_LATE = f"TimeoutError: not done within {TIMEOUT_MS} ms"


def start(workers: Workers, *options: str) -> Any:
    return workers.start("--sweep-ms", "100", *options, handlers=HANDLERS)


# -- timeouts


@pytest.mark.slow
@pytest.mark.feature("BN27", "BL10")
@pytest.mark.parametrize("name", ["hold", "hold-inline"])
def test_a_function_in_a_thread_that_takes_too_long_keeps_its_place(queue: Queue, workers: Workers, name: str) -> None:
    put(queue, workers, name, "slow", timeout_ms=TIMEOUT_MS, attempts=1)
    worker = start(workers, "--concurrency", "1")
    wait_until(lambda: ids_of(queue, "dead") == ["slow"], "it is dead while it runs")
    assert workers.marks("end") == [] and queue.counts().active == 0
    state = run_of(queue, "slow")
    assert (state["error"], state["failures"], state.get("crashes")) == (TOO_LATE, "1", None)
    assert "cannot be stopped; its place is taken until it returns, like 1 of " in workers.output()
    put(queue, workers, name, "next")
    workers.open_gate()
    wait_until(lambda: ids_of(queue, "done") == ["next"], "its place is free again")
    assert ids_of(queue, "dead") == ["slow"] and workers.marks("end", "slow")[0].at_ns < workers.marks("start", "next")[0].at_ns
    assert stopped(worker) == 0


@pytest.mark.slow
@pytest.mark.feature("BN27", "BL10")
def test_a_coroutine_that_takes_too_long_is_cancelled_and_cleans_up_or_returns(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "hold-async", "slow", timeout_ms=TIMEOUT_MS, attempts=2, backoff_ms=0)
    put(queue, workers, "deaf-async", "deaf", timeout_ms=TIMEOUT_MS)
    assert start(workers, "--burst").wait(120) == 0
    words = {job: [mark.word for mark in workers.marks() if mark.job == job] for job in ("slow", "deaf")}
    assert words == {"slow": ["start", "cleaned"] * 2, "deaf": ["start", "end"]} and run_of(queue, "slow")["error"] == TOO_LATE
    assert (ids_of(queue, "dead"), ids_of(queue, "done")) == (["slow"], ["deaf"]), "who returns has done its work"
    assert "attempt 2 of 2, failed: TimeoutError" in workers.output()


@pytest.mark.slow
@pytest.mark.feature("BN27", "BL10")
def test_the_child_of_a_handler_that_takes_too_long_is_killed_and_replaced(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "hold", "slow", timeout_ms=TIMEOUT_MS, attempts=2, backoff_ms=0)
    start(workers, "--processes", "1")
    wait_until(lambda: ids_of(queue, "dead") == ["slow"], "its attempts are used up")
    pids = [mark.pid for mark in workers.marks("start")]
    assert len(set(pids)) == 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "both are gone")
    assert run_of(queue, "slow")["error"] == TOO_LATE
    put(queue, workers, "note", "next")
    wait_until(lambda: ids_of(queue, "done") == ["next"], "another process has taken its place")


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_handler_may_ask_for_more_time(queue: Queue, workers: Workers, processes: str) -> None:
    put(queue, workers, "more-time", "j", timeout_ms=4_000, attempts=1)
    assert start(workers, "--burst", "--processes", processes).wait(120) == 0
    assert ids_of(queue, "done") == ["j"] and len(workers.marks("end")) == 1


# -- ends


@pytest.mark.slow
@pytest.mark.feature("BN29", "BL36", "BQ36")
@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_second_signal_ends_it_at_once_and_what_ran_runs_again(queue: Queue, workers: Workers, processes: str) -> None:
    put(queue, workers, "hold", "a", "b")
    worker = start(workers, "--concurrency", "1", "--processes", processes, "--lease-ms", "6000")
    wait_until(lambda: workers.marks("start"), "one runs")
    worker.send_signal(signal.SIGTERM)
    wait_until(lambda: queue.counts().waiting == 1, "the other is given back")
    assert worker.poll() is None
    worker.send_signal(signal.SIGINT)
    assert worker.wait(120) == 70
    if processes == "0":
        assert "stopped with 1 job in hand: leases will run out" in workers.output()
    else:
        # Its child process is ended, so that nothing runs it any more.
        assert "job a (hold) goes back uncharged: its worker stops" in workers.output()
        assert (queue.counts().waiting, queue.counts().active) == (2, 0)
    workers.open_gate()
    second = workers.start("--sweep-ms", "100", "--burst", name="worker-2", handlers=HANDLERS)
    assert second.wait(120) == 0 and sorted(ids_of(queue, "done")) == ["a", "b"]


@pytest.mark.feature("BL36")
def test_a_stop_without_grace_leaves_no_lease_of_what_has_not_started(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "note", *(f"n{number}" for number in range(20)))
    put(queue, workers, "hold", "a", "b", "c", priority=1)
    worker = start(workers, "--concurrency", "1", "--grace-ms", "0", "--lease-ms", "60000")
    wait_until(lambda: workers.marks("start"), "it holds")
    assert stopped(worker) == 71
    counts = queue.counts()
    assert (counts.active, counts.waiting, counts.finished) == (1, 2, 20)


def test_a_worker_ends_after_so_many_jobs_and_says_so(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "note", *(f"n{number}" for number in range(300)))
    assert start(workers, "--concurrency", "1", "--max-jobs", "5").wait(120) == 75
    counts = queue.counts()
    assert 5 <= counts.finished < 300 and counts.active == 0


@pytest.mark.slow
def test_a_worker_that_has_grown_too_large_ends_and_says_so(queue: Queue, workers: Workers) -> None:
    worker = start(workers, "--max-memory-mb", "150")
    put(queue, workers, "note", "small")
    wait_until(lambda: workers.marks("ran", "small"), "it works")
    put(queue, workers, "grow", "big", more={"bytes": 200_000_000})
    assert worker.wait(120) == 75
    assert "MB, more than its 150: it stops" in workers.output() and sorted(ids_of(queue, "done")) == ["big", "small"]


@pytest.mark.slow
def test_children_are_replaced_after_so_many_jobs(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "note", *(f"n{number}" for number in range(6)))
    assert start(workers, "--burst", "--processes", "1", "--child-max-jobs", "2").wait(120) == 0
    pids = [mark.pid for mark in workers.marks("ran")]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [2, 2, 2]


def test_why_it_has_ended(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handlers = some_handlers()
    queue.enqueue("work", 1)
    assert Worker(queue, handlers, sweep_ms=50).run(burst=True) == "empty"
    queue.enqueue("work", 1)
    assert Worker(queue, handlers, sweep_ms=50, max_jobs=1).run() == "recycled"
    assert Worker(queue, handlers, sweep_ms=50, max_memory_mb=2**24).run(burst=True) == "empty"
    assert Worker(queue, handlers, sweep_ms=50, max_memory_mb=1).run() == "recycled"
    assert "MB, more than its 1: it stops" in caplog.text, "a Python process is larger"
    for at_once, reason in ((False, "stopped"), (True, "at once")):
        worker = Worker(queue, handlers, sweep_ms=50)
        worker.stop(at_once=at_once)
        assert worker.run() == reason
    assert "not waited for" not in caplog.text


def test_the_log_tells_what_became_of_a_job_that_kills_its_workers(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.enqueue("work", {}, id="bad", crashes_max=2)

    def begun_and_left() -> bool:
        for job in claim(queue, lease_ms=100).jobs:
            queue.driver.run(queue.model.call(Mark(job.lease)))
        return queue.counts().dead == 1

    with at_work(Scheduler(queue, sweep_ms=50)):
        wait_until(begun_and_left, "it is buried")
    assert "taken from gone or stalled workers: 1 lease that ran out; the first: job bad" in caplog.messages
    assert caplog.messages.count("job bad is dead: it has crashed too often") == 1


def test_the_log_tells_what_a_worker_runs_and_what_a_stop_leaves_behind(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    queue.enqueue("work", 1)
    begun, gate = threading.Event(), threading.Event()
    worker = Worker(queue, some_handlers(lambda job: (begun.set(), gate.wait(DEADLINE_S))), sweep_ms=50, name="w")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(worker.run)
        began = begun.wait(DEADLINE_S)
        worker.stop(at_once=True)
        assert began and ended.result(DEADLINE_S) == "at once"
        gate.set()
    told = {"worker w: queue q, 8 jobs at once, runs work", "stopped with 1 job in hand: leases will run out"}
    assert told <= {*caplog.messages}


def test_the_memory_that_this_process_holds() -> None:
    before, kept = rss_mb(), bytearray(50_000_000)
    assert rss_mb() - before > 40 and before > 5 and len(kept)


# -- logs


@pytest.mark.feature("BN37", "BN28")
@pytest.mark.parametrize("processes", [pytest.param("0", marks=pytest.mark.slow), "1"])
def test_each_failed_run_is_a_line_of_json_with_its_job_fence_and_trace(queue: Queue, workers: Workers, processes: str) -> None:
    put(queue, workers, "raise", "bad", attempts=2, backoff_ms=0)
    assert start(workers, "--burst", "--log-json", "--processes", processes).wait(120) == 0
    lines = [json.loads(line) for line in workers.output().splitlines()]
    failures = [line for line in lines if line.get("job_id") == "bad"]
    assert [line["attempt"] for line in failures] == [1, 2] and failures[0]["fence"] < failures[1]["fence"]
    for line in failures:
        assert (line["level"], line["job_name"], line["worker"]) == ("warning", "raise", "worker-1")
        assert line["traceback"].endswith("ValueError: no") and "runtime_handlers.py" in line["traceback"]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


def test_json_lines_of_other_libraries() -> None:
    record = logging.LogRecord("other", logging.ERROR, "f.py", 1, "%s went \n wrong: %r", ("it", {1}), None)
    line = json.loads(JsonFormatter().format(record))
    assert (line["logger"], line["level"], line["message"]) == ("other", "error", "it went \n wrong: {1}")
    assert line["time"].endswith("+00:00") and "traceback" not in line
    try:
        raise ValueError("no")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert json.loads(JsonFormatter().format(record))["traceback"].endswith("ValueError: no")


def test_a_worker_that_runs_already_does_not_run_again(queue: Queue) -> None:
    """Two runs of one worker take each other's news: a stop reached one of them, and the other went on for ever."""
    handlers, running = Handlers(), threading.Event()
    handlers("begin")(lambda job: running.set())
    worker = Worker(queue, handlers, sweep_ms=50)
    with at_work(worker):
        queue.enqueue("begin", None)
        assert running.wait(120)
        refused(Malformed, "a worker that does not run already", worker.run)
    assert worker.run(burst=True) == "empty", "one after the other is fine"


def test_a_server_that_is_away_is_logged_once_for_each_reason_and_kind_of_call(
    queue: Queue, ironclaim_server: EmbeddedServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many tries a call took differs each time, and is no other reason."""
    failed, reasons = Counter[str](), set[tuple[str, str]]()
    log_error = Executor._log_error  # pyright: ignore[reportPrivateUsage]

    def noted(self: Executor, kind: str, error: EngineError) -> None:
        log_error(self, kind, error)
        failed[kind] += 1
        reasons.add((kind, str(error).rpartition("last error ")[2]))

    monkeypatch.setattr(Executor, "_log_error", noted)
    monkeypatch.setattr(executor, "SAY_AGAIN_MS", 3_600_000)
    with Relay(ironclaim_server.port) as relay:
        away = Queue(queue.name, url=relay.url)
        with at_work(Worker(away, some_handlers(), sweep_ms=100, name="w")):
            wait_until(lambda: queue.workers.list(), "it works")
            relay.down()
            wait_until(lambda: failed["sweep"] > 2, "calls fail")
            relay.up()
    said = [record.getMessage() for record in caplog.records if "last error" in record.getMessage()]
    assert sum(failed.values()) > len(said) == len(reasons)
