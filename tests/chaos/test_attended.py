"""The harness of a load that others start: the run is whole, and valid; bad settings are refused, and an absent load is said."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from chaos import attendance, cli, plan
from chaos.interrupts import Interrupts
from chaos.processes import CAPABILITY, ROOT, child_environment
from chaos.verbs import VERBS
from engine import Queue, testing
from record.environment import recording
from tests.chaos import judged
from tests.engine.using import wait_until, warm
from tests.given import Output, Patch

#: Long enough that each tenant and unique key of the load occurs.
LOAD_S = 30
WAIT_S = 300


class Attended:
    """`python -m chaos run attended` in this process, and the processes that belong to its run."""

    def __init__(self, runs: Path, url: str) -> None:
        self.runs, self.url, self.code = runs, url, -1
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def history(self) -> Path:
        return self.runs / "latest" / "history"

    def start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a process of the run."""
        with (self.runs / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(words, cwd=ROOT, env=child_environment(environment), stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def worker(self, name: str, *, recorded: bool = True) -> subprocess.Popen[bytes]:
        """Start a worker."""
        words = ["-m", "engine", "worker", "bench.handlers:handlers", "--queue", "bench", "--url", self.url]
        words += ["--name", name, "--capabilities", CAPABILITY]
        told = {"IRONCLAIM_SINK": str(self.history / f"{name}.sink.jsonl"), "IRONCLAIM_PROC": name}
        told |= recording(self.history / f"{name}.jsonl") if recorded else {}
        with (self.runs / f"{name}.log").open("wb") as log:
            self.processes.append(warm.start(words, env=child_environment(told), output=log))
        return self.processes[-1]

    def load(self) -> subprocess.Popen[bytes]:
        """Start the load: two processes and their master, in Locust's own way."""
        words = [sys.executable, "-m", "locust", "-f", "bench/locustfile.py", "--headless", "--only-summary", "--processes", "2"]
        words += ["-u", "4", "-t", f"{LOAD_S}s", "--host", self.url, "--queue", "bench", "--seed", "1", "--rate", "80"]
        return self.start([*words, "--exit-code-on-error", "0", "--history", str(self.history / "producer-1.jsonl"), "Producer"])

    def run(self) -> None:
        """Carry it out, from a thread of the test."""
        words = ["run", "attended", "--url", self.url, "--workers", "2", "--producers", "2"]
        words += ["--rate", "80", "--runs", str(self.runs)]
        self.code = cli.main(words, Interrupts())


@contextmanager
def attending(runs: Path) -> Iterator[Attended]:
    """The harness at work."""
    runs.mkdir()
    with testing.EmbeddedServer() as server:
        made = Attended(runs, server.url)
        thread = threading.Thread(target=made.run)
        thread.start()
        try:
            wait_until(lambda: (made.history / "harness.jsonl").exists(), "the run has a folder", WAIT_S)
            yield made
            thread.join(WAIT_S)
        finally:
            for process in made.processes:
                process.kill()
                process.wait()


def whole(runs: Path) -> Path:
    """Carry out a run: its folder."""
    with attending(runs) as made:
        workers = [made.worker(name) for name in plan.worker_names(2)]
        assert made.load().wait(WAIT_S) == 0
        wait_until(lambda: '"name":"end"' in (made.history / "harness.jsonl").read_text(), "the queue is drained", WAIT_S)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(WAIT_S) == 0
    assert made.code == 0
    return runs / "latest"


@pytest.mark.slow
@judged.TIMEOUT
def test_a_run_of_processes_that_others_start_is_whole_and_valid(tmp_path: Path, spark: SparkSession) -> None:
    run, verdict = judged.drilled(whole, lambda run: run, tmp_path, spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    spec: dict[str, Any] = json.loads((run / "spec.json").read_text())
    assert (spec["scenario"], spec["workers"], spec["producers"], spec["plan"]) == ("attended", 2, 2, [])
    sampled = {json.loads(line)["proc"] for line in (run / "samples" / "processes.jsonl").read_text().splitlines()}
    assert sampled == {"harness", "producer-1", "producer-1-2", *plan.worker_names(2)}
    assert (verdict["measures"]["lost"], verdict["measures"]["doubled"]) == (0, 0)


def test_a_load_that_nobody_starts_is_said(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(attendance, "PATIENCE_S", 1.0)
    with attending(tmp_path / "runs") as made:
        pass
    assert made.code == 2 and "the workers did not claim within 1 s" in capsys.readouterr().out


def fill(queue: Queue) -> None:
    """A queue of somebody: jobs, limits, and a schedule that does not tick."""
    queue.set_limit(name="email", concurrency=3, rate=40, per_ms=1_000, window="fixed")
    queue.set_limit(key="*", concurrency=2)
    queue.schedules.put("nightly", every_ms=500, job_name="report", payload={})
    queue.schedules.disable("nightly")
    queue.enqueue("report", {}, id="theirs", delay_ms=3_600_000)


def whole_keyspace(url: str) -> dict[bytes, bytes]:
    """Every key of the server with all that it holds."""
    with redis.Redis.from_url(url) as client:
        return {key: client.dump(key) or b"" for key in client.scan_iter(count=1_000)}


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_given_server_is_left_as_it_was_whatever_ends_the_harness(tmp_path: Path, ending: signal.Signals) -> None:
    with testing.EmbeddedServer() as server:
        with Queue("bench", url=server.url) as queue:
            fill(queue)
        before, made = whole_keyspace(server.url), Attended(tmp_path, server.url)
        harness = made.start([sys.executable, "-m", "chaos", "run", "attended", "--url", server.url, "--runs", str(tmp_path)])
        try:
            samples = tmp_path / "latest" / "samples" / "queue.jsonl"
            wait_until(lambda: samples.exists() and samples.read_text().count("srv_us") > 1, "two looks", WAIT_S)
            wait_until(lambda: "waiting for worker-1" in (tmp_path / "0.log").read_text(), "it is said what is waited for")
            assert whole_keyspace(server.url) == before
            harness.send_signal(ending)
            assert harness.wait(WAIT_S) != 0
        finally:
            harness.kill()
            harness.wait()
        assert whole_keyspace(server.url) == before
    spec = json.loads((tmp_path / "latest" / "spec.json").read_text())
    assert spec["schedules"] == []
    assert spec["limits"] == [
        {"key": "*", "concurrency": 2, "rate": 0, "per_ms": 0, "window": "sliding"},
        {"name": "email", "concurrency": 3, "rate": 40, "per_ms": 1_000, "window": "fixed"},
    ]


def test_a_queue_that_makes_jobs_by_itself_has_no_end_and_is_refused(tmp_path: Path, capsys: Output) -> None:
    with testing.EmbeddedServer() as server:
        with Queue("bench", url=server.url) as queue:
            queue.schedules.put("beat", every_ms=3_600_000, job_name="report", payload={})
        assert cli.main(["run", "attended", "--url", server.url, "--runs", str(tmp_path)], Interrupts()) == 2
    assert "queue bench has schedules that tick (beat)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def unrecorded_producer(made: Attended) -> None:
    for name in plan.worker_names(2):
        made.worker(name)
    with Queue("bench", url=made.url) as queue:
        queue.enqueue("report", {"work_ms": 1, "fail_first": 0, "index": 0, "pad": ""}, id="order-7")


def unrecorded_worker(made: Attended) -> None:
    made.worker("worker-1")
    made.worker("worker-2", recorded=False)


UNRECORDED = [
    (unrecorded_producer, ("jobs that no history tells of, order-7 first: their producers do not record", "producer-1.jsonl")),
    (unrecorded_worker, ("worker-2 works without a history in this run", "worker-2.jsonl")),
    (lambda made: made.worker("mailer-1"), ("a worker works as mailer-1, and this run waits for worker-1, worker-2", "--name")),
]


@pytest.mark.parametrize(("start", "words"), UNRECORDED)
def test_who_records_not_is_named(tmp_path: Path, monkeypatch: Patch, capsys: Output, start: Any, words: tuple[str, ...]) -> None:
    monkeypatch.setattr(attendance, "SAID_AFTER_S", 0.5)
    monkeypatch.setattr(attendance, "START_TIMEOUT_S", 3.0)
    with attending(tmp_path / "runs") as made:
        start(made)
    assert made.code == 2
    told = [line for line in capsys.readouterr().out.splitlines() if all(word in line for word in words)]
    # Said while the run waits, and what ended it.
    assert [line.startswith("harness: ") for line in told] == [False, True]


def test_no_other_command_of_the_harness_works_on_a_given_server() -> None:
    given = [verb.name for verb in VERBS if re.search(r"--(url|host|server)\b", cli.parser_of(verb).format_help())]
    assert given == ["run attended"]
