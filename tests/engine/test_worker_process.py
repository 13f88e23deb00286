"""The worker as a real process on a real server: work, failures, a graceful stop, and starts that cannot be."""

import signal
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from engine import Queue
from engine.command.main import main
from engine.testing import EmbeddedServer
from tests.engine.helpers.schema import checked_rows, raw_rows
from tests.engine.using import HANDLERS, Workers, ids_of, put, raw_client, rows_of, run_of, stopped, wait_until


@pytest.fixture(scope="module", autouse=True)
def without_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """A worker that looks for its server while the other tests run, since it does so for ten seconds."""
    with socket.socket() as held:
        # Nobody listens, and nobody else gets the port: servers of other tests take any that is free.
        held.bind(("127.0.0.1", 0))
        made = Workers(tmp_path_factory.mktemp("without-server"), f"redis://127.0.0.1:{held.getsockname()[1]}/0")
        made.start()
        yield made
        made.stop_all()


@pytest.mark.feature("BL19", "BQ05", "MQ01", "MQ02")
def test_rule_18_it_handles_its_jobs_leaves_others_alone_and_a_whole_history(queue: Queue, workers: Workers) -> None:
    jobs = [f"j{number}" for number in range(30)]
    put(queue, workers, "mark", *jobs[:20])
    put(queue, workers, "mark", *jobs[20:], delay_ms=150)
    put(queue, workers, "unheard-of", "j", priority=10)
    assert workers.start("--burst", "--sweep-ms", "100").wait(120) == 0
    assert sorted(mark.job for mark in workers.marks("ran")) == sorted(jobs)
    counts = queue.counts()
    assert (counts.finished, counts.waiting, counts.delayed, counts.active) == (30, 1, 0, 0)
    assert ids_of(queue, "waiting") == ["j"] and run_of(queue, "j") == {}
    rows = checked_rows(workers.history())
    assert rows[-1]["kind"] == "close" and rows[-1]["rows"] == len(rows)
    assert {row["kind"] for row in rows} == {"open", "configuration", "connection", "operation", "offset", "close"}
    ends = [row for row in rows if row["kind"] == "operation" and row["f"] == "handle" and row["type"] == "ok"]
    assert len(ends) == 30


