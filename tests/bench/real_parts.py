"""Real parts for the tests of the load: a server, locust and worker processes, and the rows that they leave behind."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.micro.place import CLIENT_CPU, SERVER_CPU
from bench.workload import CAPABILITY, PlannedJob, Workload
from engine.testing import start_guarded
from record.environment import recording
from record.history import load_file

ROOT = Path(__file__).parents[2]
DEADLINE_S = 120.0
#: Measurements pin server and client to these two, whatever others a machine has or a container may use.
TWO_CORES = pytest.mark.skipif(
    not {SERVER_CPU, CLIENT_CPU} <= os.sched_getaffinity(0), reason="the server and the client need a core each"
)
#: What a load without a page is told.
HEADLESS = ("--headless", "--only-summary", "--exit-code-on-error", "0")


def silent(_text: str) -> None:
    """Nobody reads what a test tells."""


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition`; fails with `what` when it does not come in time."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        if value := condition():
            return value
        # The condition often reads a whole history.
        time.sleep(0.05)
    raise AssertionError(f"not within {deadline_s:.0f} s: {what}")


def rows_of(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """The rows of a history file, or those of one kind; none while the file does not exist."""
    if not path.exists():
        return []
    return [row for row in load_file(path).rows if kind in ("", row["kind"])]


def completions(path: Path, operation: str) -> list[dict[str, Any]]:
    """The rows of an operation that has ended."""
    return [row for row in rows_of(path, "operation") if row["f"] == operation and row["type"] != "invoke"]


def enqueues(history: Path) -> list[dict[str, Any]]:
    """The enqueues of a producer that have ended."""
    return completions(history, "enqueue")


def jobs_of(rows: list[dict[str, Any]]) -> list[str]:
    return [item["job"] for row in rows for item in row["items"]]


def enqueued_items(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The jobs of these rows, each with the instant at which it was meant to be sent and those of its row."""
    times = ("intended_ns", "first_send_ns", "done_ns")
    return [{**{name: row[name] for name in times}, **item} for row in rows for item in row["items"]]


def schedule_kept(history: Path, *, seed: int, rate_per_s: float) -> tuple[list[PlannedJob], int]:
    """The jobs that were sent, and the monotonic ns at which the next was due. They are the first of the plan but for those that
    were dropped, each meant for its planned instant after one common start. Greenlets that enqueued at once share a row."""
    items = enqueued_items(enqueues(history))
    dropped = {row["detail"].split(":")[0] for row in rows_of(history, "drop")}
    *planned, after = itertools.islice(Workload(seed=seed, rate_per_s=rate_per_s).jobs(), len(items) + len(dropped) + 1)
    plan = [job for job in planned if job.id not in dropped]
    assert sorted(item["job"] for item in items) == sorted(job.id for job in plan)
    offset_ns = {job.id: round(job.offset_ms * 1_000_000) for job in plan}
    (start_ns,) = {item["intended_ns"] - offset_ns[item["job"]] for item in items}
    assert min(item["first_send_ns"] - item["intended_ns"] for item in items) >= 0
    # What was due was sent or dropped, and nothing that came later than its last row.
    assert start_ns + planned[-1].offset_ms * 1_000_000 < rows_of(history)[-1]["t_ns"]
    return plan, start_ns + round(after.offset_ms * 1_000_000)


class Processes:
    """Starts processes of this repository, and ends them with the test. Their output goes to one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, log: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self._folder / log).open("wb") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
            process = start_guarded([sys.executable, "-m", *arguments], cwd=ROOT, env=environment, **streams)
        self._running.append(process)
        return process

    def locust(self, *arguments: str, log: str = "locust.log", **environment: str) -> subprocess.Popen[bytes]:
        return self.start("locust", "-f", "bench/locustfile.py", *arguments, log=log, **environment)

    def worker(self, url: str, *arguments: str, name: str = "worker-1") -> subprocess.Popen[bytes]:
        """A worker of queue `bench` with history and sink beside the logs."""
        named = ("--queue", "bench", "--url", url, "--name", name, "--capabilities", CAPABILITY)
        written = {"IRONCLAIM_SINK": str(self._folder / f"{name}.sink.jsonl"), **recording(self._folder / f"{name}.jsonl")}
        worker = ("engine", "worker", "bench.handlers:handlers", *named, *arguments)
        return self.start(*worker, log=f"{name}.log", IRONCLAIM_PROC=name, **written)

    def refused(self, arguments: tuple[str, ...], start: Callable[..., subprocess.Popen[bytes]]) -> str:
        """What a run that is refused says. `{folder}` in an argument is one that has a file there.jsonl, which stays empty."""
        there = self._folder / "there.jsonl"
        there.touch()
        process = start("-t", "5s", *(word.replace("{folder}", str(self._folder)) for word in arguments))
        assert process.wait(timeout=120) == 2, self.output()
        assert "Traceback" not in self.output() and there.read_text() == ""
        return self.output()

    def stop(self, process: subprocess.Popen[bytes], *codes: int, log: str = "locust.log") -> None:
        """End it with SIGTERM and one of these codes, or 0."""
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) in (codes or (0,)), self.output(log)

    def output(self, log: str = "locust.log") -> str:
        return (self._folder / log).read_text()

    def stop_all(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


class Page:
    """Locust's web page, as its buttons use it."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self._base + path, timeout=30) as reply:
            return reply.read().decode()

    def post(self, path: str, **form: str) -> dict[str, Any]:
        data = urllib.parse.urlencode(form).encode()
        with urllib.request.urlopen(urllib.request.Request(self._base + path, data=data), timeout=30) as reply:
            return json.loads(reply.read())

    def up(self) -> bool:
        try:
            return bool(self.get("/"))
        except (urllib.error.URLError, OSError):
            return False

    def faults(self) -> list[str]:
        """What went wrong, but for what a busy machine was too late to send, and what needed it."""
        told = [one["error"] for one in json.loads(self.get("/stats/requests"))["errors"]]
        late = any("not sent: " in error for error in told)
        return [error for error in told if "not sent: " not in error and not (late and "needs " in error)]

    def total(self) -> dict[str, Any]:
        return next(entry for entry in json.loads(self.get("/stats/requests"))["stats"] if entry["name"] == "Aggregated")
