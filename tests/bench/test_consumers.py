"""Locust's consumer users with the real Locust and a real server: the same worker as in a process of its own, on greenlets."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import engine
from engine.testing import EmbeddedServer
from tests.bench.real_parts import HEADLESS, Processes, completions, rows_of, schedule_kept, wait_until


def jobs_with(rows: list[dict[str, Any]], *results: str) -> list[str]:
    return sorted(item["job"] for row in rows for item in row["items"] if item.get("result") in results)


def test_a_consumer_beside_producers_works_off_their_jobs(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    producer, consumer, sink = (tmp_path / name for name in ("producer-1.jsonl", "consumer-1.jsonl", "consumer-1.sink.jsonl"))
    load = (*HEADLESS, "-u", "3", "--consumers", "1", "--host", server.url, "--rate", "60", "--seed", "3")
    histories = ("--history", str(producer), "--consumer-history", str(consumer))
    locust = processes.locust(*load, *histories, IRONCLAIM_SINK=str(sink), IRONCLAIM_PROC="consumer-1")
    wait_until(lambda: len(rows_of(sink, "effect")) > 60, "60 jobs worked off")
    processes.stop(locust)

    rows = rows_of(consumer)
    assert (rows[0]["kind"], rows[0]["role"], rows[0]["proc"]) == ("open", "worker", "consumer-1")
    assert (rows[-1]["kind"], rows[-1]["rows"]) == ("close", len(rows))
    finished = jobs_with(completions(consumer, "finish"), "ok")
    assert sorted(item["job"] for row in rows_of(sink, "effect") for item in row["items"]) == finished
    assert set(finished) <= set(jobs_with(completions(producer, "enqueue"), "created", "repeated"))
    # Handlers overlapped: the greenlets of one consumer are its concurrency.
    handled = [(row["first_send_ns"], row["done_ns"]) for row in completions(consumer, "handle")]
    assert any(start < other_start < end for start, end in handled for other_start, _ in handled)
    schedule_kept(producer, seed=3, rate_per_s=60.0)
    # It stopped gracefully: whatever it had and did not finish has been given back or waits for its retry.
    with engine.Queue("bench", url=server.url) as queue:
        assert queue.counts().active == 0
    output = processes.output()
    # Runs that the workload wants to fail tell how.
    assert output.count("Traceback") == output.count("bench.handlers.PlannedFailure: ")
    assert all(word in output for word in ("claim", "handle", "enqueue"))


@pytest.mark.slow
def test_consumers_alone_and_in_two_processes(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    words = (*HEADLESS, "-u", "2", "--processes", "2", "--host", server.url)
    locust = processes.locust(*words, "--consumer-history", str(tmp_path / "consumer-1.jsonl"), "Consumer")
    histories = [tmp_path / "consumer-1.jsonl", tmp_path / "consumer-1-p2.jsonl"]
    wait_until(lambda: all(completions(path, "claim") for path in histories), "a claim by each consumer")
    with engine.Queue("bench", url=server.url) as queue:
        created = [queue.enqueue("email", {"work_ms": 20, "fail_first": 0}).job for _ in range(60)]
        wait_until(lambda: queue.counts().finished == len(created), "all jobs finished")
    processes.stop(locust)
    finished = [jobs_with(completions(path, "finish"), "ok") for path in histories]
    assert all(finished) and sorted(finished[0] + finished[1]) == sorted(created)
    assert [rows_of(path)[-1]["kind"] for path in histories] == ["close", "close"]
    assert not (tmp_path / "producer-1.jsonl").exists()


@pytest.mark.slow
def test_a_consumer_outlives_a_stalled_server(server: EmbeddedServer, processes: Processes, tmp_path: Path) -> None:
    history = tmp_path / "consumer-1.jsonl"
    words = (*HEADLESS, "-u", "1", "--host", server.url, "--lease-ms", "2000", "--sweep-ms", "300")
    locust = processes.locust(*words, "--consumer-history", str(history), "Consumer")
    # Stopped before the sweeps have a connection, nothing would be sent that could be lost.
    wait_until(lambda: completions(history, "claim") and completions(history, "reap"), "a claim and a sweep")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: any(row["sends"] > 1 or row["type"] != "ok" for row in rows_of(history) if row["sends"]), "a loss")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    with engine.Queue("bench", url=server.url) as queue:
        job = queue.enqueue("report", {"work_ms": 1, "fail_first": 0}).job
    wait_until(lambda: job in jobs_with(completions(history, "finish"), "ok"), "a job finished after the stall")
    processes.stop(locust)


BAD_SETTINGS = [
    (("-u", "2", "--consumers", "2"), "users: 2 is fewer than 2 consumers and the 1 Locust processes"),
    (("-u", "1", "--lease-ms", "5", "Consumer"), "lease_ms: 5 is not allowed"),
    (("-u", "1", "--consumer-concurrency", "0", "Consumer"), "concurrency: 0 is not allowed"),
    (("-u", "1", "--consumer-history", "{folder}/there.jsonl", "Consumer"), "history: there.jsonl exists already"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "line"), BAD_SETTINGS)
def test_bad_settings_are_one_line(server: EmbeddedServer, processes: Processes, arguments: tuple[str, ...], line: str) -> None:
    assert line in processes.refused(("--headless", "--host", server.url, *arguments), processes.locust)