@pytest.mark.feature("BN28")
def test_a_failing_job_waits_its_back_off_and_is_buried_in_the_end_whatever_it_raises(queue: Queue, workers: Workers) -> None:
    """One place only: a thread that died of what a handler raises would leave the others waiting."""
    names = {"exit": "SystemExit", "interrupt": "KeyboardInterrupt", "generator": "GeneratorExit", "unprintable": "Unprintable"}
    names["file"] = "FileNotFoundError"
    for what in names:
        put(queue, workers, "raise", what, what=what, attempts=2, backoff_ms=0)
    put(queue, workers, "raise", "bad", what="value", attempts=3, backoff_ms=200)
    put(queue, workers, "raise", "heals", what="value", more={"times": 1}, attempts=3, backoff_ms=50)
    worker = workers.start("--lease-ms", "600000", "--sweep-ms", "600000", "--concurrency", "1")
    dead = sorted([*names, "bad"])
    wait_until(lambda: (sorted(ids_of(queue, "dead")), ids_of(queue, "done")) == (dead, ["heals"]), "all have ended")
    assert stopped(worker) == 0
    runs = workers.marks("ran", "bad")
    assert len(runs) == 3
    gaps_ms = [(after.at_ns - before.at_ns) // 1_000_000 for before, after in pairwise(runs)]
    # Although sweeps may be ten minutes apart: they come when the next job is due (rule 13).
    assert all(195 <= gap_ms < 300_000 for gap_ms in gaps_ms)
    assert sorted(mark.fence for mark in runs) == [mark.fence for mark in runs]
    for what, name in names.items():
        state = run_of(queue, what)
        assert (state["failures"], len(workers.marks("ran", what))) == ("2", 2), what
        assert state["error"].startswith(name)
    state = run_of(queue, "bad")
    assert (state["failures"], state["crashes"], state["error"]) == ("3", "0", "ValueError: no")
    assert len(workers.marks("ran", "heals")) == 2
    # The log tells an attempt from the last one.
    assert all(workers.output().count(f"job bad (raise), attempt {run} of 3, failed: ") == 1 for run in (1, 2, 3))


@pytest.mark.slow
@pytest.mark.feature("BL36", "BN29", "BQ36")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_gives_back_what_has_not_started_and_waits(queue: Queue, workers: Workers, number: signal.Signals) -> None:
    put(queue, workers, "hold", "a", "b", "c", "d")
    worker = workers.start("--concurrency", "2", "--lease-ms", "600000")
    # One more is leased ahead; it goes back after a moment, or at the stop if that comes first.
    wait_until(lambda: len(workers.marks("start")) == 2, "two run")
    worker.send_signal(number)
    wait_until(lambda: queue.counts().waiting == 2, "the unstarted leases are back long before they end")
    assert sorted(ids_of(queue, "waiting")) == ["c", "d"] and sorted(ids_of(queue, "active")) == ["a", "b"]
    state = run_of(queue, "c")
    assert (state.get("failures"), state.get("crashes"), state.get("nonce"), state["outcome"]) == (None, None, None, "released")
    assert worker.poll() is None
    workers.open_gate()
    assert worker.wait(120) == 0
    counts = queue.counts()
    assert (counts.finished, counts.waiting, counts.active) == (2, 2, 0)
    assert sorted(mark.job for mark in workers.marks("end")) == ["a", "b"]
    rows = raw_rows(workers.history())
    assert rows[-1]["kind"] == "close" and rows[-1]["rows"] == len(rows)


@pytest.mark.slow
@pytest.mark.feature("BN29")
def test_a_stop_does_not_wait_longer_than_its_grace(queue: Queue, workers: Workers) -> None:
    put(queue, workers, "hold", "a")
    worker = workers.start("--grace-ms", "200", "--sweep-ms", "100")
    wait_until(lambda: workers.marks("start"), "the job runs")
    assert stopped(worker) == 71 and rows_of(workers.history())[-1]["kind"] == "close"


@pytest.mark.parametrize(("changes", "options", "said"), [
    ({"handlers": "no_such_module:handlers"}, [], "object: 'no_such_module:handlers'"),
    ({"handlers": "tests.engine.helpers.worker_handlers:none"}, [], "has no none"),
    ({"handlers": "tests.engine.helpers.worker_handlers:hold"}, [], "hold is a function"),
    ({"handlers": "no-colon"}, [], "object: 'no-colon'"), ({"handlers": ":handlers"}, [], "object: ':handlers'"),
    ({"handlers": ".relative:handlers"}, [], "object: '.relative:handlers'"), ({"queue": "two words"}, [], "queue: 'two words'"),
    ({"queue": ""}, [], "queue: ''"), ({"name": 'a"b'}, [], "worker name: 'a\"b'"),
    ({}, ["--url", "http://localhost"], "url: 'http://localhost'"), ({}, ["--concurrency", "0"], "concurrency: 0"),
    ({}, ["--lease-ms", "99"], "lease_ms: 99"), ({}, ["--sweep-ms", "9001"], "sweep_ms: 9001"),
    ({}, ["--history", "h.jsonl"], "--history: 'h.jsonl' is not allowed, it must be left out: set IRONCLAIM_OBSERVER"),
    ({}, ["--lua", "/none"], "no folder of scripts at /none"),
])  # fmt: skip
def test_a_start_that_cannot_be_is_one_line(
    ironclaim_url: str, capfd: pytest.CaptureFixture[str], changes: dict[str, str], options: list[str], said: str
) -> None:
    """Within this process; that a real one ends with this code and one line, the next test says."""
    told = {"handlers": HANDLERS, "queue": "q", "name": "worker-1", **changes}
    words = ["worker", told["handlers"], "--queue", told["queue"], "--name", told["name"], "--url", ironclaim_url]
    assert main([*words, *options]) == 2
    out, output = capfd.readouterr()
    assert output.count("\n") == 1 and output.startswith("ironclaim: ") and said in output and not out


def test_a_server_that_evicts_is_one_line(tmp_path: Path) -> None:
    with EmbeddedServer() as server, raw_client(server.url) as client:
        client.config_set("maxmemory-policy", "volatile-lru")
        workers = Workers(tmp_path, server.url)
        assert workers.start(handlers=HANDLERS).wait(120) == 2
        assert workers.output() == ("ironclaim: maxmemory_policy: volatile-lru may evict jobs and locks, it must be noeviction\n")


@pytest.mark.slow
def test_the_log_names_the_handlers(workers: Workers) -> None:
    assert workers.start("--burst", "--concurrency", "3").wait(120) == 0
    assert "worker worker-1: queue q, 3 jobs at once, runs " in workers.output() and "mark, poison, raise" in workers.output()


# -- last, since what it asks for has gone on since the first test


@pytest.mark.slow
def test_a_server_that_is_not_there_is_a_sign_of_life_and_then_one_line(without_server: Workers) -> None:
    wait_until(lambda: without_server.output(), "it says that it waits")
    assert without_server.started[0].wait(120) == 2
    waiting, error = without_server.output().splitlines()
    assert waiting.endswith("worker worker-1: the server does not answer yet")
    assert error.startswith("ironclaim: cannot connect, nothing was applied: ")
