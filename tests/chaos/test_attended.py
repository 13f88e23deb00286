"""The harness of a load that others start: the run is whole, and valid; bad settings are refused, and an absent load is said."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from chaos import attended, cli
from chaos.interrupts import Interrupts
from chaos.plan import worker_names
from chaos.processes import CAPABILITY, ROOT, child_environment
from engine.testing import EmbeddedServer
from record.environment import recording
from tests.chaos import judged
from tests.chaos.judged import TIMEOUT
from tests.engine.helpers.waiting import wait_until

#: Long enough that each tenant and unique key of the load occurs.
LOAD_S = 30
WAIT_S = 300


class Attended:
    """`python -m chaos attend` in this process, and the processes that belong to its run."""

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

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        words = [sys.executable, "-m", "engine", "worker", "bench.handlers:handlers", "--queue", "bench", "--url", self.url]
        words += ["--name", name, "--capabilities", CAPABILITY]
        told = {"IRONCLAIM_SINK": str(self.history / f"{name}.sink.jsonl"), "IRONCLAIM_PROC": name}
        return self.start(words, **told, **recording(self.history / f"{name}.jsonl"))

    def load(self) -> subprocess.Popen[bytes]:
        """Start the load: two processes and their master, in Locust's own way."""
        words = [sys.executable, "-m", "locust", "-f", "bench/locustfile.py", "--headless", "--only-summary", "--processes", "2"]
        words += ["-u", "4", "-t", f"{LOAD_S}s", "--host", self.url, "--queue", "bench", "--seed", "1", "--rate", "80"]
        return self.start([*words, "--exit-code-on-error", "0", "--history", str(self.history / "producer-1.jsonl"), "Producer"])

    def run(self) -> None:
        """Carry it out, from a thread of the test."""
        words = ["attend", "--url", self.url, "--workers", "2", "--producers", "2", "--rate", "80", "--runs", str(self.runs)]
        self.code = cli.main(words, Interrupts())


@contextmanager
def attending(runs: Path) -> Iterator[Attended]:
    """The harness at work."""
    runs.mkdir()
    with EmbeddedServer() as server:
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
        workers = [made.worker(name) for name in worker_names(2)]
        assert made.load().wait(WAIT_S) == 0
        wait_until(lambda: '"name":"end"' in (made.history / "harness.jsonl").read_text(), "the queue is drained", WAIT_S)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(WAIT_S) == 0
    assert made.code == 0
    return runs / "latest"


@pytest.mark.slow
@TIMEOUT
def test_a_run_of_processes_that_others_start_is_whole_and_valid(tmp_path: Path, spark: SparkSession) -> None:
    run, verdict = judged.drilled(whole, lambda run: run, tmp_path, spark)
    assert verdict["verdict"] == "valid", json.dumps(verdict["reasons"], indent=1)
    spec: dict[str, Any] = json.loads((run / "spec.json").read_text())
    assert (spec["scenario"], spec["workers"], spec["producers"], spec["plan"]) == ("attended", 2, 2, [])
    sampled = {json.loads(line)["proc"] for line in (run / "samples" / "processes.jsonl").read_text().splitlines()}
    assert sampled == {"harness", "producer-1", "producer-1-2", *worker_names(2)}
    assert (verdict["measures"]["lost"], verdict["measures"]["doubled"]) == (0, 0)


def test_a_load_that_nobody_starts_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(attended, "PATIENCE_S", 1.0)
    with attending(tmp_path / "runs") as made:
        pass
    assert made.code == 2
    assert "the workers did not claim within 1 s" in capsys.readouterr().out
