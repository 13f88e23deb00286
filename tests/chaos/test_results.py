"""Results of finished jobs, read as a caller reads them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos import snapshot
from engine import Handlers, Job, Queue, Worker
from record.history import HistoryFile, load_file
from record.recorder import result_crc


@pytest.fixture
def queue(ironclaim_url: str) -> Iterator[Queue]:
    with Queue("results", url=ironclaim_url) as queue:
        yield queue


def work_off(queue: Queue, payloads: dict[str, Any]) -> None:
    """Run jobs that return their payload."""
    handlers = Handlers()

    @handlers("work")
    def work(job: Job) -> Any:
        return job.payload

    for job, payload in payloads.items():
        queue.enqueue("work", payload, id=job)
    Worker(queue, handlers, name="worker-1", sweep_ms=50).run(burst=True)


def read(queue: Queue, folder: Path, jobs: list[str]) -> tuple[str, dict[str, dict[str, Any]]]:
    """The complaint, and the items of the rows by job."""
    harness = HistoryFile(folder / "harness.jsonl", proc="harness", role="harness")
    complaint = snapshot.read_results(queue, harness, jobs)
    harness.close()
    rows = [row for row in load_file(folder / "harness.jsonl").rows if row["kind"] == "operation"]
    assert all((row["f"], row["type"]) == ("result", "ok") and row["first_send_ns"] <= row["done_ns"] for row in rows)
    assert len({row["op"] for row in rows}) == len(rows)
    return complaint, {item["job"]: item for row in rows for item in row["items"]}


def test_what_a_caller_is_given_is_recorded(queue: Queue, tmp_path: Path) -> None:
    work_off(queue, {"a": {"job": "a"}, "nothing": None})
    queue.enqueue("work", 1, id="waiting")
    a = {"job": "a", "result": "finished", "result_crc": result_crc({"job": "a"})}
    given = {"a": a, "nothing": {"job": "nothing", "result": "finished"}, "waiting": {"job": "waiting"}}
    assert read(queue, tmp_path, ["a", "nothing", "waiting"]) == ("", given)


def test_of_many_jobs_some_are_read_over_the_whole_run(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "RESULTS_MAX", 4)
    complaint, found = read(queue, tmp_path, [f"job-{number:02}" for number in range(10)])
    assert complaint == "" and list(found) == ["job-00", "job-03", "job-06", "job-09"]
    assert snapshot.read_results(queue, HistoryFile(tmp_path / "other.jsonl", proc="other", role="harness"), []) == ""


def test_a_server_that_is_away_is_a_complaint(tmp_path: Path) -> None:
    with Queue("results", url="redis://127.0.0.1:1") as queue:
        queue.driver.deadline_ms = 100
        complaint, found = read(queue, tmp_path, ["a"])
    assert complaint.startswith("the result of a could not be read: ") and found == {}
