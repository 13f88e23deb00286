"""Real processes, in real time: a server that stands still (rule 11), a handler that lets nothing else run (rule 14), and a job
that takes its worker along (rule 12)."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Queue
from engine.testing import EmbeddedServer
from tests.engine.using import Workers, raw_client, rows_of, run_texts, wait_until

#: Longer than a busy machine stands still.
LEASE_MS = 5000
WORKERS, JOBS = 3, 24


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[tuple[EmbeddedServer, Queue, Workers]]:
    """A server of its own, for the test to stop."""
    with EmbeddedServer() as server:
        queue, workers = Queue("q", url=server.url), Workers(tmp_path, server.url)
        yield server, queue, workers
        os.kill(server.pid, signal.SIGCONT)
        workers.stop_all()
        queue.close()


def reaped(workers: Workers, names: list[str]) -> list[str]:
    """Ids of the jobs whose leases a sweep took away."""
    rows = [row for name in names for row in rows_of(workers.history(name), "operation", f="reap", type="ok")]
    return [item["job"] for row in rows for item in row["items"]]


def extended_since(workers: Workers, name: str, srv_us: int) -> set[str]:
    rows = rows_of(workers.history(name), "operation", f="extend", type="ok")
    return {item["job"] for row in rows if row["srv_us"] > srv_us for item in row["items"] if item["result"] == "ok"}


@pytest.mark.slow
def test_rule_11_no_live_lease_is_reaped_after_the_server_stood_still(stage: tuple[EmbeddedServer, Queue, Workers]) -> None:
    server, queue, workers = stage
    names = [f"worker-{number}" for number in range(1, WORKERS + 1)]
    queue.enqueue_many([{"name": "hold", "payload": {"folder": str(workers.folder)}} for _ in range(JOBS)])
    for name in names:
        workers.start("--concurrency", str(JOBS // WORKERS), "--prefetch", "0", "--lease-ms", str(LEASE_MS), name=name)
    wait_until(lambda: len(workers.marks("start")) == JOBS, "all run")
    started_us = queue.counts().srv_us
    wait_until(lambda: extended_since(workers, names[0], started_us), "leases are renewed and sweeps are on their way")
    os.kill(server.pid, signal.SIGSTOP)
    stopped_s = time.monotonic()
    # Longer than a lease, and than the time after which a client gives a reply up.
    wait_until(lambda: time.monotonic() - stopped_s > 1.2 * LEASE_MS / 1000, "the server stands still")
    os.kill(server.pid, signal.SIGCONT)
    resumed_us, held = queue.counts().srv_us, {mark.job for mark in workers.marks("start")}
    wait_until(
        lambda: set().union(*(extended_since(workers, name, resumed_us) for name in names)) == held, "every lease is renewed"
    )
    with raw_client(server.url) as client:
        no_reap_before_ms = int(client.hget(queue.model.keys.sweep, "no_reap_before_ms"))
    assert no_reap_before_ms > resumed_us // 1000, "a sweep has seen the stall"
    wait_until(lambda: queue.counts().srv_us // 1000 > no_reap_before_ms + LEASE_MS, "leases are reaped again where they run out")
    assert reaped(workers, names) == [] and queue.counts().active == JOBS
    workers.open_gate()
    wait_until(lambda: queue.counts().finished == JOBS, "all are finished")
    assert len(workers.marks("start")) == JOBS, "each ran once"


@pytest.mark.slow
def test_rule_14_a_handler_that_holds_the_interpreter_lock_is_told(stage: tuple[EmbeddedServer, Queue, Workers]) -> None:
    _, queue, workers = stage
    workers.start("--lease-ms", "200", "--sweep-ms", "50")
    wait_until(lambda: rows_of(workers.history(), "operation", f="reap", type="ok"), "it sweeps")
    queue.enqueue("starve", {"folder": str(workers.folder), "count": 60_000_000}, id="a")
    wait_until(lambda: queue.counts().finished == 1, "it is finished")
    wait_until(lambda: "lease with fence" in workers.output(), "the loss is logged")
    # On a busy machine it may run again and lose its lease again.
    mark = workers.marks("start")[0]
    (line,) = [line for line in workers.output().splitlines() if f"lease with fence {mark.fence} " in line]
    assert f"job a: lease with fence {mark.fence} lost: this process stood still for " in line
    assert ", so it was not renewed, and the job may run again elsewhere; handlers " in line
    assert line.endswith("(C code) belong into processes of their own: --processes")
    told = f"job a: the end of the run with fence {mark.fence} "
    wait_until(lambda: told in workers.output(), "what came of it is logged")
    ends = [item for row in rows_of(workers.history(), "operation", f="finish", type="ok") for item in row["items"]]
    (end,) = [item for item in ends if item["fence"] == mark.fence]
    came_of_it = "counts: no other worker had claimed it" if end["result"] == "ok" else "was refused: its lease was over"
    assert told + came_of_it in workers.output()


@pytest.mark.slow
def test_rule_12_a_job_that_kills_its_workers_is_buried_alone(stage: tuple[EmbeddedServer, Queue, Workers]) -> None:
    _, queue, workers = stage
    neighbours, payload = [f"j{number}" for number in range(9)], {"folder": str(workers.folder)}
    queue.enqueue("poison", payload, id="poison", crashes_max=2)
    queue.enqueue_many([{"name": "mark", "payload": payload, "id": job, "crashes_max": 2} for job in neighbours])
    for number in range(1, 6):
        worker = workers.start("--concurrency", "10", "--lease-ms", str(LEASE_MS), "--sweep-ms", "100", name=f"worker-{number}")
        wait_until(lambda worker=worker: worker.poll() is not None or queue.counts().dead == 1, "it dies or sees the burial")
        if worker.poll() is None:
            break
        assert worker.returncode == -signal.SIGKILL
    wait_until(lambda: queue.counts().finished == len(neighbours), "the neighbours are finished")
    assert [job for job, _ in queue.snapshot().states["dead"]] == ["poison"]
    assert len(workers.marks("start", "poison")) == 2, "the first crash was free, the second was the last"
    with raw_client(queue.url) as client:
        assert run_texts(client, queue.model.keys.run("poison"))["error"] == "crashed 2 times, 1 are allowed"
    rows = [row for path in sorted(workers.folder.glob("worker-*.jsonl")) for row in rows_of(path, "operation", type="ok")]
    buried = [item for row in rows if row["f"] == "reap" for item in row["items"] if item["result"] == "buried"]
    assert [item["job"] for item in buried] == ["poison"]
    marks = [item["job"] for row in rows if row["f"] == "mark" for item in row["items"] if item["result"] == "ok"]
    assert marks.count("poison") == 1
