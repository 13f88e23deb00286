"""The drill: a queue under load of real producers and workers is backed up, and restored into an empty server, with kill -9 of
both on the way. What was acknowledged before the instant runs, and what had finished before it does not run again."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine import Queue
from engine.testing import EmbeddedServer, start_guarded
from tests.engine.command.running import ROOT
from tests.engine.using import Workers, kill, raw_client, rows_of, wait_until

WORKERS = ("--sweep-ms", "100", "--prefetch", "10", "--concurrency", "4")


def started(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    """A command of the engine, with what it prints in `folder`."""
    with (folder / "command.out").open("wb") as out, (folder / "command.err").open("wb") as err:
        return start_guarded([sys.executable, *words], cwd=ROOT, stdout=out, stderr=err, stdin=subprocess.DEVNULL)


def command(folder: Path, *words: str) -> dict[str, int]:
    """Run `ironclaim` to its end; what it printed."""
    assert started(folder, "-m", "engine", *words, "--json").wait(300) == 0, (folder / "command.err").read_text()
    return json.loads((folder / "command.out").read_text())


def killed_on_the_way(folder: Path, after_s: float, *words: str) -> bool:
    """Run `ironclaim` and kill it after so long; whether it was still at work."""
    process = started(folder, "-m", "engine", *words)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() == -signal.SIGKILL


def acknowledged(folder: Path) -> dict[str, int]:
    """The server time (us) at which each job was made, of all that the producers were told of."""
    found: dict[str, int] = {}
    for path in folder.glob("*.acknowledged"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            job, srv_us = line.decode().split()
            found[job] = int(srv_us)
    return found


def finished(workers: Workers, *names: str) -> dict[str, int]:
    """The server time (us) of each accepted finish in the histories of these workers."""
    rows = [row for name in names for row in rows_of(workers.history(name), "operation", f="finish", type="ok")]
    return {item["job"]: row["srv_us"] for row in rows for item in row["items"] if item["result"] == "ok"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_backup_under_load_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    seeded, file = random.Random(seed), tmp_path / "q.backup"
    with EmbeddedServer() as first, EmbeddedServer() as second:
        workers = Workers(tmp_path, first.url)
        produce = (sys.executable, "-m", "tests.engine.helpers.backup_drill", "produce", first.url, str(tmp_path))
        producers = [start_guarded([*produce, f"p{number}"], cwd=ROOT) for number in range(2)]
        try:
            for name in ("a1", "a2"):
                workers.start(*WORKERS, name=name)
            with Queue("q", url=first.url) as queue:
                queue.enqueue("hold", {"folder": str(tmp_path)}, id="held", priority=10)
            wait_until(lambda: workers.marks("start", "held"), "a job is in hand until the end")
            wait_until(lambda: len(workers.marks("ran")) > 300, "the queue is worked")
            words = ("backup", "q", str(file), "--url", first.url)
            kills = [killed_on_the_way(tmp_path, seeded.uniform(0.2, 0.7), *words) for _ in range(3)]
            # The last one may have been killed when all was done.
            assert file.exists() or all(kills)
            ran, taken = len(workers.marks("ran")), command(tmp_path, *words)
            wait_until(lambda: len(workers.marks("ran")) > ran + 200, "work goes on")
        finally:
            for process in producers:
                kill(process)
            workers.stop_all()
        words = ("restore", str(file), "--url", second.url)
        kills = [killed_on_the_way(tmp_path, seeded.uniform(0.3, 0.8), *words) for _ in range(3)]
        with Queue("q", url=second.url) as queue, raw_client(second.url) as client:
            if not client.hget(queue.model.keys.stats, "restored"):
                assert all(kills)
                command(tmp_path, *words)
            assert (before := queue.counts()).active == 0 and before.waiting + before.delayed > 0
            again = Workers(tmp_path, second.url)
            again.open_gate()
            process = again.start(*WORKERS, name="b1")
            try:
                wait_until(lambda: (c := queue.counts()).waiting + c.delayed + c.active == 0, "all has run", 300)
                counts = queue.counts()
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(300)
    made, ended, marks = acknowledged(tmp_path), finished(workers, "a1", "a2"), workers.marks("ran")
    former, latter = workers.marks("start", "held")
    runs = Counter(mark.job for mark in marks if mark.pid == process.pid)
    fences = {mark.job: mark.fence for mark in marks if mark.pid != process.pid}
    instant_us = taken["instant_ms"] * 1000
    # Of what happened within the millisecond of the instant it is not known whether it came before it.
    never = {job for job, srv_us in ended.items() if srv_us < instant_us}
    perhaps = {job for job, srv_us in ended.items() if srv_us < instant_us + 1000}
    must = {job for job, srv_us in made.items() if srv_us < instant_us} - perhaps
    assert must and never and len(made) > taken["sequence"] > 300, "the load went on before and after"
    assert must <= runs.keys(), "a job that was acknowledged before the instant is lost"
    assert not never & runs.keys(), "a job that had finished before the instant ran again"
    assert set(runs.values()) == {1} and counts.finished - before.finished == len(runs) + 1, "and the one that was held"
    assert all(mark.fence > fences[mark.job] for mark in marks if mark.pid == process.pid and mark.job in fences)
    assert latter.pid == process.pid and latter.fence > former.fence, "it was in hand at the instant, and has run again"


@pytest.mark.slow
def test_100_000_jobs_in_bounded_memory_with_progress(ironclaim_url: str, tmp_path: Path, client: Any) -> None:
    file, jobs = tmp_path / "q.backup", 100_000
    with Queue("q", url=ironclaim_url) as queue:
        for _ in range(0, jobs, 20_000):
            queue.enqueue_many([{"name": "work", "payload": "x" * 200}] * 20_000)
        peaks_mb: list[float] = []
        for words in (("backup", "q", str(file)), ("restore", str(file), "--as", "copy")):
            # Not ru_maxrss: that begins with the peak of the process that has forked this one.
            program = "import sys; from engine.command.main import main; code = main(sys.argv[1:])"
            program += "; status = dict(line.split(':', 1) for line in open('/proc/self/status'))"
            program += "; print(int(status['VmHWM'].split()[0]) / 1024, file=sys.stderr); sys.exit(code)"
            process = started(tmp_path, "-c", program, *words, "--url", ironclaim_url)
            since_s = time.monotonic()
            assert process.wait(300) == 0, (tmp_path / "command.err").read_text()
            *told, peak_mb = (tmp_path / "command.err").read_text().splitlines()
            peaks_mb.append(float(peak_mb))
            assert all(line.startswith(f"{words[0]}: ") and "keys" in line for line in told)
            assert told or time.monotonic() - since_s < 4
        assert max(peaks_mb) < 120
    assert client.zcard("ic:{copy}:lane:work") == jobs and client.get("ic:{copy}:seq") == str(jobs)
